"""Medians, percentiles, and pairs of runs in alternating order."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from statistics import median
from typing import TypeVar

__all__ = ["alternating", "median", "median_interval", "overhead_ratio", "p95", "p99", "ratios"]

T = TypeVar("T")


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile by nearest rank, or the highest value if there are fewer than 20."""
    return _percentile(values, 95)


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile by nearest rank, or the highest value if there are fewer than 100."""
    return _percentile(values, 99)


def _percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[math.ceil(percent * len(values) / 100) - 1]


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of the median, for values of any distribution.

    The interval is computed from order statistics. The result is None for fewer than six values, because
    these can't bound the median with that confidence.
    """
    count = len(values)
    below = 0.0
    rank = -1
    while below + math.comb(count, rank + 1) / 2**count <= 0.025:
        rank += 1
        below += math.comb(count, rank) / 2**count
    if rank < 0:
        return None
    ordered = sorted(values)
    return ordered[rank], ordered[count - 1 - rank]


def alternating(pairs: int, plain: Callable[[], T], watched: Callable[[], T]) -> list[tuple[T, T]]:
    """Run both functions ``pairs`` times and return the results as pairs (plain, watched).

    In every second pair, ``watched`` runs first. This prevents drift (clocks, temperature, caches) from
    favouring one of the functions.
    """
    results = []
    for number in range(pairs):
        if number % 2:
            after = watched()
            results.append((plain(), after))
        else:
            before = plain()
            results.append((before, watched()))
    return results


def ratios(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """Return, for each pair, the ratio of the watched to the plain value."""
    return [watched / plain for plain, watched in pairs]


def overhead_ratio(ends: Sequence[float], disturbed: Sequence[tuple[float, float]]) -> float | None:
    """Return the factor by which disturbances during some steps prolonged a run of steps.

    The factor compares the run's duration with that of as many undisturbed steps of the same run. Drift
    between runs, which is much larger than the effect, therefore cancels out. Long steps are slightly more
    likely to be disturbed, so the ratio is too high rather than too low.

    Args:
        ends: Times at which steps ended, in order; each step begins when the previous one ends.
        disturbed: Start and end of each disturbance.

    Returns:
        The ratio; None if every step was disturbed.
    """
    hit: set[int] = set()
    for began, ended in disturbed:
        first, last = bisect_right(ends, began), bisect_left(ends, ended)
        hit.update(range(max(1, first), min(last, len(ends) - 1) + 1))
    undisturbed = [ends[step] - ends[step - 1] for step in range(1, len(ends)) if step not in hit]
    if not undisturbed:
        return None
    return (ends[-1] - ends[0]) / (sum(undisturbed) / len(undisturbed) * (len(ends) - 1))
