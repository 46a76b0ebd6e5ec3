"""Tests of the workers in a run's report: child processes, ranks and reports of other processes."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import gpu
from helpers_samples import reading

from gpuwidget.measure.process_memory import ProcessMemory
from gpuwidget.measure.workers import MAX_WORKERS, WorkerTracker
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.messages import MessageId, message
from gpuwidget.model.readings import Reading
from gpuwidget.model.report import Level, Span, WorkerReport
from gpuwidget.model.samples import Gpu
from gpuwidget.model.worker_update import WORKER_SCHEMA, WorkerGpuUpdate, WorkerUpdate
from gpuwidget.system import processes
from gpuwidget.system.processes import ProcessTimes, Rank

GIB = 1024**3
GPUS = [gpu(0), gpu(1)]
UUIDS = [one.uuid for one in GPUS]


class Machine:
    """The processes of a machine, and the GPUs that they use. Replaces ``/proc`` and the driver."""

    def __init__(self) -> None:
        self.times: dict[int, ProcessTimes] = {}
        self.ranks: dict[int, Rank] = {}
        self.memory: dict[tuple[int, int], int | None] = {}
        """Memory by process and index of the GPU."""
        self.strangers: dict[int, int] = {}
        """Number of processes on each GPU that this process did not start."""
        self.utilization = {0: 50.0, 1: 50.0}
        self.power = {0: 100.0, 1: 200.0}

    def start(self, pid: int, *, rank: Rank | None = None, parent: int = 1, started: float = 1.0) -> None:
        self.times[pid] = ProcessTimes(started, 0.0, parent, age_s=1e9)
        if rank is not None:
            self.ranks[pid] = rank

    def end(self, pid: int) -> None:
        del self.times[pid]
        self.memory = {key: size for key, size in self.memory.items() if key[0] != pid}

    def is_child(self, pid: int) -> bool:
        return pid in self.times

    def held(self, index: int) -> tuple[ProcessMemory, tuple[Process, ...]]:
        children = tuple(
            Process(pid, "compute", size, None, "python train.py")
            for (pid, on), size in self.memory.items()
            if on == index
        )
        strangers = (Process(9, "compute", 5, None, None),) * self.strangers.get(index, 0)
        sizes = [child.memory for child in children]
        whole = None if None in sizes else sum(size or 0 for size in sizes)
        return ProcessMemory(whole, bool(children), None, children=children), (*children, *strangers)


class Tracked:
    """A tracker of the workers on a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.tracker = WorkerTracker(1.0)
        self.t = 0.0
        self.gpus: list[Gpu] = GPUS
        for one, made, held in self._sample():
            self.tracker.begin(one, made, held)

    def _sample(self) -> list[tuple[Gpu, Reading, ProcessMemory]]:
        found = []
        for one in self.gpus:
            held, listed = self.machine.held(one.index)
            made = reading(
                one,
                measured=self.t,
                utilization=self.machine.utilization[one.index],
                utilization_window=0.2,
                power_w=self.machine.power[one.index],
                processes=listed,
            )
            found.append((one, made, held))
        return found

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 5)):
            self.t = round(self.t + 0.2, 6)
            for one, made, held in self._sample():
                self.tracker.add(self.t, one, made, held)
            self.tracker.poll(self.t)

    def rows(self) -> tuple[WorkerReport, ...]:
        self.tracker.end(self.t)
        return self.tracker.rows(self.t, UUIDS)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(processes, "descendants", lambda: list(made.times))
    monkeypatch.setattr(processes, "times_of", made.times.get)
    monkeypatch.setattr(processes, "rank_of", made.ranks.get)
    monkeypatch.setattr(processes, "own_process_tree", lambda: SimpleNamespace(contains=made.is_child))
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    return made


def update(pid: int, **changes: Any) -> WorkerUpdate:
    values: dict[str, Any] = dict.fromkeys(
        (
            *("name", "rank", "local_rank", "world_size", "steps", "step_s", "since_step_s", "cpu_s"),
            *("exit_code", "started_in_run", "reason"),
        )
    )
    values |= {"schema": WORKER_SCHEMA, "kind": "rank", "host": "here", "pid": pid, "elapsed_s": 1.0}
    values |= {"status": "running", "gpus": ()}
    return WorkerUpdate(**(values | changes))


def gpu_update(uuid: str, **changes: Any) -> WorkerGpuUpdate:
    values: dict[str, Any] = dict.fromkeys(
        ("torch_allocated", "torch_reserved", "memory", "alone", "utilization", "utilization_max", "energy_j")
    )
    return WorkerGpuUpdate(**(values | {"uuid": uuid} | changes))


def test_a_child_process_that_used_a_gpu(machine: Machine) -> None:
    """A child process that used a GPU has a row with its memory, the GPU's utilization and energy meanwhile,
    and its CPU time. Its torch peaks are unknown, with the reason."""
    tracked = Tracked(machine)
    tracked.run(1.0)
    machine.start(50)
    machine.memory[50, 1] = 2 * GIB
    tracked.run(2.0)
    machine.memory[50, 1] = 3 * GIB
    machine.times[50] = ProcessTimes(1.0, 5.0, 1, age_s=1e9)
    tracked.run(2.0)
    (row,) = tracked.rows()
    assert (row.kind, row.name, row.pid, row.rank, row.host) == ("child", "python train.py", 50, None, None)
    assert row.gpu == UUIDS[1]
    assert row.memory == Span(0, 3 * GIB, 3 * GIB)
    assert row.utilization is not None
    assert (row.utilization.mean, row.utilization.max) == pytest.approx((50.0, 50.0))
    assert row.energy_j == pytest.approx(200.0 * 3.8)
    assert row.energy_error_j is None
    assert row.cpu == pytest.approx(100 * 5.0 / 3.8)
    assert (row.status, row.started_s, row.ended_s, row.exit_code) == ("running", 1.2, None, None)
    assert row.torch_allocated is None
    assert row.missing_ids["torch_allocated"] == MessageId("worker-not-reported", {})


def test_a_child_process_that_ended(machine: Machine) -> None:
    """A child process that ended before the run has the status ``ended``, and holds no memory at the run's
    end. Its exit code is unknown, with the reason."""
    tracked = Tracked(machine)
    machine.start(50)
    machine.memory[50, 0] = GIB
    tracked.run(2.0)
    machine.end(50)
    tracked.run(2.0)
    (row,) = tracked.rows()
    assert (row.status, row.memory) == ("ended", Span(0, 0, GIB))
    assert row.ended_s == pytest.approx(2.2, abs=1.0)
    assert row.missing_ids["exit_code"].id == "exit-code-not-reported"


def test_a_child_process_that_existed_before_the_run(machine: Machine) -> None:
    """The memory of a child process that existed before the run has its size at the run's start."""
    machine.start(50)
    machine.memory[50, 0] = GIB
    tracked = Tracked(machine)
    tracked.run(1.0)
    assert [row.memory for row in tracked.rows()] == [Span(GIB, GIB, GIB)]


def test_a_shared_gpu(machine: Machine) -> None:
    """If other processes use the worker's GPU, its utilization and energy are unknown, with the reason."""
    machine.strangers[0] = 1
    machine.start(50)
    machine.memory[50, 0] = GIB
    tracked = Tracked(machine)
    tracked.run(2.0)
    (row,) = tracked.rows()
    assert (row.memory, row.utilization, row.energy_j) == (Span(GIB, GIB, GIB), None, None)
    assert row.missing_ids["energy_j"].id == row.missing_ids["utilization"].id == "worker-gpu-shared"


def test_ranks(machine: Machine) -> None:
    """Ranks are listed in the order of their ranks, also those that use no GPU. The children of a rank, such
    as a DataLoader's workers, which inherit its environment, are not listed."""
    tracked = Tracked(machine)
    for rank in (1, 0):
        machine.start(60 + rank, rank=Rank(rank, rank, 2))
        machine.start(70 + rank, rank=Rank(rank, rank, 2), parent=60 + rank)
    machine.memory[60, 0] = GIB
    tracked.run(2.0)
    first, second = tracked.rows()
    assert (first.kind, first.rank, first.local_rank, first.world_size) == ("rank", 0, 0, 2)
    assert (first.gpu, first.memory) == (UUIDS[0], Span(0, GIB, GIB))
    assert (second.rank, second.gpu, second.memory) == (1, None, None)
    assert second.missing_ids["memory"] == MessageId("no-gpu-memory", {})


def test_children_without_gpu_or_rank(machine: Machine) -> None:
    """A child process that has no rank and uses no GPU, such as a DataLoader's worker, has no row."""
    tracked = Tracked(machine)
    machine.start(50)
    tracked.run(2.0)
    assert tracked.rows() == ()
    assert tracked.tracker.now() == (0, 0)


def test_memory_of_unknown_size(machine: Machine) -> None:
    """If the driver does not report the size of a worker's memory, the memory is unknown, with the reason."""
    machine.start(50)
    machine.memory[50, 0] = None
    tracked = Tracked(machine)
    tracked.run(1.0)
    (row,) = tracked.rows()
    assert (row.gpu, row.memory) == (UUIDS[0], None)
    assert row.missing_ids["memory"].id == "no-process-sizes"
    assert tracked.tracker.now() == (1, None)


def test_a_reused_process_id(machine: Machine) -> None:
    """A process that gets the id of a worker that has ended is another worker."""
    tracked = Tracked(machine)
    machine.start(50, rank=Rank(0, 0, 1))
    tracked.run(2.0)
    machine.end(50)
    machine.start(50, rank=Rank(0, 0, 1), started=2.0)
    tracked.run(4.0)
    assert [row.status for row in tracked.rows()] == ["ended", "running"]


def test_workers_now(machine: Machine) -> None:
    """The live chart shows the number of running workers and their memory on all GPUs."""
    tracked = Tracked(machine)
    for pid in (50, 51):
        machine.start(pid)
        machine.memory[pid, pid - 50] = GIB
    tracked.run(1.0)
    assert tracked.tracker.now() == (2, 2 * GIB)
    machine.end(51)
    tracked.run(2.0)
    assert tracked.tracker.now() == (1, GIB)


def test_mig_slices(machine: Machine) -> None:
    """A worker on a MIG slice has one row for the slice, and none for the GPU that the slice is part of."""
    machine.start(50)
    machine.memory[50, 0] = GIB
    tracked = Tracked(machine)
    tracked.gpus = [GPUS[0], replace(GPUS[0], uuid="MIG-1", mig_index=0, mig_parent=UUIDS[0])]
    tracked.run(1.0)
    tracked.tracker.end(1.0)
    assert [row.gpu for row in tracked.tracker.rows(1.0, [UUIDS[0], "MIG-1"])] == ["MIG-1"]


def test_updates_of_a_process_of_this_host(machine: Machine) -> None:
    """What a process reports about itself is added to its row: rank, exact torch peaks, steps, exit code."""
    tracked = Tracked(machine)
    machine.start(50)
    machine.memory[50, 0] = GIB
    tracked.run(2.0)
    torch = Span(0, 5, 9)
    tracked.tracker.add_update(
        tracked.t,
        update(
            50, rank=3, local_rank=1, world_size=8, steps=20, step_s=0.1, status="failed", exit_code=1,
            gpus=(gpu_update(UUIDS[0], torch_allocated=torch, torch_reserved=torch),),
        ),
    )  # fmt: skip
    (row,) = tracked.rows()
    assert (row.kind, row.rank, row.local_rank, row.world_size) == ("rank", 3, 1, 8)
    assert (row.torch_allocated, row.torch_reserved, row.memory) == (torch, torch, Span(0, GIB, GIB))
    assert (row.steps, row.step_s, row.status, row.exit_code) == (20, 0.1, "failed", 1)
    assert row.missing == {}


def test_a_process_that_ended_before_it_was_seen(machine: Machine) -> None:
    """A process that ended between two listings has a row made from its last report alone."""
    tracked = Tracked(machine)
    tracked.run(3.0)
    tracked.tracker.add_update(3.0, update(50, rank=0, status="ended", exit_code=0, elapsed_s=0.5))
    (row,) = tracked.rows()
    assert (row.pid, row.rank, row.status, row.exit_code) == (50, 0, "ended", 0)
    assert (row.started_s, row.ended_s) == (2.5, 3.0)


def test_workers_on_another_host(machine: Machine) -> None:
    """A worker on another host has its reported values. Without a report for 15 seconds it counts as lost."""
    tracked = Tracked(machine)
    reported = update(
        50, kind="dask", host="there", name="worker-1", cpu_s=0.5,
        gpus=(
            gpu_update("GPU-far", memory=Span(1, 2, 3), alone=True, utilization=40.0, utilization_max=60.0,
                       energy_j=12.0, energy_error_j=1.5),
        ),
    )  # fmt: skip
    tracked.tracker.add_update(0.0, reported)
    tracked.run(14.0)
    assert tracked.tracker.now() == (1, 2)
    (row,) = tracked.rows()
    assert (row.kind, row.name, row.host, row.gpu) == ("dask", "worker-1", "there", "GPU-far")
    assert (row.memory, row.utilization) == (Span(1, 2, 3), Level(40.0, 60.0))
    assert (row.energy_j, row.energy_error_j) == (12.0, 1.5)
    assert (row.cpu, row.status) == (50.0, "running")
    tracked.run(2.0)
    assert [row.status for row in tracked.rows()] == ["lost"]


def test_a_shared_gpu_of_another_host(machine: Machine) -> None:
    """If a worker on another host reports that it shares its GPU, utilization and energy are unknown."""
    tracked = Tracked(machine)
    shared = gpu_update("GPU-far", alone=False, utilization=40.0, utilization_max=60.0, energy_j=12.0)
    tracked.tracker.add_update(0.0, update(50, kind="dask", host="there", name="w", gpus=(shared,)))
    (row,) = tracked.rows()
    assert (row.utilization, row.energy_j, row.memory) == (None, None, None)
    assert row.missing_ids["energy_j"].id == "worker-gpu-shared"


# -- Dask workers ------------------------------------------------------------------------------------------


def dask(pid: int, **changes: Any) -> WorkerUpdate:
    return update(pid, **{"kind": "dask", "name": "0", "steps": 4, "started_in_run": False, **changes})


def test_a_dask_worker_that_is_a_child_process_has_one_row(machine: Machine) -> None:
    """A worker of a local cluster, which is also a child process of the notebook, has one row with its name,
    the driver's values as read here, and its own torch peaks, tasks and CPU time."""
    machine.start(50)
    machine.memory[50, 0] = GIB
    tracked = Tracked(machine)
    tracked.run(3.0)
    torch, elsewhere = Span(0, 5, 9), Span(7, 7, 7)
    reported = gpu_update(UUIDS[0], torch_allocated=torch, torch_reserved=torch, memory=elsewhere)
    tracked.tracker.add_update(tracked.t, dask(50, gpus=(reported,), cpu_s=0.5, elapsed_s=2.0))
    tracked.run(0.2)
    (row,) = tracked.rows()
    assert (row.kind, row.name, row.host, row.pid, row.gpu) == ("dask", "0", None, 50, UUIDS[0])
    assert (row.memory, row.torch_allocated, row.steps) == (Span(GIB, GIB, GIB), torch, 4)
    assert (row.cpu, row.started_s, row.status, dict(row.missing)) == (25.0, 0.0, "running", {})
    assert row.energy_j == pytest.approx(100.0 * 3.2)


def test_a_dask_worker_without_tasks_has_no_row(machine: Machine) -> None:
    """A worker that executed no task for the run has no row, also if it is a child process that holds
    memory."""
    machine.start(50)
    machine.memory[50, 0] = GIB
    tracked = Tracked(machine)
    tracked.tracker.add_update(0.5, dask(50, steps=0))
    tracked.tracker.add_update(0.5, dask(60, steps=0, host="there"))
    tracked.run(2.0)
    assert tracked.rows() == ()
    assert tracked.tracker.now() == (0, 0)


def test_a_dask_worker_of_this_host_that_is_no_child(machine: Machine) -> None:
    """A worker that somebody started on this machine has the values that it reports, and no host name. It is
    not confused with a process of the same id in another container."""
    machine.start(50)
    machine.memory[50, 0] = GIB
    machine.is_child = lambda pid: False  # type: ignore[method-assign]
    tracked = Tracked(machine)
    reported = gpu_update(UUIDS[1], memory=Span(1, 2, 3), alone=True)
    tracked.tracker.add_update(0.5, dask(50, gpus=(reported,)))
    tracked.run(2.0)
    row, child = tracked.rows()
    assert (row.kind, row.host, row.gpu, row.memory) == ("dask", None, UUIDS[1], Span(1, 2, 3))
    assert (child.kind, child.gpu) == ("child", UUIDS[0])


def test_a_dask_worker_in_the_notebooks_process(machine: Machine) -> None:
    """A worker that is a thread of the notebook's own process has a row with its tasks only: the memory and
    the GPU's activity are the notebook's, and are shown once."""
    tracked = Tracked(machine)
    torch = Span(0, 5, 9)
    for name in ("0", "1"):
        reported = gpu_update(UUIDS[0], torch_allocated=torch, memory=torch, alone=True, energy_j=1.0)
        tracked.tracker.add_update(0.5, dask(os.getpid(), name=name, gpus=(reported,), cpu_s=1.0))
    rows = tracked.rows()
    assert [(row.name, row.steps, row.memory, row.torch_allocated) for row in rows] == [
        ("0", 4, None, None),
        ("1", 4, None, None),
    ]
    assert {reason.id for reason in rows[0].missing_ids.values()} == {"worker-in-notebook"}
    assert set(rows[0].missing) == {
        *("memory", "utilization", "energy_j", "torch_allocated", "torch_reserved", "cpu"),
    }


def test_incomplete_updates_of_dask_workers(machine: Machine) -> None:
    """If a worker's update does not cover the whole run, none of its figures is shown, with the reason. The
    driver's values of a child process, which are read here, are shown nevertheless."""
    machine.start(50)
    machine.memory[50, 0] = GIB
    tracked = Tracked(machine)
    tracked.run(2.0)
    late = message("late", "it was late")
    torch = Span(0, 5, 9)
    reported = gpu_update(UUIDS[0], torch_allocated=torch, torch_reserved=torch, memory=torch, alone=True)
    for host in ("here", "there"):
        tracked.tracker.add_update(2.0, dask(50, host=host, gpus=(reported,), cpu_s=0.5), late)
    child, remote = tracked.rows()
    assert (child.host, child.memory, remote.host, remote.memory) == (
        None,
        Span(GIB, GIB, GIB),
        "there",
        None,
    )
    for row in (child, remote):
        assert (row.gpu, row.torch_allocated, row.steps, row.cpu) == (UUIDS[0], None, None, None)
        assert row.missing["torch_allocated"] == row.missing["steps"] == row.missing["cpu"] == "it was late"
    tracked.tracker.add_update(2.0, dask(50, gpus=(reported,), cpu_s=0.5))
    assert [row.steps for row in tracked.rows()] == [4, None]


def test_dask_workers_that_have_left(machine: Machine) -> None:
    """A worker that left its cluster with a last report has the status ``ended``. One that left without has
    the status ``lost``, or ``ended`` if its process is known to have ended."""
    machine.start(50)
    tracked = Tracked(machine)
    for pid, host, status, gone in (
        (50, "here", "running", True),
        (60, "there", "running", True),
        (61, "there", "ended", False),
    ):
        tracked.tracker.add_update(1.0, dask(pid, host=host, name=str(pid), status=status), gone=gone)
    machine.end(50)
    tracked.t = 1.0
    assert [(row.pid, row.status) for row in tracked.rows()] == [(50, "ended"), (60, "lost"), (61, "ended")]


def test_the_last_report_of_a_dask_worker_whose_process_has_ended(machine: Machine) -> None:
    """If the last report of a child process arrives after the process has ended, it belongs to the row of
    that process."""
    machine.start(50)
    tracked = Tracked(machine)
    tracked.tracker.add_update(0.5, dask(50, steps=1), message("unfinished", "it has not ended"))
    machine.end(50)
    tracked.run(2.0)
    tracked.tracker.add_update(2.0, dask(50, steps=9, status="ended"))
    (row,) = tracked.rows()
    assert (row.pid, row.steps, row.status, row.ended_s) == (50, 9, "ended", 0.2)


def test_dask_workers_are_in_the_order_of_their_names(machine: Machine) -> None:
    """The numbered workers of a local cluster come first, in the order of their numbers."""
    tracked = Tracked(machine)
    for pid, name in enumerate(("10", "b", "9", "a"), start=70):
        tracked.tracker.add_update(1.0, dask(pid, name=name, host="there"))
    assert [row.name for row in tracked.rows()] == ["9", "10", "a", "b"]


def test_values_that_a_dask_worker_could_not_read(machine: Machine) -> None:
    """If a worker could not read its driver's values, they are unknown, with the reason that it reported."""
    tracked = Tracked(machine)
    reported = gpu_update("GPU-far", torch_allocated=Span(0, 1, 2), torch_reserved=Span(0, 1, 2))
    tracked.tracker.add_update(1.0, dask(70, host="there", reason="no driver", gpus=(reported,)))
    tracked.tracker.add_update(1.0, dask(71, host="there", reason="no driver", name="1"))
    first, second = tracked.rows()
    text = "the worker could not read it from its driver: no driver"
    assert (first.gpu, first.torch_allocated, first.missing["memory"]) == ("GPU-far", Span(0, 1, 2), text)
    assert (second.gpu, second.missing["memory"], second.missing["energy_j"]) == (None, text, text)


def test_the_number_of_workers_is_limited(machine: Machine) -> None:
    """A run has at most 1,024 workers, however many processes report."""
    tracked = Tracked(machine)
    for pid in range(MAX_WORKERS + 5):
        tracked.tracker.add_update(1.0, update(pid + 100, kind="dask", host="there"))
    assert len(tracked.rows()) == MAX_WORKERS


def test_this_process_is_no_worker() -> None:
    """The process itself is not among its descendants."""
    assert os.getpid() not in processes.descendants()


def test_ranks_that_torch_has_spawned(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that the notebook has started with ``mp.spawn`` has the rank that torch has given it, also if
    the process uses no GPU."""
    spawned: dict[int, tuple[int, int, int]] = {}
    monkeypatch.setattr("gpuwidget.measure.workers.spawned_ranks", lambda: spawned)
    tracked = Tracked(machine)
    machine.start(70)
    machine.memory[70, 1] = GIB
    tracked.run(1.0)
    machine.start(71)
    spawned.update({70: (0, 0, 2), 71: (1, 1, 2)})
    tracked.run(1.2)
    machine.end(70)
    spawned.clear()
    tracked.run(1.2)
    rows = [(row.kind, row.rank, row.world_size, row.pid, row.gpu, row.status) for row in tracked.rows()]
    assert rows == [("rank", 0, 2, 70, UUIDS[1], "ended"), ("rank", 1, 2, 71, None, "running")]


def test_the_time_of_the_steps(machine: Machine) -> None:
    """The time of the steps is that in which all ranks that report made steps. It is unlimited if none does,
    or if a rank ended before another one began."""
    tracked = Tracked(machine)
    assert tracked.tracker.steps_span() == (0.0, math.inf)
    machine.start(70)
    machine.start(71)
    steps = {"steps": 11, "step_s": 0.2}
    tracked.tracker.add_update(6.0, update(70, rank=0, since_step_s=0.5, **steps))
    tracked.tracker.add_update(7.0, update(71, rank=1, since_step_s=0.1, **steps))
    first, last = tracked.tracker.steps_span()
    assert (round(first, 6), last) == (4.9, 5.5)
    tracked.tracker.add_update(20.0, update(71, rank=1, since_step_s=0.1, **steps))
    assert tracked.tracker.steps_span() == (0.0, math.inf)


def test_the_cpu_time_before_a_process_was_found(machine: Machine) -> None:
    """The CPU use of a process that started during the run is that since its start, not since it was
    found."""
    tracked = Tracked(machine)
    tracked.run(3.0)
    machine.times[70] = ProcessTimes(1.0, 0.9, 1, age_s=0.9)
    machine.ranks[70] = Rank(0, 0, 2)
    tracked.run(0.2)
    machine.times[70] = ProcessTimes(1.0, 1.9, 1, age_s=1.9)
    tracked.run(1.0)
    (row,) = tracked.rows()
    assert row.started_s == pytest.approx(2.3)
    assert row.cpu == pytest.approx(100.0)
