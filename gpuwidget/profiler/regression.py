"""What each line did to a quantity that is known only as a mean over windows, by least squares.

A window's utilization is the sum over lines of the line's share of the window times the activity while it
runs. Where every window holds the same mixture, any activities fit: then nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_FEWEST_WINDOWS = 10
_WINDOWS_PER_LINE = 3
_LEAST_SHARE = 0.05
"""Of all windows together, below which a line counts with the others."""
_MOST_REST = 0.1
"""Of all windows together, above which the lines without an activity of their own get one in common."""
_LEAST_SPREAD = 0.15
"""Standard deviation of a line's share from window to window."""
_WORST_CONDITION = 50.0
"""Of the shares; the squares' is its square."""
_WORST_ERROR = 6.0
"""Points, one standard error of an activity."""
_BEYOND = 12.0
"""Points by which noise may take an activity below 0 or above 100."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """One window: which part of it each line had, and its mean."""

    shares: Mapping[int | None, float]
    """From 0 to 1, together 1."""
    mean: float
    """Percent."""


def unmix(windows: Sequence[Mixture]) -> dict[int | None, float] | None:
    """Percent by line, for those with a twentieth of the time; None where the windows can't tell."""
    if len(windows) < _FEWEST_WINDOWS:
        return None
    total: dict[int | None, float] = {}
    for window in windows:
        for line, share in window.shares.items():
            total[line] = total.get(line, 0.0) + share
    lines = [line for line, share in total.items() if share >= _LEAST_SHARE * len(windows)]
    if not lines or len(windows) < _WINDOWS_PER_LINE * len(lines):
        return None
    rows = [[window.shares.get(line, 0.0) for line in lines] for window in windows]
    rest = [max(0.0, 1.0 - sum(row)) for row in rows]
    if sum(rest) > _MOST_REST * len(windows):
        rows = [[*row, left] for row, left in zip(rows, rest, strict=True)]
    if len(rows[0]) > 1 and any(_spread(row[at] for row in rows) < _LEAST_SPREAD for at in range(len(lines))):
        return None
    means = [window.mean for window in windows]
    found = _least_squares(rows, means)
    if found is None:
        return None
    activity, errors = found
    for value, error in zip(activity[: len(lines)], errors, strict=False):
        if not -_BEYOND <= value <= 100 + _BEYOND or error > _WORST_ERROR:
            return None
    return {line: min(100.0, max(0.0, value)) for line, value in zip(lines, activity, strict=False)}


def _spread(values: object) -> float:
    known = list(values)  # type: ignore[call-overload]
    mean = sum(known) / len(known)
    return float((sum((value - mean) ** 2 for value in known) / len(known)) ** 0.5)


def _least_squares(
    rows: Sequence[Sequence[float]], means: Sequence[float]
) -> tuple[list[float], list[float]] | None:
    """The activities and their standard errors; None where the shares are too much alike."""
    size = len(rows[0])
    squares = [[sum(row[i] * row[j] for row in rows) for j in range(size)] for i in range(size)]
    right = [sum(row[i] * mean for row, mean in zip(rows, means, strict=True)) for i in range(size)]
    inverse = _inverse(squares)
    if inverse is None or _norm(squares) * _norm(inverse) > _WORST_CONDITION**2:
        return None
    activity = [sum(inverse[i][j] * right[j] for j in range(size)) for i in range(size)]
    residual = sum(
        (mean - sum(a * share for a, share in zip(activity, row, strict=True))) ** 2
        for row, mean in zip(rows, means, strict=True)
    )
    variance = residual / max(1, len(rows) - size)
    return activity, [(variance * max(0.0, inverse[i][i])) ** 0.5 for i in range(size)]


def _norm(matrix: Sequence[Sequence[float]]) -> float:
    return max(sum(abs(value) for value in row) for row in matrix)


def _inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]] | None:
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(rows[row][column]))
        if abs(rows[pivot][column]) < 1e-12:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        scale = rows[column][column]
        rows[column] = [value / scale for value in rows[column]]
        for row in range(size):
            factor = rows[row][column]
            if row != column and factor:
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[column], strict=True)]
    return [row[size:] for row in rows]
