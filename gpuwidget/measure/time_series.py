"""The course of a run on each GPU, as the live chart and the report's timeline show it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from gpuwidget.measure.gpu_totals import Track
from gpuwidget.measure.running_stats import Course
from gpuwidget.sampler import INTERVAL_S

MEMORY_INTERVAL_S = 0.1
"""Seconds between two readings of memory, where samples are not asked for more often still."""
_HIGHEST = (False, True, False, False)
"""Of a GPU's quantities, memory keeps its highest value in a merged bin."""


class GpuCourse(NamedTuple):
    """One GPU's quantities, each with a value for every point in time."""

    utilization: tuple[float | None, ...]
    """Percent."""
    memory_used: tuple[float | None, ...]
    """Bytes of the whole GPU in use."""
    power_w: tuple[float | None, ...]
    sm_activity: tuple[float | None, ...]
    """Percent."""


class Courses:
    """Grows with each sample, in constant memory."""

    def __init__(self, widest_gap: float) -> None:
        """``widest_gap`` are the seconds from which on nothing is known of the time between two samples."""
        self._widest_gap = widest_gap
        self._course = Course((), spacing_s=MEMORY_INTERVAL_S / 2)
        self._last = 0.0

    def widen(self, gpus: int) -> None:
        """Take up further GPUs, of which nothing was known until now."""
        self._course.widen(_HIGHEST * gpus)

    def add(self, t: float, tracks: Collection[Track], started: float) -> None:
        """What all GPUs, in their order, have read ``t`` seconds into the run that began at ``started``."""
        if not tracks:
            return
        if t - self._last > self._widest_gap:
            # A gap is no straight line from what was before it to what came after.
            self._course.add((t + self._last) / 2, (None,) * len(_HIGHEST) * len(tracks))
        self._last = t
        row: list[float | None] = []
        for track in tracks:
            reading = track.reading
            # What the driver said of a window before the run is no part of the run's course.
            window = reading.utilization_window or INTERVAL_S
            inside = reading.measured is not None and reading.measured >= started + window
            activity = reading.activity
            sm = activity.sm if activity is not None and activity.since >= started else None
            utilization = reading.utilization if inside else None
            row += (utilization, reading.memory_used, reading.power_w, sm)
        self._course.add(t, row)

    def points(self) -> tuple[tuple[float, ...], list[GpuCourse]]:
        """Seconds since the run's start, rising, and the courses of all GPUs in their order."""
        t, series = self._course.points()
        width = len(_HIGHEST)
        return t, [GpuCourse(*series[n : n + width]) for n in range(0, len(series), width)]
