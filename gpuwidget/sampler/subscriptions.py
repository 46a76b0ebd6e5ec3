"""Subscriptions to samples: how often, and with which readings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType

from gpuwidget.model.samples import Sample

_LOG = logging.getLogger(__name__)

INTERVAL_S = 0.2
"""The default interval: the driver refreshes utilization every 200 ms (H200) or less often."""
MIN_INTERVAL_S = 0.05
MAX_INTERVAL_S = 60.0

OnSample = Callable[[Sample], None]


class Subscription:
    """One subscription to samples; :meth:`close` ends it, also as a context manager."""

    def __init__(
        self,
        unsubscribe: Callable[[Subscription], None],
        on_sample: OnSample | None,
        interval_s: float,
        memory_interval_s: float | None,
        activity: bool,
    ) -> None:
        self._unsubscribe = unsubscribe
        self.on_sample = on_sample
        self.interval_s = interval_s
        self.memory_interval_s = memory_interval_s
        self.activity = activity
        self.windows: frozenset[str] = frozenset()
        """UUIDs of the GPUs whose utilization windows are read every two seconds; may be set at any time."""
        self._next_due = float("-inf")

    def close(self) -> None:
        """End the subscription: no further sample is delivered, except one under way. Safe to call twice."""
        self._unsubscribe(self)

    def is_due(self, full: bool, now: float) -> bool:
        """Return whether it gets the sample of a poll that ended ``now``; a ``full`` one read all values."""
        if self.memory_interval_s is not None:
            return True
        # A tolerance of a tenth, as the polls for a faster subscription do not fall on this one's grid.
        if not full or now < self._next_due - self.interval_s / 10:
            return False
        self._next_due = now + self.interval_s
        return True

    def deliver(self, sample: Sample) -> None:
        """Call ``on_sample``; an exception in it is logged."""
        if self.on_sample is not None:
            try:
                self.on_sample(sample)
            except Exception:
                _LOG.debug("A subscriber to GPU samples failed.", exc_info=True)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Subscriptions:
    """All subscriptions of a sampler. Every use holds the sampler's lock."""

    def __init__(self) -> None:
        self._all: list[Subscription] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, subscription: Subscription) -> None:
        """Add a subscription."""
        self._all.append(subscription)

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription, unless that was done before."""
        if subscription in self._all:
            self._all.remove(subscription)

    def clear(self) -> None:
        """End all subscriptions."""
        self._all.clear()

    @property
    def interval_s(self) -> float:
        """Seconds between full polls, by the fastest subscription."""
        return min((one.interval_s for one in self._all), default=INTERVAL_S)

    @property
    def memory_interval_s(self) -> float | None:
        """Seconds between polls of memory alone, None where no subscription wants them."""
        return min(
            (one.memory_interval_s for one in self._all if one.memory_interval_s is not None), default=None
        )

    @property
    def activity(self) -> bool:
        """Whether a subscription wants the hardware counters."""
        return any(one.activity for one in self._all)

    @property
    def windows(self) -> frozenset[str]:
        """UUIDs of the GPUs whose utilization windows a subscription wants."""
        return frozenset().union(*(one.windows for one in self._all))

    def due(self, full: bool, now: float) -> list[Subscription]:
        """Return the subscriptions that get the sample of a poll that ended ``now``."""
        return [one for one in self._all if one.is_due(full, now)]
