"""A simulated GPU machine: kernels, terminals and other processes that work, pause and hold memory, and the
driver's records of it, from one seed. Times are in seconds since the start of the simulation."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fakes import EPOCH, gpu
from helpers_samples import GIB, LIVE, process, reading

from gpuwidget.model.readings import Activity
from gpuwidget.model.samples import SAMPLE_SCHEMA, Sample
from gpuwidget.server.gpu_owners import NO_OWNER, GpuOwners, ProcessOwner
from gpuwidget.sources import UtilizationWindow, WorkingProcesses

DRIVER_KEEPS_S = 14.0
"""Seconds for which the driver keeps its utilization windows (measured on an H200)."""


class Burst(NamedTuple):
    """A time in which a process runs kernels on its GPU."""

    begin: float
    end: float
    duty: float
    """The share of this time in which a kernel runs."""


@dataclass
class Workload:
    """A process on one GPU."""

    owner: ProcessOwner
    pid: int
    gpu: int
    begin: float
    """When the process creates its CUDA context. It holds memory from then on."""
    end: float
    """When the process ends."""
    bursts: Sequence[Burst] = ()

    def __post_init__(self) -> None:
        # A search with a key function would take most of the simulation's time.
        self._begins = [burst.begin for burst in self.bursts]
        self._ends = [burst.end for burst in self.bursts]

    def work_in(self, since: float, until: float) -> float:
        """Return the seconds of work between two times."""
        first = bisect_right(self._ends, since)
        last = bisect_left(self._begins, until)
        return sum(
            (min(burst.end, until) - max(burst.begin, since)) * burst.duty
            for burst in self.bursts[first:last]
        )

    def last_work(self, time: float) -> float | None:
        """Return when the process has worked last, up to ``time``."""
        done = [burst for burst in self.bursts if burst.begin < time]
        return min(done[-1].end, time) if done else None


class Machine:
    """The GPUs with the workloads on them. It provides the records that the sampler provides."""

    def __init__(self, workloads: list[Workload], gpus: int, window_s: float) -> None:
        self.workloads = workloads
        self.gpus = tuple(gpu(index) for index in range(gpus))
        self.window_s = window_s
        self.now = 0.0
        self.silent: list[tuple[float, float]] = []
        """Times in which the driver does not answer."""
        self._read_at = -DRIVER_KEEPS_S
        self._windows: dict[str, dict[int, UtilizationWindow]] = {}
        """The windows that the driver keeps, by UUID and number."""
        self._working: dict[str, tuple[WorkingProcesses, ...]] = {}

    def _on(self, index: int) -> list[Workload]:
        return [one for one in self.workloads if one.gpu == index]

    def _utilization(self, index: int, until: float) -> float:
        begin = max(0.0, until - self.window_s)
        if until <= begin:
            return 0.0
        work = sum(one.work_in(begin, until) for one in self._on(index))
        return float(min(100, round(100 * work / (until - begin))))

    @property
    def is_silent(self) -> bool:
        return any(begin <= self.now < end for begin, end in self.silent)

    def read_windows(self) -> None:
        """Read the driver's utilization windows now, as the sampler's slow thread does."""
        if self.is_silent:
            return
        newest = int(self.now / self.window_s)
        kept = range(max(1, newest - int(DRIVER_KEEPS_S / self.window_s) + 1), newest + 1)
        for index, one in enumerate(self.gpus):
            known = self._windows.get(one.uuid, {})
            self._windows[one.uuid] = {
                number: known.get(number)
                or UtilizationWindow(
                    EPOCH + number * self.window_s, self._utilization(index, number * self.window_s)
                )
                for number in kept
            }

    def read_working_processes(self) -> None:
        """Read which processes have worked until now, as the sampler's slow thread does."""
        if self.is_silent:
            return
        for index, one in enumerate(self.gpus):
            pids = frozenset(
                found.pid
                for found in self._on(index)
                # The driver rounds to a percentage, and leaves out processes without one.
                if found.work_in(self._read_at, self.now) >= 0.005 * (self.now - self._read_at)
            )
            readings = self._working.get(one.uuid, ())
            self._working[one.uuid] = (*readings, WorkingProcesses(EPOCH + self.now, pids))[-32:]
        self._read_at = self.now

    def windows(self, uuid: str) -> tuple[UtilizationWindow, ...]:
        return tuple(self._windows.get(uuid, {}).values())

    def activities(self, uuid: str) -> tuple[Activity, ...]:
        return ()

    def working_processes(self, uuid: str) -> tuple[WorkingProcesses, ...]:
        return self._working.get(uuid, ())

    def sample(self) -> tuple[Sample, dict[str, GpuOwners]]:
        """Return the sample of this moment, and the owners of the processes on each GPU."""
        readings, owners = [], {}
        for index, one in enumerate(self.gpus):
            alive = [found for found in self._on(index) if found.begin <= self.now < found.end]
            values = reading(
                one,
                utilization=self._utilization(index, int(self.now / self.window_s) * self.window_s),
                utilization_window=self.window_s,
                processes=tuple(process(found.pid, 8 * GIB) for found in alive),
            )
            if self.is_silent:
                values = replace(values, silent_since=EPOCH + self.now, utilization=None, processes=None)
            else:
                owner_of = {found.pid: found.owner for found in alive}
                owners[one.uuid] = GpuOwners(frozenset(owner_of.values()), owner_of, complete=True)
            readings.append(values)
        return Sample(SAMPLE_SCHEMA, EPOCH + self.now, LIVE, self.gpus, tuple(readings)), owners


def random_machine(seed: int, length_s: float, longest_pause_s: float) -> Machine:
    """Return a machine with trainings, idle holders of memory and, often, other users on its GPUs.

    The kernels' ids start with ``train`` or ``hold``. A training never pauses for longer than
    ``longest_pause_s``.
    """
    chance = random.Random(seed)
    gpus = chance.choice((1, 1, 2))
    workloads: list[Workload] = []
    names = [f"train{number}" for number in range(chance.randint(1, 2))]
    names += [f"hold{number}" for number in range(chance.randint(1, 2))]
    for number, name in enumerate(names):
        begin = chance.uniform(0.0, 300.0)
        ends = chance.uniform(0.4, 0.9) * length_s if name.startswith("train") else begin + 120.0
        pattern = chance.choice(("steady", "steps", "sparse", "epochs"))
        workloads.append(
            Workload(
                ProcessOwner(name, None),
                100 + number,
                chance.randrange(gpus),
                begin,
                length_s,
                _bursts(chance, pattern, begin, ends, longest_pause_s),
            )
        )
    if chance.random() < 0.3:
        begin = chance.uniform(0.0, 600.0)
        bursts = _bursts(chance, "steps", begin, 0.8 * length_s, longest_pause_s)
        workloads.append(
            Workload(ProcessOwner(None, "1"), 200, chance.randrange(gpus), begin, length_s, bursts)
        )
    if chance.random() < 0.5:
        bursts = _bursts(chance, chance.choice(("steady", "steps")), 0.0, length_s, longest_pause_s)
        workloads.append(Workload(NO_OWNER, 300, chance.randrange(gpus), 0.0, length_s, bursts))
    machine = Machine(workloads, gpus, chance.choice((0.2, 1 / 6, 1.0, 1.0, 1.0)))
    if chance.random() < 0.25:
        begin = chance.uniform(300.0, length_s - 300.0)
        machine.silent.append((begin, begin + chance.uniform(20.0, 200.0)))
    return machine


def _bursts(
    chance: random.Random, pattern: str, begin: float, end: float, longest_pause_s: float
) -> list[Burst]:
    bursts: list[Burst] = []
    time = begin
    while time < end:
        if pattern == "steady":
            length, duty, pause = end - time, chance.uniform(0.05, 1.0), 0.0
        elif pattern == "steps":  # A data loader that keeps the GPU waiting.
            length, duty, pause = chance.uniform(0.1, 2.0), 0.9, chance.uniform(0.5, 9.0)
        elif pattern == "sparse":  # A request now and then.
            length, duty, pause = chance.uniform(0.05, 0.5), 1.0, chance.uniform(20.0, 0.5 * longest_pause_s)
        else:  # Epochs, with an evaluation on the CPU between them.
            length, duty, pause = (
                chance.uniform(30.0, 200.0),
                0.95,
                chance.uniform(0.2, 1.0) * longest_pause_s,
            )
        stop = min(time + length, end)
        bursts.append(Burst(time, stop, duty))
        time = stop + pause
    return bursts
