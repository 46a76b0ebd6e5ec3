"""Medians, percentiles, slopes, and pairs of runs in alternating order."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, linear_regression, median
from typing import TypeVar

__all__ = [
    "Slope",
    "alternating",
    "median",
    "median_interval",
    "overhead_ratio",
    "p95",
    "p99",
    "ratios",
    "slope",
]

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


@dataclass(frozen=True)
class Slope:
    """A slope with its 95 % confidence interval."""

    value: float
    low: float
    high: float


def slope(times: Sequence[float], values: Sequence[float]) -> Slope | None:
    """Return the slope of the least-squares line through ``values``, per unit of ``times``.

    Successive samples of a process's memory resemble each other, so they contain less information than
    independent ones. The interval is wider by the usual correction for this: with the correlation ``r`` of
    successive residuals, N samples count as N (1 - r) / (1 + r). The result is None if fewer than three
    samples count.
    """
    if len(times) < 3:
        return None
    line = linear_regression(times, values)
    residuals = [
        value - line.intercept - line.slope * time for time, value in zip(times, values, strict=True)
    ]
    squares = sum(residual * residual for residual in residuals)
    if squares == 0.0:
        return Slope(line.slope, line.slope, line.slope)
    products = sum(one * other for one, other in pairwise(residuals))
    correlation = max(0.0, products / squares)
    freedom = len(times) * (1 - correlation) / (1 + correlation) - 2
    if freedom <= 0:
        return None
    middle = sum(times) / len(times)
    error = math.sqrt(squares / freedom / sum((time - middle) ** 2 for time in times))
    normal = NormalDist().inv_cdf(0.975)
    # The first terms of the expansion of Student's t for many degrees of freedom.
    student = normal + (normal**3 + normal) / (4 * freedom)
    student += (5 * normal**5 + 16 * normal**3 + 3 * normal) / (96 * freedom**2)
    return Slope(line.slope, line.slope - student * error, line.slope + student * error)


def alternating(pairs: int, plain: Callable[[], T], watched: Callable[[], T]) -> list[tuple[T, T]]:
    """Run both functions ``pairs`` times and return the results as pairs (plain, watched).

    In every second pair, ``watched`` runs first. This prevents drift (clocks, temperature, caches) from
    favoring one of the functions.
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
