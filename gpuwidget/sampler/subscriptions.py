"""Who wants samples, how often, and of what."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType

from gpuwidget.model.samples import Sample

_LOG = logging.getLogger(__name__)

INTERVAL_S = 0.2
"""The usual interval: the driver itself refreshes utilization every 200 ms (H200) or less often."""
MIN_INTERVAL_S = 0.05
MAX_INTERVAL_S = 60.0

OnSample = Callable[[Sample], None]


class Subscription:
    """One subscriber; :meth:`close` ends it, also as a context manager."""

    def __init__(
        self,
        end: Callable[[Subscription], None],
        on_sample: OnSample | None,
        interval_s: float,
        memory_interval_s: float | None,
        activity: bool,
    ) -> None:
        self._end = end
        self.on_sample = on_sample
        self.interval_s = interval_s
        self.memory_interval_s = memory_interval_s
        self.activity = activity
        self.windows: frozenset[str] = frozenset()
        """UUIDs of GPUs whose windows of utilization it wants, every two seconds; may be set at any time."""
        self._next_due = float("-inf")

    def close(self) -> None:
        """No further sample will be handed over, save one that is under way. Safe to call twice."""
        self._end(self)

    def takes(self, full: bool, now: float) -> bool:
        """Whether it gets the sample of a pass that ended ``now``; ``full``: more than memory is new."""
        if self.memory_interval_s is not None:
            return True
        # A tenth of grace, since the passes of a faster subscriber do not meet this one's grid.
        if not full or now < self._next_due - self.interval_s / 10:
            return False
        self._next_due = now + self.interval_s
        return True

    def hand_over(self, sample: Sample) -> None:
        """Call the subscriber; what it raises is logged and goes no further."""
        if self.on_sample is not None:
            try:
                self.on_sample(sample)
            except Exception:
                _LOG.debug("a subscriber to GPU samples failed", exc_info=True)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Subscriptions:
    """All subscribers of a sampler. Every use holds the sampler's lock."""

    def __init__(self) -> None:
        self._all: list[Subscription] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, subscription: Subscription) -> None:
        """Take up one more."""
        self._all.append(subscription)

    def remove(self, subscription: Subscription) -> None:
        """Leave one out; nothing happens where it has ended before."""
        if subscription in self._all:
            self._all.remove(subscription)

    def clear(self) -> None:
        """End all."""
        self._all.clear()

    @property
    def interval_s(self) -> float:
        """Seconds between full passes that serve them all."""
        return min((one.interval_s for one in self._all), default=INTERVAL_S)

    @property
    def memory_interval_s(self) -> float | None:
        """Seconds between looks at memory alone, None where nobody wants them."""
        return min(
            (one.memory_interval_s for one in self._all if one.memory_interval_s is not None), default=None
        )

    @property
    def activity(self) -> bool:
        """Whether anybody wants the hardware counters."""
        return any(one.activity for one in self._all)

    @property
    def windows(self) -> frozenset[str]:
        """UUIDs of the GPUs whose windows of utilization anybody wants."""
        return frozenset().union(*(one.windows for one in self._all))

    def receivers(self, full: bool, now: float) -> list[Subscription]:
        """Who gets the sample of a pass that ended ``now``."""
        return [one for one in self._all if one.takes(full, now)]
