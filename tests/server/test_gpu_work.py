"""Which kernels and terminals have worked on a GPU, by the evidence that the driver has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fakes import EPOCH, gpu
from helpers_samples import LIVE, reading

from gpuwidget.model.metrics import keys
from gpuwidget.model.readings import Activity
from gpuwidget.model.samples import SAMPLE_SCHEMA, Sample
from gpuwidget.server.gpu_owners import NO_OWNER, GpuOwners, ProcessOwner
from gpuwidget.server.gpu_work import GpuStep, GpuWorkTracker
from gpuwidget.sources import UtilizationWindow, WorkingProcesses

GPU = gpu(0)
ANNA, BEN = ProcessOwner("anna", None), ProcessOwner("ben", None)
TERMINAL = ProcessOwner(None, "1")
OWNER_OF = {10: ANNA, 11: BEN, 12: TERMINAL, 13: NO_OWNER}


class Records:
    """The driver's records, which a test sets."""

    def __init__(self) -> None:
        self.utilization: float | None = None
        self.window: tuple[UtilizationWindow, ...] = ()
        self.activity: tuple[Activity, ...] = ()
        self.working: tuple[WorkingProcesses, ...] = ()

    def windows(self, uuid: str) -> tuple[UtilizationWindow, ...]:
        return self.window

    def activities(self, uuid: str) -> tuple[Activity, ...]:
        return self.activity

    def working_processes(self, uuid: str) -> tuple[WorkingProcesses, ...]:
        return self.working


def activity(since: float, until: float, graphics: float) -> Activity:
    """Return a measurement of the hardware counters."""
    values: dict[str, Any] = {**dict.fromkeys(keys("activity")), "graphics": graphics}
    return Activity(since=EPOCH + since, until=EPOCH + until, **values)


class Machine:
    """One GPU, whose steps a test makes."""

    def __init__(self) -> None:
        self.records = Records()
        self.tracker = GpuWorkTracker(self.records)
        self.now = 0.0
        self.epoch = EPOCH
        """The system's clock at the start, in epoch seconds."""
        self.utilization: float | None = 0.0

    def step(
        self,
        pids: Sequence[int],
        busy: Sequence[float] | None = None,
        working: Sequence[int] | None = None,
        *,
        silent: bool = False,
        lost: bool = False,
        found: bool = True,
        complete: bool = True,
    ) -> GpuStep:
        """Let ten seconds pass. ``busy`` has the utilization of each of the step's ten windows, ``working``
        the processes with a record of work."""
        if busy is not None:
            new = [
                UtilizationWindow(self.epoch + self.now + 1 + place, value)
                for place, value in enumerate(busy)
            ]
            self.records.window = (*self.records.window, *new)[-14:]
        self.now += 10.0
        if working is not None:
            one = WorkingProcesses(self.epoch + self.now, frozenset(working))
            self.records.working = (*self.records.working, one)
        values = reading(GPU, utilization=None if silent or lost else self.utilization)
        if silent:
            values = replace(values, silent_since=self.epoch + self.now)
        if lost:
            values = replace(values, lost_since=self.epoch + self.now)
        owner_of = {pid: OWNER_OF[pid] for pid in pids}
        owners = {GPU.uuid: GpuOwners(frozenset(owner_of.values()), owner_of, complete)}
        sample = Sample(SAMPLE_SCHEMA, self.epoch + self.now, LIVE, (GPU,), (values,))
        answered = {} if silent or lost else owners
        steps = self.tracker.add_owners(sample, self.now, answered if found else None)
        assert steps is not None
        (only,) = steps
        return only


def started(*pids: int, busy: Sequence[float] | None = (0.0,) * 10) -> Machine:
    """Return a machine after two steps with these processes on an idle GPU."""
    machine = Machine()
    machine.step(pids, busy)
    machine.step(pids, busy)
    return machine


IDLE = (0.0,) * 10
HALF = (0.0,) * 9 + (50.0,)
"""The driver's windows of a step with half a second of work."""


def test_work_of_the_only_owner() -> None:
    """Work on a GPU that only one kernel or terminal uses is its own, even if the sample shows none."""
    for pid in (10, 12):
        owner = OWNER_OF[pid]
        assert started(pid).step([pid], HALF) == GpuStep(GPU, 10.0, frozenset({owner}), owner, 0.5)


def test_held_memory_is_no_work() -> None:
    """A kernel that only holds memory does not work, whatever other processes are on the idle GPU."""
    assert started(10).step([10], IDLE) == GpuStep(GPU, 10.0, frozenset(), ANNA, 0.0)
    assert started(10, 11, 13).step([10, 11, 13], IDLE, []) == GpuStep(GPU, 10.0, frozenset(), None, 0.0)


def test_a_shared_gpu() -> None:
    """On a shared GPU, the owners of the processes that have a record of work have worked."""
    machine = started(10, 11, 13)
    assert machine.tracker.needs_working_processes == {GPU.uuid}
    assert machine.step([10, 11, 13], HALF, [11]) == GpuStep(GPU, 10.0, frozenset({BEN}), None, 0.5)
    assert machine.step([10, 11, 13], HALF, [13]).working == frozenset()


def test_a_shared_gpu_without_records() -> None:
    """If the driver has no records of the processes' work, all owners on a busy GPU count as working."""
    assert started(10, 11, 13).step([10, 11, 13], HALF).working == {ANNA, BEN}


def test_a_record_that_comes_late() -> None:
    """Work without a record counts for all owners only if the next step does not explain it."""
    machine = started(10, 11)
    assert machine.step([10, 11], HALF, []).working == frozenset()
    assert machine.step([10, 11], IDLE, [10]).working == {ANNA}
    assert machine.step([10, 11], HALF, []).working == frozenset()
    assert machine.step([10, 11], IDLE, []).working == {ANNA, BEN}


def test_a_process_that_is_listed_late() -> None:
    """A process that worked before the driver listed it is attributed once it is listed. If it never is, all
    owners count as working."""
    machine = started(10, 13)
    assert machine.step([10, 13], HALF, [11]).working == frozenset()
    assert machine.step([10, 13, 11], IDLE, []).working == {BEN}
    assert machine.step([10, 13], HALF, [99]).working == frozenset()
    assert machine.step([10, 13], IDLE, []).working >= {ANNA}


def test_an_owner_that_has_just_ended() -> None:
    """Work of a step in which the process has ended is still its own."""
    assert started(10).step([], HALF) == GpuStep(GPU, 10.0, frozenset({ANNA}), ANNA, 0.5)
    assert started().step([10], HALF) == GpuStep(GPU, 10.0, frozenset({ANNA}), ANNA, 0.5)


def test_an_incomplete_list_of_processes() -> None:
    """If the driver does not list all processes, work is never attributed to a sole owner, but the known
    owners count as working unless another process has the record of it."""
    machine = Machine()
    for _ in range(2):
        machine.step([10, 13], IDLE, [], complete=False)
    assert machine.step([10], HALF, [13], complete=False) == GpuStep(GPU, 10.0, frozenset(), None, 0.5)
    assert machine.step([10], HALF, complete=False).working == frozenset()
    machine.records.working = ()
    machine.now += 60.0
    assert machine.step([10], HALF, complete=False).working == {ANNA}


def test_a_gpu_that_does_not_answer() -> None:
    """While a call to the GPU hangs, its last owners count as working. A lost GPU does no work."""
    assert started(10).step([10], silent=True) == GpuStep(GPU, 10.0, frozenset({ANNA}), None, None)
    assert started(10).step([10], lost=True).working == frozenset()


def test_owners_that_cannot_be_found() -> None:
    """If the owners can't be found, the last known ones count, on a busy GPU only."""
    assert started(10).step([], IDLE, [], found=False).working == frozenset()
    machine = started(10)
    assert machine.step([], HALF, [10], found=False) == GpuStep(GPU, 10.0, frozenset({ANNA}), None, 0.5)


def test_time_that_was_not_sampled() -> None:
    """If the driver has dropped windows, the owners count as working and the gap is not counted."""
    machine = started(10)
    machine.now += 60.0
    machine.records.window = ()
    assert machine.step([10], IDLE) == GpuStep(GPU, None, frozenset({ANNA}), ANNA, 0.0)
    assert machine.step([10], IDLE) == GpuStep(GPU, 10.0, frozenset(), ANNA, 0.0)


def test_windows_that_are_no_longer_read() -> None:
    """If the windows are too old, because reading them hangs, the owners count as working."""
    machine = started(10)
    assert [machine.step([10]).working for _ in range(4)] == [set(), set(), set(), {ANNA}]


def test_a_gpu_without_windows() -> None:
    """A MIG slice is judged by its hardware counters, and another GPU without windows by each sample's
    utilization and the processes' records."""
    machine = started(10, busy=None)
    assert machine.tracker.needs_activity is False
    assert machine.tracker.needs_frequent_samples is True
    assert machine.step([10]) == GpuStep(GPU, 10.0, frozenset(), ANNA, 0.0)
    assert machine.step([10], working=[10]).working == {ANNA}
    assert machine.tracker.needs_frequent_samples is False
    machine.utilization = 40.0
    assert machine.step([10]) == GpuStep(GPU, 10.0, frozenset({ANNA}), ANNA, 4.0)
    machine.utilization = None
    machine.records.activity = (activity(45.0, 46.0, 0.0), activity(46.0, 47.0, 30.0))
    assert machine.step([10]) == GpuStep(GPU, 10.0, frozenset({ANNA}), ANNA, 0.3)
    assert machine.tracker.needs_activity is True
    machine.records.activity += (activity(47.0, 70.0, 0.0),)
    assert machine.step([10]) == GpuStep(GPU, 10.0, frozenset(), ANNA, 0.0)


def test_samples_between_two_steps() -> None:
    """Samples that come more often, as with an open panel, end a step only after ten seconds."""
    machine = started(10)
    sample = Sample(SAMPLE_SCHEMA, EPOCH + 22.0, LIVE, (GPU,), (reading(GPU, utilization=3.0),))
    assert machine.tracker.add_owners(sample, 22.0, {}) is None
    assert machine.step([10], IDLE).working == {ANNA}


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0], ids=["back", "forward"])
def test_work_after_the_clock_was_set(seconds: float) -> None:
    """If the server's clock is set, busy time counts again from the next step on. Whether the step in which
    it was set had work is unknown, so its owner counts as working."""
    machine = started(10)
    machine.epoch += seconds
    assert machine.step([10], HALF).working == {ANNA}
    assert machine.step([10], HALF) == GpuStep(GPU, 10.0, frozenset({ANNA}), ANNA, 0.5)
    assert machine.step([10], IDLE) == GpuStep(GPU, 10.0, frozenset(), ANNA, 0.0)
