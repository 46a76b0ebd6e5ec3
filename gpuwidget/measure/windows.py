"""The driver's windows of utilization over a run, joined with where the code was in each of them."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from gpuwidget import torch_state
from gpuwidget.measure.unmix import Mixture
from gpuwidget.sampler import MAX_INTERVAL_S, Sampler, Subscription
from gpuwidget.sources import Window

_MOST_LOOKS = 8000
_MOST_WINDOWS = 1500
_LONGEST_WINDOW_S = 1.2
_FEWEST_LOOKS = 4
_OTHERS = ("cupy", "jax", "tensorflow", "numba.cuda")
"""What else than torch computes on a GPU."""


class Windows(Protocol):
    """One GPU's windows, from wherever they come."""

    def open(self) -> bool: ...  # noqa: D102 - call it now and then; whether there are any
    def read(self) -> Sequence[Window]: ...  # noqa: D102 - those known by now, oldest first
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
        gpus = self._sampler.known_gpus
        devices = torch_state.devices_with_context()
        if devices:
            torch_uuids = [one.uuid for one in torch_state.devices() if one.index in devices]
            gpus = tuple(one for one in gpus if any(torch_state.same_gpu(one.uuid, u) for u in torch_uuids))
            return gpus[0].uuid if len(devices) == len(gpus) == 1 else None
        others = any(name in sys.modules for name in _OTHERS)
        return gpus[0].uuid if others and len(gpus) == 1 else None

    def read(self) -> Sequence[Window]:
        """Those that are known by now."""
        return self._sampler.windows(self._uuid) if self._uuid is not None else ()

    def close(self) -> None:
        """Ask for no more."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()


class WindowLog:
    """Where the code was in each window; looks are kept until the windows that hold them have come."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int | None, float]] = deque(maxlen=_MOST_LOOKS)
        self._began = float("inf")
        self._until = float("-inf")
        self.mixtures: list[Mixture] = []

    def add(self, t: float, line: int | None, seconds: float) -> None:
        """A look at ``t`` (epoch seconds) that stands for ``seconds``."""
        self._began = min(self._began, t)
        self._looks.append((t, line, seconds))

    def digest(self, windows: Sequence[Window]) -> None:
        """Take up the windows that are new. The first one known has no beginning, and is passed over."""
        for window in windows:
            since, until = self._until, window.until
            if until <= since:
                continue
            self._until = until
            if until - since > _LONGEST_WINDOW_S:
                since = float("inf")
            self._take(since, until, window.utilization)

    def _take(self, since: float, until: float, mean: float) -> None:
        shares: dict[int | None, float] = {}
        looks = 0
        while self._looks and self._looks[0][0] <= until:
            t, line, seconds = self._looks.popleft()
            if t > since:
                looks += 1
                shares[line] = shares.get(line, 0.0) + seconds
        total = sum(shares.values())
        # A window that began before the first look is not wholly known.
        if (
            looks >= _FEWEST_LOOKS
            and self._began <= since
            and total > 0
            and len(self.mixtures) < _MOST_WINDOWS
        ):
            self.mixtures.append(Mixture({line: seconds / total for line, seconds in shares.items()}, mean))
