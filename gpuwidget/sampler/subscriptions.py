"""Subscriptions to samples: how often samples are delivered, and which readings they contain."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType

from gpuwidget.model.boundary import stopped
from gpuwidget.model.errors import loggable
from gpuwidget.model.samples import Sample

_LOG = logging.getLogger(__name__)

INTERVAL_S = 0.2
"""Default seconds between samples. Shorter intervals are of little use for utilization, which the driver
refreshes every 200 ms (H200) or less often."""
MIN_INTERVAL_S = 0.05
WINDOWS_INTERVAL_S = 2.0
"""Default seconds between two reads of the driver's utilization windows."""
MAX_INTERVAL_S = 60.0

OnSample = Callable[[Sample], None]


class Subscription:
    """One subscription to samples. :meth:`close` ends it, and so does the end of a ``with`` block."""

    def __init__(
        self,
        unsubscribe: Callable[[Subscription], None],
        on_sample: OnSample | None,
        interval_s: float,
        memory_interval_s: float | None,
        activity: bool,
        hide_errors: bool = False,
    ) -> None:
        self._unsubscribe = unsubscribe
        self._hide_errors = hide_errors
        self.on_sample = on_sample
        self.interval_s = interval_s
        self.memory_interval_s = memory_interval_s
        self.activity = activity
        self.windows: frozenset[str] = frozenset()
        """UUIDs of the GPUs whose utilization windows are read; may be set at any time."""
        self.working_processes: frozenset[str] = frozenset()
        """UUIDs of the GPUs whose working processes are read, as often as windows are; may be set at any
        time."""
        self.windows_interval_s = WINDOWS_INTERVAL_S
        """Seconds between two reads of the windows and of the working processes."""
        self._next_due = float("-inf")

    def close(self) -> None:
        """End the subscription. A sample may still arrive if its delivery has begun. Safe to call twice."""
        self._unsubscribe(self)

    def is_due(self, full: bool, now: float) -> bool:
        """Return whether the subscription receives the sample of a poll that ended at ``now``.

        ``full`` is whether the poll read all values, not only memory.
        """
        if self.memory_interval_s is not None:
            return True
        # A sample may arrive early by up to a tenth of the interval. Polls may follow the schedule of a
        # faster subscription, and waiting for the next of them could make this subscription's interval much
        # longer.
        if not full or now < self._next_due - self.interval_s / 10:
            return False
        self._next_due = now + self.interval_s
        return True

    def deliver(self, sample: Sample) -> None:
        """Call ``on_sample``, and log any exception that it raises."""
        if self.on_sample is not None:
            try:
                self.on_sample(sample)
            except BaseException as error:  # SystemExit, too, would silently end the sampler's thread
                shown = loggable(error, hide_text=self._hide_errors)
                stopped(_LOG, "A subscriber to GPU samples failed.", shown)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Subscriptions:
    """All subscriptions of a sampler. Hold the sampler's lock for every use."""

    def __init__(self) -> None:
        self._all: list[Subscription] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, subscription: Subscription) -> None:
        self._all.append(subscription)

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription. Safe to call twice."""
        if subscription in self._all:
            self._all.remove(subscription)

    def clear(self) -> None:
        self._all.clear()

    @property
    def interval_s(self) -> float:
        """Seconds between full polls: the shortest interval of any subscription."""
        return min((subscription.interval_s for subscription in self._all), default=INTERVAL_S)

    @property
    def memory_interval_s(self) -> float | None:
        """Seconds between memory-only polls, or None if no subscription needs such polls."""
        return min(
            (
                subscription.memory_interval_s
                for subscription in self._all
                if subscription.memory_interval_s is not None
            ),
            default=None,
        )

    @property
    def activity(self) -> bool:
        """Whether any subscription needs the hardware counters."""
        return any(subscription.activity for subscription in self._all)

    @property
    def windows(self) -> frozenset[str]:
        """UUIDs of the GPUs whose utilization windows any subscription needs."""
        return frozenset().union(*(subscription.windows for subscription in self._all))

    @property
    def working_processes(self) -> frozenset[str]:
        """UUIDs of the GPUs whose working processes any subscription needs."""
        return frozenset().union(*(subscription.working_processes for subscription in self._all))

    @property
    def windows_interval_s(self) -> float:
        """Seconds between two reads of the windows: the shortest interval of any subscription that needs
        them."""
        return min(
            (
                subscription.windows_interval_s
                for subscription in self._all
                if subscription.windows or subscription.working_processes
            ),
            default=WINDOWS_INTERVAL_S,
        )

    def due(self, full: bool, now: float) -> list[Subscription]:
        """Return the subscriptions that receive the sample of a poll that ended at ``now``."""
        return [subscription for subscription in self._all if subscription.is_due(full, now)]
