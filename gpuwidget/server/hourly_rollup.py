"""The last hour in steps of one second, with the minimum, mean and maximum of each metric per step."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from gpuwidget.server.history_chunks import Chunk
from gpuwidget.server.history_metrics import Values

HOUR_S = 3600.0

_MIN_COVERAGE = 0.95
"""The fraction of a window that must have been sampled. If less was sampled, the window's mean is unknown."""


class HourlyRollup:
    """Combines the samples of each second into a step. Seconds without samples are not stored."""

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._second = -math.inf
        """Start of the current second, which is not complete yet, in epoch seconds."""
        self._samples: list[Mapping[str, Values]] = []
        """The samples of the current second."""
        self.newest = -math.inf
        """Time of the newest sample in epoch seconds; -inf if there is none."""

    def add(self, time: float, values: Mapping[str, Values]) -> None:
        """Add a sample, which must be later than all samples before it."""
        second = math.floor(time)
        if second > self._second:
            self._close_second()
            self._second = second
        self._samples.append(values)
        self.newest = time
        while self._chunks and self._chunks[0].times[-1] < time - HOUR_S - 1:
            self._chunks.popleft()

    def drop(self, since: float) -> None:
        """Drop the second that contains the time ``since`` (epoch seconds), and all later seconds."""
        start = math.floor(since) if math.isfinite(since) else since
        if self._second >= start:
            self._second, self._samples = -math.inf, []
        while self._chunks and self._chunks[-1].times[0] >= start:
            self._chunks.pop()
        if self._chunks:
            self._chunks[-1].truncate(self._chunks[-1].index_of(start))

    def chunks(self) -> list[Chunk]:
        """Return all chunks, the oldest first. The last one contains the current second if that has
        samples."""
        if not self._samples:
            return list(self._chunks)
        newest = Chunk(stats=3)
        newest.add(self._second, _summarize(self._samples), len(self._samples))
        return [*self._chunks, newest]

    def means(
        self, uuid: str, metric: str, until: float, windows_s: Sequence[float], max_gap_s: float
    ) -> list[float | None]:
        """Return the mean of a metric over each window that ends at ``until`` (epoch seconds).

        A value applies until the next sample, unless that is more than ``max_gap_s`` later. In that case,
        sampling had stopped, and the time in between counts as not sampled. A mean is None if too little of
        its window was sampled.
        """
        parts = [(chunk, chunk.values(uuid, metric)) for chunk in self._chunks]
        if all(values is None for _, values in parts):
            return [None] * len(windows_s)
        times = np.concatenate([*(chunk.times for chunk, _ in parts), [self.newest]])
        values = np.concatenate(
            [np.full(len(chunk), np.nan) if values is None else values[1] for chunk, values in parts]
        )
        known = (np.diff(times) <= max_gap_s) & ~np.isnan(values)
        found: list[float | None] = []
        for window_s in windows_s:
            seconds = np.diff(np.clip(times, until - window_s, until))[known]
            covered = seconds.sum()
            is_covered = covered >= _MIN_COVERAGE * window_s
            found.append(float(values[known] @ seconds / covered) if is_covered else None)
        return found

    def _close_second(self) -> None:
        if not self._samples:
            return
        if not self._chunks or self._chunks[-1].is_full:
            self._chunks.append(Chunk(stats=3))
        self._chunks[-1].add(self._second, _summarize(self._samples), len(self._samples))
        self._samples = []


def _summarize(samples: Sequence[Mapping[str, Values]]) -> dict[str, Values]:
    """Return, by UUID, the minimum, mean and maximum of each metric over the samples of one second."""
    by_gpu: dict[str, list[Values]] = {}
    for sample in samples:
        for uuid, values in sample.items():
            by_gpu.setdefault(uuid, []).append(values)
    return {uuid: _statistics(values) for uuid, values in by_gpu.items()}


def _statistics(samples: Sequence[Values]) -> Values:
    table = np.full((len(samples), max(map(len, samples))), np.nan)
    for row, values in zip(table, samples, strict=True):
        row[: len(values)] = values
    low, high = np.fmin.reduce(table), np.fmax.reduce(table)
    with np.errstate(invalid="ignore"):  # Without known values, the mean is 0 / 0 = NaN.
        mean = np.nansum(table, axis=0) / np.count_nonzero(~np.isnan(table), axis=0)
    # Rounding must not move a mean outside the range of the values.
    return np.stack([low, np.clip(mean, low, high), high])
