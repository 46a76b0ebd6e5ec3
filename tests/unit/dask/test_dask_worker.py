"""Tests of what runs in a Dask worker: the plugin, and the figures of one run."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
import textwrap
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import gpu
from helpers_nvml import ManualClock
from helpers_samples import LIVE, reading, sample

from gpuwidget.dask.worker_plugin import GpuWidgetPlugin
from gpuwidget.dask.worker_run import RunStart, Tasks, WorkerRun
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.messages import message
from gpuwidget.model.report import Span
from gpuwidget.model.samples import Sample
from gpuwidget.model.worker_update import WorkerUpdate
from gpuwidget.system import processes
from gpuwidget.system.processes import BootTime, ProcessTimes

GIB = 1024**3
GPUS = [gpu(0), gpu(1)]
ME = os.getpid()
BEFORE = RunStart(age_s=0.0, boot_id=None, boot_s=None)
"""The start of a run that begins after the worker's process has started."""

NO_TASKS = Tasks(done=0, executing=0)


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: True)
    monkeypatch.setattr(processes, "boot_time", lambda: BootTime("boot", 1000.0))
    monkeypatch.setattr(processes, "times_of", lambda pid: ProcessTimes(990.0, 0.0, 1, age_s=10.0))


def held(clock: ManualClock, *by_gpu: dict[int, int | None], **values: Any) -> Sample:
    """Return a sample now in which processes hold memory: bytes by process id, for each GPU."""
    pairs = []
    for one, sizes in zip(GPUS, by_gpu, strict=False):
        listed = tuple(Process(pid, "compute", size, None, None) for pid, size in sizes.items())
        known = {"answered": clock.time(), "measured": clock.time(), "processes": listed}
        pairs.append((one, reading(one, **(known | values))))
    return sample(*pairs)


def run(clock: ManualClock, start: RunStart = BEFORE, tasks: Tasks = NO_TASKS) -> WorkerRun:
    return WorkerRun("w", start, tasks, clock)


def figures(update: WorkerUpdate) -> list[tuple[Any, ...]]:
    return [(one.uuid, one.memory, one.alone) for one in update.gpus]


def test_the_memory_of_the_worker() -> None:
    """A worker reports its memory on each GPU at the run's start and end, and its peak, from the driver's
    list of processes. GPUs that it does not use are left out."""
    clock = ManualClock()
    measured = run(clock)
    measured.begin(held(clock, {ME: GIB, 7: 5}, {7: 5}), clock.time())
    for size in (3 * GIB, 2 * GIB):
        clock.now += 1.0
        measured.add(held(clock, {ME: size, 7: 5}, {7: 5}))
    update = measured.update(Tasks(3, 1))
    assert figures(update) == [(GPUS[0].uuid, Span(GIB, 2 * GIB, 3 * GIB), False)]
    assert (update.gpus[0].utilization, update.gpus[0].energy_j) == (None, None)
    assert (update.kind, update.pid, update.name, update.steps, update.elapsed_s) == ("dask", ME, "w", 4, 2.0)


def test_a_gpu_that_the_worker_has_alone() -> None:
    """Utilization and energy of a GPU are reported if the worker is the only process on it."""
    clock = ManualClock()
    measured = run(clock)
    measured.begin(held(clock, {}, {ME: GIB}, power_w=200.0), clock.time())
    for _ in range(4):
        clock.now += 1.0
        measured.add(held(clock, {}, {ME: GIB}, utilization=60.0, power_w=200.0))
    (found,) = measured.update(Tasks(0, 0)).gpus
    assert (found.uuid, found.alone, found.utilization, found.utilization_max) == (
        GPUS[1].uuid,
        True,
        60.0,
        60.0,
    )
    assert found.energy_j == pytest.approx(4 * 200.0)
    assert found.energy_error_j is None


def test_energy_with_an_error() -> None:
    """If the power changes so much between two readings that the energy may be wrong by more than 5 percent,
    the error is reported too."""
    clock = ManualClock()
    measured = run(clock)
    measured.begin(held(clock, {}, {ME: GIB}, power_w=100.0), clock.time())
    for power in (700.0, 100.0, 700.0):
        clock.now += 1.0
        measured.add(held(clock, {}, {ME: GIB}, power_w=power))
    (found,) = measured.update(Tasks(0, 0)).gpus
    # Each step of 600 W within a second contributes 600/√3 J. The root of the sum of three squares is 600 J.
    assert found.energy_error_j == pytest.approx(600.0)


def test_memory_at_a_start_that_was_not_read() -> None:
    """If the driver did not answer when the run began, the memory at the start is unknown, not 0."""
    clock = ManualClock()
    measured = run(clock)
    requested_at = clock.time() + 1.0
    measured.begin(held(clock, {ME: GIB}), requested_at)
    assert figures(measured.update(None)) == [(GPUS[0].uuid, Span(None, GIB, GIB), True)]
    assert measured.update(None).steps is None


def test_tasks_of_the_run() -> None:
    """The number of tasks contains those that ended or are executed during the run, also if they began before
    it, and no earlier ones."""
    measured = run(ManualClock(), tasks=Tasks(done=10, executing=2))
    assert [measured.update(tasks).steps for tasks in (Tasks(10, 2), Tasks(12, 0), Tasks(15, 1))] == [2, 2, 6]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (RunStart(5.0, "boot", 985.0), True),
        (RunStart(50.0, "boot", 990.5), False),
        (RunStart(11.0, "another machine", 5.0), True),
        (RunStart(9.0, "another machine", 5.0), False),
        (RunStart(11.0, None, None), True),
    ],
)
def test_processes_that_started_during_the_run(start: RunStart, expected: bool) -> None:
    """All tasks of a worker whose process started during the run belong to the run. On the notebook's machine
    the start times are compared; elsewhere, the process must be younger than the run."""
    clock = ManualClock()
    measured = run(clock, start, tasks=Tasks(10, 0))
    measured.add(held(clock, {ME: GIB}))
    update = measured.update(Tasks(12, 0))
    assert (update.started_in_run, update.steps) == (expected, 12 if expected else 2)
    assert update.elapsed_s == (10.0 if expected else 0.0)
    assert update.gpus[0].memory == Span(0 if expected else None, GIB, GIB)


def test_the_driver_is_missing() -> None:
    """A worker without GPUs reports the reason of its source."""
    measured = run(ManualClock())
    measured.add(sample(origin=replace(LIVE, reason=message("test", "no driver"))))
    update = measured.update(Tasks(1, 0))
    assert (update.gpus, update.reason) == ((), "no driver")


# -- the plugin --------------------------------------------------------------------------------------------


def stand_in_worker() -> Any:
    state = SimpleNamespace(executed_count=0, executing=set(), long_running=set())
    return SimpleNamespace(metrics={}, handlers={}, name=3, state=state, address="tcp://w:1")


def test_a_worker_that_lacks_gpuwidget_can_load_the_plugin() -> None:
    """A worker on which gpuwidget can't be imported loads the plugin, and reports the reason. So such a
    worker starts as usual."""
    program = textwrap.dedent(
        """
        import asyncio, json, pickle, sys
        from types import SimpleNamespace
        sys.modules["gpuwidget"] = None
        plugin = pickle.loads(sys.stdin.buffer.read())
        worker = SimpleNamespace(metrics={}, handlers={})
        asyncio.run(plugin.setup(worker))
        found = [worker.metrics["gpuwidget"](worker)]
        found.append(asyncio.run(worker.handlers["gpuwidget"]("begin", "r", {})))
        plugin.teardown(worker)
        print(json.dumps([*found, worker.metrics, worker.handlers, plugin.name, plugin.idempotent]))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(GpuWidgetPlugin()),
        capture_output=True,
        check=True,
    )
    sent, answer, *rest = json.loads(done.stdout)
    assert sent == answer
    assert sent["error"].startswith("ModuleNotFoundError: ")
    assert rest == [{}, {}, "gpuwidget", True]


def test_the_plugin_measures_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin answers the messages about a run, adds the run's figures to the heartbeat, and leaves
    nothing in the worker when it is removed. An error is an answer, and not an exception in the worker."""
    monkeypatch.setenv("GPUWIDGET_SOURCE", "none")
    worker = stand_in_worker()
    start = {"age_s": 0.0, "boot_id": None, "boot_s": None}

    async def use() -> list[Any]:
        plugin = GpuWidgetPlugin()
        await plugin.setup(worker)
        handle = worker.handlers["gpuwidget"]
        found = [await handle("begin", "r", start)]
        worker.state.executed_count = 2
        found.append(await handle("end", "r", start))
        found.append(await handle("begin", "r", {"unknown": 1}))
        found.append(worker.metrics["gpuwidget"](worker))
        plugin.teardown(worker)
        return found

    begun, ended, failed, sent = asyncio.run(use())
    assert begun == {"started_in_run": False}
    assert (ended["update"]["name"], ended["update"]["steps"]) == ("3", 2)
    assert failed["error"].startswith("TypeError: ")
    assert sent == {"runs": {}}
    assert (worker.metrics, worker.handlers) == ({}, {})
