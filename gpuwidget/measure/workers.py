"""Track the workers of a run: child processes that use a GPU, ranks of distributed training, Dask workers.

The driver's process lists and ``/proc`` describe this machine's processes. A worker may also report about
itself (:class:`~gpuwidget.model.worker_update.WorkerUpdate`). Exact torch peaks, exit codes and the values of
workers on other machines are known only from such reports.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpuwidget.measure import reasons
from gpuwidget.measure.gpu_totals import MIN_ENERGY_S, Average, Integral
from gpuwidget.measure.process_memory import ProcessMemory
from gpuwidget.model.messages import Message, message_ids, texts
from gpuwidget.model.readings import Reading
from gpuwidget.model.report import Level, Span, WorkerKind, WorkerReport, WorkerStatus
from gpuwidget.model.samples import Gpu
from gpuwidget.model.worker_update import WorkerGpuUpdate, WorkerUpdate
from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.spawned_ranks import spawned_ranks
from gpuwidget.system import processes
from gpuwidget.system.processes import ProcessDirectory, ProcessTimes, Rank

POLL_INTERVAL_S = 1.0
"""Seconds between two listings of this process's descendants."""
LOST_AFTER_S = 15.0
"""Seconds without an update after which a worker on another host counts as lost."""
MAX_WORKERS = 1024
"""Maximum number of workers of a run. Further workers are ignored."""
_RANK_SETTLED_S = 2.0
"""Seconds after which a process's environment no longer changes. A launcher forks before it executes the
program, and until then the child has the launcher's environment."""
_MAX_WINDOW_S = 1.0


@dataclass(slots=True)
class _WorkerGpu:
    """One GPU of a worker: the process's memory and the GPU's activity while the process used it."""

    max_gap_s: float
    start: int | None
    """Bytes at the run's start, or 0 if the process used the GPU only later."""
    since: float
    """Seconds into the run from which the GPU's activity counts."""
    now: int | None = None
    peak: int | None = None
    sizes_known: bool = True
    shared: bool = False
    """Whether another process has used the GPU at the same time."""
    present: bool = True
    """Whether the process is in the GPU's newest process list."""
    until: float | None = None
    """When the process was last in the process list, in seconds into the run."""
    utilization: Average = field(default_factory=Average)
    energy: Integral = field(default_factory=Integral)
    last_t: float | None = None

    def add_memory(self, t: float, size: int | None, alone: bool) -> None:
        self.present, self.until = True, t
        self.sizes_known = self.sizes_known and size is not None
        self.now = size
        if size is not None:
            self.peak = max(size, self.peak or 0)
        self.shared = self.shared or not alone

    def add_rates(self, t: float, reading: Reading) -> None:
        """Add the GPU's utilization and power, read ``t`` seconds into the run."""
        last, self.last_t = self.last_t, t
        if last is not None and t - last > self.max_gap_s:
            self.energy.add(t, None)
        self.energy.add(t, reading.power_w)
        # The reading covers the driver's latest window, which must lie inside the time of the process.
        if last is not None and t - self.since >= 2 * (reading.utilization_window or _MAX_WINDOW_S):
            self.utilization.add(reading.utilization, t - last)

    def memory(self) -> Span | None:
        if not self.sizes_known or self.peak is None:
            return None
        return Span(self.start, self.now if self.present else 0, self.peak)


@dataclass(slots=True)
class _Worker:
    """One worker process."""

    pid: int
    host: str | None
    started: float | None
    """Identifies the process together with its id; None on other hosts."""
    started_s: float
    name: str | None = None
    rank: Rank | None = None
    parent: int | None = None
    ended_s: float | None = None
    cpu_start: float | None = None
    cpu_end: float | None = None
    cpu_until: float = 0.0
    gpus: dict[str, _WorkerGpu] = field(default_factory=dict)
    update: WorkerUpdate | None = None
    updated_s: float = 0.0
    """When the newest update arrived, in seconds into the run."""


class WorkerTracker:
    """Collects the workers of one run, from the run's first sample to its last.

    Not thread-safe: only one thread may use an instance at a time.
    """

    def __init__(self, max_gap_s: float, directory: ProcessDirectory | None = None) -> None:
        """A gap of more than ``max_gap_s`` seconds between two samples counts as unknown time."""
        self._max_gap_s = max_gap_s
        self._directory = directory or ProcessDirectory()
        self._workers: list[_Worker] = []
        self._running: dict[int, _Worker] = {}
        """The processes of this machine that are not known to have ended, by process id."""
        self._spawned: dict[int, Rank] = {}
        """The ranks that this process has started with torch, by process id."""
        self._remote: dict[tuple[str, int], _Worker] = {}
        self._measured: dict[str, float | None] = {}
        self._next_poll = 0.0
        self._in_use: dict[str, tuple[ProcessMemory, frozenset[int]]] = {}
        self._sizes_reason: Message | None = None
        self._parents_of_slices: set[str] = set()
        """UUIDs of GPUs that are divided into MIG slices, whose process lists repeat those of the slices."""

    # -- input ---------------------------------------------------------------------------------------

    def begin(self, gpu: Gpu, reading: Reading, held: ProcessMemory) -> None:
        """Add a reading that was taken just before the run."""
        self._add(0.0, gpu, reading, held, beginning=True)

    def add(self, t: float, gpu: Gpu, reading: Reading, held: ProcessMemory) -> None:
        """Add a reading ``t`` seconds into the run. ``held`` contains the process's children on the GPU."""
        self._add(t, gpu, reading, held, beginning=False)

    def _add(self, t: float, gpu: Gpu, reading: Reading, held: ProcessMemory, beginning: bool) -> None:
        if gpu.mig_parent is not None:
            self._parents_of_slices.add(gpu.mig_parent)
        known = self._in_use.get(gpu.uuid)
        if held.children or (known is not None and known[1]):
            self._update_processes(t, gpu, reading, held, beginning)
            if reading.measured is not None and reading.measured != self._measured.get(gpu.uuid):
                self._measured[gpu.uuid] = reading.measured
                for pid in self._in_use[gpu.uuid][1]:
                    self._running[pid].gpus[gpu.uuid].add_rates(t, reading)

    def _update_processes(
        self, t: float, gpu: Gpu, reading: Reading, held: ProcessMemory, beginning: bool
    ) -> None:
        known = self._in_use.get(gpu.uuid)
        if known is not None and known[0] is held:
            return  # The driver's process list has not been read again.
        if held.memory is None and held.reason is not None:
            self._sizes_reason = held.reason
        pids = set()
        for child in held.children:
            worker = self._local(child.pid, t, child.program)
            if worker is None:
                continue
            pids.add(child.pid)
            on_gpu = worker.gpus.get(gpu.uuid)
            if on_gpu is None:
                on_gpu = _WorkerGpu(self._max_gap_s, start=child.memory if beginning else 0, since=t)
                worker.gpus[gpu.uuid] = on_gpu
            on_gpu.add_memory(t, child.memory, alone=len(reading.processes or ()) == 1)
        for pid in known[1] - pids if known is not None else ():
            self._running[pid].gpus[gpu.uuid].present = False
        self._in_use[gpu.uuid] = (held, frozenset(pids))

    def poll(self, t: float) -> None:
        """List this process's descendants, unless that was done less than a second ago.

        This finds the ranks that use no GPU, the CPU time of all workers, and which of them have ended.
        """
        if t < self._next_poll:
            return
        self._next_poll = t + POLL_INTERVAL_S
        self._poll(t)

    def end(self, t: float) -> None:
        """Update the state of all workers at the run's end."""
        self._poll(t)

    def _poll(self, t: float) -> None:
        pids = processes.descendants()
        if pids:
            self._spawned.update((pid, Rank(*rank)) for pid, rank in spawned_ranks().items())
        for pid in pids:
            if pid not in self._running and self._rank_of(pid) is not None:
                self._local(pid, t, None)
            elif pid in self._spawned and self._running[pid].rank is None:
                self._running[pid].rank = self._spawned[pid]
        for worker in list(self._running.values()):
            self._update_times(worker, t)

    def add_update(self, t: float, update: WorkerUpdate) -> bool:
        """Add what a worker reported about itself ``t`` seconds into the run.

        Return whether the worker has made a step since its last report.
        """
        if update.host == _host_name():
            worker = self._local(update.pid, t, None) or self._ended(update.pid)
            if worker is None and update.status != "running":
                # The process ended before it was seen, so its last update is all that is known.
                worker = self._new(_Worker(update.pid, None, None, max(0.0, t - update.elapsed_s)))
                if worker is not None:
                    worker.ended_s = t
        else:
            key = update.host, update.pid
            worker = self._remote.get(key)
            if worker is None:
                began = max(0.0, t - update.elapsed_s)
                worker = self._new(_Worker(update.pid, update.host, None, began))
                if worker is not None:
                    self._remote[key] = worker
        if worker is None:
            return False
        steps = worker.update.steps if worker.update is not None else None
        worker.update, worker.updated_s = update, t
        worker.name = update.name or worker.name
        if update.rank is not None:
            worker.rank = Rank(update.rank, update.local_rank, update.world_size)
        if update.status != "running" and worker.ended_s is None:
            worker.ended_s = t
        return update.steps is not None and update.steps != steps

    # -- processes of this machine -------------------------------------------------------------------

    def _local(self, pid: int, t: float, program: str | None) -> _Worker | None:
        """Return the running process ``pid``, which is added if it is new; None if it has ended."""
        worker = self._running.get(pid)
        if worker is not None and (worker.name is None or t - worker.started_s < _RANK_SETTLED_S):
            self._identify(worker, program)
        if worker is not None:
            return worker
        times = processes.times_of(pid)
        if times is None:
            return None
        worker = self._new(_Worker(pid, None, times.started, t))
        if worker is None:
            return None
        self._running[pid] = worker
        self._identify(worker, program)
        self._add_times(worker, t, times)
        return worker

    def _identify(self, worker: _Worker, program: str | None) -> None:
        worker.name = program or self._directory.look_up(worker.pid).program
        if worker.update is None:
            worker.rank = self._rank_of(worker.pid)

    def _rank_of(self, pid: int) -> Rank | None:
        return self._spawned.get(pid) or processes.rank_of(pid)

    def _new(self, worker: _Worker) -> _Worker | None:
        if len(self._workers) >= MAX_WORKERS:
            return None
        self._workers.append(worker)
        return worker

    def _ended(self, pid: int) -> _Worker | None:
        return next((worker for worker in reversed(self._workers) if worker.pid == pid), None)

    def _update_times(self, worker: _Worker, t: float) -> None:
        times = processes.times_of(worker.pid)
        if times is not None and times.started == worker.started:
            self._add_times(worker, t, times)
            return
        # The process has ended, and another process may have its id.
        del self._running[worker.pid]
        self._spawned.pop(worker.pid, None)
        for uuid, (held, pids) in self._in_use.items():
            self._in_use[uuid] = held, pids - {worker.pid}
        for gpu in worker.gpus.values():
            gpu.present = False
        if worker.ended_s is None:
            worker.ended_s = t

    @staticmethod
    def _add_times(worker: _Worker, t: float, times: ProcessTimes) -> None:
        if worker.cpu_start is None:
            worker.cpu_start = times.cpu
        worker.cpu_end, worker.cpu_until, worker.parent = times.cpu, t, times.parent

    # -- results -------------------------------------------------------------------------------------

    def now(self) -> tuple[int, int | None]:
        """Return the number of workers that are running, and their memory on all GPUs in bytes.

        The memory is None if it is unknown for any of them.
        """
        workers = [worker for worker in self._shown() if worker.ended_s is None]
        sizes: list[int | None] = []
        for worker in workers:
            if worker.update is not None and worker.host is not None:
                sizes += [None if gpu.memory is None else gpu.memory.end for gpu in worker.update.gpus]
            else:
                sizes += [gpu.now for uuid, gpu in self._gpus(worker) if gpu.present]
        known = [size for size in sizes if size is not None]
        return len(workers), sum(known) if len(known) == len(sizes) else None

    @property
    def any(self) -> bool:
        """Whether the run has had a worker."""
        return bool(self._shown())

    def steps_span(self) -> tuple[float, float]:
        """Return the time in which all workers that report steps made steps, in seconds into the run.

        Return 0 and infinity if no worker reports steps, or if no time is common to all of them.
        """
        spans = [span for worker in self._workers if (span := _steps_span(worker)) is not None]
        first = max((first for first, _ in spans), default=0.0)
        last = min((last for _, last in spans), default=math.inf)
        return (first, last) if first < last else (0.0, math.inf)

    def rows(self, t: float, shown: Iterable[str]) -> tuple[WorkerReport, ...]:
        """Return the workers of a run that lasted ``t`` seconds.

        Ranks come first, then Dask workers, then other child processes. ``shown`` contains the UUIDs of the
        GPUs that the report describes.
        """
        uuids = set(shown)
        found = sorted(self._shown(), key=_order)
        return tuple(row for worker in found for row in self._rows(worker, t, uuids))

    def _shown(self) -> list[_Worker]:
        """Return the workers without the children of ranks (such as the workers of a DataLoader)."""
        by_pid = {worker.pid: worker for worker in self._workers if worker.host is None}

        def in_rank(worker: _Worker) -> bool:
            parent = by_pid.get(worker.parent) if worker.parent is not None else None
            return (
                worker.update is None
                and worker.rank is not None
                and parent is not None
                and parent.rank == worker.rank
            )

        return [
            worker
            for worker in self._workers
            if (worker.rank is not None or worker.update is not None or worker.gpus) and not in_rank(worker)
        ]

    def _gpus(self, worker: _Worker) -> list[tuple[str, _WorkerGpu]]:
        return [(uuid, gpu) for uuid, gpu in worker.gpus.items() if uuid not in self._parents_of_slices]

    def _rows(self, worker: _Worker, t: float, uuids: set[str]) -> list[WorkerReport]:
        reported: dict[str, WorkerGpuUpdate] = {}
        for gpu in worker.update.gpus if worker.update is not None else ():
            # Torch's UUIDs have no prefix.
            uuid = next((known for known in uuids if cuda_state.same_gpu(known, gpu.uuid)), None)
            if uuid is not None or worker.host is not None:
                reported[uuid or gpu.uuid] = gpu
        read = {uuid: gpu for uuid, gpu in self._gpus(worker) if uuid in uuids}
        names: list[str | None] = [*read, *(uuid for uuid in reported if uuid not in read)]
        return [
            self._row(worker, t, uuid, read.get(uuid or ""), reported.get(uuid or ""))
            for uuid in names or [None]
        ]

    def _row(
        self,
        worker: _Worker,
        t: float,
        uuid: str | None,
        read: _WorkerGpu | None,
        reported: WorkerGpuUpdate | None,
    ) -> WorkerReport:
        missing: dict[str, Message] = {}
        memory, utilization, energy = self._activity(worker, uuid, read, reported, missing)
        update = worker.update
        if reported is None or reported.torch_allocated is None:
            why = reasons.WORKER_NOT_REPORTED if update is None else reasons.NO_TORCH_IN_WORKER
            missing["torch_allocated"] = missing["torch_reserved"] = why
        status = _status(worker, t)
        if status in ("ended", "failed") and (update is None or update.exit_code is None):
            missing["exit_code"] = reasons.EXIT_CODE_NOT_REPORTED
        cpu = _cpu(worker)
        if cpu is None:
            missing["cpu"] = reasons.WORKER_TOO_SHORT
        rank = worker.rank
        kind: WorkerKind = update.kind if update is not None else "rank" if rank is not None else "child"
        return WorkerReport(
            kind=kind if kind != "rank" or rank is not None else "child",
            name=worker.name,
            host=worker.host,
            pid=worker.pid,
            rank=rank.rank if rank is not None else None,
            local_rank=rank.local_rank if rank is not None else None,
            world_size=rank.world_size if rank is not None else None,
            gpu=uuid,
            memory=memory,
            torch_allocated=reported.torch_allocated if reported is not None else None,
            torch_reserved=reported.torch_reserved if reported is not None else None,
            utilization=utilization,
            energy_j=energy,
            cpu=cpu,
            steps=update.steps if update is not None else None,
            step_s=update.step_s if update is not None else None,
            status=status,
            exit_code=update.exit_code if update is not None else None,
            started_s=worker.started_s,
            ended_s=worker.ended_s,
            missing=texts(missing),
            missing_ids=message_ids(missing),
        )

    def _activity(
        self,
        worker: _Worker,
        uuid: str | None,
        read: _WorkerGpu | None,
        reported: WorkerGpuUpdate | None,
        missing: dict[str, Message],
    ) -> tuple[Span | None, Level | None, float | None]:
        """Return memory, utilization and energy, and add the reasons for unknown ones to ``missing``."""
        names = ("memory", "utilization", "energy_j")
        if read is not None:
            memory, utilization = read.memory(), read.utilization.level()
            seconds = (read.last_t or 0.0) - read.since
            long_enough = seconds >= MIN_ENERGY_S and read.energy.covered >= 0.9 * seconds
            energy = read.energy.total if long_enough else None
            if memory is None:
                missing["memory"] = self._sizes_reason or reasons.NO_PROCESS_SIZES
            if read.shared:
                missing["utilization"] = missing["energy_j"] = reasons.WORKER_GPU_SHARED
                return memory, None, None
            if utilization is None:
                missing["utilization"] = reasons.WORKER_TOO_SHORT
            if energy is None:
                missing["energy_j"] = reasons.WORKER_TOO_SHORT
            return memory, utilization, energy
        if reported is not None and worker.host is not None:
            utilization = (
                None
                if reported.utilization is None or reported.utilization_max is None
                else Level(reported.utilization, reported.utilization_max)
            )
            if reported.memory is None:
                missing["memory"] = reasons.WORKER_NOT_REPORTED
            if reported.alone is False:
                missing["utilization"] = missing["energy_j"] = reasons.WORKER_GPU_SHARED
                return reported.memory, None, None
            if utilization is None:
                missing["utilization"] = reasons.WORKER_NOT_REPORTED
            if reported.energy_j is None:
                missing["energy_j"] = reasons.WORKER_NOT_REPORTED
            return reported.memory, utilization, reported.energy_j
        unknown_process = uuid is not None or self._sizes_reason is not None
        why = (self._sizes_reason or reasons.NO_PROCESS_LIST) if unknown_process else reasons.NO_GPU_MEMORY
        missing |= dict.fromkeys(names, why)
        return None, None, None


def _order(worker: _Worker) -> tuple[object, ...]:
    if worker.rank is not None:
        return 0, worker.rank.rank, worker.started_s, worker.pid
    dask = worker.update is not None and worker.update.kind == "dask"
    return (1, worker.name or "", worker.pid) if dask else (2, worker.started_s, worker.pid)


def _steps_span(worker: _Worker) -> tuple[float, float] | None:
    """Return when a worker made its first and its last step, or None if it does not report steps."""
    update = worker.update
    if update is None or update.steps is None or update.step_s is None or update.since_step_s is None:
        return None
    last = worker.updated_s - update.since_step_s
    return last - update.step_s * (update.steps - 1), last


def _status(worker: _Worker, t: float) -> WorkerStatus:
    update = worker.update
    if update is not None and update.status == "failed":
        return "failed"
    if update is not None and update.status == "ended" and update.exit_code not in (None, 0):
        return "failed"
    if worker.ended_s is not None:
        return "ended"
    if worker.host is not None and t - worker.updated_s > LOST_AFTER_S:
        return "lost"
    return "running"


def _cpu(worker: _Worker) -> float | None:
    if worker.cpu_start is not None and worker.cpu_end is not None:
        seconds = worker.cpu_until - worker.started_s
        if seconds >= MIN_ENERGY_S:
            return 100 * (worker.cpu_end - worker.cpu_start) / seconds
    update = worker.update
    if update is not None and update.cpu_s is not None and update.elapsed_s >= MIN_ENERGY_S:
        return 100 * update.cpu_s / update.elapsed_s
    return None


def _host_name() -> str:
    return socket.gethostname()
