"""Means, maxima, integrals and bounded courses over time: plain arithmetic, no clock and no thread.

All of it takes a run of any length in constant memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_POINTS = 240
"""Most points of a course that is handed out."""


@dataclass(slots=True)
class Average:
    """Mean weighted by the time each value stands for, and the highest value."""

    _sum: float = 0.0
    _weight: float = 0.0
    _max: float = float("-inf")

    def add(self, value: float | None, seconds: float) -> None:
        """``value`` held for ``seconds``; None and empty spans are passed over."""
        if value is None or seconds <= 0:
            return
        self._sum += value * seconds
        self._weight += seconds
        self._max = max(self._max, value)

    @property
    def known(self) -> bool:
        """Whether any value came."""
        return self._weight > 0

    @property
    def seconds(self) -> float:
        """For how long there was a value."""
        return self._weight

    @property
    def mean(self) -> float:
        """The weighted mean; only where ``known``."""
        return self._sum / self._weight

    @property
    def max(self) -> float:
        """The highest value; only where ``known``."""
        return self._max


@dataclass(slots=True)
class Integral:
    """Integral over time by the trapezoid rule: watts in, joules out.

    An unknown value leaves a gap, which :attr:`covered` shows.
    """

    total: float = 0.0
    covered: float = 0.0
    """Seconds between known neighbours."""
    _last: tuple[float, float] | None = None

    def add(self, t: float, value: float | None) -> None:
        """``value`` at ``t`` seconds."""
        if value is not None and self._last is not None:
            before, held = self._last
            self.total += (t - before) * (value + held) / 2
            self.covered += t - before
        self._last = None if value is None else (t, value)


@dataclass(slots=True)
class _Column:
    """One quantity's bins: the mean of what fell into each, or the highest."""

    highest: bool
    values: list[float | None] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def append(self, value: float | None) -> None:
        self.values.append(value)
        self.counts.append(0 if value is None else 1)

    def merge_into(self, bin_: int, value: float | None, count: int) -> None:
        held = self.values[bin_]
        if value is None:
            return
        if held is None:
            self.values[bin_], self.counts[bin_] = value, count
        elif self.highest:
            self.values[bin_] = max(held, value)
        else:
            total = self.counts[bin_] + count
            self.values[bin_] = held + (value - held) * count / total
            self.counts[bin_] = total

    def halve(self) -> None:
        values, counts = self.values, self.counts
        self.values, self.counts = values[::2], counts[::2]
        for bin_, (value, count) in enumerate(zip(values[1::2], counts[1::2], strict=True)):
            self.merge_into(bin_, value, count)


class Course:
    """Several quantities over one common time axis, in at most twice :data:`MAX_POINTS` bins.

    When the bins are full, neighbours are merged and bins become twice as wide: utilization and power are
    averaged, memory keeps its highest value.
    """

    def __init__(self, highest: Sequence[bool], spacing_s: float = 0.0) -> None:
        """``highest`` has an entry for each quantity: True keeps maxima, False means."""
        self._columns = [_Column(keep) for keep in highest]
        self._t: list[float] = []
        self._spacing = spacing_s

    def add(self, t: float, values: Sequence[float | None]) -> None:
        """The quantities at ``t`` seconds, later than those before."""
        if self._t and t - self._t[-1] < self._spacing:
            last = len(self._t) - 1
            for column, value in zip(self._columns, values, strict=True):
                column.merge_into(last, value, 1)
            return
        if len(self._t) == 2 * MAX_POINTS:
            width = self._t[-1] - self._t[0]
            self._t = self._t[::2]
            for column in self._columns:
                column.halve()
            self._spacing = width / MAX_POINTS
        self._t.append(t)
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    def widen(self, highest: Sequence[bool]) -> None:
        """Take up further quantities, unknown until now."""
        for keep in highest:
            self._columns.append(_Column(keep, [None] * len(self._t), [0] * len(self._t)))

    def points(
        self, most: int = MAX_POINTS
    ) -> tuple[tuple[float, ...], tuple[tuple[float | None, ...], ...]]:
        """The time axis and the quantities, thinned to at most ``most`` points."""
        t, columns = self._t, self._columns
        while len(t) > most:
            t = t[::2] if len(t) % 2 == 0 else [*t[:-1][::2], t[-1]]
            columns = [_halved(column, len(t)) for column in columns]
        return tuple(t), tuple(tuple(column.values) for column in columns)


def _halved(column: _Column, length: int) -> _Column:
    copy = _Column(column.highest, list(column.values), list(column.counts))
    odd = len(copy.values) % 2 == 1
    tail = (copy.values.pop(), copy.counts.pop()) if odd else None
    copy.halve()
    if tail is not None:
        copy.values.append(tail[0])
        copy.counts.append(tail[1])
    assert len(copy.values) == length
    return copy
