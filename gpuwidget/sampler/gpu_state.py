"""The latest readings of one GPU, assembled from calls made at different rates."""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from gpuwidget.model.messages import Message, message
from gpuwidget.model.metrics import Group, keys
from gpuwidget.model.readings import Activity, Reading
from gpuwidget.model.samples import NOT_READ_YET, Gpu
from gpuwidget.sources import GroupReading, PowerRecord, UtilizationWindow, WorkingProcesses, Xid, unknown

_SILENT = message("gpu-silent", "the GPU does not answer")
_LOST = message("gpu-lost", "the GPU is lost")
_NO_COUNTER_VALUE = message("no-counter-value", "this counter returned no value")
_NEVER = float("-inf")
_MAX_ACTIVITIES = 32
_MAX_WORKING = 32
_GROUPS: tuple[Group, ...] = ("slow", "status", "fast", "memory", "processes", "activity")
_UNREAD = {group: unknown(group, NOT_READ_YET) for group in _GROUPS}
_COUNTERS = keys("activity")
_counter_values = attrgetter(*_COUNTERS)
_XID_FIELDS = frozenset({"xid", "xid_time"})
_VALUES = tuple(
    field.name
    for field in fields(Reading)
    if field.name
    not in ("uuid", "answered", "silent_since", "lost_since", "measured", "missing", "missing_ids")
)


def order(gpu: Gpu) -> tuple[int, int]:
    """Return the sort key for NVML's order of GPUs. A GPU comes before its MIG slices."""
    return (gpu.index, -1 if gpu.mig_index is None else gpu.mig_index)


class GpuState:
    """The latest readings of one GPU. Only the sampler's threads may write to it."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.answered: float | None = None
        self.lost_since: float | None = None
        self.measured: float | None = None
        self.read_at = _NEVER
        """When the last complete fast read began, in monotonic seconds."""
        self.memory_at_processes: int | None = None
        self.processes_read_at = _NEVER
        self.status_read_at = _NEVER
        self.xid: Xid | None = None
        """The newest error that the driver reported. It is kept if the GPU is lost, because it may explain
        the loss."""
        self.activities: tuple[Activity, ...] = ()
        """The latest measurements of the hardware counters, oldest first. Each covers a time window. Enough
        are kept to cover the last 15 s."""
        self.power_samples: tuple[tuple[float, float], ...] = ()
        """The driver's samples of the power, as in :class:`PowerRecord`."""
        self.power_read_at = _NEVER
        """When the driver's samples of the power were last read, in monotonic seconds."""
        self.counter: tuple[float, float] | None = None
        """The energy counter's last reading, as in :class:`PowerRecord`."""
        self.windows: tuple[UtilizationWindow, ...] = ()
        self.working_processes: tuple[WorkingProcesses, ...] = ()
        """The latest readings of the processes that have worked, oldest first."""
        self._failure: Message | None = None
        self._lost_reason = _LOST
        self.removed = False
        """Whether it is a MIG slice that no longer exists. The next opening of the source confirms this."""
        self._hung: dict[object, float] = {}
        self._retry = False
        self._groups = dict(_UNREAD)
        """What was last read of each group of metrics."""

    @property
    def callable(self) -> bool:
        """Whether the GPU may be read: no call to it hangs, and either it is not lost or it was found
        again."""
        return not self._hung and (self.lost_since is None or self._retry)

    @property
    def has_status(self) -> bool:
        """Whether the status has been read since the GPU was last lost."""
        return self.status_read_at != _NEVER

    def set_hung(self, caller: object, since: float) -> None:
        """Record that a call by ``caller``, which began at ``since`` (epoch seconds), has not returned."""
        self._hung[caller] = since

    def set_returned(self, caller: object) -> None:
        """Record that the call by ``caller`` returned."""
        self._hung.pop(caller, None)

    def set_answered(self, now: float) -> None:
        """Record that a call succeeded at ``now`` (epoch seconds). The GPU is therefore not lost."""
        self.answered = now
        self.lost_since = None
        self._lost_reason = _LOST
        self.removed = False
        self._failure = None
        self._retry = False

    def set_found(self, gpu: Gpu) -> None:
        """Record that opening the source found the GPU. A lost GPU stays lost until a call to it succeeds."""
        self.gpu = gpu
        self._retry = True

    def set_lost(self, now: float, reason: Message | None = None, *, removed: bool = False) -> None:
        """Record that the GPU is lost, with the reason if it is known, and drop its readings.

        With ``removed``, it is a MIG slice that no longer exists.
        """
        self.removed = removed
        if self.lost_since is None:
            self.lost_since = now
        if reason is not None:
            self._lost_reason = reason
        self._retry = False
        self._clear()

    def set_failed(self, reason: Message) -> None:
        """Record an unexpected error, and drop the readings. The next poll reads the GPU again."""
        self._failure = reason
        self._clear()

    def store(self, group: Group, reading: GroupReading) -> None:
        """Store what was read of a group of metrics."""
        self._groups[group] = reading
        if group == "fast":
            self._groups["memory"] = reading  # It contains the memory in use, too, and is newer.
        elif group == "slow":
            # If XIDs could not be read, keep the last one.
            newest = reading.values["xid"]
            if newest is not None or "xid" not in reading.missing:
                self.xid = newest

    @property
    def activity(self) -> Activity | None:
        """The newest measurement of the hardware counters, if it is still to be shown."""
        activity: Activity | None = self._groups["activity"].values["activity"]
        return activity

    def add_activity(self, reading: GroupReading) -> None:
        """Store a new measurement of the hardware counters."""
        self.store("activity", reading)
        self.activities = (*self.activities, reading.values["activity"])[-_MAX_ACTIVITIES:]

    def drop_activity(self) -> None:
        """Show no measurement of the hardware counters until there is a new one."""
        if self.activity is not None:
            self.store("activity", _UNREAD["activity"])

    def add_working_processes(self, working: WorkingProcesses) -> None:
        """Store a new reading of the processes that have worked."""
        self.working_processes = (*self.working_processes, working)[-_MAX_WORKING:]

    def _clear(self) -> None:
        self.measured = None
        self._groups = dict(_UNREAD)
        self.power_samples, self.counter = (), None
        self.windows = ()
        self.working_processes = ()
        self.activities = ()
        self.processes_read_at = self.status_read_at = _NEVER

    @property
    def power_record(self) -> PowerRecord:
        """What the driver has recorded about the GPU's power."""
        return PowerRecord(self.power_samples, self.counter)

    def reading(self) -> Reading:
        silent_since = min(self._hung.values(), default=None)
        reason = self._failure
        if silent_since is not None:
            reason = _SILENT
        if self.lost_since is not None:
            reason = self._lost_reason
        if reason is not None:
            unknown = unknown_reading(self.gpu.uuid, self.answered, silent_since, self.lost_since, reason)
            return _with_xid(unknown, self.xid)
        values: dict[str, Any] = {}
        missing: dict[str, Message] = {}
        for group in self._groups.values():
            values.update(group.values)
            missing.update(group.missing)
        if values["memory_used"] is not None:
            missing.pop("memory_used", None)  # The last full poll may have failed to read it.
        activity = values["activity"]
        if activity is None:
            missing.setdefault("activity", NOT_READ_YET)
        else:
            for name, value in zip(_COUNTERS, _counter_values(activity), strict=True):
                if value is None:
                    missing.setdefault(name, _NO_COUNTER_VALUE)
        reading = Reading(
            uuid=self.gpu.uuid,
            answered=self.answered,
            silent_since=None,
            lost_since=None,
            measured=self.measured,
            **{**values, "xid": None},
            xid_time=None,
            missing=missing,
        )
        return _with_xid(reading, self.xid)


def unknown_reading(
    uuid: str, answered: float | None, silent_since: float | None, lost_since: float | None, reason: Message
) -> Reading:
    """Return a reading in which every value is missing for ``reason``."""
    values: dict[str, Any] = dict.fromkeys(_VALUES)
    return Reading(
        uuid=uuid,
        answered=answered,
        silent_since=silent_since,
        lost_since=lost_since,
        measured=None,
        missing=dict.fromkeys(_VALUES, reason),
        **values,
    )


def _with_xid(reading: Reading, xid: Xid | None) -> Reading:
    if xid is None:
        return reading
    missing = {name: reason for name, reason in reading.missing.items() if name not in _XID_FIELDS}
    return replace(reading, xid=xid.number, xid_time=xid.time, missing=missing)
