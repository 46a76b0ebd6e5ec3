"""Where things lie in the live chart: the panels of all GPUs in one bqplot figure.

One figure holds every GPU's panel, so that an update is one message however many GPUs there are: a
message costs the kernel's threads a dozen hand-overs of the interpreter, its size hardly anything. Few GPUs
stand in rows, many in tiles. Vertical lengths are pixels, horizontal ones percent of the figure's width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuwidget.measure.progress import GpuProgress
from gpuwidget.measure.report import Mark

Floats = NDArray[np.float32]
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
        t = thinned(moments, points) * (self.width / end)
        x, y = [], []
        for panel, gpu in enumerate(gpus):
            utilization = thinned(gpu.utilization, points)
            memory = thinned(gpu.device_memory, points) * (100.0 / (gpu.gpu.memory_total or np.nan))
            lines = np.array([_outline(utilization), _ending(utilization), _ending(memory)])
            times = np.array([_outline_times(t, utilization), *(np.concatenate((t[:1], t, t[-1:])),) * 2])
            x.append(self.left(panel) + times)
            y.append(self.bottom(panel) + lines * (self.height / 100.0))
        return np.concatenate(x).astype(np.float32), np.concatenate(y).astype(np.float32)

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


def thinned(values: Iterable[float | None], most: int) -> NDArray[np.float64]:
    """At most so many means of equally many neighbours; NaN where one of them is None."""
    whole = np.array(tuple(values), dtype=float)
    step = -(-len(whole) // most)
    if step <= 1:
        return whole
    rest = len(whole) % step
    # The newest values are kept in whole groups: what moves is the chart's right edge.
    means = whole[rest:].reshape(-1, step).mean(axis=1)
    return means if not rest else np.concatenate(([whole[:rest].mean()], means))


def _outline(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The course with a point on the floor before and after it: an area."""
    return np.concatenate(([0.0], np.nan_to_num(values), [0.0]))


def _outline_times(t: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The outline's times: beside a gap the area ends upright, not aslant into what nobody knows."""
    known = ~np.isnan(values)
    before, after = np.append(False, known[:-1]), np.append(known[1:], False)
    times = np.where(~known & before, np.roll(t, 1), np.where(~known & after, np.roll(t, -1), t))
    return np.concatenate((times[:1], times, times[-1:]))


def _ending(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """As long as the outline, without more to see: bqplot needs a number, not a gap, at the end."""
    last = values[-1:]
    return np.concatenate((values[:1] * np.nan, values, np.nan_to_num(last)))
