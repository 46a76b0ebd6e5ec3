"""The history of every GPU: some minutes at the full sampling rate, and one hour in steps of one second."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpuwidget.model.samples import Sample
from gpuwidget.server.encoding import encode_at_once, list_of
from gpuwidget.server.history_chunks import INITIAL_METRICS, Chunk, ChunkQueue
from gpuwidget.server.history_encoding import encode_query
from gpuwidget.server.history_metrics import sample_tick
from gpuwidget.server.history_query import HistoryQuery
from gpuwidget.server.hourly_rollup import HourlyRollup
from gpuwidget.server.wire import MeanUtilization

_MIN_INTERVAL = 0.9
"""The shortest time between two samples for which the history has room, as a fraction of the sampling
interval. The sampler's actual interval may be a tenth shorter than configured."""
_MEAN_WINDOWS_S = (600.0, 1800.0, 3600.0)
"""Seconds over which the mean utilization is computed, for hints about underused GPUs."""
_MEAN_STEP_S = 10.0
"""The windows end at a multiple of this many seconds, so that the means do not change with every sample."""
_MAX_GAP_S = 5.0
_MAX_GAP_INTERVALS = 2.5
"""If the next sample is later than ``_MAX_GAP_S`` and than this number of intervals, sampling had stopped."""
_CLOCK_CORRECTION_S = 60.0
"""If the system clock is set back by at most this many seconds, only the samples that are later than the new
time are dropped. If it is set back by more, all samples are dropped, because the clock was probably wrong
when they were taken."""


class HistoryStore:
    """The history of all metrics of all GPUs: ``seconds`` at the full rate, and an hour in steps of a second.

    At the full rate, there is one sample per ``interval_s``. GPUs may appear and disappear. Only one thread
    may use the store.
    """

    def __init__(self, seconds: float, interval_s: float) -> None:
        self._interval_s = interval_s
        self._full_rate = ChunkQueue(seconds, interval_s * _MIN_INTERVAL)
        self._rollup = HourlyRollup()
        self._means_until = math.nan
        self._means: dict[str, tuple[MeanUtilization, ...]] = {}
        """The mean utilization of each GPU over the windows that end at ``_means_until``."""

    @property
    def newest(self) -> float:
        """Time of the newest sample in epoch seconds; -inf if there is none."""
        return self._rollup.newest

    def add(self, sample: Sample) -> None:
        """Add the newest sample, and drop samples that are too old."""
        if sample.time <= self.newest:
            # The system clock was set back. Drop the samples after the new time or, if the step was large,
            # all samples.
            is_correction = self.newest - sample.time <= _CLOCK_CORRECTION_S
            since = sample.time if is_correction else -math.inf
            self._full_rate.drop(since)
            self._rollup.drop(since)
        tick = sample_tick(sample)
        self._full_rate.add(tick)
        self._full_rate.expire(tick.time)
        self._rollup.add(tick)
        if self._full_rate.chunks[-1].is_full:
            self._full_rate.chunks[-1].seal()

    def has_samples(self, since: float, until: float) -> bool:
        """Return whether any sample between two times (epoch seconds) is stored."""
        chunks = (*self._full_rate.chunks, *self._rollup.chunks())
        return any(chunk.index_of(until) > chunk.index_of(since) for chunk in chunks)

    def mean_utilizations(self, uuid: str) -> tuple[MeanUtilization, ...]:
        """Return the mean utilization of a GPU over each window, the shortest window first."""
        until = self.newest - self.newest % _MEAN_STEP_S
        if until != self._means_until:
            self._means_until, self._means = until, {}
        if uuid not in self._means:
            max_gap_s = max(_MAX_GAP_S, _MAX_GAP_INTERVALS * self._interval_s)
            means = self._rollup.means(uuid, "utilization", until, _MEAN_WINDOWS_S, max_gap_s)
            self._means[uuid] = tuple(
                MeanUtilization(seconds, None if mean is None else round(mean, 1))
                for seconds, mean in zip(_MEAN_WINDOWS_S, means, strict=True)
            )
        return self._means[uuid]

    def encode_recent(self, since: float, max_values: int | None = None) -> bytes:
        """Return the :class:`gpuwidget.server.wire.History` since ``since`` (epoch seconds) as JSON.

        If it has more than ``max_values`` values, the oldest samples are left out.
        """
        parts = [
            (chunk, chunk.index_of(since)) for chunk in self._full_rate.chunks if chunk.times[-1] >= since
        ]
        # The order of GPUs is that of the newest chunk, which is the order in which the driver lists them.
        uuids = dict.fromkeys(uuid for chunk, _ in reversed(parts) for uuid in chunk.uuids)
        if max_values is not None:
            parts = _newest(parts, max_values // (1 + len(INITIAL_METRICS) * len(uuids)))
        return encode_at_once(
            {
                "t": list_of(chunk.encode_times(first) for chunk, first in parts),
                "gpus": (
                    {"uuid": uuid}
                    | {
                        name: list_of(chunk.encode_values(uuid, name, first) for chunk, first in parts)
                        for name in INITIAL_METRICS
                    }
                    for uuid in uuids
                ),
            }
        )

    def query(self, query: HistoryQuery) -> Iterator[bytes]:
        """Yield the :class:`gpuwidget.server.wire.MetricHistory` that answers a query as JSON, in small
        parts."""
        full_rate = list(self._full_rate.chunks)
        by_second = self._rollup.chunks()
        # The full-rate history contains all requested samples if it begins before the requested time. This is
        # also the case if it begins in the first second of the hourly rollup, because then no older samples
        # are stored anywhere.
        is_complete = not full_rate or full_rate[0].times[0] <= max(query.since, by_second[0].times[0] + 1)
        samples = sum(chunk.index_of(query.until) - chunk.index_of(query.since) for chunk in full_rate)
        step = query.step_s(full_rate=bool(is_complete), samples=samples, interval_s=self._interval_s)
        return encode_query(full_rate if step < 1 else by_second, query, step, self.newest)


def _newest(parts: list[tuple[Chunk, int]], ticks: int) -> list[tuple[Chunk, int]]:
    """Return the newest ``ticks`` ticks of chunks, of which each part begins at an index."""
    kept: list[tuple[Chunk, int]] = []
    for chunk, first in reversed(parts):
        if ticks <= 0:
            break
        kept.append((chunk, max(first, len(chunk) - ticks)))
        ticks -= len(chunk) - kept[-1][1]
    return kept[::-1]
