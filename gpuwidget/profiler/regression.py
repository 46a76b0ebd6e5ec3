"""Estimate each line's GPU activity from the means of a GPU counter over windows of time.

A window's mean is modeled as a sum over lines: the line's share of the window times the GPU's activity on
that line. A least-squares regression over all windows yields each line's activity. It works only if the
shares of the lines differ enough between windows. The module is plain Python, because gpuwidget imports numpy
only for the live chart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_MIN_WINDOWS = 10
_MIN_WINDOWS_OF_ONE_LINE = 5
"""If only one line takes much of the time, the result is the mean of the windows, for which fewer windows are
enough. In a run of 4 s, the hardware counters have 7."""
_MIN_LINE_SHARE = 0.05
"""Lines with a smaller share of the total time of all windows are grouped as rare lines."""
_MAX_REST = 0.1
"""If the rare lines have a larger share of the total time, the regression gives them a common activity.
Otherwise it ignores them."""
_MIN_SPREAD = 0.15
"""Minimum standard deviation of a line's share over the windows. If a line's share varies less, there is no
result."""
_MAX_ERROR = 2.5
"""Maximum standard error of a line's activity, in percentage points. With many windows, the activity is then
off by at most 5 points in 19 of 20 cases; with five windows, in about 18 of 20."""
_SINGULAR = 1e-6
"""A smaller pivot means that the lines' shares do not determine a result."""


@dataclass(frozen=True, slots=True)
class WindowMixture:
    """Each line's share of one window of time, and the GPU counter's mean over the window."""

    shares: Mapping[int | None, float]
    """Each line's share of the window, from 0 to 1. The shares add up to 1."""
    mean: float
    """Mean of the counter over the window, in percent."""
    seconds: float
    """Length of the window."""


def activity_by_line(windows: Sequence[WindowMixture]) -> dict[int | None, float] | None:
    """Return each line's GPU activity in percent, from a regression over the windows.

    The result contains the lines that take at least a twentieth of the time. It is None if the windows do not
    determine the activities.
    """
    total: dict[int | None, float] = {}
    for window in windows:
        for line, share in window.shares.items():
            total[line] = total.get(line, 0.0) + share
    lines = [line for line, share in total.items() if share >= _MIN_LINE_SHARE * len(windows)]
    if not lines:
        return None
    columns = [[window.shares.get(line, 0.0) for window in windows] for line in lines]
    rest = [1.0 - sum(shares) for shares in zip(*columns, strict=True)]
    if sum(rest) > _MAX_REST * len(windows):
        columns.append(rest)
    if len(windows) < (_MIN_WINDOWS if len(columns) > 1 else _MIN_WINDOWS_OF_ONE_LINE):
        return None
    if len(columns) > 1 and any(
        _standard_deviation(shares) < _MIN_SPREAD for shares in columns[: len(lines)]
    ):
        return None
    found = _least_squares(columns, [window.mean for window in windows])
    if found is None or any(error > _MAX_ERROR for _, error in found[: len(lines)]):
        return None
    return {line: min(100.0, max(0.0, value)) for line, (value, _) in zip(lines, found, strict=False)}


def _standard_deviation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return float((sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5)


def _least_squares(
    columns: Sequence[Sequence[float]], means: Sequence[float]
) -> list[tuple[float, float]] | None:
    """Return each column's activity and its standard error, or None if the columns are linearly dependent."""
    inverse = _inverse([[_product(column, other) for other in columns] for column in columns])
    if inverse is None:
        return None
    right = [_product(column, means) for column in columns]
    activity = [_product(row, right) for row in inverse]
    fitted = [_product(activity, shares) for shares in zip(*columns, strict=True)]
    residual = sum((mean - value) ** 2 for mean, value in zip(means, fitted, strict=True))
    variance = residual / max(1, len(means) - len(columns))
    return [(value, (variance * max(0.0, inverse[i][i])) ** 0.5) for i, value in enumerate(activity)]


def _product(first: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(first, other, strict=True))


def _inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]] | None:
    """Return the inverse of a matrix by Gauss-Jordan elimination, or None if it is not positive definite."""
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for i in range(size):
        pivot = rows[i][i]
        if pivot < _SINGULAR:
            return None
        rows[i] = [value / pivot for value in rows[i]]
        for j in range(size):
            if j != i:
                rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[size:] for row in rows]
