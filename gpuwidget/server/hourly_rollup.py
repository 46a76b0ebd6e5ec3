"""The last hour in steps of one second, with the minimum, mean and maximum of each metric per step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpuwidget.server.history_chunks import Chunk, ChunkQueue
from gpuwidget.server.history_metrics import Tick

HOUR_S = 3600.0

_MIN_COVERAGE = 0.95
"""The fraction of a window that must have been sampled. If less was sampled, the window's mean is unknown."""


class HourlyRollup:
    """Combines the samples of each second into a step. Seconds without samples are not stored."""

    def __init__(self) -> None:
        self._seconds = ChunkQueue(HOUR_S + 1, shortest_s=1.0)
        """All seconds but the newest, which is not complete yet."""
        self._newest: list[Tick] = []
        """The samples of the newest second."""

    @property
    def newest(self) -> float:
        """Time of the newest sample in epoch seconds; -inf if there is none."""
        return self._newest[-1].time if self._newest else -math.inf

    def add(self, tick: Tick) -> None:
        """Add a sample, which must be later than all samples before it."""
        if self._newest and math.floor(tick.time) > math.floor(self.newest):
            self._seconds.add(_summarize(self._newest))
            self._newest = []
        self._newest.append(tick)
        self._seconds.expire(tick.time)

    def drop(self, since: float) -> None:
        """Drop the second that contains the time ``since`` (epoch seconds), and all later seconds."""
        start = math.floor(since) if math.isfinite(since) else since
        if self.newest >= start:
            self._newest = []
        self._seconds.drop(start)

    def chunks(self) -> list[Chunk]:
        """Return all chunks, the oldest first. The last one contains the newest second if that has
        samples."""
        if not self._newest:
            return list(self._seconds.chunks)
        newest = Chunk(capacity=1)
        newest.add(_summarize(self._newest))
        return [*self._seconds.chunks, newest]

    def means(
        self, uuid: str, metric: str, until: float, windows_s: Sequence[float], max_gap_s: float
    ) -> list[float | None]:
        """Return the mean of a metric over each window that ends at ``until`` (epoch seconds).

        A value applies until the next sample, unless that is more than ``max_gap_s`` later. In that case,
        sampling had stopped, and the time in between counts as not sampled. A mean is None if too little of
        its window was sampled.
        """
        parts = [(chunk, chunk.values(uuid, metric)) for chunk in self._seconds.chunks]
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


def _summarize(samples: Sequence[Tick]) -> Tick:
    """Return the minimum, mean and maximum of each metric over the samples of one second."""
    second = Chunk(capacity=len(samples))
    for sample in samples:
        second.add(sample)
    values = second.all_values[0]
    low, high = np.fmin.reduce(values, axis=-1), np.fmax.reduce(values, axis=-1)
    with np.errstate(invalid="ignore"):  # Without known values, the mean is 0 / 0 = NaN.
        mean = np.nansum(values, axis=-1) / np.count_nonzero(~np.isnan(values), axis=-1)
    # Rounding must not move a mean outside the range of the values.
    stats = np.stack([low, np.clip(mean, low, high), high])
    return Tick(math.floor(samples[0].time), list(second.uuids), stats, len(samples))
