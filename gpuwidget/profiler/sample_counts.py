"""Sum up the time of stack samples by location, and correct samples that were late.

A sample is late if it was taken after the moment at which it was due, because it waited for the GIL or
because the machine was busy. docs/developers/profiler.md explains what the location of a late sample means.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gpuwidget.profiler.code_locations import OUTSIDE, CodeLocation

PROMPT_S = 0.0003
"""A sample that is late by at most this many seconds counts as not having waited for the GIL."""
_CERTAIN_S = 0.0015
"""A sample that is late by at least this many seconds certainly waited for the GIL, unless the machine is
busy."""
_PREEMPTED_FROM = 0.95
"""A delay of at least this fraction of the switch interval means that the thread was preempted."""
_GIL_BLOCKED_FROM = 5.0
"""A delay of more than this number of switch intervals was caused by a single operation. Waiting for a few
other threads takes less time."""
_RAN = 0.5
"""A late sample counts as having waited for the GIL only if the sampled thread ran for at least this fraction
of the delay. Otherwise, the machine was busy."""
_BUSY_MACHINE = 0.1
"""If samples that were late without waiting for the GIL make up more than this fraction of the time, the
machine is so busy that a long delay does not prove that the thread was preempted."""
_ELSEWHERE_IF_BUSY = 0.5
_RECENT_S = 0.06
"""Part of a sample's delay may belong to the location at which the thread was last preempted. This is assumed
only if that preemption was at most this many seconds ago and the thread has released the GIL
voluntarily since."""
_ALTERNATING_S = 1.0
"""If the sampled line changed at most this many seconds ago, ambiguous time may belong to the line before the
change."""
_DOUBTFUL_FROM_S = 1.0
"""If an operation computed for at least this many seconds and held the GIL, its line is always in doubt,
because a single sample stands for so much time (see :meth:`SampleCounts._line_before`)."""
_MIN_SWITCHES = 2
"""Number of times that samples must have switched between two lines before the lines count as alternating."""
_STEADILY_BUSY = 3
"""If at least this many successive samples find a GPU busy, GPU work counts as queued."""
_MAX_LOCATIONS = 4000


class StackSample(NamedTuple):
    """One stack sample: when it was taken, how late it was, and how long the thread ran before it."""

    t: float
    late: float
    """Seconds between the time at which the sample was due and ``t``."""
    seconds: float
    """Seconds of the run that the sample represents."""
    cpu_s: float | None
    """CPU seconds of the sampled thread since the previous sample, or None if unknown. If the thread hardly
    ran, a busy machine caused the sample's delay."""
    at_preemption_point: bool = False
    """Whether the thread was at an instruction at which a thread releases the GIL only if it is preempted."""
    held: bool = False
    """Whether an operation that waited itself held the GIL during the delay."""


@dataclass(slots=True)
class Counts:
    """Sums over samples, in seconds except for the number of samples."""

    samples: int = 0
    seconds: float = 0.0
    known: float = 0.0
    """Seconds for which it is known whether the GPU was busy."""
    busy: float = 0.0
    ambiguous_busy: float = 0.0
    """Seconds for which the GPU's state is ambiguous, because it changed while a sample waited for the
    GIL."""
    preempted: float = 0.0
    """Seconds of samples for which the thread was preempted at this location. The time was spent in the
    operation at this location, or in an earlier operation since Python's previous check for preemption."""
    gil_blocked: float = 0.0
    """The part of ``preempted`` during which a single operation held the GIL for long or while it waited."""

    def add(self, other: Counts) -> None:
        self.samples += other.samples
        self.seconds += other.seconds
        self.known += other.known
        self.busy += other.busy
        self.ambiguous_busy += other.ambiguous_busy
        self.preempted += other.preempted
        self.gil_blocked += other.gil_blocked


@dataclass(slots=True)
class LocationCounts:
    """The counts of one location."""

    location: CodeLocation
    line: int | None
    """Line of the cell, or None outside the cell's code."""
    counts: Counts = field(default_factory=Counts)


class SampleCounts:
    """Adds up stack samples. One thread adds samples, and any thread may read the sums."""

    def __init__(self, switch_interval_s: float | None = None) -> None:
        self._switch_interval = sys.getswitchinterval() if switch_interval_s is None else switch_interval_s
        self._by_location: dict[CodeLocation, LocationCounts] = {}
        self.samples = 0
        self.total_s = 0.0
        """Seconds of all samples, including those before and after the cell's code."""
        self.missed_s = 0.0
        """Seconds in which sampling failed."""
        self.delayed_s = 0.0
        """Seconds of samples that were late because they waited for the GIL."""
        self.exposed_s = 0.0
        """Seconds in which the thread ran without delaying samples, while no GPU counted as having queued
        work. Sampling overhead in this time makes the run longer."""
        self.known_s = 0.0
        """The part of :attr:`total_s` for which it is known whether a GPU was busy."""
        self.busy_s: dict[int, float] = {}
        """Seconds for each set of busy devices. The key is the bit mask of the devices."""
        self.shared_s: dict[frozenset[int | None], float] = {}
        """For each pair of the cell's lines, seconds that belong to one of the two lines or to a line between
        them. Either a sample was ambiguous, or an operation held the GIL from the first line to the second
        one."""
        self._switches: dict[frozenset[int | None], int] = {}
        """For each pair of lines, how often a sample on one line followed a sample on the other."""
        self.machine_delay_s = 0.0
        """Seconds of samples that were late because the machine was busy."""
        self._last: LocationCounts | None = None
        self._last_bits: int | None = None
        self._busy_in_succession = 0
        self._preempted: tuple[float, LocationCounts, int | None] | None = None
        """When and where the thread was last preempted, and which devices were busy then."""
        self._last_long: int | None = None
        """The line of the last sample that was late because a single operation held the GIL for long."""
        self._long_switches: dict[frozenset[int | None], int] = {}
        """For each pair of lines, how often such a sample on one line followed such a sample on the other."""
        self._line_changed: tuple[float, int | None] | None = None
        """When the sampled line last changed, and the line before the change."""
        self._last_in_cell: LocationCounts | None = None
        self._outside: dict[CodeLocation, Counts] = {}
        """Counts outside the cell's code since the sample of :attr:`_last_in_cell`. They are added to the run
        once a later sample finds the thread in the cell's code again."""
        self._gil_blocked = Counts()
        """Counts of the samples since :attr:`_last_in_cell` that found the thread outside the cell's code,
        but were late because one of the cell's statements held the GIL."""

    def at(self, location: CodeLocation, line_of: Callable[[CodeLocation], int | None]) -> LocationCounts:
        """Return the counts of ``location``, and create them if necessary.

        ``line_of`` returns the cell's line at a location.
        """
        found = self._by_location.get(location)
        if found is None:
            if len(self._by_location) >= _MAX_LOCATIONS:
                location = CodeLocation(location.cell, location.cell_offset, 0, 0, 0)
            found = self._by_location.setdefault(location, LocationCounts(location, line_of(location)))
        return found

    def counted(self) -> list[LocationCounts]:
        """Return copies of the counts per location, from the first to the last sample in the cell's code."""
        found = list(self._by_location.values())
        return [
            replace(location, counts=replace(location.counts))
            for location in found
            if location.counts.samples
        ]

    def was_preempted(self, sample: StackSample) -> bool:
        """Return whether the thread was preempted at the sampled location before this sample was taken."""
        late = self._waited_for_gil(sample)
        return late > 0 and (sample.at_preemption_point or late >= _PREEMPTED_FROM * self._switch_interval)

    def add(self, sample: StackSample, current: LocationCounts, bits: int | None) -> None:
        """Add a sample that found the thread at ``current``.

        ``bits`` is the bit mask of the busy devices, or None if it is unknown.
        """
        t, seconds, late = sample.t, sample.seconds, self._waited_for_gil(sample)
        self.samples += 1
        self.total_s += seconds
        self._busy_in_succession = self._busy_in_succession + 1 if bits else 0
        if self._busy_in_succession < _STEADILY_BUSY and sample.late <= PROMPT_S:
            self.exposed_s += seconds if sample.cpu_s is None else min(seconds, sample.cpu_s)
        if self._last is not None and self._last.line != current.line:
            self._line_changed = t, self._last.line
            pair = frozenset((self._last.line, current.line))
            self._switches[pair] = self._switches.get(pair, 0) + 1
        counts = Counts(1, seconds)
        earlier, earlier_bits = current, bits
        if late:
            self.delayed_s += seconds
            preempted = self.was_preempted(sample)
            probability = self._probability_elsewhere(late, preempted)
            blocked = preempted and (sample.held or self._is_long(sample))
            if preempted:
                self._preempted = t, current, bits
                counts.preempted = seconds
            elif self._preempted is not None and t - self._preempted[0] <= _RECENT_S:
                # Attribute the sample to the location of the preemption. Use the GPU's state at that moment
                # as well, because the current line may have launched work since then.
                _, earlier, earlier_bits = self._preempted
                probability /= 2
            if blocked and current.location.cell:
                self._share(self._line_before(sample, current), current.line, seconds)
            else:
                self._share_ambiguous(t, earlier.line, current.line, probability * seconds)
            changed = self._last_bits != earlier_bits
            if changed and self._last_bits is not None:
                counts.ambiguous_busy = probability * seconds
            if blocked:
                counts.gil_blocked = seconds
                if changed:
                    earlier_bits = None  # unknown which devices were busy, because this changed meanwhile
        elif sample.late > _CERTAIN_S:
            self.machine_delay_s += seconds
        if earlier_bits is not None:
            counts.known = seconds
            self.known_s += seconds
            if earlier_bits:
                counts.busy = seconds
                self.busy_s[earlier_bits] = self.busy_s.get(earlier_bits, 0.0) + seconds
        if earlier.location.cell:
            earlier.counts.add(counts)
        else:
            self._count_outside(earlier.location, counts, sample)
        if current.location.cell:
            self._enter_cell(current)
        self._last, self._last_bits = current, bits

    def end(self, sample: StackSample) -> None:
        """Count the time since the last sample if a single operation held the GIL until the run ended.

        The time is attributed to the location in the cell that was sampled last. ``sample`` was due, but the
        run ended before it was taken.
        """
        if self._is_long(sample):
            self.add(sample, LocationCounts(OUTSIDE, None), None)

    @property
    def gil_blocked_at_end(self) -> tuple[int | None, float]:
        """The cell's last sampled line, and the seconds since then in which one operation held the GIL."""
        last = self._last_in_cell
        return (None, 0.0) if last is None else (last.line, self._gil_blocked.seconds)

    def _waited_for_gil(self, sample: StackSample) -> float:
        """Return the seconds for which a sample waited for the GIL; 0 if the machine was busy instead."""
        waited = sample.held or self._ran(sample)
        return sample.late if waited and sample.late > PROMPT_S else 0.0

    def _ran(self, sample: StackSample) -> bool:
        return sample.cpu_s is None or sample.cpu_s >= _RAN * sample.late

    def waited_without_running(self, sample: StackSample) -> bool:
        """Return whether a sample was late enough for a preemption, although the thread did not run."""
        return sample.late >= _PREEMPTED_FROM * self._switch_interval and not self._ran(sample)

    def _probability_elsewhere(self, late: float, preempted: bool) -> float:
        """Return the probability that the thread was at another location when a late sample was due."""
        if not preempted:
            return min(1.0, late / _CERTAIN_S)
        return _ELSEWHERE_IF_BUSY if self.machine_delay_s > _BUSY_MACHINE * self.total_s else 0.0

    def _is_long(self, sample: StackSample) -> bool:
        return sample.late > _GIL_BLOCKED_FROM * self._switch_interval

    def _line_before(self, sample: StackSample, current: LocationCounts) -> int | None:
        """Return the line that may have held the GIL instead of the sampled line, or the sampled line.

        When an operation ends that has held the GIL, other threads may get the GIL before the sampling
        thread does. By then, the cell may be at a later line.
        """
        line = current.line
        last_long, self._last_long = self._last_long, line
        pair = frozenset((last_long, line))
        if last_long is not None and len(pair) > 1:
            self._long_switches[pair] = self._long_switches.get(pair, 0) + 1
        if not sample.held and sample.late < _DOUBTFUL_FROM_S:
            # The operation computed. The line is in doubt only if such samples alternate between two lines.
            return last_long if self._long_switches.get(pair, 0) >= _MIN_SWITCHES else line
        if self._last_in_cell is None:
            return 1
        if self._last_in_cell.line != line:
            return self._last_in_cell.line
        changed = self._line_changed
        recent = changed is not None and sample.t - sample.late - changed[0] <= _ALTERNATING_S
        return changed[1] if recent and changed is not None and changed[1] is not None else line

    def _share_ambiguous(self, t: float, earlier: int | None, current: int | None, seconds: float) -> None:
        if (
            earlier == current
            and self._line_changed is not None
            and t - self._line_changed[0] <= _ALTERNATING_S
        ):
            earlier = self._line_changed[1]
        if self._switches.get(frozenset((earlier, current)), 0) >= _MIN_SWITCHES:
            self._share(earlier, current, seconds)

    def _share(self, first: int | None, second: int | None, seconds: float) -> None:
        pair = frozenset((first, second))
        if seconds and len(pair) > 1:
            self.shared_s[pair] = self.shared_s.get(pair, 0.0) + seconds

    def _count_outside(self, location: CodeLocation, counts: Counts, sample: StackSample) -> None:
        """Add the counts of a sample that found the thread outside the cell's code."""
        if self._is_long(sample) and not any(each.user or each.call for each in (location, *self._outside)):
            # Only IPython's own code is on the stack, so one of the cell's statements has held the GIL until
            # now.
            self._gil_blocked.add(counts)
            if self._last_in_cell is not None:
                self._count_outside_as_cell()
                self._last_in_cell.counts.add(counts)
        elif self._last_in_cell is not None:  # time before the first sample in the cell does not count
            self._outside.setdefault(location, Counts()).add(counts)

    def _enter_cell(self, current: LocationCounts) -> None:
        """Update the state after a sample in the cell's code."""
        last, self._last_in_cell = self._last_in_cell, current
        self._count_outside_as_cell()
        if self._gil_blocked.seconds:
            if last is None:
                current.counts.add(self._gil_blocked)
            self._share(1 if last is None else last.line, current.line, self._gil_blocked.seconds)
            self._gil_blocked = Counts()

    def _count_outside_as_cell(self) -> None:
        for location, counts in self._outside.items():
            self._by_location[location].counts.add(counts)
        self._outside.clear()
