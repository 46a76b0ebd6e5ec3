"""One GPU over one run: sums that grow with each sample, in constant memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuwidget.history import Average, Integral
from gpuwidget.measure.attribution import Holding
from gpuwidget.measure.report import Level, Span
from gpuwidget.samples import Activity, Gpu, Reading

SHORTEST_ENERGY_S = 0.1
"""The driver's energy counter and its power readings say nothing of a shorter run."""
_WIDEST_UTILIZATION_WINDOW_S = 1.0
_ACTIVITIES = (
    ("sm_activity", "sm"),
    ("sm_occupancy", "sm_occupancy"),
    ("tensor_activity", "tensor"),
    ("dram_activity", "dram"),
)
_UNANSWERED = "the GPU did not answer in time"
_TOO_SHORT_FOR_ENERGY = f"the run was shorter than {SHORTEST_ENERGY_S:g} s"
_GAP = "the driver did not say it throughout the run"


@dataclass(slots=True)
class _Extent:
    """A quantity of bytes over the run."""

    start: int | None = None
    end: int | None = None
    peak: int | None = None

    def add(self, value: int | None) -> None:
        if value is not None and (self.peak is None or value > self.peak):
            self.peak = value

    def span(self) -> Span:
        return Span(self.start, self.end, self.peak)


@dataclass(slots=True)
class Track:
    """What one GPU read during a run, from :meth:`begin` to :meth:`end`."""

    gpu: Gpu
    reading: Reading
    """The newest reading."""
    widest_gap: float
    """Seconds without a reading from which on what happened in them counts as unknown."""
    used_by_us: bool = False
    """Whether this process was seen to hold memory, or a context, on it."""
    held_at_start: bool | None = None
    """Whether it did at the start; None where nobody can say."""
    process_memory_now: int | None = None
    missing: dict[str, str] = field(default_factory=dict)
    _device: _Extent = field(default_factory=_Extent)
    _process: _Extent = field(default_factory=_Extent)
    _utilization: Average = field(default_factory=Average)
    _power: Average = field(default_factory=Average)
    _energy: Integral = field(default_factory=Integral)
    _idle_j: float = 0.0
    _told_s: float = 0.0
    """Seconds of which it is known whether any kernel ran."""
    _last_power: float | None = None
    _activities: dict[str, Average] = field(default_factory=lambda: {n: Average() for n, _ in _ACTIVITIES})
    _last_activity: float | None = None
    _last_t: float = 0.0
    """When, in seconds since the run's start, its utilization and power were last read."""
    _last_measured: float | None = None
    _was_lost: bool = False

    def begin(self, reading: Reading, holding: Holding, fresh: bool) -> None:
        """The reading just before the run's start; where it is not ``fresh`` the start is unknown."""
        self._meet(reading, holding)
        self._last_measured = reading.measured
        if fresh:
            self._device.start = reading.memory_used
            self._process.start = holding.memory
            self._device.add(reading.memory_used)
            self._process.add(holding.memory)
            self._energy.add(0.0, reading.power_w)
        self.held_at_start = None if holding.memory is None else holding.present

    def join(self, t: float) -> None:
        """It was first seen ``t`` seconds into the run: nothing is known of the time before."""
        self._last_t = t

    def add(self, t: float, reading: Reading, holding: Holding, started: float) -> None:
        """A reading ``t`` seconds into the run that began at ``started`` (epoch seconds)."""
        self._meet(reading, holding)
        self._device.add(reading.memory_used)
        self._process.add(holding.memory)
        if reading.measured is None:
            self._energy.add(t, None)
        elif reading.measured != self._last_measured:
            self._last_measured = reading.measured
            self._measure(t, reading)
        if reading.activity is not None:
            self._add_activity(reading.activity, started)

    def end(self, t: float, reading: Reading, holding: Holding, started: float, fresh: bool) -> None:
        """The reading at the run's end; where it is not ``fresh`` the end is unknown."""
        self.add(t, reading, holding, started)
        if fresh:
            self._device.end = reading.memory_used
            self._process.end = holding.memory

    @property
    def lost_since(self) -> float | None:
        """Since when the driver calls it lost, epoch seconds; None while it is there."""
        return self.reading.lost_since

    @property
    def came_back(self) -> bool:
        """Whether it was lost in the run, and is there again."""
        return self._was_lost and self.lost_since is None

    def _meet(self, reading: Reading, holding: Holding) -> None:
        self.reading = reading
        self.process_memory_now = holding.memory
        self.used_by_us = self.used_by_us or holding.present
        self._was_lost = self._was_lost or reading.lost_since is not None
        if holding.reason is not None:
            self.missing["process_memory"] = holding.reason

    def _measure(self, t: float, reading: Reading) -> None:
        seconds = t - self._last_t
        self._last_t = t
        if seconds > self.widest_gap:
            # Nothing could be read for that long (something held the interpreter): what was is unknown.
            self._energy.add(t, None)
            self._energy.add(t, reading.power_w)
            self._last_power = reading.power_w
            return
        window = reading.utilization_window or _WIDEST_UTILIZATION_WINDOW_S
        # A reading tells of the driver's last window, which may be a window old itself: only from two
        # windows on is it certain to lie inside the run.
        if t >= 2 * window:
            self._utilization.add(reading.utilization, seconds)
            self._add_idle(seconds, reading)
        self._power.add(reading.power_w, seconds)
        self._energy.add(t, reading.power_w)
        self._last_power = reading.power_w

    def _add_idle(self, seconds: float, reading: Reading) -> None:
        if reading.utilization is None or reading.power_w is None or self._last_power is None:
            return
        self._told_s += seconds
        if reading.utilization == 0:
            self._idle_j += seconds * (reading.power_w + self._last_power) / 2

    def _add_activity(self, activity: Activity, started: float) -> None:
        if activity.until == self._last_activity or activity.since < started:
            return
        self._last_activity = activity.until
        for name, source in _ACTIVITIES:
            self._activities[name].add(getattr(activity, source), activity.until - activity.since)

    # -- what the report says ------------------------------------------------------------------------

    def device_memory(self) -> Span:
        """Bytes of the whole GPU in use."""
        span = self._device.span()
        if None in (span.start, span.end):
            self._explain("device_memory", "memory_used", _UNANSWERED)
        return span

    def process_memory(self) -> Span | None:
        """Bytes of this process and its children; None where nobody can say."""
        return None if self._process.peak is None else self._process.span()

    def utilization(self, duration_s: float) -> Level | None:
        """Time-weighted mean of the driver's windows that lay inside the run."""
        window = self.reading.utilization_window or _WIDEST_UTILIZATION_WINDOW_S
        if duration_s < 2 * window:
            short = f"the run was shorter than two of the driver's windows of {window:g} s"
            return self._level("utilization", self._utilization, "utilization", short)
        return self._level("utilization", self._utilization, "utilization", _GAP)

    def activity(self, name: str, duration_s: float) -> Level | None:
        """Time-weighted mean of the hardware counters' windows that lay inside the run."""
        reason = "no window of the hardware counters (0.5 s) lay inside the run"
        return self._level(name, self._activities[name], "activity", reason)

    def power(self, duration_s: float) -> Level | None:
        """Time-weighted mean of instant power, watts."""
        if duration_s < SHORTEST_ENERGY_S:
            self.missing["power_w"] = _TOO_SHORT_FOR_ENERGY
            return None
        return self._level("power_w", self._power, "power_w", _GAP)

    def energy(self, duration_s: float) -> float | None:
        """Integral of instant power over the run, joules."""
        if duration_s < SHORTEST_ENERGY_S:
            self.missing["energy_j"] = _TOO_SHORT_FOR_ENERGY
            return None
        if self._was_lost or self._energy.covered < 0.99 * duration_s:
            self._explain("energy_j", "power_w", _GAP)
            return None
        return self._energy.total

    def energy_idle(self, duration_s: float) -> float | None:
        """What of :meth:`energy` was drawn in windows in which the driver saw no kernel run.

        None where less than nine tenths of the run lay in windows that are known.
        """
        if self.energy(duration_s) is None or self._told_s < 0.9 * duration_s:
            return None
        return self._idle_j

    def _level(self, name: str, average: Average, source: str, reason: str) -> Level | None:
        if average.known:
            return Level(average.mean, average.max)
        self._explain(name, source, reason)
        return None

    def _explain(self, name: str, source: str, otherwise: str) -> None:
        self.missing[name] = self.reading.missing.get(source, otherwise)
