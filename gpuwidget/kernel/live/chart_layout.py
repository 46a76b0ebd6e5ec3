"""Where things lie in the live chart: the panels of all GPUs in one bqplot figure.

One figure holds every GPU's panel, so that an update is one message however many GPUs there are: a
message costs the kernel's threads a dozen hand-overs of the interpreter, its size hardly anything. Few GPUs
stand in rows, many in tiles. Vertical lengths are pixels, horizontal ones percent of the figure's width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuwidget.measure.progress import GpuProgress
from gpuwidget.model.report import Mark

Floats = NDArray[np.float32]
Values = NDArray[np.float64]
Course = tuple[Floats, Floats]
"""x and y of several lines, in the figure's coordinates."""

_TILES_FROM = 5
_MOST_NUMBERS = 4000
_FEWEST_POINTS = 40
_TICK_PERCENT = 8.0


@dataclass(frozen=True, slots=True)
class Layout:
    """The panels of so many GPUs."""

    panels: int
    columns: int
    pitch: int
    """Pixels from one row of panels to the next."""
    top: int
    """Pixels from a row's top to its plot's."""
    height: int
    """Pixels of a plot, for 0 to 100 percent."""
    width: float
    """Percent of the figure that a plot is wide."""
    gap: float
    """Percent of the figure between two plots."""

    @classmethod
    def of(cls, gpus: int) -> Layout:
        """Rows for a few GPUs, small multiples for many."""
        if gpus < _TILES_FROM:
            return cls(gpus, columns=1, pitch=98, top=8, height=64, width=100.0, gap=0.0)
        return cls(gpus, columns=4, pitch=104, top=22, height=36, width=23.5, gap=2.0)

    @property
    def tiles(self) -> bool:
        """Whether panels are small multiples."""
        return self.columns > 1

    @property
    def total_height(self) -> int:
        """Pixels of the figure."""
        return self.pitch * -(-self.panels // self.columns)

    def left(self, panel: int) -> float:
        """x at which a plot begins."""
        return (panel % self.columns) * (self.width + self.gap)

    def bottom(self, panel: int) -> float:
        """y of 0 percent in a plot; y rises from the figure's lower edge."""
        row = panel // self.columns
        return float(self.total_height - row * self.pitch - self.top - self.height)

    def course(self, moments: Sequence[float], end: float, gpus: Sequence[GpuProgress]) -> Course:
        """Three lines a GPU: the outline of its utilization's area, its utilization, its memory.

        ``end`` is the time at the plot's right edge. What is not known is a gap.
        """
        if not moments or not gpus:
            return _NOTHING
        points = max(_FEWEST_POINTS, _MOST_NUMBERS // (3 * len(gpus)))
        t = thinned([moments], points)[0] * (self.width / end)
        utilization = thinned([gpu.utilization for gpu in gpus], points)
        totals = np.array([gpu.gpu.memory_total or np.nan for gpu in gpus])
        memory = thinned([gpu.device_memory for gpu in gpus], points) * (100.0 / totals[:, None])
        x = np.empty((len(gpus), 3, len(t) + 2))
        x[:, :, 1:-1] = t
        x[:, 0, 1:-1] = _upright(t, np.isnan(utilization))
        x[:, :, 0], x[:, :, -1] = x[:, :, 1], x[:, :, -2]
        y = np.zeros_like(x)
        y[:, 0, 1:-1] = np.nan_to_num(utilization)
        y[:, 1, 1:-1], y[:, 2, 1:-1] = utilization, memory
        # The lines are as long as the area without more to see; bqplot needs a number at their end.
        y[:, 1:, 0] = np.nan
        y[:, 1:, -1] = np.nan_to_num(y[:, 1:, -2])
        panels = range(len(gpus))
        x += np.array([self.left(panel) for panel in panels])[:, None, None]
        y *= self.height / 100.0
        y += np.array([self.bottom(panel) for panel in panels])[:, None, None]
        return _lines(x), _lines(y)

    def marks(self, marks: Sequence[Mark], end: float) -> Course:
        """Two lines of upright strokes in every panel: tall ones for marks, short ones for printed lines."""
        most = max(10, _MOST_NUMBERS // (6 * max(1, self.panels)))
        x: list[float] = []
        tall: list[float] = []
        short: list[float] = []
        for panel in range(self.panels):
            floor = self.bottom(panel)
            for mark in marks[-most:]:
                x += (self.left(panel) + mark.t * self.width / end,) * 3
                # A stroke without height, not a gap, stands for the other kind: bqplot needs a number last.
                tall += (np.nan, floor, floor + (self.height if mark.kind == "mark" else 0.0))
                stroke = self.height * _TICK_PERCENT / 100.0
                short += (np.nan, floor, floor + (stroke if mark.kind == "printed" else 0.0))
        if not x:
            return _NOTHING
        return np.array(x, dtype=np.float32), np.array((tall, short), dtype=np.float32)


_NOTHING: Course = (np.zeros(1, np.float32), np.zeros((2, 1), np.float32))


def thinned(courses: Sequence[Sequence[float | None]], most: int) -> Values:
    """A row a course of at most so many means of equally many neighbours; NaN where one of them is None."""
    whole = np.array(courses, dtype=float)
    step = -(-whole.shape[1] // most)
    if step <= 1:
        return whole
    # The newest values are in whole groups: what moves is the chart's right edge.
    rest = whole.shape[1] % step
    means = whole[:, rest:].reshape(len(whole), -1, step).mean(axis=2)
    return means if not rest else np.column_stack((whole[:, :rest].mean(axis=1), means))


def _upright(t: Values, gaps: NDArray[np.bool_]) -> Values:
    """The areas' times: beside a gap an area ends upright, not aslant into what nobody knows."""
    if not gaps.any():
        return t
    upright = np.repeat(t[None], len(gaps), axis=0)
    np.copyto(upright[:, :-1], t[1:], where=gaps[:, :-1] & ~gaps[:, 1:])
    np.copyto(upright[:, 1:], t[:-1], where=gaps[:, 1:] & ~gaps[:, :-1])
    return upright


def _lines(values: Values) -> Floats:
    return values.reshape(-1, values.shape[-1]).astype(np.float32)
