"""How busy each GPU was over the last 10, 30 and 60 minutes: for jobs that have long kept one half idle."""

from __future__ import annotations

from collections import deque

from gpuwidget.model.samples import Sample
from gpuwidget.server.wire import MeanUtilization

WINDOWS_S = (600.0, 1800.0, 3600.0)

_SPAN_S = 10.0
"""Length of the spans of time that are held: a window ends with the last whole one."""
_MOST_SPANS = round(WINDOWS_S[-1] / _SPAN_S)
_LEAST_READ = 0.95
"""Share of a window that must have been read for its mean to be told."""
_LONGEST_GAP = 5.0
_GRACE = 2.5
"""A value counts until the next one is read, unless that takes longer than so many seconds and so many
intervals: then nobody looked in between."""


class Means:
    """Utilization of each GPU, weighted by the time it was read for; at most 360 spans of 16 bytes each."""

    def __init__(self, interval_s: float) -> None:
        self._longest_s = max(_LONGEST_GAP, _GRACE * interval_s)
        self._time: float | None = None
        self._span = 0
        """Number of the span that is being filled, counted by that clock."""
        self._gpus: dict[str, _Gpu] = {}

    def add(self, sample: Sample, now: float) -> None:
        """Take up the newest sample, ``now`` by a clock that nobody sets."""
        elapsed = 0.0 if self._time is None else now - self._time
        self._time = now
        span = int(now // _SPAN_S)
        if span != self._span:
            for gpu in self._gpus.values():
                gpu.end(min(_MOST_SPANS, span - self._span))
            self._span = span
        present = {reading.uuid for reading in sample.readings}
        for uuid in self._gpus.keys() - present:
            del self._gpus[uuid]
        for reading in sample.readings:
            gpu = self._gpus.setdefault(reading.uuid, _Gpu())
            gpu.add(elapsed if elapsed <= self._longest_s else 0.0, reading.utilization)

    def of(self, uuid: str) -> tuple[MeanUtilization, ...]:
        """One for each window, the shortest first."""
        gpu = self._gpus.get(uuid)
        return gpu.means if gpu is not None else _NONE


class _Gpu:
    def __init__(self) -> None:
        self.means = _NONE
        self._spans: deque[tuple[float, float]] = deque(maxlen=_MOST_SPANS)
        """Seconds that were read in each, and utilization times seconds."""
        self._read = self._sum = 0.0
        self._value: float | None = None

    def add(self, elapsed: float, utilization: float | None) -> None:
        """``elapsed`` seconds have passed at the value before."""
        if self._value is not None:
            self._read += elapsed
            self._sum += self._value * elapsed
        self._value = utilization

    def end(self, spans: int) -> None:
        """The span is over, and more of them have passed with it."""
        self._spans.append((self._read, self._sum))
        self._spans.extend([(0.0, 0.0)] * (spans - 1))
        self._read = self._sum = 0.0
        self.means = tuple(MeanUtilization(seconds, self._mean(seconds)) for seconds in WINDOWS_S)

    def _mean(self, seconds: float) -> float | None:
        count = round(seconds / _SPAN_S)
        spans = list(self._spans)[-count:]
        read = sum(one[0] for one in spans)
        if read < _LEAST_READ * seconds:
            return None
        return round(sum(one[1] for one in spans) / read, 1)


_NONE = tuple(MeanUtilization(seconds, None) for seconds in WINDOWS_S)
