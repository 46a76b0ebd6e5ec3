"""Match stack samples with the windows over which the GPU's counters are averaged."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gpuwidget import pytorch
from gpuwidget.model.samples import Gpu
from gpuwidget.model.torch_state import same_gpu
from gpuwidget.profiler.regression import WindowMixture
from gpuwidget.sampler import MAX_INTERVAL_S, Sampler, Subscription
from gpuwidget.sources import UtilizationWindow

_MAX_SAMPLES = 8000
_MAX_WINDOWS = 1500
_MAX_WINDOW_S = 1.2
_MIN_COVERED = 0.8
"""Minimum fraction of a window that samples must cover. This excludes windows at the run's start and end,
which samples cover only in part."""
_MIN_KNOWN = 0.9
"""Minimum fraction of a window's sampled time in which the stream must have been queried."""
_OTHER_LIBRARIES = ("cupy", "jax", "tensorflow", "numba.cuda")
"""Libraries other than torch that compute on a GPU."""


@dataclass(frozen=True, slots=True)
class WindowMean:
    """The mean of a GPU counter over one window of time."""

    since: float
    """Start of the window in epoch seconds."""
    until: float
    """End of the window in epoch seconds."""
    percent: float
    """Percent of the window's time in which the GPU was busy."""


@dataclass(frozen=True, slots=True)
class MatchedMeans:
    """Means of the stream queries and of the GPU's counters over the same windows of a run."""

    seconds: float
    """Total length of the windows in seconds."""
    stream: float
    """Percent of the windows' time in which the stream had work."""
    counters: float
    """Percent of the windows' time in which the GPU was busy, according to its counters."""
    queried: float
    """Percent of the stream queries that found work. Each query is weighted by the time that its sample
    represents."""


class CounterWindows(Protocol):
    """Interface for reading the counters' windows of the GPUs that this process uses."""

    uuid: str | None

    def open(self) -> None: ...
    def read(self) -> Sequence[UtilizationWindow]: ...
    def activity(self) -> Mapping[int, Sequence[WindowMean]]: ...
    def close(self) -> None: ...


class SamplerWindows:
    """Counter windows from a sampler, which reads them from the driver every two seconds (slow poll loop)."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.uuid: str | None = None
        """UUID of the GPU whose windows are read, or None. It is set as soon as the process can have work on
        exactly one GPU, and is not reset if the process opens another one."""
        self._subscription: Subscription | None = None

    def open(self) -> None:
        """Subscribe to the driver's windows if this process can have work on only one GPU.

        Call this method repeatedly, because the process may start to use a GPU at any time.
        """
        if self.uuid is None:
            self.uuid = self._only_gpu()
            if self.uuid is not None:
                self._subscription = self._sampler.subscribe(interval_s=MAX_INTERVAL_S)
                self._subscription.windows = frozenset({self.uuid})

    def _only_gpu(self) -> str | None:
        devices = pytorch.devices_with_context()
        if devices:
            found = self._gpus_by_device(devices)
            return next(iter(found.values())).uuid if len(devices) == len(found) == 1 else None
        gpus = self._sampler.known_gpus
        other_library = any(name in sys.modules for name in _OTHER_LIBRARIES)
        return gpus[0].uuid if other_library and len(gpus) == 1 else None

    def _gpus_by_device(self, devices: Sequence[int]) -> dict[int, Gpu]:
        return {
            device.index: gpu
            for device in pytorch.devices()
            if device.index in devices
            for gpu in self._sampler.known_gpus
            if same_gpu(gpu.uuid, device.uuid)
        }

    def read(self) -> Sequence[UtilizationWindow]:
        """Return the driver's utilization windows received so far, the oldest first."""
        return self._sampler.windows(self.uuid) if self.uuid is not None else ()

    def activity(self) -> Mapping[int, Sequence[WindowMean]]:
        """Return the latest window means of GPM's graphics activity, keyed by CUDA device index.

        The keys are the devices on which this process has a context. The lists are empty without GPM (on GPUs
        before Hopper), and while nothing subscribes to the hardware counters.
        """
        return {
            index: [
                WindowMean(window.since, window.until, window.graphics)
                for window in self._sampler.activities(gpu.uuid)
                if window.graphics is not None
            ]
            for index, gpu in self._gpus_by_device(pytorch.devices_with_context()).items()
        }

    def close(self) -> None:
        """End the subscription. Safe to call twice."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()


class _Sample(NamedTuple):
    """One stack sample. Each second, 200 are created, so the class is a tuple, which is cheap to create."""

    t: float
    line: int | None
    seconds: float
    """Seconds of the run that the sample represents."""
    busy: bool | None
    """Whether the stream had work, or None if it was not queried."""


class WindowLog:
    """Matches stack samples with counter windows. Keeps samples until their windows arrive."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_MAX_SAMPLES)
        self._began = float("inf")
        self._until = float("-inf")
        self._seconds = self._stream_s = self._counters_s = 0.0
        self.mixtures: deque[WindowMixture] = deque(maxlen=_MAX_WINDOWS)

    def add(self, t: float, line: int | None, seconds: float, busy: bool | None) -> None:
        """Add a sample taken at ``t`` (epoch seconds) that represents ``seconds`` of the run."""
        self._began = min(self._began, t)
        self._samples.append(_Sample(t, line, seconds, busy))

    def add_utilization(self, windows: Sequence[UtilizationWindow]) -> None:
        """Add the driver's new windows.

        Each window begins where the previous one ends. If the previous window is missing, the beginning is
        unknown, and the window is not used.
        """
        for window in windows:
            missing = window.until - self._until > _MAX_WINDOW_S
            since = float("-inf") if missing else self._until
            self.add_window(WindowMean(since, window.until, window.utilization))

    def add_window(self, window: WindowMean) -> None:
        """Add a window. It is ignored if it does not end later than the previous one."""
        if window.until <= self._until:
            return
        self._until = window.until
        inside = []
        while self._samples and self._samples[0].t <= window.until:
            sample = self._samples.popleft()
            if sample.t > window.since:
                inside.append(sample)
        total = sum(sample.seconds for sample in inside)
        length = window.until - window.since
        # Skip a window that began before the first sample or ends after the last one: it is only partly
        # sampled.
        if self._began > window.since or total < _MIN_COVERED * length:
            return
        shares: dict[int | None, float] = {}
        for sample in inside:
            shares[sample.line] = shares.get(sample.line, 0.0) + sample.seconds / total
        self.mixtures.append(WindowMixture(shares, window.percent, length))
        known = sum(sample.seconds for sample in inside if sample.busy is not None)
        if known >= _MIN_KNOWN * total:
            self._seconds += length
            self._stream_s += length * sum(sample.seconds for sample in inside if sample.busy) / known
            self._counters_s += length * window.percent / 100

    @property
    def covered_s(self) -> float:
        """Total length in seconds of the windows in ``mixtures``."""
        return sum(window.seconds for window in self.mixtures)

    @property
    def matched_means(self) -> MatchedMeans | None:
        """Means of stream queries and counters over all windows in which both are known, or None."""
        if not self._seconds:
            return None
        stream = 100 * self._stream_s / self._seconds
        return MatchedMeans(self._seconds, stream, 100 * self._counters_s / self._seconds, stream)
