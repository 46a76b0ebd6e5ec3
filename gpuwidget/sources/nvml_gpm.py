"""GPU performance monitoring (GPM): hardware counters, whose values NVML computes from two samples."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpuwidget.model.clock import Clock
from gpuwidget.model.messages import Message
from gpuwidget.model.metrics import METRICS, Metric
from gpuwidget.model.readings import Activity
from gpuwidget.sources import nvml_messages
from gpuwidget.sources.plausible import drop_impossible

MIN_WINDOW_S = 0.1
"""Shortest time in seconds between two samples from which NVML can compute values, according to its
documentation."""

_RATE_UNIT = 1024**2
"""Bytes per second in NVML's unit of a transfer rate."""
_COUNTERS = tuple(metric for metric in METRICS if metric.gpm is not None)

_MetricsRequest = tuple[Any, list[tuple[Any, Metric]]]
"""NVML's structure for a request and its results, and one pair per counter: the counter's part of that
structure, and its entry in the table of metrics."""
CountedActivity = tuple[Activity, dict[str, Message]]
"""What the counters have measured, and the reason for each counter that it does not contain."""
TakeSample = Callable[[Any], object]
"""Fills a sample of one GPU with nvmlGpmSampleGet or nvmlGpmMigSampleGet. It may raise pynvml's NVMLError."""


class GpmCounters:
    """Reads one GPU's hardware counters. Keeps two samples: the last one, and a buffer for the next one.

    Only one thread at a time may call ``read``. Any thread may call ``discard``, even while a ``read`` hangs.
    In that case, the samples are freed when the ``read`` returns.
    """

    def __init__(self, nvml: Any, take: TakeSample, clock: Clock) -> None:
        self._nvml = nvml
        self._take = take
        self._clock = clock
        self._lock = threading.Lock()
        self._reading = False
        self._discarded = False
        self._last: Any = None
        self._next: Any = None
        self._last_monotonic = float("-inf")
        self._metrics_request: _MetricsRequest | None = None

    def read(self) -> CountedActivity | None:
        """Return the activity since the previous sample. Raises pynvml's NVMLError.

        Returns None if there is no previous sample or if it is less than 100 ms old.
        """
        with self._lock:
            if self._reading or self._discarded:
                return None
            if self._clock.monotonic() - self._last_monotonic < MIN_WINDOW_S:
                return None
            self._reading = True
        try:
            return self._advance()
        finally:
            with self._lock:
                self._reading = False
                late = self._discarded
            if late:
                self._free()

    def discard(self) -> None:
        """Free the samples permanently. Safe to call twice."""
        with self._lock:
            if self._discarded:
                return
            self._discarded = True
            if self._reading:
                return
        self._free()

    def _advance(self) -> CountedActivity | None:
        if self._next is None:
            self._next = self._nvml.nvmlGpmSampleAlloc()
        self._take(self._next)
        until, monotonic = self._clock.time(), self._clock.monotonic()
        # The system's clock may have been set since the previous sample.
        before, since = self._last, until - (monotonic - self._last_monotonic)
        self._last, self._next = self._next, before
        self._last_monotonic = monotonic
        return None if before is None else self._between(before, self._last, since, until)

    def _between(self, first: Any, second: Any, since: float, until: float) -> CountedActivity:
        nvml = self._nvml
        if self._metrics_request is None:
            self._metrics_request = _metrics_request(nvml)
        get, slots = self._metrics_request
        get.sample1, get.sample2 = first, second
        nvml.nvmlGpmMetricsGet(get)
        values: dict[str, Any] = {}
        missing: dict[str, Message] = {}
        for slot, metric in slots:
            if slot.nvmlReturn == 0 and math.isfinite(slot.value):
                values[metric.key] = slot.value * (_RATE_UNIT if metric.kind == "rate" else 1)
            else:
                values[metric.key] = None
                code = slot.nvmlReturn or nvml_messages.NO_DATA
                missing[metric.key] = nvml_messages.value_error(code, str(nvml.NVMLError(code)))
        drop_impossible(values, missing)
        return Activity(since=since, until=until, **values), missing

    def _free(self) -> None:
        for sample in (self._last, self._next):
            if sample is not None:
                with suppress(self._nvml.NVMLError):
                    self._nvml.nvmlGpmSampleFree(sample)
        self._last = self._next = None


def _metrics_request(nvml: Any) -> _MetricsRequest:
    """Return the request that all reads reuse, because creating one takes longer than a read."""
    get = nvml.c_nvmlGpmMetricsGet_t()
    get.version = nvml.NVML_GPM_METRICS_GET_VERSION
    get.numMetrics = len(_COUNTERS)
    slots = list(zip(get.metrics, _COUNTERS, strict=False))
    for slot, metric in slots:
        slot.metricId = metric.gpm
    return get, slots
