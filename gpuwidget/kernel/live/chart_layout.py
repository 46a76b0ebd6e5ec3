"""The layout of the live chart: the panels of all GPUs in one bqplot figure.

With a single figure, an update is one message for any number of GPUs. The number of messages matters more
than their size, because the kernel's threads hand the GIL over about a dozen times for each message. The
panels are as large as those of the card's chart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpuwidget.measure.progress import GpuProgress
from gpuwidget.model.report import Mark
from gpuwidget.views.chart import ChartPanels

Floats = NDArray[np.float32]
Values = NDArray[np.float64]
Lines = tuple[Floats, Floats]
"""x and y of several lines, in the coordinates of the figure."""

_MAX_VALUES = 4000
_MIN_POINTS = 40
_TICK_PERCENT = 8.0


class ChartLayout(ChartPanels):
    """The panels of the live chart, and their lines in the coordinates of the figure."""

    __slots__ = ()

    def bottom(self, panel: int) -> float:
        """Return the y coordinate of 0 percent in a panel's plot; y is 0 at the lower edge of the figure."""
        return float(self.total_height - self.floor(panel))

    def series_lines(self, times: Sequence[float], end: float, gpus: Sequence[GpuProgress]) -> Lines:
        """Return three lines per GPU: the outline of the utilization's area, the utilization, and the memory.

        ``end`` is the time at the right edge of a plot. Unknown values become gaps.
        """
        if not times or not gpus:
            return _EMPTY
        points = max(_MIN_POINTS, _MAX_VALUES // (3 * len(gpus)))
        t = downsample([times], points)[0] * (self.width / end)
        utilization = downsample([gpu.utilization for gpu in gpus], points)
        totals = np.array([gpu.gpu.memory_total or np.nan for gpu in gpus])
        memory = downsample([gpu.device_memory for gpu in gpus], points) * (100.0 / totals[:, None])
        x = np.empty((len(gpus), 3, len(t) + 2))
        x[:, :, 1:-1] = t
        gaps = np.isnan(utilization)
        x[:, 0, 1:-1] = _area_times(t, gaps)
        x[:, :, 0], x[:, :, -1] = x[:, :, 1], x[:, :, -2]
        y = np.zeros_like(x)
        y[:, 0, 1:-1] = np.where(gaps, 0.0, utilization)
        y[:, 1, 1:-1], y[:, 2, 1:-1] = utilization, memory
        # All lines must have as many points as the area's outline, so the other lines have two more points
        # than they need. These two are invisible: the first is NaN, and the last repeats the point before it.
        # The last point is not NaN, because bqplot needs a number at the end of a line.
        y[:, 1:, 0] = np.nan
        last = y[:, 1:, -2]
        y[:, 1:, -1] = np.where(np.isnan(last), 0.0, last)
        panels = range(len(gpus))
        x += np.array([self.left(panel) for panel in panels])[:, None, None]
        y *= self.height / 100.0
        y += np.array([self.bottom(panel) for panel in panels])[:, None, None]
        return _flatten(x), _flatten(y)

    def mark_lines(self, marks: Sequence[Mark], end: float) -> Lines:
        """Return two lines that consist of vertical strokes in every panel.

        The first line has a tall stroke for each mark. The second line has a short stroke for each line of
        text that the cell printed.
        """
        most = max(10, _MAX_VALUES // (6 * max(1, self.panels)))
        x: list[float] = []
        tall: list[float] = []
        short: list[float] = []
        for panel in range(self.panels):
            floor = self.bottom(panel)
            for mark in marks[-most:]:
                x += (self.left(panel) + mark.t * self.width / end,) * 3
                # Both lines have a point for each stroke, but in one of them the stroke has no height. A
                # stroke ends with a number instead of NaN, because bqplot needs a number at the end of a
                # line.
                tall += (np.nan, floor, floor + (self.height if mark.kind == "mark" else 0.0))
                stroke = self.height * _TICK_PERCENT / 100.0
                short += (np.nan, floor, floor + (stroke if mark.kind != "mark" else 0.0))
        if not x:
            return _EMPTY
        return np.array(x, dtype=np.float32), np.array((tall, short), dtype=np.float32)


_EMPTY: Lines = (np.zeros(1, np.float32), np.zeros((2, 1), np.float32))


def downsample(series: Sequence[Sequence[float | None]], points: int) -> Values:
    """Downsample each series to at most ``points`` values, each the mean of a block of consecutive values.

    The result has one row per series; None becomes NaN.
    """
    values = np.array(series, dtype=float)
    step = -(-values.shape[1] // points)
    if step <= 1:
        return values
    # The incomplete block, if any, is the first one, so that the newest blocks at the chart's right edge are
    # complete.
    rest = values.shape[1] % step
    means = values[:, rest:].reshape(len(values), -1, step).mean(axis=2)
    return means if not rest else np.column_stack((values[:, :rest].mean(axis=1), means))


def _area_times(t: Values, gaps: NDArray[np.bool_]) -> Values:
    """Return the times of the areas' outlines.

    Next to a gap, the times are shifted so that the outline is vertical there.
    """
    if not gaps.any():
        return t
    vertical = np.repeat(t[None], len(gaps), axis=0)
    np.copyto(vertical[:, :-1], t[1:], where=gaps[:, :-1] & ~gaps[:, 1:])
    np.copyto(vertical[:, 1:], t[:-1], where=gaps[:, 1:] & ~gaps[:, :-1])
    return vertical


def _flatten(values: Values) -> Floats:
    return values.reshape(-1, values.shape[-1]).astype(np.float32)
