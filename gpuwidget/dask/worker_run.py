"""Measure one Dask worker during the run of a watched cell. Runs in the worker's process."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpuwidget.measure.process_memory import Attribution
from gpuwidget.measure.torch_memory import torch_updates
from gpuwidget.measure.worker_gpu import WorkerGpu
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Gpu, Sample, without_mig_parents
from gpuwidget.model.torch_state import same_gpu
from gpuwidget.model.worker_update import MAX_GPUS, WORKER_SCHEMA, UpdateStatus, WorkerGpuUpdate, WorkerUpdate
from gpuwidget.pytorch import PEAK_TRACKER
from gpuwidget.system import processes

INTERVAL_S = 1.0
"""Seconds between two samples."""
_MAX_GAP_S = 3 * INTERVAL_S


class Tasks(NamedTuple):
    """The tasks of a worker since its process started."""

    done: int
    """Number of tasks that the worker has executed, also those that failed."""
    executing: int
    """Number of tasks that the worker is executing."""


@dataclass(frozen=True, slots=True)
class RunStart:
    """When a run began in the notebook."""

    age_s: float
    """Seconds between the run's start and the message about it."""
    boot_id: str | None
    """Identifies the notebook's machine and its boot, or None if unknown."""
    boot_s: float | None
    """When the run began, in seconds since that boot."""

    def age_of_new_process(self) -> float | None:
        """Return for how many seconds this process has existed, if it certainly started during the run.

        The clocks of different machines are not compared. On another machine, the process must be younger
        than the run was when the notebook sent its message.
        """
        now, times = processes.boot_time(), processes.times_of(os.getpid())
        if now is None or times is None:
            return None
        if self.boot_s is not None and now.boot_id == self.boot_id:
            return times.age_s if now.seconds - times.age_s >= self.boot_s else None
        return times.age_s if times.age_s <= self.age_s else None


class WorkerRun:
    """The figures of this process over one run.

    Not thread-safe: only one thread may use an instance at a time.
    """

    def __init__(self, name: str, start: RunStart, tasks: Tasks | None, clock: Clock = SYSTEM_CLOCK) -> None:
        """Begin to measure for a run.

        If this process is younger than the run, all that it has done so far belongs to the run. ``tasks`` is
        None if the worker's tasks are not counted.
        """
        age = start.age_of_new_process()
        self.started_in_run = age is not None
        self._clock = clock
        self._began = clock.monotonic() - (age or 0.0)
        self._cpu_began = 0.0 if self.started_in_run else time.process_time()
        self._done_before = 0 if tasks is None or self.started_in_run else tasks.done
        self._name = name
        self._pid = os.getpid()
        self._scope = PEAK_TRACKER.open(since_process_start=self.started_in_run)
        self._attribution: Attribution | None = None
        self._gpus: dict[str, WorkerGpu] = {}
        self._measured: dict[str, float | None] = {}
        self._sampled_at_start: set[str] = set()
        """UUIDs of the GPUs whose processes are known for the run's start."""
        self._reason: str | None = None

    def begin(self, sample: Sample, requested_at: float) -> None:
        """Add a sample that was requested at ``requested_at`` (epoch seconds), when the run began."""
        self._sampled_at_start = {
            reading.uuid
            for reading in sample.readings
            if reading.answered is not None and reading.answered >= requested_at
        }
        self._add(sample, beginning=True)

    def add(self, sample: Sample) -> None:
        PEAK_TRACKER.watch_resets()
        self._add(sample, beginning=False)

    def update(self, tasks: Tasks | None, status: UpdateStatus = "running") -> WorkerUpdate:
        """Return the figures so far."""
        return WorkerUpdate(
            schema=WORKER_SCHEMA,
            kind="dask",
            host=socket.gethostname(),
            pid=self._pid,
            name=self._name,
            rank=None,
            local_rank=None,
            world_size=None,
            steps=None if tasks is None else max(0, tasks.done - self._done_before + tasks.executing),
            step_s=None,
            since_step_s=None,
            cpu_s=time.process_time() - self._cpu_began,
            elapsed_s=self._clock.monotonic() - self._began,
            started_in_run=self.started_in_run,
            status=status,
            exit_code=None,
            gpus=self._gpu_updates(),
            reason=self._reason,
        )

    def close(self) -> None:
        """Stop measuring torch's peaks. Safe to call twice."""
        PEAK_TRACKER.discard(self._scope)

    def _add(self, sample: Sample, *, beginning: bool) -> None:
        t = self._clock.monotonic() - self._began
        if self._attribution is None:
            self._attribution = Attribution(sample.origin)
        self._reason = sample.origin.reason
        self._attribution.update(sample.readings)
        undivided = without_mig_parents(sample.gpus)
        for gpu, reading in zip(sample.gpus, sample.readings, strict=True):
            if gpu in undivided:
                self._add_gpu(t, gpu, reading, beginning)

    def _add_gpu(self, t: float, gpu: Gpu, reading: Reading, beginning: bool) -> None:
        assert self._attribution is not None
        held = self._attribution.process_memory(gpu, reading)
        if held.reason is not None:
            self._reason = held.reason
        on_gpu = self._gpus.get(gpu.uuid)
        if not held.own:
            if on_gpu is not None:
                on_gpu.present = False
            return
        listed = reading.processes or ()
        size = next((process.memory for process in listed if process.pid == self._pid), None)
        if on_gpu is None:
            start: int | None = None
            if self.started_in_run:
                start = 0
            elif gpu.uuid in self._sampled_at_start:
                start = size if beginning else 0
            on_gpu = self._gpus[gpu.uuid] = WorkerGpu(_MAX_GAP_S, start=start, since=t)
        on_gpu.add_memory(t, size, alone=len(listed) == 1)
        if reading.measured is not None and reading.measured != self._measured.get(gpu.uuid):
            self._measured[gpu.uuid] = reading.measured
            on_gpu.add_rates(t, reading)

    def _gpu_updates(self) -> tuple[WorkerGpuUpdate, ...]:
        torch = torch_updates(PEAK_TRACKER.peaks(self._scope))
        found = []
        for uuid, gpu in self._gpus.items():
            of_torch = next((one for one in torch if same_gpu(uuid, one.uuid)), None)
            level = gpu.utilization.level()
            known = level if level is not None and not gpu.shared else None
            energy = None if gpu.shared else gpu.energy()
            found.append(
                replace(
                    of_torch or WorkerGpuUpdate(uuid),
                    uuid=uuid,
                    memory=gpu.memory(),
                    alone=not gpu.shared,
                    utilization=None if known is None else known.mean,
                    utilization_max=None if known is None else known.max,
                    energy_j=None if energy is None else energy.joules,
                    energy_error_j=None if energy is None else energy.stated_error_j,
                )
            )
        found += [one for one in torch if not any(same_gpu(uuid, one.uuid) for uuid in self._gpus)]
        return tuple(found[:MAX_GPUS])
