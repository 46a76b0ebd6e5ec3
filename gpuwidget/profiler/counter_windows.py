"""Estimate the GPU activity per line from the means of the GPU's counters over windows of a run.

Each window is matched with the stack samples taken in it. The window's mean is modelled as a sum over lines:
the line's share of the window times the GPU's activity on that line. A least-squares regression over all
windows yields each line's activity. It works only if the lines' shares differ enough between windows.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gpuwidget.model.samples import Gpu
from gpuwidget.pytorch import cuda_state
from gpuwidget.sampler import MAX_INTERVAL_S, Sampler, Subscription
from gpuwidget.sources import UtilizationWindow

_MAX_SAMPLES = 8000
_MAX_WINDOWS = 1500
_MAX_WINDOW_S = 1.2
_MIN_SAMPLES = 4
"""Minimum number of stack samples in a window."""
_MIN_COVERED = 0.8
"""Fraction of a window that its samples must cover. A window at the edge of the run covers less."""
_MIN_KNOWN = 0.9
"""Fraction of the time covered by samples in which the stream must have been queried."""
_OTHER_LIBRARIES = ("cupy", "jax", "tensorflow", "numba.cuda")
"""Libraries other than torch that compute on a GPU."""

_MIN_WINDOWS = 10
_MIN_WINDOWS_PER_LINE = 3
_MIN_LINE_SHARE = 0.05
"""Share of the total time of all windows below which a line is grouped with the other rare lines."""
_MAX_REST = 0.1
"""Share of the total time of all windows above which the rare lines get a common activity."""
_MIN_SPREAD = 0.15
"""Minimum standard deviation of a line's share over the windows."""
_MAX_CONDITION = 50.0
"""Maximum condition number of the matrix of shares. The normal equations have its square."""
_MAX_ERROR = 6.0
"""Maximum standard error of an activity, in percentage points."""
_MAX_OVERSHOOT = 12.0
"""Percentage points by which noise may move an activity below 0 or above 100."""


@dataclass(frozen=True, slots=True)
class WindowMean:
    """The mean of a GPU counter over one window of time."""

    since: float
    """Start of the window in epoch seconds."""
    until: float
    """End of the window in epoch seconds."""
    percent: float
    """Percent of the window in which the GPU worked."""


@dataclass(frozen=True, slots=True)
class WindowMixture:
    """One window: each line's share of its time, and the mean of the GPU's counter."""

    shares: Mapping[int | None, float]
    """Each line's share of the window, from 0 to 1. The shares add up to 1."""
    mean: float
    """Mean of the counter over the window, in percent."""


@dataclass(frozen=True, slots=True)
class MatchedMeans:
    """Means of the stream queries and of the GPU's counters over the same windows of a run."""

    seconds: float
    """Total length of the windows."""
    stream: float
    """Percent of the windows' time in which the stream had work."""
    counters: float
    """Percent of the windows' time in which the GPU worked, according to its counters."""
    queried: float
    """Percent of the stream queries, weighted by time, that found work."""


class CounterWindows(Protocol):
    """Interface to the counters' windows of the GPUs that this process uses."""

    def open(self) -> bool: ...  # noqa: D102 - see SamplerWindows
    def read(self) -> Sequence[UtilizationWindow]: ...  # noqa: D102
    def activity(self) -> Mapping[int, Sequence[WindowMean]]: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class SamplerWindows:
    """Counter windows from a sampler, whose slow poll loop reads them from the driver every two seconds."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._uuid: str | None = None
        self._subscription: Subscription | None = None

    def open(self) -> bool:
        """Subscribe if this process can have work on only one GPU. Return whether a GPU has been found.

        Call this method repeatedly, because the process may start to use a GPU at any time.
        """
        if self._uuid is None:
            self._uuid = self._only_gpu()
            if self._uuid is not None:
                self._subscription = self._sampler.subscribe(interval_s=MAX_INTERVAL_S)
                self._subscription.windows = frozenset({self._uuid})
        return self._uuid is not None

    def _only_gpu(self) -> str | None:
        devices = cuda_state.devices_with_context()
        if devices:
            found = self._gpus_by_device(devices)
            return next(iter(found.values())).uuid if len(devices) == len(found) == 1 else None
        gpus = self._sampler.known_gpus
        other_library = any(name in sys.modules for name in _OTHER_LIBRARIES)
        return gpus[0].uuid if other_library and len(gpus) == 1 else None

    def _gpus_by_device(self, devices: Sequence[int]) -> dict[int, Gpu]:
        return {
            device.index: gpu
            for device in cuda_state.devices()
            if device.index in devices
            for gpu in self._sampler.known_gpus
            if cuda_state.same_gpu(gpu.uuid, device.uuid)
        }

    def read(self) -> Sequence[UtilizationWindow]:
        """Return the driver's utilization windows that are known so far, the oldest first."""
        return self._sampler.windows(self._uuid) if self._uuid is not None else ()

    def activity(self) -> Mapping[int, Sequence[WindowMean]]:
        """Return the latest windows of GPM's graphics activity, by the N of each ``cuda:N`` with a context.

        They are empty without GPM (before Hopper), and while nothing subscribes to the hardware counters.
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
        """End the subscription. Safe to call twice."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()


class _Sample(NamedTuple):
    """One stack sample. It is a tuple to keep it cheap, because 200 are taken per second."""

    t: float
    line: int | None
    seconds: float
    """Seconds that the sample stands for."""
    busy: bool | None
    """Whether the stream had work, or None if it was not queried."""


class WindowLog:
    """Matches stack samples with counter windows. Keeps samples until their windows arrive."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_MAX_SAMPLES)
        self._began = float("inf")
        self._until = float("-inf")
        self._seconds = self._stream_s = self._counters_s = 0.0
        self.mixtures: list[WindowMixture] = []

    def add(self, t: float, line: int | None, seconds: float, busy: bool | None) -> None:
        """Add a sample taken at ``t`` (epoch seconds) that stands for ``seconds``."""
        self._began = min(self._began, t)
        self._samples.append(_Sample(t, line, seconds, busy))

    def add_utilization(self, windows: Sequence[UtilizationWindow]) -> None:
        """Add the driver's new windows. The first one is left out, because its start is unknown."""
        for window in windows:
            since = self._until
            if window.until - since > _MAX_WINDOW_S:
                since = float("inf")
            self.add_window(WindowMean(since, window.until, window.utilization))

    def add_window(self, window: WindowMean) -> None:
        """Add one window, unless it ends no later than the window added before."""
        if window.until <= self._until:
            return
        self._until = window.until
        inside = []
        while self._samples and self._samples[0].t <= window.until:
            sample = self._samples.popleft()
            if sample.t > window.since:
                inside.append(sample)
        total = sum(sample.seconds for sample in inside)
        # A window that began before the first sample or ends after the last one is only partly known.
        if (
            len(inside) < _MIN_SAMPLES
            or self._began > window.since
            or total < _MIN_COVERED * (window.until - window.since)
            or len(self.mixtures) >= _MAX_WINDOWS
        ):
            return
        shares: dict[int | None, float] = {}
        for sample in inside:
            shares[sample.line] = shares.get(sample.line, 0.0) + sample.seconds / total
        self.mixtures.append(WindowMixture(shares, window.percent))
        known = sum(sample.seconds for sample in inside if sample.busy is not None)
        if known >= _MIN_KNOWN * total:
            length = window.until - window.since
            busy = sum(sample.seconds for sample in inside if sample.busy)
            self._seconds += length
            self._stream_s += length * busy / known
            self._counters_s += length * window.percent / 100

    @property
    def matched_means(self) -> MatchedMeans | None:
        """Means of stream queries and counters over all windows in which both are known, if there are any."""
        if not self._seconds:
            return None
        stream = 100 * self._stream_s / self._seconds
        return MatchedMeans(self._seconds, stream, 100 * self._counters_s / self._seconds, stream)


def activity_by_line(windows: Sequence[WindowMixture]) -> dict[int | None, float] | None:
    """Return the percent of GPU activity by line, from a regression over the windows.

    The result contains the lines that take at least a twentieth of the time. Return None if the windows do
    not determine their activities.
    """
    if len(windows) < _MIN_WINDOWS:
        return None
    total: dict[int | None, float] = {}
    for window in windows:
        for line, share in window.shares.items():
            total[line] = total.get(line, 0.0) + share
    lines = [line for line, share in total.items() if share >= _MIN_LINE_SHARE * len(windows)]
    if not lines or len(windows) < _MIN_WINDOWS_PER_LINE * len(lines):
        return None
    rows = [[window.shares.get(line, 0.0) for line in lines] for window in windows]
    rest = [max(0.0, 1.0 - sum(row)) for row in rows]
    if sum(rest) > _MAX_REST * len(windows):
        rows = [[*row, left] for row, left in zip(rows, rest, strict=True)]
    if len(rows[0]) > 1 and any(
        _standard_deviation(row[column] for row in rows) < _MIN_SPREAD for column in range(len(lines))
    ):
        return None
    found = _least_squares(rows, [window.mean for window in windows])
    if found is None:
        return None
    activity, errors = found
    for value, error in zip(activity[: len(lines)], errors, strict=False):
        if not -_MAX_OVERSHOOT <= value <= 100 + _MAX_OVERSHOOT or error > _MAX_ERROR:
            return None
    return {line: min(100.0, max(0.0, value)) for line, value in zip(lines, activity, strict=False)}


def _standard_deviation(values: Iterable[float]) -> float:
    known = list(values)
    mean = sum(known) / len(known)
    return float((sum((value - mean) ** 2 for value in known) / len(known)) ** 0.5)


def _least_squares(
    rows: Sequence[Sequence[float]], means: Sequence[float]
) -> tuple[list[float], list[float]] | None:
    """Return the activities and their standard errors, or None if the shares hardly differ between windows.

    This is plain Python, because gpuwidget imports numpy only for the live chart.
    """
    size = len(rows[0])
    squares = [[sum(row[i] * row[j] for row in rows) for j in range(size)] for i in range(size)]
    right = [sum(row[i] * mean for row, mean in zip(rows, means, strict=True)) for i in range(size)]
    inverse = _inverse(squares)
    if inverse is None or _norm(squares) * _norm(inverse) > _MAX_CONDITION**2:
        return None
    activity = [sum(inverse[i][j] * right[j] for j in range(size)) for i in range(size)]
    residual = sum(
        (mean - sum(a * share for a, share in zip(activity, row, strict=True))) ** 2
        for row, mean in zip(rows, means, strict=True)
    )
    variance = residual / max(1, len(rows) - size)
    return activity, [(variance * max(0.0, inverse[i][i])) ** 0.5 for i in range(size)]


def _norm(matrix: Sequence[Sequence[float]]) -> float:
    return max(sum(abs(value) for value in row) for row in matrix)


def _inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]] | None:
    """Return the inverse of a matrix by Gauss-Jordan elimination, or None if the matrix is singular."""
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(rows[row][column]))
        if abs(rows[pivot][column]) < 1e-12:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        scale = rows[column][column]
        rows[column] = [value / scale for value in rows[column]]
        for row in range(size):
            factor = rows[row][column]
            if row != column and factor:
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[column], strict=True)]
    return [row[size:] for row in rows]
