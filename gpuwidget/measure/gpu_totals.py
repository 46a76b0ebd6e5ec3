"""Add up one GPU's readings over a run: means, peaks and energy, in constant memory."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache

from gpuwidget.measure import reasons
from gpuwidget.measure.energy import EnergyMeter
from gpuwidget.measure.process_memory import ProcessMemory
from gpuwidget.measure.progress import SoFar
from gpuwidget.model.messages import Message
from gpuwidget.model.metrics import REPORTED, Metric, keys
from gpuwidget.model.readings import Activity, Reading
from gpuwidget.model.report import Level, Span, Traffic
from gpuwidget.model.samples import Gpu, why_missing
from gpuwidget.sources import PowerRecord
from gpuwidget.sources.throttle_reasons import IDLE

MIN_ENERGY_S = 0.1
"""Minimum duration of a run, in seconds, for its report to contain energy and power."""
_MAX_UTILIZATION_WINDOW_S = 1.0
_COUNTERS = keys("activity")
_READINGS = tuple(metric.key for metric, _ in REPORTED if metric.key not in _COUNTERS)
"""The reported metrics that are fields of :class:`Reading`."""
_CLOCKS_EVERY_S = 2.0
"""Seconds between two readings of the throttle reasons."""
_IDLE_BELOW = 10.0
"""Utilization, in percent, at or below which a GPU counts as idle between two bursts of work."""
_BUSY_FROM = 20.0
"""Utilization, in percent, at or above which a GPU counts as being in a burst of work."""
_MIN_ENERGY_KNOWN = 0.99
"""Minimum fraction of the run for which the power must be known for the energy to be reported."""
_MIN_COUNTED = 0.6
"""Minimum fraction of the run that the hardware counters' windows must cover for a mean to be reported."""
_MIN_IDLE_KNOWN = 0.9
"""Minimum fraction of the run that the driver's utilization windows must cover for the idle energy to be
reported."""
_CLOCK_MARGIN_S = 1.0
"""Maximum number of seconds by which the system's clock and the monotonic clock may differ during a run."""
_MAX_PARTS = 64
"""Maximum number of parts of a run for which rates are kept separately."""
_FIRST_PART_S = 0.5
"""Length, in seconds, of the parts of a short run: that of the hardware counters' windows."""


@dataclass(slots=True)
class Average:
    """Maximum and time-weighted mean of a value."""

    seconds: float = 0.0
    """Seconds for which the value is known."""
    _sum: float = 0.0
    _max: float = float("-inf")

    def add(self, value: float | None, seconds: float, highest: float | None = None) -> None:
        """Add ``value``, which was measured over ``seconds``. Ignore None and a duration of zero or less.

        ``highest`` is the highest value in these seconds, if that isn't ``value``.
        """
        if value is None or seconds <= 0:
            return
        self._sum += value * seconds
        self.seconds += seconds
        self._max = max(self._max, value if highest is None else highest)

    def include(self, other: Average) -> None:
        """Add the values of another average."""
        self._sum += other._sum
        self.seconds += other.seconds
        self._max = max(self._max, other._max)

    @property
    def known(self) -> bool:
        """Whether any value has been added."""
        return self.seconds > 0

    def level(self) -> Level | None:
        """Return the mean and the maximum, or None if no value has been added."""
        return Level(self._sum / self.seconds, self._max) if self.known else None


@dataclass(slots=True)
class _MemorySpan:
    """Bytes at the run's start and end, and their peak."""

    start: int | None = None
    end: int | None = None
    peak: int | None = None

    def add(self, value: int | None) -> None:
        if value is not None and (self.peak is None or value > self.peak):
            self.peak = value

    def span(self) -> Span:
        return Span(self.start, self.end, self.peak)


_NO_VALUES = Average()
_TOO_SHORT_FOR_ENERGY = reasons.TOO_SHORT(seconds=MIN_ENERGY_S)


@dataclass(slots=True)
class Rates:
    """One GPU's rates over a run, or over a part of it."""

    since: float = 0.0
    """When the part begins, in seconds since the run's start."""
    until: float = 0.0
    """When the last value was added, in seconds since the run's start."""
    utilization: Average = field(default_factory=Average)
    power: Average = field(default_factory=Average)
    readings: dict[str, Average] = field(default_factory=lambda: {key: Average() for key in _READINGS})
    """The other reported readings, by the keys of their metrics."""
    activities: dict[str, Average] = field(default_factory=dict)
    """The hardware counters, by the keys of their metrics."""
    bursts: int = 0
    """How often utilization rose from idle to busy."""
    throttled: dict[str, float] | None = None
    """Throttled seconds by reason, or None if the throttle reasons are unknown."""

    def add_throttle(self, throttle: tuple[str, ...], seconds: float) -> None:
        """Add throttle reasons that held for ``seconds``."""
        if self.throttled is None:
            self.throttled = {}
        for reason in throttle:
            if reason != IDLE:
                self.throttled[reason] = self.throttled.get(reason, 0.0) + seconds

    def add_activity(self, activity: Activity) -> None:
        """Add one window of the hardware counters."""
        for key in _COUNTERS:
            average = self.activities.setdefault(key, Average())
            average.add(getattr(activity, key), activity.until - activity.since)

    def include(self, later: Rates) -> None:
        """Add the rates of a later part."""
        self.until = later.until
        self.utilization.include(later.utilization)
        self.power.include(later.power)
        for key, average in later.readings.items():
            self.readings[key].include(average)
        for key, average in later.activities.items():
            self.activities.setdefault(key, Average()).include(average)
        self.bursts += later.bursts
        for reason, seconds in (later.throttled or {}).items():
            self.add_throttle((reason,), seconds)
        if self.throttled is None and later.throttled is not None:
            self.throttled = {}


class RateParts:
    """One GPU's rates for each part of a run, so that the rates over a time range can be computed.

    If there are too many parts, neighboring ones are merged, so that each becomes twice as long.
    """

    def __init__(self) -> None:
        self._parts: list[Rates] = []
        self._length_s = _FIRST_PART_S

    def at(self, t: float) -> Rates:
        """Return the part to which a value read ``t`` seconds into the run is added."""
        while not self._parts or t >= self._parts[-1].since + self._length_s:
            if len(self._parts) < _MAX_PARTS:
                self._parts.append(Rates(since=t // self._length_s * self._length_s))
            else:
                self._merge()
        part = self._parts[-1]
        part.until = t
        return part

    def _merge(self) -> None:
        self._length_s *= 2
        merged: list[Rates] = []
        for part in self._parts:
            if merged and part.since < merged[-1].since + self._length_s:
                merged[-1].include(part)
            else:
                part.since = part.since // self._length_s * self._length_s
                merged.append(part)
        self._parts = merged

    def utilization(self) -> list[tuple[float, float, float | None]]:
        """Return the beginning, the end and the mean utilization of each part, in chronological order."""
        found = []
        for part in self._parts:
            level = part.utilization.level()
            found.append((part.since, part.until, None if level is None else level.mean))
        return found

    def between(self, since: float, until: float) -> Rates:
        """Return the rates over the parts that lie between ``since`` and ``until``."""
        found = Rates(since=since)
        for part in self._parts:
            if part.since >= since and part.until <= until:
                found.include(part)
        return found


@dataclass(slots=True)
class GpuTotals:
    """Adds up one GPU's readings during a run, from :meth:`begin` to :meth:`end`."""

    gpu: Gpu
    reading: Reading
    """The newest reading."""
    max_gap_s: float
    """If two readings are further apart than this many seconds, the time between them counts as unknown."""
    used_by_process: bool = False
    """Whether this process or one of its children has held memory or had a CUDA context on the GPU."""
    listed: bool = False
    """Whether the driver has listed the GPU's processes in any reading, with ids that are valid here."""
    shared: bool = False
    """Whether other compute processes have been on the GPU in any reading."""
    had_context: bool | None = None
    """Whether this process itself had a CUDA context on the GPU at the start, or None if unknown."""
    has_context: bool = False
    """Whether this process itself has had a CUDA context on the GPU in any reading."""
    children: dict[int, str] = field(default_factory=dict)
    """Programs of this process's children that held memory on the GPU, by process id."""
    process_memory_now: int | None = None
    missing: dict[str, Message] = field(default_factory=dict)
    """The reason for each field of the report that is None, by field name."""
    _device: _MemorySpan = field(default_factory=_MemorySpan)
    _process: _MemorySpan = field(default_factory=_MemorySpan)
    _children: _MemorySpan = field(default_factory=_MemorySpan)
    rates: Rates = field(default_factory=Rates)
    parts: RateParts | None = None
    """The rates for each part of the run, or None if they are not kept."""
    _was_idle: bool = False
    _energy: EnergyMeter = field(init=False)
    _energy_of_part: Average | None = None
    """The power of the part of the run that these totals cover, or None if they cover the whole run."""
    _unanswered: bool = False
    """Whether the GPU has not answered since :attr:`_last_t`."""
    _gap_s: float = 0.0
    """The longest time, in seconds, for which the GPU was not read because gpuwidget could not run."""
    _idle_known_s: float = 0.0
    """Seconds for which it is known whether any CUDA kernel ran."""
    _idle_known_j: float = 0.0
    """Joules drawn during the seconds counted in :attr:`_idle_known_s`."""
    _idle_j: float = 0.0
    """The part of :attr:`_idle_known_j` that was drawn while no CUDA kernel ran."""
    _last_power: float | None = None
    _last_activity: float | None = None
    counted: Activity | None = None
    """The newest window of the hardware counters that lies inside the run."""
    _counter_window_s: float | None = None
    """Length of the longest window of the hardware counters that was read, or None if none was read."""
    _last_t: float = 0.0
    """When the GPU's utilization and power were last read, in seconds since the run's start."""
    _last_measured: float | None = None
    _was_lost: bool = False
    fresh: bool = True
    """Whether the GPU has been read for the run. Until then, its readings are from before the run and do not
    count."""
    _requested_at: float = float("-inf")

    def __post_init__(self) -> None:
        self._energy = EnergyMeter(self.max_gap_s)

    # -- adding readings -----------------------------------------------------------------------------

    def begin(self, reading: Reading, held: ProcessMemory, fresh: bool, requested_at: float) -> None:
        """Add the reading taken just before the run. If ``fresh`` is False, the reading is too old, and the
        start values are unknown. In that case, only readings from ``requested_at`` (epoch seconds) or later
        count.
        """
        self._update(reading, held)
        self._last_measured = reading.measured
        self.fresh, self._requested_at = fresh, requested_at
        if reading.activity is not None:
            # Its epoch seconds do not prove that it is from before the run if the clock was set back.
            self._last_activity = reading.activity.until
        self._energy.add(0.0, reading.power_w if fresh else None)
        if fresh:
            self._device.start = reading.memory_used
            self._process.start = held.memory
            self._children.start = held.children_memory
            self._add_memory(reading, held)
        self.had_context = None if held.memory is None else held.own

    def begin_late(self, t: float) -> None:
        """Begin ``t`` seconds into the run, when the GPU first appears. The earlier part of the run counts as
        unknown."""
        self._last_t = t

    def add_power(self, record: PowerRecord, began: float) -> None:
        """Add the driver's records of the power. The run began at ``began`` (monotonic seconds)."""
        self._energy.add_record(record, began)

    def add(self, t: float, reading: Reading, held: ProcessMemory, started: float, driver_s: float) -> None:
        """Add a reading ``t`` seconds into the run that began at ``started`` (epoch seconds).

        ``driver_s`` is how many seconds the driver took for the sample that contains the reading.
        """
        self._update(reading, held)
        if not self.fresh and reading.measured is not None:
            self.fresh = reading.measured >= self._requested_at
        if self.fresh:
            self._add_memory(reading, held)
        if reading.measured is None:
            self._energy.add(t, None)
            self._unanswered = True
        elif self.fresh and reading.measured != self._last_measured:
            self._last_measured = reading.measured
            self._add_rates(t, reading, driver_s)
        if reading.activity is not None:
            self._add_activity(t, reading.activity, started)

    def end(
        self,
        t: float,
        reading: Reading,
        held: ProcessMemory,
        started: float,
        driver_s: float,
        *,
        fresh: bool,
    ) -> None:
        """Add the reading taken at the run's end. If ``fresh`` is False, the reading is too old, and the end
        values are unknown."""
        self.add(t, reading, held, started, driver_s)
        if fresh:
            self._device.end = reading.memory_used
            self._process.end = held.memory
            self._children.end = held.children_memory

    def _update(self, reading: Reading, held: ProcessMemory) -> None:
        self.reading = reading
        self.process_memory_now = held.memory
        self.used_by_process = self.used_by_process or held.present
        self.has_context = self.has_context or held.own
        self.listed = self.listed or held.listed
        self.shared = self.shared or held.shared
        for child in held.children:
            self.children[child.pid] = child.program or f"process {child.pid}"
        self._was_lost = self._was_lost or reading.lost_since is not None
        if held.reason is not None:
            self.missing["process_memory"] = held.reason

    def _add_memory(self, reading: Reading, held: ProcessMemory) -> None:
        self._device.add(reading.memory_used)
        self._process.add(held.memory)
        self._children.add(held.children_memory)

    def _add_rates(self, t: float, reading: Reading, driver_s: float) -> None:
        seconds = t - self._last_t
        self._last_t = t
        if seconds > self.max_gap_s:
            # Nothing was read for too long, so this time counts as unknown. If the driver did not take that
            # long, gpuwidget's threads could not run.
            if not self._unanswered and driver_s < seconds / 2:
                self._gap_s = max(self._gap_s, seconds)
            self._unanswered = False
            self._energy.add(t, reading.power_w)
            self._last_power = reading.power_w
            return
        self._unanswered = False
        window = reading.utilization_window or _MAX_UTILIZATION_WINDOW_S
        # A reading covers the driver's latest window, which may have ended up to one window length before the
        # reading. The window is certain to lie inside the run only if the reading is at least two window
        # lengths after the start.
        is_burst = False
        if t >= 2 * window:
            is_burst = self._begins_burst(reading.utilization)
            self._add_idle_energy(seconds, reading)
        for rates in self._rates_at(t):
            if t >= 2 * window:
                rates.utilization.add(reading.utilization, seconds)
                for key, average in rates.readings.items():
                    average.add(getattr(reading, key), seconds)
                rates.bursts += is_burst
            # Earlier samples may contain throttle reasons from before the run.
            if t >= _CLOCKS_EVERY_S and reading.throttle is not None:
                rates.add_throttle(reading.throttle, seconds)
            rates.power.add(_mean_power(self._last_power, reading.power_w), seconds, reading.power_w)
        self._energy.add(t, reading.power_w)
        self._last_power = reading.power_w

    def _add_idle_energy(self, seconds: float, reading: Reading) -> None:
        watts = _mean_power(self._last_power, reading.power_w)
        if reading.utilization is None or watts is None:
            return
        joules = seconds * watts
        self._idle_known_s += seconds
        self._idle_known_j += joules
        if reading.utilization == 0:
            self._idle_j += joules

    def _rates_at(self, t: float) -> tuple[Rates, ...]:
        """Return the rates to which a value read ``t`` seconds into the run is added."""
        return (self.rates,) if self.parts is None else (self.rates, self.parts.at(t))

    def _begins_burst(self, utilization: float | None) -> bool:
        if utilization is None:
            return False
        if utilization <= _IDLE_BELOW:
            self._was_idle = True
        elif utilization >= _BUSY_FROM and self._was_idle:
            self._was_idle = False
            return True
        return False

    def _add_activity(self, t: float, activity: Activity, started: float) -> None:
        if activity.until == self._last_activity:
            return
        self._counter_window_s = max(self._counter_window_s or 0.0, activity.until - activity.since)
        # A window that ends later than now is from before the system's clock was set back.
        if activity.since < started or activity.until > started + t + _CLOCK_MARGIN_S:
            return
        self._last_activity = activity.until
        self.counted = activity
        for rates in self._rates_at(t):
            rates.add_activity(activity)

    # -- the report's values -------------------------------------------------------------------------

    def between(self, since: float, until: float) -> GpuTotals:
        """Return these totals with the rates of the time between ``since`` and ``until`` only.

        Memory and energy remain those of the whole run.
        """
        rates = self.rates if self.parts is None else self.parts.between(since, until)
        part = replace(self, rates=rates, parts=None, missing=dict(self.missing))
        part._energy, part._energy_of_part = self._energy, rates.power
        return part

    def so_far_ended(self) -> GpuTotals:
        """Return a copy in which the run ends with the newest reading. It shares the rates with the original,
        and is valid until the original gets its next reading."""
        copy = replace(self, missing=dict(self.missing))
        # The energy's last powers are integrated early, although the driver's samples of them come later.
        copy._energy = deepcopy(self._energy)
        if self.fresh:
            copy._device = replace(self._device, end=self.reading.memory_used)
            copy._process = replace(self._process, end=self.process_memory_now)
        return copy

    def worked(self, torch_allocated: bool | None, stream_busy: bool) -> bool | None:
        """Return whether this process or its children worked on the GPU; None if unknown.

        The result is False if there is no sign of work. ``torch_allocated`` is whether torch has allocated
        memory on the GPU during the run, or None if unknown. ``stream_busy`` is whether a CUDA stream of this
        process was seen working there.
        """
        held = self._process
        changed = held.start is not None and {held.start} != {held.peak, held.end} - {None}
        opened = self.had_context is False and self.has_context
        if torch_allocated or stream_busy or changed or opened or self.children:
            return True
        level = self.rates.utilization.level()
        if self.listed and (not self.used_by_process or (level is not None and level.max == 0)):
            return False
        if self.listed and not self.shared:
            return True if level is not None else torch_allocated
        return torch_allocated

    @property
    def lost_since(self) -> float | None:
        """When the GPU was lost, in epoch seconds, or None if the GPU is available."""
        return self.reading.lost_since

    @property
    def came_back(self) -> bool:
        """Whether the GPU was lost during the run and is available again."""
        return self._was_lost and self.lost_since is None

    def so_far(self) -> SoFar:
        """Return what is known before the run has ended."""
        level, process = self.rates.utilization.level(), self.process_memory()
        return SoFar(
            process_memory=None if process is None else replace(process, end=self.process_memory_now),
            device_memory=replace(self._device.span(), end=self.reading.memory_used),
            utilization=None if level is None else level.mean,
        )

    def device_memory(self) -> Span:
        """Return the bytes in use on the whole GPU."""
        span = self._device.span()
        if None in (span.start, span.end):
            self._set_missing("device_memory", "memory_used", reasons.UNANSWERED)
        return span

    def process_memory(self) -> Span | None:
        """Return the bytes held by this process and its children, or None if unknown."""
        return None if self._process.peak is None else self._process.span()

    def children_memory(self) -> Span | None:
        """Return the part of :meth:`process_memory` that the children held, or None if it is 0 or unknown."""
        return self._children.span() if self._children.peak else None

    def utilization(self, duration_s: float) -> Level | None:
        """Return the mean and maximum utilization over the driver's windows that lie inside the run."""
        return self._of_windows("utilization", "utilization", self.rates.utilization, duration_s)

    def levels(self, duration_s: float) -> dict[str, Level | None]:
        """Return the mean and maximum of each of the other metrics over its windows that lie inside the run.

        A hardware counter is None if these windows cover less than three fifths of the run.
        """
        return {
            reported.name: self._reported(metric, reported.name, duration_s) for metric, reported in REPORTED
        }

    def _reported(self, metric: Metric, name: str, duration_s: float) -> Level | None:
        if metric.key in self.rates.readings:
            return self._of_windows(name, metric.key, self.rates.readings[metric.key], duration_s)
        average, reason = self._counted(metric.key, duration_s)
        return self._level(name, average, "activity", reason)

    def _of_windows(self, name: str, source: str, average: Average, duration_s: float) -> Level | None:
        window = self.reading.utilization_window or _MAX_UTILIZATION_WINDOW_S
        short = duration_s < 2 * window
        return self._level(
            name,
            average,
            source,
            _too_short_for_windows(window) if short else self._why_gap(),
        )

    def traffic(self, link: str, duration_s: float) -> Traffic | None:
        """Return the traffic over ``pcie`` or ``nvlink``, from the counters' windows inside the run."""
        (sent, reason), (received, _) = (self._counted(f"{link}_{way}", duration_s) for way in ("tx", "rx"))
        if not sent.known and not received.known:
            self._set_missing(link, "activity", reason)
            return None
        return Traffic(sent.level(), received.level())

    def _counted(self, key: str, duration_s: float) -> tuple[Average, Message]:
        """Return a hardware counter's average, and the reason to give if the average has no value."""
        if not self.rates.activities:
            return _NO_VALUES, _no_counter_window(self._counter_window_s)
        average = self.rates.activities[key]
        if average.known and average.seconds < _MIN_COUNTED * duration_s:
            return _NO_VALUES, reasons.FEW_COUNTER_WINDOWS(window_s=self._counter_window_s)
        return average, reasons.NO_COUNTER_VALUE

    @property
    def bursts(self) -> int | None:
        """How often utilization rose from idle to busy, or None if utilization is unknown."""
        return self.rates.bursts if self.rates.utilization.known else None

    def throttled(self) -> Mapping[str, float] | None:
        """Return the throttled seconds by reason, or None if the driver did not report throttle reasons."""
        if self.rates.throttled is None:
            short = self._last_t < _CLOCKS_EVERY_S
            self._set_missing("throttled", "throttle", reasons.CLOCKS_TOO_SHORT if short else self._why_gap())
            return None
        return dict(self.rates.throttled)

    def power_limit(self) -> float | None:
        """Return the enforced power limit in watts, from the newest reading."""
        if self.reading.power_limit_w is None:
            self._set_missing("power_limit_w", "power_limit_w", self._why_gap())
        return self.reading.power_limit_w

    def power(self, duration_s: float) -> Level | None:
        """Return the mean and maximum power in watts. The mean is the energy divided by its time."""
        if duration_s < MIN_ENERGY_S:
            self.missing["power_w"] = _TOO_SHORT_FOR_ENERGY
            return None
        if self._energy_of_part is not None:
            return self._level("power_w", self._energy_of_part, "power_w", self._why_gap())
        mean, read = self._energy.energy().mean_w, self.rates.power.level()
        if mean is None:
            self._set_missing("power_w", "power_w", self._why_gap())
            return None
        # The driver may have counted a short rise of the power that no reading shows.
        return Level(mean, mean if read is None else max(mean, read.max))

    def energy(self, duration_s: float) -> float | None:
        """Return the energy in joules, or None if it is known for less than 99 % of the run."""
        if duration_s < MIN_ENERGY_S:
            self.missing["energy_j"] = _TOO_SHORT_FOR_ENERGY
            return None
        if not self._idle_known(duration_s):
            self.missing["energy_idle_j"] = reasons.TOO_FEW_WINDOWS
        energy = self._energy.energy()
        if self._was_lost or energy.known_s < _MIN_ENERGY_KNOWN * duration_s:
            self._set_missing("energy_j", "power_w", self._why_gap())
            return None
        return energy.joules

    def energy_at_least(self, duration_s: float) -> float | None:
        """Return the energy of the known part of the run if :meth:`energy` is unknown, otherwise None."""
        if duration_s < MIN_ENERGY_S or self.energy(duration_s) is not None:
            return None
        return self._energy.energy().joules or None

    def energy_error(self, duration_s: float) -> float | None:
        """Return by how many joules the energy may be wrong, or None if that is at most 5 % or unknown."""
        return None if self.energy(duration_s) is None else self._energy.energy().stated_error_j

    def energy_idle(self, duration_s: float) -> float | None:
        """Return the joules drawn while no CUDA kernel ran.

        The driver's utilization windows show which share of the energy was drawn in windows without a CUDA
        kernel. The result is that share of :meth:`energy`. Return None if the windows cover less than nine
        tenths of the run.
        """
        total = self.energy(duration_s)
        if total is None or not self._idle_known(duration_s) or self._idle_known_j <= 0:
            return None
        return total * self._idle_j / self._idle_known_j

    def _idle_known(self, duration_s: float) -> bool:
        return self._idle_known_s >= _MIN_IDLE_KNOWN * duration_s

    def _why_gap(self) -> Message:
        return reasons.NOT_SAMPLED_FOR(seconds=self._gap_s) if self._gap_s else reasons.GAP

    def _level(self, name: str, average: Average, source: str, reason: Message) -> Level | None:
        level = average.level()
        if level is None:
            self._set_missing(name, source, reason)
        return level

    def _set_missing(self, name: str, source: str, default: Message) -> None:
        """Set the reason for ``name`` to the reading's reason for ``source``, or else to ``default``."""
        self.missing[name] = why_missing(self.reading, source, default)


# A short run on eight GPUs has these reasons for a hundred values. On two CPUs, filling them in each time
# took 0.8 ms, twice as long as the rest of the GPUs' reports.


@lru_cache(maxsize=8)
def _too_short_for_windows(window_s: float) -> Message:
    return reasons.TOO_SHORT_FOR_WINDOWS(window_s=window_s)


@lru_cache(maxsize=8)
def _no_counter_window(window_s: float | None) -> Message:
    return reasons.NO_COUNTER_WINDOW(window_s=window_s)


def _mean_power(before: float | None, after: float | None) -> float | None:
    """Return the mean power between two readings, or the later one if the earlier one is unknown."""
    return after if before is None or after is None else (before + after) / 2
