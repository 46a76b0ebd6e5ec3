"""The energy that one GPU used over a run, from its power and from the driver's energy counter.

Each evidence alone is not enough. The counter moves in steps of 0.1 s (measured on an H100 and an H200), and
its call is too slow for the run's start and end. The current power is a short mean that the driver renews
every 0.1 s, so that a step of the power may be seen late. The driver's own samples of the power are 20 ms
apart, but old GPUs have none. :class:`EnergyMeter` combines what there is, and states its error. A mean power
is this energy divided by its time, so that both always agree.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple

from gpuwidget.sources import PowerRecord
from gpuwidget.sources.plausible import is_plausible

_COUNTER_STEP_S = 0.1
"""Maximum age, in seconds, of the value that the energy counter returns."""
_HISTORY_S = 3.0
"""Seconds for which readings of the power wait for the driver's samples of the same time, which replace
them. The driver keeps its samples for 2.4 s (H200)."""
_ERROR_FACTOR = 1 / math.sqrt(3)
"""Two standard deviations of the error of a trapezoid, per watt and second between its two powers, if the
power changed at any moment between them with equal probability."""
_STATED_ERROR = 0.05
"""Fraction of the energy above which its error is stated."""


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy over a part of a run."""

    joules: float
    """The energy of the known time."""
    error_j: float
    """Joules by which :attr:`joules` may be wrong: two standard deviations."""
    known_s: float
    """Seconds for which the energy is known."""

    @property
    def stated_error_j(self) -> float | None:
        """Joules by which :attr:`joules` may be wrong, or None if that is at most 5 percent of
        that energy."""
        return None if self.error_j <= _STATED_ERROR * self.joules else self.error_j

    @property
    def mean_w(self) -> float | None:
        """The mean power in watts over the known time, or None if none is known."""
        return self.joules / self.known_s if self.known_s > 0 else None


class _Sums(NamedTuple):
    """Integral of the power from the start up to a moment."""

    t: float
    joules: float = 0.0
    square_error: float = 0.0
    known_s: float = 0.0

    def since(self, start: _Sums) -> Energy:
        return Energy(
            self.joules - start.joules,
            math.sqrt(max(0.0, self.square_error - start.square_error)),
            self.known_s - start.known_s,
        )


class _Count(NamedTuple):
    """A reading of the energy counter."""

    at: _Sums
    joules: float
    watts: float | None


@dataclass(slots=True)
class EnergyMeter:
    """Adds up one GPU's energy from ``since`` seconds into the run on, in constant memory.

    Two powers that are more than ``max_gap_s`` seconds apart leave a gap, which only the counter can fill.
    """

    max_gap_s: float
    since: float = 0.0
    _points: list[tuple[float, float | None]] = field(default_factory=list)
    """Powers that are not integrated yet, in chronological order."""
    _last: tuple[float, float | None] | None = None
    """The newest power that is integrated."""
    _sums: _Sums | None = None
    _samples: Sequence[tuple[float, float]] = ()
    """The driver's samples that were added last."""
    _counts: list[tuple[float, float]] = field(default_factory=list)
    """Readings of the counter that are later than :attr:`_last`: time and joules."""
    _counted: tuple[float, float] = (-math.inf, 0.0)
    """The newest reading of the counter that is integrated."""
    _first: _Count | None = None
    _latest: _Count | None = None

    def add(self, t: float, watts: float | None) -> None:
        """Add the current power, read ``t`` seconds into the run. None means that it is unknown."""
        self._insert([(t, watts)])
        self._integrate(t - _HISTORY_S)

    def add_record(self, record: PowerRecord, began: float) -> None:
        """Add the driver's records of the power. The run began at ``began`` (monotonic seconds)."""
        if record.counter is not None:
            self.add_counter(record.counter[0] - began, record.counter[1])
        if record.samples is not self._samples:
            self._samples = record.samples
            self.add_samples([(t - began, watts) for t, watts in record.samples])

    def add_samples(self, samples: Sequence[tuple[float, float]]) -> None:
        """Add the driver's samples of the power, oldest first. They may repeat earlier ones.

        They replace the readings of the same time. Each is the power since the previous sample.
        """
        begin = self.since if self._last is None else self._last[0]
        new: list[tuple[float, float | None]] = [(t, watts) for t, watts in samples if t > begin]
        if not new:
            return
        if self._last is None and samples[0][0] <= begin:
            new.insert(0, (begin, new[0][1]))
        first, last = new[0][0], new[-1][0]
        self._points = [point for point in self._points if not first <= point[0] <= last]
        self._insert(new)
        self._integrate(last)

    def add_counter(self, t: float, joules: float) -> None:
        """Add the value of the driver's energy counter, read ``t`` seconds into the run."""
        known = self._counts[-1] if self._counts else self._counted
        if t > known[0] and t >= self.since and (self._last is None or t >= self._last[0]):
            self._counts.append((t, joules))

    def energy(self) -> Energy:
        """Return the energy up to the newest power."""
        self._integrate(math.inf)
        sums, first, latest = self._sums, self._first, self._latest
        if sums is None:
            return Energy(0.0, 0.0, 0.0)
        start = _Sums(self.since)
        if first is None or latest is None or not _is_usable(first, latest):
            return sums.since(start)
        parts = (first.at.since(start), _between(first, latest), sums.since(latest.at))
        return Energy(
            sum(part.joules for part in parts),
            math.hypot(*(part.error_j for part in parts)),
            sum(part.known_s for part in parts),
        )

    def _insert(self, points: Sequence[tuple[float, float | None]]) -> None:
        self._points += points
        self._points.sort(key=itemgetter(0))

    def _integrate(self, until: float) -> None:
        count = bisect_right(self._points, until, key=itemgetter(0))
        points, self._points = self._points[:count], self._points[count:]
        for point in points:
            if self._last is None:
                self._sums = _Sums(point[0])
            else:
                self._add_interval(self._last, point)
            self._last = point

    def _add_interval(self, start: tuple[float, float | None], end: tuple[float, float | None]) -> None:
        """Integrate between two powers, and store the sums at each reading of the counter in between."""
        while self._counts and self._counts[0][0] <= end[0]:
            t, joules = self._counted = self._counts.pop(0)
            sums = self._advance(start, end, t)
            count = _Count(sums, joules, _at(start, end, t, self.max_gap_s))
            if self._first is None or self._latest is None or joules < self._latest.joules:
                # The counter restarts when the driver is loaded again.
                self._first = count
            self._latest = count
        self._advance(start, end, end[0])

    def _advance(self, start: tuple[float, float | None], end: tuple[float, float | None], t: float) -> _Sums:
        sums = self._sums
        assert sums is not None
        t = max(t, sums.t)
        before, after = (_at(start, end, moment, self.max_gap_s) for moment in (sums.t, t))
        if before is None or after is None or start[1] is None or end[1] is None:
            self._sums = sums._replace(t=t)
            return self._sums
        seconds = t - sums.t
        whole = end[0] - start[0]
        error = (end[1] - start[1]) * whole * _ERROR_FACTOR
        self._sums = _Sums(
            t,
            sums.joules + seconds * (before + after) / 2,
            sums.square_error + (error**2 * seconds / whole if whole > 0 else 0.0),
            sums.known_s + seconds,
        )
        return self._sums


def _at(
    start: tuple[float, float | None], end: tuple[float, float | None], t: float, max_gap_s: float
) -> float | None:
    """Return the power at ``t``, which lies between two known powers, or None if it is unknown."""
    (since, before), (until, after) = start, end
    if before is None or after is None or until - since > max_gap_s:
        return None
    share = (t - since) / (until - since) if until > since else 1.0
    return before + share * (after - before)


def _is_usable(first: _Count, latest: _Count) -> bool:
    """Return whether the counter has moved, by an amount that a GPU can draw."""
    joules, seconds = latest.joules - first.joules, latest.at.t - first.at.t
    return joules > 0 and seconds > 0 and is_plausible("power_w", joules / seconds)


def _between(first: _Count, latest: _Count) -> Energy:
    """Return the energy between two readings of the counter.

    It is what the counter says, or the nearest energy that the power allows as well. If the power does not
    cover the time, or if both disagree by more than the counter's steps explain, the counter is right.
    """
    counted, seconds = latest.joules - first.joules, latest.at.t - first.at.t
    power = latest.at.since(first.at)
    mean = counted / seconds
    # A count is the energy up to a moment before it was read.
    too_high = _COUNTER_STEP_S * (mean if first.watts is None else first.watts)
    too_low = _COUNTER_STEP_S * (mean if latest.watts is None else latest.watts)
    low, high = counted - too_high, counted + too_low
    by_counter = Energy(counted, max(too_high, too_low), seconds)
    if power.known_s < 0.999 * seconds:
        return by_counter
    low, high = max(low, power.joules - power.error_j), min(high, power.joules + power.error_j)
    if low > high:
        return by_counter
    joules = min(max(counted, low), high)
    return replace(by_counter, joules=joules, error_j=max(joules - low, high - joules))
