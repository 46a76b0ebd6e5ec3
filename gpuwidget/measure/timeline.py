"""A run's timeline: its marks and its GPUs' time series, in memory that does not grow with the run."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuwidget.measure import notes
from gpuwidget.measure.gpu_totals import GpuTotals
from gpuwidget.model.messages import Message
from gpuwidget.model.report import Mark, MarkKind
from gpuwidget.sampler import INTERVAL_S

MAX_POINTS = 240
"""Maximum number of points of a time series in a report."""
MEMORY_INTERVAL_S = 0.1
"""Seconds between two readings of memory. The interval is shorter if samples are taken more often, and grows
during a long run."""
_MAX_MARKS = 200
_MAX_THINNED = 100
_MAX_STEPS = 1600
_MAX_GAPS = 64
_KEEP_MAXIMUM = (False, True, False, False)
"""For each metric of :class:`GpuTimeSeries`, whether merged points keep the maximum (memory) or the mean."""


@dataclass(slots=True)
class _Series:
    """The bins of one metric. Each bin holds the mean or the maximum of its values."""

    keep_maximum: bool
    values: list[float | None] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def append(self, value: float | None) -> None:
        self.values.append(value)
        self.counts.append(0 if value is None else 1)

    def merge_into(self, index: int, value: float | None, count: int) -> None:
        present = self.values[index]
        if value is None:
            return
        if present is None:
            self.values[index], self.counts[index] = value, count
        elif self.keep_maximum:
            self.values[index] = max(present, value)
        else:
            total = self.counts[index] + count
            self.values[index] = present + (value - present) * count / total
            self.counts[index] = total

    def halve(self) -> None:
        values, counts = self.values, self.counts
        self.values, self.counts = values[::2], counts[::2]
        for index, (value, count) in enumerate(zip(values[1::2], counts[1::2], strict=True)):
            self.merge_into(index, value, count)

    def halved(self) -> _Series:
        """Return a copy with pairs of bins merged. If there is an odd number, the last bin stays as it is."""
        even = len(self.values) // 2 * 2
        copy = _Series(self.keep_maximum, self.values[:even], self.counts[:even])
        copy.halve()
        copy.values += self.values[even:]
        copy.counts += self.counts[even:]
        return copy


class TimeSeries:
    """Several metrics over one time axis, in at most twice :data:`MAX_POINTS` bins.

    When all bins are in use, neighboring bins are merged, so that each becomes twice as wide. A merged bin
    keeps either the mean or the maximum of its values.
    """

    def __init__(self, keep_maximum: Sequence[bool], spacing_s: float = 0.0) -> None:
        """``keep_maximum`` has one entry per metric: True keeps the maximum, False the mean.

        Values less than ``spacing_s`` seconds apart share a bin from the start.
        """
        self._series = [_Series(keep) for keep in keep_maximum]
        self._t: list[float] = []
        self._spacing = spacing_s

    def add(self, t: float, values: Sequence[float | None]) -> None:
        """Add the metrics' values at ``t`` seconds. ``t`` must increase with each call."""
        if self._t and t - self._t[-1] < self._spacing:
            last = len(self._t) - 1
            for series, value in zip(self._series, values, strict=True):
                series.merge_into(last, value, 1)
            return
        if len(self._t) == 2 * MAX_POINTS:
            width = self._t[-1] - self._t[0]
            self._t = self._t[::2]
            for series in self._series:
                series.halve()
            self._spacing = width / MAX_POINTS
        self._t.append(t)
        for series, value in zip(self._series, values, strict=True):
            series.append(value)

    def add_metrics(self, keep_maximum: Sequence[bool]) -> None:
        """Add further metrics, whose values up to now are unknown."""
        for keep in keep_maximum:
            self._series.append(_Series(keep, [None] * len(self._t), [0] * len(self._t)))

    def points(
        self, most: int = MAX_POINTS
    ) -> tuple[tuple[float, ...], tuple[tuple[float | None, ...], ...]]:
        """Return the time axis and the metrics, downsampled to at most ``most`` points."""
        t, all_series = self._t, self._series
        while len(t) > most:
            t = t[::2] if len(t) % 2 == 0 else [*t[:-1][::2], t[-1]]
            all_series = [series.halved() for series in all_series]
        return tuple(t), tuple(tuple(series.values) for series in all_series)


class GpuTimeSeries(NamedTuple):
    """One GPU's metrics, each with one value per point of the time axis."""

    utilization: tuple[float | None, ...]
    """Utilization in percent."""
    memory_used: tuple[float | None, ...]
    """Bytes in use on the whole GPU."""
    power_w: tuple[float | None, ...]
    sm_activity: tuple[float | None, ...]
    """SM activity in percent."""


class RunTimeSeries:
    """The time series of all GPUs of a run."""

    def __init__(self, max_gap_s: float) -> None:
        """If two samples are more than ``max_gap_s`` seconds apart, the time between counts as unknown."""
        self._max_gap_s = max_gap_s
        self._series = TimeSeries((), spacing_s=MEMORY_INTERVAL_S / 2)
        self._last = 0.0
        self._gaps: list[tuple[float, float]] = []

    def add_gpus(self, count: int) -> None:
        """Add ``count`` GPUs, whose values up to now are unknown."""
        self._series.add_metrics(_KEEP_MAXIMUM * count)

    def add(self, t: float, gpus: Collection[GpuTotals], started: float) -> None:
        """Add the newest readings of all GPUs, ``t`` seconds into the run that began at ``started``."""
        if not gpus:
            return
        if t - self._last > self._max_gap_s:
            # Add unknown values, so that the gap is not drawn as a straight line.
            self._series.add((t + self._last) / 2, (None,) * len(_KEEP_MAXIMUM) * len(gpus))
            self._gaps = longest_gaps([*self._gaps, (self._last, t)], _MAX_GAPS)
        self._last = t
        row: list[float | None] = []
        for gpu in gpus:
            reading = gpu.reading
            # Leave out utilization and activity whose measurement window began before the run.
            window = reading.utilization_window or INTERVAL_S
            inside = reading.measured is not None and reading.measured >= started + window
            counted = gpu.counted
            sm = counted.sm if counted is not None and counted == reading.activity else None
            utilization = reading.utilization if inside else None
            memory, power = (reading.memory_used, reading.power_w) if gpu.fresh else (None, None)
            row += (utilization, memory, power, sm)
        self._series.add(t, row)

    @property
    def gaps(self) -> tuple[tuple[float, float], ...]:
        """The beginning and end of the times in which nothing was sampled, at most the 64 longest."""
        return tuple(self._gaps)

    def points(self) -> tuple[tuple[float, ...], list[GpuTimeSeries]]:
        """Return the time axis (seconds since the run's start) and the time series of all GPUs.

        The GPUs are in the order in which they were added.
        """
        t, series = self._series.points()
        width = len(_KEEP_MAXIMUM)
        return t, [GpuTimeSeries(*series[n : n + width]) for n in range(0, len(series), width)]


def longest_gaps(gaps: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Return the ``most`` longest of the gaps, in the order of time."""
    return sorted(sorted(gaps, key=lambda gap: gap[0] - gap[1])[:most])


@dataclass(slots=True)
class _ThinnedMarks:
    """Every n-th of the added marks, with n such that only a limited number remains."""

    marks: list[Mark] = field(default_factory=list)
    stride: int = 1
    added: int = 0

    def add(self, t: float, label: str, kind: MarkKind, most: int = _MAX_THINNED) -> None:
        while self.added % self.stride == 0 and len(self.marks) >= most:
            self.marks = self.marks[::2]
            self.stride *= 2
        if self.added % self.stride == 0:
            self.marks.append(Mark(t, label, kind))
        self.added += 1


class TimelineMarks:
    """Keeps the user's first 200 marks, up to 100 printed lines, and up to 100 steps of each rank, or fewer
    if there are many ranks."""

    def __init__(self) -> None:
        # Reentrant, because a signal handler or a finalizer may print while this thread holds the lock.
        self._lock = threading.RLock()
        self._marks: list[Mark] = []
        self._printed = _ThinnedMarks()
        self._steps: dict[int, _ThinnedMarks] = {}
        """The steps of each rank."""
        self._marks_set = 0

    def add_mark(self, t: float, label: str) -> None:
        """Add a mark set by the user, ``t`` seconds into the run."""
        with self._lock:
            self._marks_set += 1
            if len(self._marks) < _MAX_MARKS:
                self._marks.append(Mark(t, label, "mark"))

    def add_printed(self, t: float, line: str) -> None:
        """Add a line that the user's code printed, ``t`` seconds into the run."""
        with self._lock:
            self._printed.add(t, line, "printed")

    def omits_printed(self) -> bool:
        """Return whether the next printed line is one of those that are only counted, and count it then.

        This takes no lock, because a cell may print many lines.
        """
        printed = self._printed
        if printed.added % printed.stride == 0:
            return False
        printed.added += 1
        return True

    def clear_printed(self) -> None:
        """Drop the printed lines, because the cell cleared them."""
        with self._lock:
            self._printed = _ThinnedMarks()

    def add_step(self, t: float, rank: int, step: int) -> None:
        """Add the number of steps that a rank reported, ``t`` seconds into the run."""
        with self._lock:
            of_rank = self._steps.setdefault(rank, _ThinnedMarks())
            most = min(_MAX_THINNED, max(2, _MAX_STEPS // len(self._steps)))
            of_rank.add(t, f"rank {rank}: step {step}", "step", most)

    def all(self) -> tuple[Mark, ...]:
        """Return all marks, lines and steps that were kept, in chronological order."""
        with self._lock:
            steps = [mark for of_rank in self._steps.values() for mark in of_rank.marks]
            return tuple(sorted((*self._marks, *self._printed.marks, *steps), key=lambda mark: mark.t))

    def notes(self) -> list[Message]:
        """Return notes about the marks and lines that were not kept."""
        with self._lock:
            found = []
            if self._marks_set > len(self._marks):
                found.append(notes.MARKS_OMITTED(count=self._marks_set, kept=len(self._marks)))
            if self._printed.added > len(self._printed.marks):
                found.append(notes.LINES_OMITTED(count=self._printed.added, stride=self._printed.stride))
            return found
