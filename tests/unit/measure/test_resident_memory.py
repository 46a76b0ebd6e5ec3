"""Tests of this process's resident memory during a run."""

from __future__ import annotations

import pytest

from gpuwidget.measure.resident_memory import ResidentMemory
from gpuwidget.model.report import Span
from gpuwidget.system import processes


def over_a_run(monkeypatch: pytest.MonkeyPatch, resident: list[int | None], marks: list[int | None]) -> Span:
    """Return the resident memory of a run that is sampled at the start, at 0 and 0.2 s, and at the end.

    ``resident`` contains the samples, and ``marks`` the high-water mark at the start and at the end.
    """
    monkeypatch.setattr(processes, "resident_memory", iter(resident).__next__)
    monkeypatch.setattr(processes, "peak_resident_memory", iter(marks).__next__)
    memory = ResidentMemory(0.2)
    memory.begin()
    for t in (0.0, 0.1, 0.2):
        memory.add(t)
    return memory.end()


def test_start_end_and_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peak is the highest sample, which can be the last one. Samples are taken once per interval."""
    assert over_a_run(monkeypatch, [5, 9, 7, 6], [20, 20]) == Span(5, 6, 9)
    assert over_a_run(monkeypatch, [5, 6, 7, 8], [20, 20]) == Span(5, 8, 8)


def test_a_peak_between_two_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the process's high-water mark rose during the run, the new mark is the peak, even if no sample is as
    high."""
    assert over_a_run(monkeypatch, [5, 9, 7, 6], [20, 30]) == Span(5, 6, 30)


def test_unreported_resident_memory_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system does not report resident memory, the start, end and peak are None.

    If the system reports it for some samples, the peak is the highest of these samples.
    """
    assert over_a_run(monkeypatch, [None] * 4, [None] * 2) == Span(None, None, None)
    assert over_a_run(monkeypatch, [None, None, 7, None], [None, 30]) == Span(None, None, 7)
