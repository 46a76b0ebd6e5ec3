"""The GPU's means over windows of a run, joined with the stack samples that were taken in each window."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gpuwidget.model.samples import Gpu
from gpuwidget.profiler.regression import Mixture
from gpuwidget.pytorch import cuda_state
from gpuwidget.sampler import MAX_INTERVAL_S, Sampler, Subscription
from gpuwidget.sources import UtilizationWindow

_MOST_LOOKS = 8000
_MOST_WINDOWS = 1500
_LONGEST_WINDOW_S = 1.2
_FEWEST_LOOKS = 4
_LEAST_COVERED = 0.8
"""Part of a window for which stack samples must stand; less is a window at the edge of the run."""
_LEAST_KNOWN = 0.9
"""Part of that time in which the stream must have been queried."""
_OTHERS = ("cupy", "jax", "tensorflow", "numba.cuda")
"""What else than torch computes on a GPU."""


@dataclass(frozen=True, slots=True)
class WindowMean:
    """A mean that the GPU's counters gave for one window of time."""

    since: float
    """Start, epoch seconds."""
    until: float
    """End, epoch seconds."""
    percent: float
    """Share of the window in which the GPU worked."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What the stream queries and the GPU's counters measured over the same windows of a run."""

    seconds: float
    """Length of these windows together."""
    stream: float
    """Percent of that time in which the stream had work."""
    counters: float
    """Percent of that time in which the GPU worked, by its counters."""
    queried: float
    """Percent of the stream queries, weighted by time, that found work."""


class Windows(Protocol):
    """The windows of the GPUs that this process uses, from wherever they come."""

    def open(self) -> bool: ...  # noqa: D102 - call it now and then; whether there are the driver's
    def read(self) -> Sequence[UtilizationWindow]: ...  # noqa: D102 - the driver's known by now, oldest first
    def activity(self) -> Mapping[int, Sequence[WindowMean]]: ...  # noqa: D102 - see SampledWindows
    def close(self) -> None: ...  # noqa: D102 - wanted no more; safe to call twice


class SampledWindows:
    """Those of a sampler, whose slow lane asks the driver for them every two seconds."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._uuid: str | None = None
        self._subscription: Subscription | None = None

    def open(self) -> bool:
        """Ask for them once there is one GPU that this process's work can be on."""
        if self._uuid is None:
            self._uuid = self._one_gpu()
            if self._uuid is not None:
                self._subscription = self._sampler.subscribe(interval_s=MAX_INTERVAL_S)
                self._subscription.windows = frozenset({self._uuid})
        return self._uuid is not None

    def _one_gpu(self) -> str | None:
        devices = cuda_state.devices_with_context()
        if devices:
            found = self._gpus_by_device(devices)
            return next(iter(found.values())).uuid if len(devices) == len(found) == 1 else None
        gpus = self._sampler.known_gpus
        others = any(name in sys.modules for name in _OTHERS)
        return gpus[0].uuid if others and len(gpus) == 1 else None

    def _gpus_by_device(self, devices: Sequence[int]) -> dict[int, Gpu]:
        return {
            device.index: gpu
            for device in cuda_state.devices()
            if device.index in devices
            for gpu in self._sampler.known_gpus
            if cuda_state.same_gpu(gpu.uuid, device.uuid)
        }

    def read(self) -> Sequence[UtilizationWindow]:
        """Those that are known by now."""
        return self._sampler.windows(self._uuid) if self._uuid is not None else ()

    def activity(self) -> Mapping[int, Sequence[WindowMean]]:
        """Return the last windows of GPM's graphics activity, by the N of each ``cuda:N`` with a context.

        Empty without GPM (before Hopper), and while nobody subscribes to the hardware counters.
        """
        return {
            index: [
                WindowMean(one.since, one.until, one.graphics)
                for one in self._sampler.activities(gpu.uuid)
                if one.graphics is not None
            ]
            for index, gpu in self._gpus_by_device(cuda_state.devices_with_context()).items()
        }

    def close(self) -> None:
        """Ask for no more."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()


class _Sample(NamedTuple):
    """One stack sample; a tuple, as 200 a second are made beside the user's code."""

    t: float
    line: int | None
    seconds: float
    """What it stands for."""
    busy: bool | None
    """Whether the stream had work; None where it was not queried."""


class WindowLog:
    """The stack samples of a run by window; samples are kept until the windows that hold them have come."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_MOST_LOOKS)
        self._began = float("inf")
        self._until = float("-inf")
        self._seconds = self._stream_s = self._counters_s = 0.0
        self.mixtures: list[Mixture] = []

    def add(self, t: float, line: int | None, seconds: float, busy: bool | None) -> None:
        """A sample at ``t`` (epoch seconds) that stands for ``seconds``."""
        self._began = min(self._began, t)
        self._samples.append(_Sample(t, line, seconds, busy))

    def digest(self, windows: Sequence[UtilizationWindow]) -> None:
        """Take up the driver's windows that are new. The first has no known start, and is left out."""
        for window in windows:
            since = self._until
            if window.until - since > _LONGEST_WINDOW_S:
                since = float("inf")
            self.take(WindowMean(since, window.until, window.utilization))

    def take(self, window: WindowMean) -> None:
        """Take up one window; one that ends no later than the last is left out."""
        if window.until <= self._until:
            return
        self._until = window.until
        inside = []
        while self._samples and self._samples[0].t <= window.until:
            sample = self._samples.popleft()
            if sample.t > window.since:
                inside.append(sample)
        total = sum(sample.seconds for sample in inside)
        # Of a window that began before the first sample, or ends after the last, a part is unknown.
        if (
            len(inside) < _FEWEST_LOOKS
            or self._began > window.since
            or total < _LEAST_COVERED * (window.until - window.since)
            or len(self.mixtures) >= _MOST_WINDOWS
        ):
            return
        shares: dict[int | None, float] = {}
        for sample in inside:
            shares[sample.line] = shares.get(sample.line, 0.0) + sample.seconds / total
        self.mixtures.append(Mixture(shares, window.percent))
        known = sum(sample.seconds for sample in inside if sample.busy is not None)
        if known >= _LEAST_KNOWN * total:
            length = window.until - window.since
            busy = sum(sample.seconds for sample in inside if sample.busy)
            self._seconds += length
            self._stream_s += length * busy / known
            self._counters_s += length * window.percent / 100

    @property
    def compared(self) -> Compared | None:
        """The stream's mean and the counters' over all windows in which both are known; None without one."""
        if not self._seconds:
            return None
        stream = 100 * self._stream_s / self._seconds
        return Compared(self._seconds, stream, 100 * self._counters_s / self._seconds, stream)
