"""One GPU over one run: sums that grow with each sample, in constant memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuwidget.measure.process_memory import Holding
from gpuwidget.measure.running_stats import Average, Integral
from gpuwidget.model.readings import Activity, Reading
from gpuwidget.model.report import Level, Span, Traffic
from gpuwidget.model.samples import Gpu
from gpuwidget.sources.throttle_reasons import IDLE

SHORTEST_ENERGY_S = 0.1
"""The driver's energy counter and its power readings say nothing of a shorter run."""
_WIDEST_UTILIZATION_WINDOW_S = 1.0
_ACTIVITIES = (
    ("sm_activity", "sm"),
    ("sm_occupancy", "sm_occupancy"),
    ("tensor_activity", "tensor"),
    ("fp32_activity", "fp32"),
    ("dram_activity", "dram"),
    ("pcie_tx", "pcie_tx"),
    ("pcie_rx", "pcie_rx"),
    ("nvlink_tx", "nvlink_tx"),
    ("nvlink_rx", "nvlink_rx"),
)
_NEVER = Average()
_CLOCKS_EVERY_S = 2.0
"""Seconds between two readings of what holds the clocks down."""
_CLOCKS_SHORT = "the run was shorter than the 2 s between two readings of it"
_AT_REST = 10.0
"""Percent of utilization up to which a GPU rests between two bursts of work."""
_AT_WORK = 20.0
"""Percent from which on it is in a burst."""
_UNANSWERED = "the GPU did not answer in time"
_TOO_SHORT_FOR_ENERGY = f"the run was shorter than {SHORTEST_ENERGY_S:g} s"
_TOO_FEW_WINDOWS = "less than nine tenths of the run lay in windows of the driver's that are known"
_GAP = "the driver did not say it throughout the run"
_LEAST_COUNTED = 0.6
"""Of a run, that must lie in windows of the hardware counters."""
_TOO_LITTLE_COUNTED = "the windows of the hardware counters (0.5 s) inside the run leave out too much of it"


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
    own_at_start: bool | None = None
    """Whether it itself, its children aside, had a context at the start; None where nobody can say."""
    own: bool = False
    """Whether it was seen to have one."""
    children: dict[int, str] = field(default_factory=dict)
    """Its children that held memory there, by process id: their programs."""
    process_memory_now: int | None = None
    missing: dict[str, str] = field(default_factory=dict)
    _device: _Extent = field(default_factory=_Extent)
    _process: _Extent = field(default_factory=_Extent)
    _children: _Extent = field(default_factory=_Extent)
    _utilization: Average = field(default_factory=Average)
    _memory_utilization: Average = field(default_factory=Average)
    _bursts: int = 0
    _rested: bool = False
    _power: Average = field(default_factory=Average)
    _throttled: dict[str, float] | None = None
    _energy: Integral = field(default_factory=Integral)
    _idle_j: float = 0.0
    _told_j: float = 0.0
    _told_s: float = 0.0
    """Seconds of which it is known whether any kernel ran, their joules, and of these the ones without."""
    _last_power: float | None = None
    _activities: dict[str, Average] = field(default_factory=dict)
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
            self._children.start = holding.children_memory
            self._device.add(reading.memory_used)
            self._process.add(holding.memory)
            self._children.add(holding.children_memory)
            self._energy.add(0.0, reading.power_w)
        self.own_at_start = None if holding.memory is None else holding.own

    def join(self, t: float) -> None:
        """It was first seen ``t`` seconds into the run: nothing is known of the time before."""
        self._last_t = t

    def add(self, t: float, reading: Reading, holding: Holding, started: float) -> None:
        """A reading ``t`` seconds into the run that began at ``started`` (epoch seconds)."""
        self._meet(reading, holding)
        self._device.add(reading.memory_used)
        self._process.add(holding.memory)
        self._children.add(holding.children_memory)
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
            self._children.end = holding.children_memory

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
        self.own = self.own or holding.own
        for child in holding.children:
            self.children[child.pid] = child.program or f"process {child.pid}"
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
            self._memory_utilization.add(reading.memory_utilization, seconds)
            self._count_bursts(reading.utilization)
            self._add_idle(seconds, reading)
        if t >= _CLOCKS_EVERY_S:  # before that it may be what held the clock down before the run
            self._add_throttle(reading.throttle, seconds)
        self._power.add(reading.power_w, seconds)
        self._energy.add(t, reading.power_w)
        self._last_power = reading.power_w

    def _add_idle(self, seconds: float, reading: Reading) -> None:
        if reading.utilization is None or reading.power_w is None or self._last_power is None:
            return
        drawn = seconds * (reading.power_w + self._last_power) / 2
        self._told_s += seconds
        self._told_j += drawn
        if reading.utilization == 0:
            self._idle_j += drawn

    def _count_bursts(self, utilization: float | None) -> None:
        if utilization is None:
            return
        if utilization <= _AT_REST:
            self._rested = True
        elif utilization >= _AT_WORK and self._rested:
            self._rested = False
            self._bursts += 1

    def _add_throttle(self, reasons: tuple[str, ...] | None, seconds: float) -> None:
        if reasons is None:
            return
        if self._throttled is None:
            self._throttled = {}
        for reason in reasons:
            if reason != IDLE:
                self._throttled[reason] = self._throttled.get(reason, 0.0) + seconds

    def _add_activity(self, activity: Activity, started: float) -> None:
        if activity.until == self._last_activity or activity.since < started:
            return
        self._last_activity = activity.until
        for name, source in _ACTIVITIES:
            average = self._activities.setdefault(name, Average())
            average.add(getattr(activity, source), activity.until - activity.since)

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

    def children_memory(self) -> Span | None:
        """Bytes of :meth:`process_memory` that its children held; None where none did, or nobody can say."""
        return self._children.span() if self._children.peak else None

    def utilization(self, duration_s: float) -> Level | None:
        """Time-weighted mean of the driver's windows that lay inside the run."""
        return self._of_windows("utilization", self._utilization, duration_s)

    def _of_windows(self, name: str, average: Average, duration_s: float) -> Level | None:
        window = self.reading.utilization_window or _WIDEST_UTILIZATION_WINDOW_S
        if duration_s < 2 * window:
            short = f"the run was shorter than two of the driver's windows of {window:g} s"
            return self._level(name, average, name, short)
        return self._level(name, average, name, _GAP)

    def activity(self, name: str, duration_s: float) -> Level | None:
        """Time-weighted mean of the hardware counters' windows that lay inside the run.

        None where they leave out more than two fifths of it, in which anything may have been.
        """
        average, reason = self._counted(name, duration_s)
        return self._level(name, average, "activity", reason)

    def traffic(self, link: str, duration_s: float) -> Traffic | None:
        """Bytes a second over ``pcie`` or ``nvlink``, as the counters' windows inside the run have them."""
        (sent, reason), (received, _) = (self._counted(f"{link}_{way}", duration_s) for way in ("tx", "rx"))
        if not sent.known and not received.known:
            self._explain(link, "activity", reason)
            return None
        return Traffic(_known_level(sent), _known_level(received))

    def _counted(self, name: str, duration_s: float) -> tuple[Average, str]:
        """What a counter's windows said, and why it is nothing if so."""
        if not self._activities:
            return _NEVER, "no window of the hardware counters (0.5 s) lay inside the run"
        average = self._activities[name]
        if average.known and average.seconds < _LEAST_COUNTED * duration_s:
            return _NEVER, _TOO_LITTLE_COUNTED
        return average, "this counter gave no value"

    def memory_utilization(self, duration_s: float) -> Level | None:
        """Time-weighted mean of the share of time in which device memory was read or written."""
        return self._of_windows("memory_utilization", self._memory_utilization, duration_s)

    @property
    def bursts(self) -> int | None:
        """How often utilization rose from rest to work; None where it is unknown."""
        return self._bursts if self._utilization.known else None

    def throttled(self) -> Mapping[str, float] | None:
        """Seconds by what held the clock down; None where the driver did not say."""
        if self._throttled is None:
            self._explain("throttled", "throttle", _GAP if self._last_t >= _CLOCKS_EVERY_S else _CLOCKS_SHORT)
            return None
        return dict(self._throttled)

    def power_limit(self) -> float | None:
        """Watts that it may draw, as last read."""
        if self.reading.power_limit_w is None:
            self._explain("power_limit_w", "power_limit_w", _GAP)
        return self.reading.power_limit_w

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
        if not self._knows_idle(duration_s):
            self.missing["energy_idle_j"] = _TOO_FEW_WINDOWS
        if self._was_lost or self._energy.covered < 0.99 * duration_s:
            self._explain("energy_j", "power_w", _GAP)
            return None
        return self._energy.total

    def energy_idle(self, duration_s: float) -> float | None:
        """What of :meth:`energy` was drawn while no kernel ran, by the share in the driver's known windows.

        None where less than nine tenths of the run lay in such windows.
        """
        total = self.energy(duration_s)
        if total is None or not self._knows_idle(duration_s) or self._told_j <= 0:
            return None
        return total * self._idle_j / self._told_j

    def _knows_idle(self, duration_s: float) -> bool:
        return self._told_s >= 0.9 * duration_s

    def _level(self, name: str, average: Average, source: str, reason: str) -> Level | None:
        level = _known_level(average)
        if level is None:
            self._explain(name, source, reason)
        return level

    def _explain(self, name: str, source: str, otherwise: str) -> None:
        self.missing[name] = self.reading.missing.get(source, otherwise)


def _known_level(average: Average) -> Level | None:
    return Level(average.mean, average.max) if average.known else None
