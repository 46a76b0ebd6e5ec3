"""Which kernels and terminals have worked on each GPU, in steps of ten seconds.

Evidence of work, in this order:

1. The driver's utilization windows. The driver keeps those of the last 14 s (H200), so that a poll every ten
   seconds misses none. A GPU without windows, such as a MIG slice, has its hardware counters (GPM) or,
   without these, the utilization of each sample, which is then taken every second.
2. If all processes on a busy GPU belong to one kernel or terminal, the work is its own.
3. If a busy GPU is shared, the driver's records of each process's work. They are evidence only that a process
   has run something, because their values are wrong when processes share a GPU.

If the evidence is incomplete, every owner that may have worked counts as working. An owner of memory on a GPU
that was idle for the whole step never does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from gpuwidget.model.readings import Activity, Reading
from gpuwidget.model.samples import Gpu, Sample, without_mig_parents
from gpuwidget.server.gpu_owners import NO_OWNER, GpuOwners, ProcessOwner
from gpuwidget.sources import UtilizationWindow, WorkingProcesses

STEP_S = 10.0
"""Seconds between two steps. The driver must keep its utilization windows for longer."""
_MIN_STEP_S = 0.9 * STEP_S
"""Samples are at most a tenth of their interval early."""
MAX_STEP_S = 3 * STEP_S
"""Sampling had stopped if a step takes longer than this number of seconds."""
_STALE_S = 3 * STEP_S
"""Seconds after which the newest window is too old: the thread that reads the windows must be hanging."""
_CLOCK_MARGIN_S = 1.0
"""Evidence that is this many seconds later than the newest sample is from before the clock was set back."""
_MAX_GAP_S = 1.5
"""Maximum seconds between two utilization windows that follow each other. The driver's longest windows take
one second."""


class UtilizationRecords(Protocol):
    """The records of a GPU's past utilization, as :class:`gpuwidget.sampler.Sampler` provides them."""

    def windows(self, uuid: str) -> tuple[UtilizationWindow, ...]:
        """Return the driver's latest utilization windows, oldest first."""
        ...

    def activities(self, uuid: str) -> tuple[Activity, ...]:
        """Return the latest measurements of the hardware counters, oldest first."""
        ...

    def working_processes(self, uuid: str) -> tuple[WorkingProcesses, ...]:
        """Return the latest readings of the processes that have worked, oldest first."""
        ...


class GpuStep(NamedTuple):
    """What has happened on one GPU in one step."""

    gpu: Gpu
    seconds: float | None
    """Length of the step. None for the first step, and if sampling had stopped."""
    working: frozenset[ProcessOwner]
    """The kernels and terminals that have worked, or may have."""
    sole_owner: ProcessOwner | None
    """The owner of all processes that could use the GPU in this step and the previous one. None if there were
    none or several, or if that is unknown."""
    busy_s: float | None
    """Seconds in which any kernel ran on the GPU; None if unknown."""


class GpuWorkTracker:
    """Decides at the end of each step which kernels and terminals have worked on which GPU.

    All methods are called on the server's event loop. None of them calls the driver.
    """

    def __init__(self, records: UtilizationRecords) -> None:
        self._records = records
        self._gpus: dict[str, _GpuWork] = {}
        self._last_step: float | None = None

    @property
    def needs_working_processes(self) -> frozenset[str]:
        """UUIDs of the GPUs of which the driver's records of each process's work are needed."""
        return frozenset(uuid for uuid, gpu in self._gpus.items() if gpu.needs_working_processes)

    @property
    def needs_activity(self) -> bool:
        """Whether the hardware counters are needed, because a GPU has no utilization."""
        return any(gpu.needs_activity for gpu in self._gpus.values())

    @property
    def needs_frequent_samples(self) -> bool:
        """Whether work can be seen only in the samples, because the driver keeps no records of a GPU."""
        return any(gpu.lacks_records for gpu in self._gpus.values())

    def observe(self, sample: Sample) -> None:
        """Collect the evidence of work up to ``sample``."""
        wanted = {gpu.uuid for gpu in without_mig_parents(sample.gpus)}
        for uuid in self._gpus.keys() - wanted:
            del self._gpus[uuid]
        for reading in sample.readings:
            # A GPU that is divided into slices has no utilization. Its processes are listed in its slices.
            if reading.uuid in wanted:
                gpu = self._gpus.setdefault(reading.uuid, _GpuWork(sample.time))
                gpu.observe(reading, self._records, sample.time)

    def add_owners(
        self, sample: Sample, now: float, owners: Mapping[str, GpuOwners] | None
    ) -> list[GpuStep] | None:
        """Store the owners of the processes in ``sample``. At the end of a step, return what has happened.

        ``now`` is in monotonic seconds. ``owners`` is None if they can't be found now; then the last known
        ones count. A GPU that does not answer is missing in ``owners``.
        """
        self.observe(sample)
        for uuid, gpu in self._gpus.items():
            gpu.add_owners(None if owners is None else owners.get(uuid))
        elapsed = None if self._last_step is None else now - self._last_step
        if elapsed is not None and elapsed < _MIN_STEP_S:
            return None
        self._last_step = now
        seconds = elapsed if elapsed is not None and elapsed <= MAX_STEP_S else None
        gpus = {gpu.uuid: gpu for gpu in sample.gpus}
        readings = {reading.uuid: reading for reading in sample.readings}
        return [
            work.end_step(gpus[uuid], readings[uuid], sample.time, seconds)
            for uuid, work in self._gpus.items()
        ]


class _GpuWork:
    """The evidence on one GPU."""

    def __init__(self, since: float) -> None:
        """``since`` is the time in epoch seconds before which nothing counts."""
        self._owners: set[ProcessOwner] = set()
        """Owners in the current step; ``_owners_before`` has those in the previous step."""
        self._owners_before: frozenset[ProcessOwner] = frozenset()
        self._newest: frozenset[ProcessOwner] = frozenset()
        """Owners in the newest sample."""
        self._owner_of: dict[int, ProcessOwner] = {}
        self._owner_of_before: dict[int, ProcessOwner] = {}
        self._unknown_pids: frozenset[int] = frozenset()
        """Processes that worked in the previous step and whose owner was not known then."""
        self._unexplained = False
        """Whether the GPU worked in the previous step although no process had a record of work."""
        self._complete = self._complete_before = True
        self._has_utilization: bool | None = None
        self._has_windows = False
        self._windows_until = self._activities_until = since
        self._working_since: float | None = None
        """Time of the newest reading of working processes that has been collected; None if there was none."""
        self._evidence = _Evidence()
        self.lacks_records = False
        """Whether the driver kept no records of the GPU in the last step, although it has a utilization."""

    @property
    def needs_working_processes(self) -> bool:
        """Whether work of the GPU can't be attributed without the driver's records of each process."""
        return len(self._owners | self._owners_before) > 1 or not self._complete or not self._has_windows

    @property
    def needs_activity(self) -> bool:
        """Whether the GPU has no utilization, so that its hardware counters are needed."""
        return self._has_utilization is False

    def observe(self, reading: Reading, records: UtilizationRecords, time: float) -> None:
        """Collect the evidence that is new since the last call. ``time`` is in epoch seconds."""
        evidence = self._evidence
        latest = time + _CLOCK_MARGIN_S
        if max(self._windows_until, self._activities_until, self._working_since or 0.0) > latest:
            # The system's clock was set back. What happened since the last call is unknown.
            evidence.is_unknown = True
            self._windows_until = self._activities_until = time
            self._working_since = None if self._working_since is None else time
        if reading.utilization is not None:
            evidence.utilizations.append(reading.utilization)
            self._has_utilization = True
        elif reading.lost_since is None and reading.silent_since is None and reading.measured is not None:
            self._has_utilization = False
        if windows := [window for window in records.windows(reading.uuid) if window.until <= latest]:
            self._has_windows = True
            self._collect_windows(windows)
        elif activities := [each for each in records.activities(reading.uuid) if each.until <= latest]:
            self._collect_activities(activities)
        for working in records.working_processes(reading.uuid):
            if self._working_since is None or self._working_since < working.time <= latest:
                self._working_since = working.time
                if working.pids is None:
                    evidence.has_pids = False
                else:
                    evidence.pids |= working.pids

    def _collect_windows(self, windows: Sequence[UtilizationWindow]) -> None:
        since, self._windows_until = self._windows_until, max(self._windows_until, windows[-1].until)
        self._evidence.is_unknown |= windows[0].until > since + _MAX_GAP_S
        before = since
        for window in windows:
            if window.until > since:
                # A window begins where the previous one ends. Time without a window is not counted.
                length = window.until - before
                if length <= _MAX_GAP_S:
                    self._evidence.add(window.utilization, length)
                self._evidence.is_busy |= window.utilization > 0
            before = max(since, window.until)

    def _collect_activities(self, activities: Sequence[Activity]) -> None:
        since, self._activities_until = self._activities_until, activities[-1].until
        for activity in activities:
            if activity.until > since:
                busy = activity.sm if activity.graphics is None else activity.graphics
                self._evidence.is_unknown |= busy is None
                self._evidence.is_busy |= (busy or 0) > 0
                self._evidence.add(activity.graphics, activity.until - activity.since)

    def add_owners(self, found: GpuOwners | None) -> None:
        """Add the owners of the processes that are on the GPU now; None if they are unknown."""
        if found is None:
            self._owners |= self._newest
            self._complete = False
            return
        self._newest = found.owners
        self._owners |= found.owners
        self._owner_of.update(found.owner_of)
        self._complete = self._complete and found.complete

    def end_step(self, gpu: Gpu, reading: Reading, time: float, seconds: float | None) -> GpuStep:
        """Return what has happened in the step, and begin the next one."""
        candidates = self._owners_before | self._owners
        complete = self._complete and self._complete_before
        evidence, self._evidence = self._evidence, _Evidence()
        pids = self._pids(evidence, time)
        self.lacks_records = pids is None and not self._has_windows and self._has_utilization is True
        if reading.lost_since is not None:
            working: frozenset[ProcessOwner] = frozenset()
        elif reading.silent_since is not None:
            working = candidates - {NO_OWNER}
        else:
            working = self._working(candidates, complete, self._busy(evidence, time), pids)
        (sole_owner,) = candidates if complete and len(candidates) == 1 else (None,)
        self._owners_before, self._owners = frozenset(self._owners), set(self._newest)
        self._owner_of_before, self._owner_of = self._owner_of, {}
        self._complete_before, self._complete = self._complete, True
        return GpuStep(gpu, seconds, working, sole_owner, self._busy_seconds(evidence, seconds))

    def _working(
        self,
        candidates: frozenset[ProcessOwner],
        complete: bool,
        busy: bool | None,
        pids: frozenset[int] | None,
    ) -> frozenset[ProcessOwner]:
        ours = candidates - {NO_OWNER}
        owner_of = {**self._owner_of_before, **self._owner_of}
        known = {owner_of[pid] for pid in self._unknown_pids | (pids or frozenset()) if pid in owner_of}
        in_doubt = not self._unknown_pids <= owner_of.keys() or (self._unexplained and not pids)
        self._unknown_pids, self._unexplained = frozenset(), False
        if busy is None or in_doubt:
            return ours
        if busy and (pids is None or (complete and len(candidates) == 1)):
            return ours
        if busy and pids is not None:
            # The windows and the processes' records are read at different moments, and a process may work
            # before it is in the list. The missing record or owner may therefore be found one step later.
            self._unknown_pids, self._unexplained = pids - owner_of.keys(), not pids
        return frozenset(known) - {NO_OWNER}

    def _busy(self, evidence: _Evidence, time: float) -> bool | None:
        if evidence.is_busy or evidence.pids or any(value > 0 for value in evidence.utilizations):
            return True
        until = max(self._windows_until, self._activities_until)
        is_known = bool(evidence.utilizations) and not self._has_windows
        is_unknown = evidence.is_unknown or (not is_known and time - until > _STALE_S)
        return None if is_unknown else False

    def _pids(self, evidence: _Evidence, time: float) -> frozenset[int] | None:
        """Return the processes that have a record of work, or None if the driver has no records."""
        if not evidence.has_pids or self._working_since is None or time - self._working_since > _STALE_S:
            return None
        return frozenset(evidence.pids)

    def _busy_seconds(self, evidence: _Evidence, seconds: float | None) -> float | None:
        if evidence.seconds:
            return evidence.busy_s
        if self._has_windows or self._has_utilization is False or not evidence.utilizations:
            return None
        mean = sum(evidence.utilizations) / len(evidence.utilizations)
        return None if seconds is None else mean / 100 * seconds


class _Evidence:
    """The evidence that has been collected in one step."""

    def __init__(self) -> None:
        self.utilizations: list[float] = []
        """The utilization in each sample."""
        self.is_busy = False
        self.is_unknown = False
        """Whether a part of the step has neither a window nor a measurement."""
        self.seconds = self.busy_s = 0.0
        """Seconds with a known utilization, and those of them in which a kernel ran."""
        self.pids: set[int] = set()
        self.has_pids = True

    def add(self, utilization: float | None, seconds: float) -> None:
        """Add an interval of ``seconds``; the utilization is in percent."""
        if utilization is not None:
            self.seconds += seconds
            self.busy_s += utilization / 100 * seconds
