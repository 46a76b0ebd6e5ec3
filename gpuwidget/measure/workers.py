"""Track the workers of a run: child processes that use a GPU, ranks of distributed training, Dask workers.

The driver's process lists and ``/proc`` describe this machine's processes. A worker may also report about
itself (:class:`~gpuwidget.model.worker_update.WorkerUpdate`). Exact torch peaks, exit codes and the values of
workers on other machines are known only from such reports.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuwidget.measure import reasons
from gpuwidget.measure.gpu_totals import MIN_ENERGY_S
from gpuwidget.measure.process_memory import ProcessMemory
from gpuwidget.measure.worker_gpu import WorkerGpu
from gpuwidget.model.messages import Message
from gpuwidget.model.readings import Reading
from gpuwidget.model.report import Level, Span, WorkerKind, WorkerReport, WorkerStatus
from gpuwidget.model.samples import Gpu
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.torch_state import same_gpu
from gpuwidget.model.worker_update import WorkerGpuUpdate, WorkerUpdate
from gpuwidget.pytorch import spawned_ranks
from gpuwidget.sources import PowerRecord
from gpuwidget.system import processes
from gpuwidget.system.processes import ProcessDirectory, ProcessTimes, Rank

POLL_INTERVAL_S = 1.0
"""Seconds between two listings of this process's descendants."""
LOST_AFTER_S = 15.0
"""Seconds without an update after which a worker that is no child of this process counts as lost."""
MAX_WORKERS = 1024
"""Maximum number of workers of a run. Further workers are ignored."""
_MAX_REASON = 150
_RANK_SETTLED_S = 2.0
"""Seconds after which a process's environment no longer changes. A launcher forks before it executes the
program, and until then the child has the launcher's environment."""


@dataclass(slots=True)
class _Worker:
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
    gpus: dict[str, WorkerGpu] = field(default_factory=dict)
    update: WorkerUpdate | None = None
    updated_s: float = 0.0
    """When the newest update arrived, in seconds into the run."""
    incomplete: Message | None = None
    """Why the newest update does not cover the whole run, or None if it does. Only for Dask workers."""
    gone: bool = False
    """Whether a Dask worker has left its cluster without a last update."""


class _Activity(NamedTuple):
    """What a worker did on one GPU. None stands for unknown."""

    memory: Span | None = None
    utilization: Level | None = None
    energy_j: float | None = None
    energy_error_j: float | None = None
    """As in :attr:`WorkerReport.energy_error_j`."""


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
        self._reported: dict[tuple[str, int, str | None], _Worker] = {}
        """The processes that only report, by host, process id and name: processes of other hosts, and Dask
        workers that this process has not started."""
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

    def add_power(self, uuid: str, record: PowerRecord, began: float) -> None:
        """Add the driver's records of one GPU's power. The run began at ``began`` (monotonic seconds)."""
        in_use = self._in_use.get(uuid)
        for pid in in_use[1] if in_use is not None else ():
            self._running[pid].gpus[uuid].meter.add_record(record, began)

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
                on_gpu = WorkerGpu(self._max_gap_s, start=child.memory if beginning else 0, since=t)
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

    def add_update(
        self, t: float, update: WorkerUpdate, incomplete: Message | None = None, *, gone: bool = False
    ) -> bool:
        """Add what a worker reported about itself ``t`` seconds into the run.

        ``incomplete`` is why the update of a Dask worker does not cover the whole run, or None if it does.
        ``gone`` is whether the worker has left its cluster. Return whether the worker has made a step since
        its last report.
        """
        worker = self._find(t, update)
        if worker is None:
            return False
        steps = worker.update.steps if worker.update is not None else None
        worker.update, worker.updated_s = update, t
        worker.incomplete, worker.gone = incomplete, gone
        worker.name = update.name or worker.name
        if update.rank is not None:
            worker.rank = Rank(update.rank, update.local_rank, update.world_size)
        if update.started_in_run is False:
            worker.started_s = 0.0
        if (update.status != "running" or gone) and worker.ended_s is None:
            worker.ended_s = t
        return update.steps is not None and update.steps != steps

    def _find(self, t: float, update: WorkerUpdate) -> _Worker | None:
        """Return the worker that sent an update, which is added if it is new."""
        here = update.host == _host_name()
        # A Dask worker may run in this process itself, or in a container with the same host name, whose
        # process ids are not valid here. Only for a child process are the driver's values read here.
        known = self._ended(update.pid)
        has_reported = known is not None and known.update is not None
        if here and (has_reported or update.kind == "rank" or _is_child(update.pid)):
            worker = self._local(update.pid, t, None) or known
            if worker is None and update.status != "running":
                # The process ended before it was seen, so its last update is all that is known.
                worker = self._new(_Worker(update.pid, None, None, max(0.0, t - update.elapsed_s)))
                if worker is not None:
                    worker.ended_s = t
            return worker
        key = update.host, update.pid, update.name
        worker = self._reported.get(key)
        if worker is None:
            began = max(0.0, t - update.elapsed_s)
            worker = self._new(_Worker(update.pid, None if here else update.host, None, began))
            if worker is not None:
                self._reported[key] = worker
        return worker

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
        if times.age_s <= t:
            # The process started during the run, up to a second before it was found.
            worker.started_s, worker.cpu_start = t - times.age_s, 0.0
        self._running[pid] = worker
        self._identify(worker, program)
        self._add_times(worker, t, times)
        return worker

    def _identify(self, worker: _Worker, program: str | None) -> None:
        if worker.update is None or worker.update.name is None:
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
        """Return the newest process of this machine with this id, which may have ended, or None."""
        found = (worker for worker in reversed(self._workers) if not _reports_gpus(worker))
        return next((worker for worker in found if worker.pid == pid), None)

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
            if worker.update is not None and _reports_gpus(worker):
                sizes += [None if gpu.memory is None else gpu.memory.end for gpu in worker.update.gpus]
            else:
                sizes += [gpu.now for uuid, gpu in self._gpus(worker) if gpu.present]
        known = [size for size in sizes if size is not None]
        return len(workers), sum(known) if len(known) == len(sizes) else None

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
        """Return the workers without the children of ranks (such as the workers of a DataLoader), and without
        the Dask workers that have not worked for the run."""
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
            if (worker.rank is not None or worker.update is not None or worker.gpus)
            and not in_rank(worker)
            and not (worker.update is not None and worker.update.kind == "dask" and worker.update.steps == 0)
        ]

    def _gpus(self, worker: _Worker) -> list[tuple[str, WorkerGpu]]:
        return [(uuid, gpu) for uuid, gpu in worker.gpus.items() if uuid not in self._parents_of_slices]

    def _rows(self, worker: _Worker, t: float, uuids: set[str]) -> list[WorkerReport]:
        reported: dict[str, WorkerGpuUpdate] = {}
        for gpu in worker.update.gpus if worker.update is not None else ():
            # Torch's UUIDs have no prefix.
            uuid = next((known for known in uuids if same_gpu(known, gpu.uuid)), None)
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
        read: WorkerGpu | None,
        reported: WorkerGpuUpdate | None,
    ) -> WorkerReport:
        missing: dict[str, Message] = {}
        update = worker.update
        # Figures that do not cover the whole run, or not only this worker, are not shown.
        unusable = reasons.WORKER_IN_NOTEBOOK if worker.pid == os.getpid() else worker.incomplete
        if unusable is not None:
            reported = None
        memory, utilization, joules, error = self._activity(worker, uuid, read, reported, unusable, missing)
        if reported is None or reported.torch_allocated is None:
            why = reasons.WORKER_NOT_REPORTED if update is None else reasons.NO_TORCH_IN_WORKER
            missing["torch_allocated"] = missing["torch_reserved"] = unusable or why
        status = _status(worker, t)
        if status in ("ended", "failed") and (update is None or update.exit_code is None):
            killed = update is not None and update.kind == "rank" and update.status == "running"
            missing["exit_code"] = reasons.NO_LAST_REPORT if killed else reasons.EXIT_CODE_NOT_REPORTED
        cpu = _cpu(worker) if unusable is None else None
        if cpu is None:
            missing["cpu"] = unusable or reasons.WORKER_TOO_SHORT
        steps = update.steps if update is not None and worker.incomplete is None else None
        if worker.incomplete is not None:
            missing["steps"] = worker.incomplete
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
            energy_j=joules,
            energy_error_j=error,
            cpu=cpu,
            steps=steps,
            step_s=update.step_s if update is not None else None,
            status=status,
            exit_code=update.exit_code if update is not None else None,
            started_s=worker.started_s,
            ended_s=worker.ended_s,
            missing=missing,
        )

    def _activity(
        self,
        worker: _Worker,
        uuid: str | None,
        read: WorkerGpu | None,
        reported: WorkerGpuUpdate | None,
        unusable: Message | None,
        missing: dict[str, Message],
    ) -> _Activity:
        """Return what is known, and add the reasons for what is unknown to ``missing``.

        ``unusable`` is why the worker's own figures are not used, or None if they are.
        """
        names = ("memory", "utilization", "energy_j")
        if read is not None:
            memory, utilization = read.memory(), read.utilization.level()
            energy = read.energy()
            if memory is None:
                missing["memory"] = self._sizes_reason or reasons.NO_PROCESS_SIZES
            if read.shared:
                missing["utilization"] = missing["energy_j"] = reasons.WORKER_GPU_SHARED
                return _Activity(memory)
            if utilization is None:
                missing["utilization"] = reasons.WORKER_TOO_SHORT
            if energy is None:
                missing["energy_j"] = reasons.WORKER_TOO_SHORT
                return _Activity(memory, utilization)
            return _Activity(memory, utilization, energy.joules, energy.stated_error_j)
        if worker.update is not None and worker.update.kind == "dask":
            if unusable is None and reported is not None:
                return _reported_activity(reported, worker.update.reason, missing)
            why = unusable or (
                reasons.NO_GPU_MEMORY if worker.update.reason is None else _not_read(worker.update.reason)
            )
            missing |= dict.fromkeys(names, why)
            return _Activity()
        unknown_process = uuid is not None or self._sizes_reason is not None
        why = (self._sizes_reason or reasons.NO_PROCESS_LIST) if unknown_process else reasons.NO_GPU_MEMORY
        missing |= dict.fromkeys(names, why)
        return _Activity()


def _not_read(reason: str | None) -> Message:
    """Return the reason for values that a Dask worker could not read; ``reason`` is what it reported."""
    shown = None if reason is None else clean_line(reason, _MAX_REASON)
    return reasons.NOT_READ_BY_WORKER(reason=reason, shown={"reason": shown})


def _reported_activity(
    reported: WorkerGpuUpdate, reason: str | None, missing: dict[str, Message]
) -> _Activity:
    """Return what a Dask worker has reported.

    Add the reasons for what is unknown to ``missing``; ``reason`` is what the worker reported as the reason.
    """
    utilization = (
        None
        if reported.utilization is None or reported.utilization_max is None
        else Level(reported.utilization, reported.utilization_max)
    )
    if reported.memory is None:
        missing["memory"] = _not_read(reason)
    if reported.alone is False:
        missing["utilization"] = missing["energy_j"] = reasons.WORKER_GPU_SHARED
        return _Activity(reported.memory)
    why = _not_read(reason) if reported.alone is None else reasons.WORKER_TOO_SHORT
    if utilization is None:
        missing["utilization"] = why
    if reported.energy_j is None:
        missing["energy_j"] = why
    error = None if reported.energy_j is None else reported.energy_error_j
    return _Activity(reported.memory, utilization, reported.energy_j, error)


def _is_child(pid: int) -> bool:
    return pid != os.getpid() and processes.own_process_tree().contains(pid)


def _reports_gpus(worker: _Worker) -> bool:
    """Return whether a worker's memory is known from its reports only."""
    return worker.started is None


def _order(worker: _Worker) -> tuple[object, ...]:
    if worker.rank is not None:
        return 0, worker.rank.rank, worker.started_s, worker.pid
    if worker.update is not None and worker.update.kind == "dask":
        # Dask numbers the workers of a local cluster.
        name = worker.name or ""
        # str.isdigit() is also true for characters such as '²', which int() rejects.
        return 1, not name.isdecimal(), int(name) if name.isdecimal() else name, worker.pid
    return 2, worker.started_s, worker.pid


def _steps_span(worker: _Worker) -> tuple[float, float] | None:
    """Return when a rank made its first and its last step, or None if it does not report steps."""
    update = worker.update
    if update is None or update.kind != "rank":
        return None
    if update.steps is None or update.step_s is None or update.since_step_s is None:
        return None
    last = worker.updated_s - update.since_step_s
    return last - update.step_s * (update.steps - 1), last


def _status(worker: _Worker, t: float) -> WorkerStatus:
    update = worker.update
    if worker.gone and _reports_gpus(worker):
        return "lost"
    if update is not None and update.status == "failed":
        return "failed"
    if update is not None and update.status == "ended" and update.exit_code not in (None, 0):
        return "failed"
    if worker.ended_s is not None:
        return "ended"
    if _reports_gpus(worker) and t - worker.updated_s > LOST_AFTER_S:
        return "lost"
    return "running"


def _cpu(worker: _Worker) -> float | None:
    update = worker.update
    if (
        (update is None or update.kind == "rank")
        and worker.cpu_start is not None
        and worker.cpu_end is not None
    ):
        seconds = worker.cpu_until - worker.started_s
        if seconds >= MIN_ENERGY_S:
            return 100 * (worker.cpu_end - worker.cpu_start) / seconds
    if update is not None and update.cpu_s is not None and update.elapsed_s >= MIN_ENERGY_S:
        return 100 * update.cpu_s / update.elapsed_s
    return None


def _host_name() -> str:
    return socket.gethostname()
