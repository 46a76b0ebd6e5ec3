"""Tests of how much memory a command freed, according to the driver's readings before and after the command.

A reading that may be older than the time at which it is requested is never used.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from fakes import EPOCH, FakeClock
from helpers_monitor import fake_monitor, torch_in_use
from helpers_samples import GIB, h200, process, reading, sample

from gpuwidget.kernel.devices import driver_memory
from gpuwidget.kernel.devices.driver_memory import UsedMemory, describe_freed
from gpuwidget.model.samples import Sample

ONE, TWO = h200(0), h200(1)


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace torch by a fake that uses the first of two GPUs; return the fake."""
    return torch_in_use(monkeypatch)


def read(
    monkeypatch: pytest.MonkeyPatch, now: Sample | None, *, pids_match: bool = True, takes: float = 0.1
) -> Any:
    """Return the result of ``read_used_memory`` if the driver returns ``now`` after ``takes`` seconds."""
    clock = FakeClock()

    def answer(timeout_s: float) -> Sample | None:
        clock.advance(takes)
        return now

    fake_monitor(monkeypatch, answer, pids_match=pids_match, clock=clock)
    return driver_memory.read_used_memory(clock)


def moment(measured: float = EPOCH + 0.05, pid: int | None = None) -> Sample:
    """Return a sample in which the process ``pid``, by default this one, holds 12 of the 60 GiB in use."""
    ours = process(os.getpid() if pid is None else pid, 12 * GIB)
    first = reading(ONE, processes=(ours, process(11, 48 * GIB)), memory_used=60 * GIB, measured=measured)
    return sample((ONE, first), (TWO, reading(TWO)))


def test_this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the driver lists this process, the used memory is this process's memory.

    Otherwise it is the memory of all processes, marked with ``own=False``.
    """
    assert read(monkeypatch, moment()) == {ONE.uuid: UsedMemory("GPU 0", 12 * GIB, own=True)}
    found = read(monkeypatch, moment(pid=2**22 + 1), pids_match=False)
    assert found == {ONE.uuid: UsedMemory("GPU 0", 60 * GIB, own=False)}


def test_an_old_reading_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the driver does not answer in time, or its reading may be older than the request, the used memory is
    unknown."""
    assert read(monkeypatch, None) is None
    assert read(monkeypatch, moment(measured=EPOCH - 1)) is None
    assert read(monkeypatch, moment(), takes=1.0) is None


def own(size: int) -> dict[str, UsedMemory]:
    return {ONE.uuid: UsedMemory("GPU 0", size, own=True)}


def of_all(size: int) -> dict[str, UsedMemory]:
    return {ONE.uuid: UsedMemory("GPU 0", size, own=False)}


def test_the_text_for_freed_memory() -> None:
    """The text contains the freed memory: the driver's value for this process, or else torch's count."""
    assert (
        describe_freed(own(5 * GIB), own(2 * GIB), GIB) == "Freed according to the driver: 3.0 GiB on GPU 0."
    )
    assert describe_freed(own(2 * GIB), own(2 * GIB), 0) == "Freed according to the driver: nothing."
    unknown = "Freed on the GPU according to torch: 1.0 GiB. The driver's value is unknown."
    assert describe_freed(own(2 * GIB), None, GIB) == unknown
    assert describe_freed(None, own(2 * GIB), GIB) == unknown
    assert describe_freed(of_all(5 * GIB), own(2 * GIB), GIB) == unknown
    together = describe_freed(of_all(60 * GIB), of_all(61 * GIB), GIB)
    assert together.startswith("Freed on the GPU according to torch: 1.0 GiB. ")
    assert together.endswith("GPU 0 went from 60.0 GiB to 61.0 GiB.")
