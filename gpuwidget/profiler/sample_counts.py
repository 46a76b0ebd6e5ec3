"""Compute the time per location from stack samples, which are delayed while the thread holds the GIL.

Samples are due at random moments, and each sample stands for the time since the previous one was due. If a
sample is due while the thread holds the GIL, the sample is late: it waits until the interpreter preempts the
thread (after the switch interval of 5 ms, or sooner if another thread has already been waiting), or until the
thread releases the GIL voluntarily, to wait or to call code that does not need the GIL. After a voluntary
release, the thread may have been at another location when the sample was due. The time then counts for the
location at which the thread was last preempted, and also as ambiguous time of the two lines. Lines with much
ambiguous time cannot be distinguished.

Python checks for preemption only at calls and at backward jumps of loops. The operation that took the time is
therefore the one at which the thread was preempted, or one that ran after the previous check. A sample that
is taken much more than one switch interval after it was due has waited for a single operation. Such time is
called GIL-blocked.

Time before the first sample in the cell's code and after the last one does not count for the cell.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuwidget.profiler.code_locations import CodeLocation

PROMPT_S = 0.0003
"""Seconds of delay up to which a sample counts as not having waited for the GIL."""
_RECENT_S = 0.06
"""Seconds for which the location of the last preemption is used for samples after a voluntary release."""
_TRANSITION_S = 1.0
"""Two lines may alternate if they were sampled within this number of seconds of each other."""
_PREEMPTED_FROM = 0.95
"""Fraction of the switch interval at or above which a sample's delay means that the thread was preempted: it
held the GIL at the sampled location, or in a call that has just returned."""
_BUSY_MACHINE = 0.1
"""Fraction of the time with samples that were late although the thread did not run. Above this, the machine
is so busy that a long delay does not prove that the thread was preempted."""
_DOUBT_IF_BUSY = 0.5
_GIL_BLOCKED_FROM = 5.0
"""Number of switch intervals above which a sample's delay is caused by a single operation. Waiting for a few
other threads takes less."""
_RAN = 0.5
"""Fraction of a sample's delay for which the thread must have run to be its cause."""
_CERTAIN_S = 0.0015
"""Seconds of delay at or above which a sample certainly waited for the GIL, unless the machine is busy."""
_STEADILY_BUSY = 3
"""Number of successive samples that must find the GPU busy for it to count as having queued work."""
_MAX_LOCATIONS = 4000


class StackSample(NamedTuple):
    """One stack sample: when it was taken, and what the thread did since the previous one."""

    t: float
    late: float
    """Seconds between the moment at which the sample was due and ``t``."""
    seconds: float
    """Seconds that the sample stands for."""
    cpu_s: float | None
    """CPU seconds of the sampled thread since the previous sample, or None if unknown. If the thread did not
    run, a delay was caused by a busy machine."""
    at_preemption_point: bool = False
    """Whether the thread was at an instruction at which it releases the GIL only if it is preempted."""


@dataclass(slots=True)
class Counts:
    """Sums over samples, in seconds except for the number of samples."""

    samples: int = 0
    seconds: float = 0.0
    known: float = 0.0
    """Seconds for which it is known whether the GPU was busy."""
    busy: float = 0.0
    preempted: float = 0.0
    """Seconds of samples for which the thread was preempted here. The time was spent in this operation, or in
    one that ran after Python's previous check for preemption."""
    gil_blocked: float = 0.0
    """The part of ``preempted`` that was spent in a single operation, which held the GIL."""

    def add(self, other: Counts) -> None:
        """Add the counts of ``other``."""
        self.samples += other.samples
        self.seconds += other.seconds
        self.known += other.known
        self.busy += other.busy
        self.preempted += other.preempted
        self.gil_blocked += other.gil_blocked


@dataclass(slots=True)
class LocationCounts:
    """The counts of one location."""

    location: CodeLocation
    line: int | None
    """Line of the cell, or None outside the cell's code."""
    counts: Counts = field(default_factory=Counts)
    ambiguous_busy: float = 0.0
    """Seconds of samples during whose delay the GPU's state changed."""


class SampleCounts:
    """Adds up stack samples. One thread adds samples, and any thread may read the sums."""

    def __init__(self, switch_interval_s: float | None = None) -> None:
        self._switch_interval = sys.getswitchinterval() if switch_interval_s is None else switch_interval_s
        self.by_location: dict[CodeLocation, LocationCounts] = {}
        """Counts per location, from the first sample in the cell's code to the last one."""
        self.samples = 0
        self.counted = 0
        """Number of samples in :attr:`by_location`."""
        self.total_s = 0.0
        """Seconds of all samples, including those before and after the cell's code."""
        self.missed_s = 0.0
        """Seconds for which sampling failed."""
        self.delayed_s = 0.0
        """Seconds of samples that had to wait for the GIL."""
        self.exposed_s = 0.0
        """Seconds in which the thread ran without delaying samples, while no GPU was known to have queued
        work. Sampling overhead in this time makes the run longer."""
        self.known_s = 0.0
        """The part of :attr:`total_s` for which it is known whether a GPU was busy."""
        self.busy_s: dict[int, float] = {}
        """Seconds by bit mask of the devices that were busy."""
        self.transitions: dict[frozenset[int | None], int] = {}
        """For each pair of lines, how often a sample in one followed a sample in the other."""
        self.ambiguous_s: dict[frozenset[int | None], float] = {}
        """For each pair of lines, the seconds that belong to either of them. A sample that is only a little
        late counts less, because on a busy machine such a delay occurs even if no thread holds the GIL."""
        self.gil_blocked_s: dict[tuple[int | None, int | None], float] = {}
        """Seconds for which an operation blocked the GIL, by the lines of the cell between which it is. The
        first line was sampled before (None for the cell's first line), the second after; both are
        included."""
        self._machine_delay_s = 0.0
        """Seconds of samples that were late because the machine was busy."""
        self._last: LocationCounts | None = None
        self._last_bits: int | None = None
        self._busy_in_succession = 0
        self._preempted: LocationCounts | None = None
        """Where the thread was last preempted. The next two attributes are when, and which devices were
        busy."""
        self._preempted_at = float("-inf")
        self._preempted_bits: int | None = None
        self._previous_line: int | None = None
        """The line before the current one. The next attribute is when the line changed."""
        self._line_changed_at = float("-inf")
        self._last_in_cell: LocationCounts | None = None
        self._outside: dict[CodeLocation, tuple[LocationCounts, Counts]] = {}
        """Counts outside the cell's code since :attr:`_last_in_cell`. They count for the run if the cell
        continues."""
        self._before_cell: Counts | None = None
        """Counts of GIL-blocked operations that ended before the first sample in the cell's code."""
        self._gil_blocked_since = 0.0
        """GIL-blocked seconds since the cell's code was last sampled."""

    def find(self, location: CodeLocation) -> LocationCounts | None:
        """Return the counts of ``location``, or None if the location is new."""
        found = self.by_location.get(location)
        if found is None and location in self._outside:
            return self._outside[location][0]
        return found

    def add_location(self, location: CodeLocation, line: int | None) -> LocationCounts:
        """Return the counts object for a new location."""
        if len(self.by_location) >= _MAX_LOCATIONS:
            location = CodeLocation(location.cell, location.cell_offset, 0, 0, 0)
        found = self.by_location.get(location)
        if found is None:
            found = LocationCounts(location, line)
            if location.cell:
                self.by_location[location] = found
        return found

    def was_preempted(self, sample: StackSample) -> bool:
        """Return whether the thread was preempted for this sample, at the sampled location."""
        expected = sample.at_preemption_point or sample.late >= _PREEMPTED_FROM * self._switch_interval
        ran = sample.cpu_s is None or sample.cpu_s >= _RAN * sample.late
        return expected and sample.late > PROMPT_S and ran

    def add_missed(self, seconds: float) -> None:
        """Add the seconds of a sample that failed."""
        self.missed_s += seconds

    def add(self, sample: StackSample, here: LocationCounts, bits: int | None) -> None:
        """Add a sample that found the thread at ``here`` and the devices in the bit mask ``bits`` busy."""
        t, seconds, late = sample.t, sample.seconds, sample.late
        self.samples += 1
        self.total_s += seconds
        self._busy_in_succession = self._busy_in_succession + 1 if bits else 0
        if self._busy_in_succession < _STEADILY_BUSY and late <= PROMPT_S:
            self.exposed_s += seconds if sample.cpu_s is None else min(seconds, sample.cpu_s)
        preempted = self.was_preempted(sample)
        gil_blocked = preempted and self._is_long(sample)
        if sample.cpu_s is not None and sample.cpu_s < _RAN * late:
            if late > _CERTAIN_S:
                self._machine_delay_s += seconds
            late = 0.0
        last, last_bits = self._last, self._last_bits
        if last is not None and last.line != here.line:
            self._previous_line, self._line_changed_at = last.line, t
            pair = frozenset((last.line, here.line))
            self.transitions[pair] = self.transitions.get(pair, 0) + 1
        charged, bits_then = here, bits
        if late > PROMPT_S:
            self.delayed_s += seconds
            doubt = self._doubt(late, preempted)
            if preempted:
                self._preempted, self._preempted_at, self._preempted_bits = here, t, bits
            elif self._preempted is not None and t - self._preempted_at <= _RECENT_S:
                charged = self._preempted
                doubt /= 2
                # Use the GPU's state at that location, as the current one may already have launched work.
                bits_then = self._preempted_bits
            self._count_ambiguous(t, charged.line, here.line, doubt * seconds)
            if last_bits is not None and last_bits != bits_then:
                charged.ambiguous_busy += doubt * seconds
            if gil_blocked and last_bits != bits_then:
                bits_then = None  # the moment of the change is unknown
        counts = Counts(1, seconds)
        if bits_then is not None:
            counts.known = seconds
            self.known_s += seconds
            if bits_then:
                counts.busy = seconds
                self.busy_s[bits_then] = self.busy_s.get(bits_then, 0.0) + seconds
        counts.preempted = seconds if preempted else 0.0
        counts.gil_blocked = seconds if gil_blocked else 0.0
        if charged.location.cell:
            self.counted += 1
            charged.counts.add(counts)
        else:
            self._count_outside(charged, counts, sample)
        if here.location.cell:
            self._enter_cell(here)
        self._last, self._last_bits = here, bits

    def end(self, sample: StackSample) -> None:
        """Add the run's last seconds, for which ``sample`` waited, to the cell's last statement."""
        if not self._is_long(sample) or any(place.user or place.call for place in self._outside):
            return  # other code ran after the cell's last statement
        self.samples += 1
        self.total_s += sample.seconds
        self.delayed_s += sample.seconds
        blocked = sample.seconds if self.was_preempted(sample) else 0.0
        self._count_gil_blocked(Counts(1, sample.seconds, preempted=blocked, gil_blocked=blocked))

    @property
    def gil_blocked_at_end(self) -> tuple[int | None, float]:
        """The cell's line that was sampled last, and the GIL-blocked seconds after that sample."""
        last = self._last_in_cell
        return (last.line if last is not None else None), self._gil_blocked_since

    def _is_long(self, sample: StackSample) -> bool:
        return sample.late > _GIL_BLOCKED_FROM * self._switch_interval

    def _doubt(self, late: float, preempted: bool) -> float:
        """Return how likely the thread was at another location when a sample was due, from 0 to 1."""
        if not preempted:
            return min(1.0, late / _CERTAIN_S)
        return _DOUBT_IF_BUSY if self._machine_delay_s > _BUSY_MACHINE * self.total_s else 0.0

    def _count_ambiguous(self, t: float, charged: int | None, line: int | None, seconds: float) -> None:
        other = charged
        if other == line and t - self._line_changed_at <= _TRANSITION_S:
            other = self._previous_line
        if seconds and other != line:
            pair = frozenset((other, line))
            self.ambiguous_s[pair] = self.ambiguous_s.get(pair, 0.0) + seconds

    def _count_outside(self, where: LocationCounts, counts: Counts, sample: StackSample) -> None:
        """Add the counts of a sample outside the cell's code."""
        location = where.location
        if self._is_long(sample) and not location.user and not location.call:
            # Only IPython's own code is running, so one of the cell's statements took the time until now.
            self._count_gil_blocked(counts)
        else:
            self._outside.setdefault(location, (where, Counts()))[1].add(counts)

    def _count_gil_blocked(self, counts: Counts) -> None:
        if self._last_in_cell is None:
            self._before_cell = self._before_cell or Counts()
            self._before_cell.add(counts)
            return
        self._count_outside_as_cell()
        self._count(self._last_in_cell, counts)
        self._gil_blocked_since += counts.seconds

    def _enter_cell(self, here: LocationCounts) -> None:
        """Update the state after a sample in the cell's code."""
        if self._last_in_cell is None:
            self._outside.clear()  # time before the first sample in the cell does not count
            if self._before_cell is not None:
                self._count(here, self._before_cell)
                self._count_between(None, here.line, self._before_cell.seconds)
        elif self._outside or self._gil_blocked_since:
            self._count_outside_as_cell()
            if self._gil_blocked_since:
                self._count_between(self._last_in_cell.line, here.line, self._gil_blocked_since)
                self._gil_blocked_since = 0.0
        self._last_in_cell = here

    def _count_outside_as_cell(self) -> None:
        for where, counts in self._outside.values():
            self._count(where, counts)
        self._outside.clear()

    def _count(self, where: LocationCounts, counts: Counts) -> None:
        self.counted += counts.samples
        self.by_location.setdefault(where.location, where).counts.add(counts)

    def _count_between(self, since: int | None, until: int | None, seconds: float) -> None:
        between = (since, until)
        self.gil_blocked_s[between] = self.gil_blocked_s.get(between, 0.0) + seconds
