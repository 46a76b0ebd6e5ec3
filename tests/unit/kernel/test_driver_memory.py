"""What was given back, by the driver's count: of this process alone where known, and never an old one."""

from __future__ import annotations

import os
from typing import Any

import pytest
from fakes import EPOCH, FakeClock
from helpers_observed import observe, torch_in_use
from helpers_samples import GIB, h200, process, reading, sample

from gpuwidget.kernel.devices import driver_memory
from gpuwidget.kernel.devices.driver_memory import InUse, given_back
from gpuwidget.model.samples import Sample

ONE, TWO = h200(0), h200(1)


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two GPUs, of which this process uses the first."""
    return torch_in_use(monkeypatch)


def look(
    monkeypatch: pytest.MonkeyPatch, now: Sample | None, *, pids_match: bool = True, takes: float = 0.1
) -> Any:
    """What is told where the driver answers that, so many seconds after it is asked."""
    clock = FakeClock()

    def answer(patience: float) -> Sample | None:
        clock.advance(takes)
        return now

    observe(monkeypatch, answer, pids_match=pids_match, clock=clock)
    return driver_memory.look(clock)


def moment(measured: float = EPOCH + 0.05, pid: int | None = None) -> Sample:
    """This process holds 12 GiB of 60; ``pid`` is what the driver calls it."""
    ours = process(os.getpid() if pid is None else pid, 12 * GIB)
    first = reading(ONE, processes=(ours, process(11, 48 * GIB)), memory_used=60 * GIB, measured=measured)
    return sample((ONE, first), (TWO, reading(TWO)))


def test_this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of GPUs on which it has a context; where its share is not known, everybody's, told as such."""
    assert look(monkeypatch, moment()) == {ONE.uuid: InUse("GPU 0", 12 * GIB, own=True)}
    found = look(monkeypatch, moment(pid=2**22 + 1), pids_match=False)
    assert found == {ONE.uuid: InUse("GPU 0", 60 * GIB, own=False)}


def test_an_old_reading_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver is slow, what it last said may be from before: then it is not known."""
    assert look(monkeypatch, None) is None
    assert look(monkeypatch, moment(measured=EPOCH - 1)) is None
    assert look(monkeypatch, moment(), takes=1.0) is None


def own(size: int) -> dict[str, InUse]:
    return {ONE.uuid: InUse("GPU 0", size, own=True)}


def everybodys(size: int) -> dict[str, InUse]:
    return {ONE.uuid: InUse("GPU 0", size, own=False)}


def test_in_words() -> None:
    """The driver's count where it is this process's, and new; else torch's, with what the driver says."""
    assert (
        given_back(own(5 * GIB), own(2 * GIB), GIB) == "Given back: 3.0 GiB on GPU 0, as the driver sees it."
    )
    assert given_back(own(2 * GIB), own(2 * GIB), 0) == "Given back: nothing, as the driver sees it."
    unknown = "Given back to the GPU: 1.0 GiB by torch's count; the driver's is not known."
    assert given_back(own(2 * GIB), None, GIB) == unknown
    assert given_back(None, own(2 * GIB), GIB) == unknown
    assert given_back(everybodys(5 * GIB), own(2 * GIB), GIB) == unknown
    assert given_back(everybodys(60 * GIB), everybodys(61 * GIB), GIB) == (
        "Given back to the GPU: 1.0 GiB by torch's count; by the driver's, with all other processes, GPU 0 "
        "went from 60.0 GiB to 61.0 GiB."
    )
