"""What is known of one GPU, put together from calls made at different rates."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from gpuwidget.model.samples import NOT_READ_YET, Activity, Gpu, Process, Reading
from gpuwidget.sources import Fast, Slow, Steady, Window, Xid

_NEVER = float("-inf")
_MOST_ACTIVITIES = 32
_NO_FAST = Fast(None, None, None, None, {})
_NO_STEADY = Steady(None, None, None, None, None, None, {})
_NO_SLOW = Slow(
    None,
    None,
    None,
    None,
    None,
    dict.fromkeys(("energy_j", "utilization_window", "ecc_uncorrected", "xid"), NOT_READ_YET),
)
_OF_ERRORS = frozenset({"xid", "xid_time"})
_VALUES = tuple(
    field.name
    for field in fields(Reading)
    if field.name not in ("uuid", "answered", "silent_since", "lost_since", "measured", "missing")
)


class GpuState:
    """The newest answers of one GPU; written by the sampler's threads only."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.answered: float | None = None
        self.lost_since: float | None = None
        self.fast = _NO_FAST
        self.measured: float | None = None
        self.memory_used: int | None = None
        self.processes: tuple[Process, ...] | None = None
        self.memory_at_processes: int | None = None
        self.processes_read = _NEVER
        self.steady = _NO_STEADY
        self.steady_read = _NEVER
        self.slow = _NO_SLOW
        self.xid: Xid | None = None
        """The newest error that the driver reported: true of a lost GPU too, and then most wanted."""
        self.activity: Activity | None = None
        self.activities: tuple[Activity, ...] = ()
        """The last windows of the hardware counters, oldest first; at least 15 s of them."""
        self.windows: tuple[Window, ...] = ()
        self._failure: str | None = None
        self._hung: dict[object, float] = {}
        self._retry = False

    @property
    def order(self) -> tuple[int, int]:
        """Where it stands among the others: NVML's order, a parent before its slices."""
        return (self.gpu.index, -1 if self.gpu.mig_index is None else self.gpu.mig_index)

    @property
    def reachable(self) -> bool:
        """Whether it may be called: no call to it hangs, and it is not lost or was found anew since."""
        return not self._hung and (self.lost_since is None or self._retry)

    @property
    def steady_known(self) -> bool:
        """Whether what changes slowly has been read."""
        return self.steady_read != _NEVER

    def hang(self, caller: object, since: float) -> None:
        """A call by ``caller`` has not returned since ``since`` (epoch seconds)."""
        self._hung[caller] = since

    def returned(self, caller: object) -> None:
        """The call by ``caller`` has returned."""
        self._hung.pop(caller, None)

    def answer(self, now: float) -> None:
        """It answered a call: it is not lost, or not any more."""
        self.answered = now
        self.lost_since = None
        self._failure = None
        self._retry = False

    def found(self, gpu: Gpu) -> None:
        """Opening the source found it. For a lost one that is no proof of health: its next answer is."""
        self.gpu = gpu
        self._retry = True

    def take_slow(self, slow: Slow) -> None:
        """What the slow calls say; where nobody can say what errors there were, those known remain."""
        self.slow = slow
        if slow.xid is not None and slow.xid_time is not None:
            self.xid = Xid(slow.xid, slow.xid_time)
        elif "xid" not in slow.missing:
            self.xid = None

    def add_activity(self, activity: Activity) -> None:
        """Store a new window of the hardware counters."""
        self.activity = activity
        self.activities = (*self.activities, activity)[-_MOST_ACTIVITIES:]

    def lose(self, now: float) -> None:
        """The driver calls it lost; what was read before says nothing any more."""
        if self.lost_since is None:
            self.lost_since = now
        self._retry = False
        self._forget()

    def fail(self, reason: str) -> None:
        """It could not be read, for a reason no source foresaw; the next reading is tried all the same."""
        self._failure = reason
        self._forget()

    def _forget(self) -> None:
        self.measured = None
        self.fast, self.steady, self.slow = _NO_FAST, _NO_STEADY, _NO_SLOW
        self.memory_used = self.processes = self.activity = None
        self.windows = ()
        self.activities = ()
        self.processes_read = self.steady_read = _NEVER

    def reading(self) -> Reading:
        """The reading as of now."""
        silent_since = min(self._hung.values(), default=None)
        reason = self._failure
        if silent_since is not None:
            reason = "the GPU does not answer"
        if self.lost_since is not None:
            reason = "the GPU is lost"
        if reason is not None:
            blank = _blank(self.gpu.uuid, self.answered, silent_since, self.lost_since, reason)
            return _with_xid(blank, self.xid)
        fast, steady, slow = self.fast, self.steady, self.slow
        reading = Reading(
            uuid=self.gpu.uuid,
            answered=self.answered,
            silent_since=None,
            lost_since=None,
            measured=self.measured,
            utilization=fast.utilization,
            utilization_window=slow.utilization_window,
            memory_utilization=fast.memory_utilization,
            memory_used=self.memory_used,
            power_w=fast.power_w,
            power_limit_w=steady.power_limit_w,
            temperature_c=steady.temperature_c,
            memory_temperature_c=steady.memory_temperature_c,
            sm_clock_mhz=steady.sm_clock_mhz,
            pstate=steady.pstate,
            throttle=steady.throttle,
            energy_j=slow.energy_j,
            ecc_uncorrected=slow.ecc_uncorrected,
            xid=None,
            xid_time=None,
            activity=self.activity,
            processes=self.processes,
            missing={**slow.missing, **steady.missing, **fast.missing},
        )
        return _with_xid(reading, self.xid)


def _blank(
    uuid: str, answered: float | None, silent_since: float | None, lost_since: float | None, reason: str
) -> Reading:
    unknown: dict[str, Any] = dict.fromkeys(_VALUES)
    return Reading(
        uuid=uuid,
        answered=answered,
        silent_since=silent_since,
        lost_since=lost_since,
        measured=None,
        missing=dict.fromkeys(_VALUES, reason),
        **unknown,
    )


def _with_xid(reading: Reading, xid: Xid | None) -> Reading:
    if xid is None:
        return reading
    missing = {name: reason for name, reason in reading.missing.items() if name not in _OF_ERRORS}
    return replace(reading, xid=xid.number, xid_time=xid.time, missing=missing)
