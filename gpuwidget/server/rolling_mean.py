"""Mean utilization of each GPU over the last 10, 30 and 60 minutes, for alerts about idle GPUs."""

from __future__ import annotations

from collections import deque

from gpuwidget.model.samples import Sample
from gpuwidget.server.wire import MeanUtilization

WINDOWS_S = (600.0, 1800.0, 3600.0)

_SPAN_S = 10.0
"""Utilization is stored in spans of this many seconds. Each window (the time over which a mean is computed)
ends with the last complete span."""
_MAX_SPANS = round(WINDOWS_S[-1] / _SPAN_S)
_MIN_COVERAGE = 0.95
"""The fraction of a window that must have been sampled. If less was sampled, the window's mean is unknown."""
_MAX_GAP_S = 5.0
_MAX_GAP_INTERVALS = 2.5
"""A value applies until the next sample, unless that sample is later than ``_MAX_GAP_S`` and later than this
number of intervals. In that case, sampling had stopped, and the time in between counts as not sampled."""


class RollingMeans:
    """Computes the time-weighted mean utilization of each GPU. Stores at most 360 spans of 16 bytes per
    GPU."""

    def __init__(self, interval_s: float) -> None:
        self._max_gap_s = max(_MAX_GAP_S, _MAX_GAP_INTERVALS * interval_s)
        self._time: float | None = None
        self._span = 0
        """Number of the current span, which is not complete yet, counted on the monotonic clock."""
        self._gpus: dict[str, _GpuUtilization] = {}

    def add(self, sample: Sample, now: float) -> None:
        """Add the newest sample, which arrived at ``now`` in monotonic seconds."""
        elapsed = 0.0 if self._time is None else now - self._time
        self._time = now
        span = int(now // _SPAN_S)
        if span != self._span:
            for gpu in self._gpus.values():
                gpu.close_span(min(_MAX_SPANS, span - self._span))
            self._span = span
        present = {reading.uuid for reading in sample.readings}
        for uuid in self._gpus.keys() - present:
            del self._gpus[uuid]
        for reading in sample.readings:
            gpu = self._gpus.setdefault(reading.uuid, _GpuUtilization())
            gpu.add(elapsed if elapsed <= self._max_gap_s else 0.0, reading.utilization)

    def means(self, uuid: str) -> tuple[MeanUtilization, ...]:
        """Return the mean of each window, the shortest window first."""
        gpu = self._gpus.get(uuid)
        return gpu.means if gpu is not None else _UNKNOWN


class _GpuUtilization:
    def __init__(self) -> None:
        self.means = _UNKNOWN
        self._spans: deque[tuple[float, float]] = deque(maxlen=_MAX_SPANS)
        """For each span: the seconds that were sampled, and the integral of utilization over them."""
        self._seconds = self._sum = 0.0
        self._value: float | None = None

    def add(self, elapsed: float, utilization: float | None) -> None:
        """Count the previous value for the last ``elapsed`` seconds, and store the new value."""
        if self._value is not None:
            self._seconds += elapsed
            self._sum += self._value * elapsed
        self._value = utilization

    def close_span(self, spans: int) -> None:
        """Store the current span. It is followed by ``spans`` - 1 spans that have passed without a sample."""
        self._spans.append((self._seconds, self._sum))
        self._spans.extend([(0.0, 0.0)] * (spans - 1))
        self._seconds = self._sum = 0.0
        self.means = tuple(MeanUtilization(seconds, self._mean(seconds)) for seconds in WINDOWS_S)

    def _mean(self, window_s: float) -> float | None:
        spans = list(self._spans)[-round(window_s / _SPAN_S) :]
        seconds = sum(span[0] for span in spans)
        if seconds < _MIN_COVERAGE * window_s:
            return None
        return round(sum(span[1] for span in spans) / seconds, 1)


_UNKNOWN = tuple(MeanUtilization(seconds, None) for seconds in WINDOWS_S)
