"""Sampling between the scrapes of Prometheus, which sends a request at an interval and keeps no connection
open.

If the driver were opened for each scrape, this would cost more than keeping it open, errors between scrapes
would be lost, and the slow readings would never be available. Sampling therefore continues for a while after
each scrape. Its rate is low, so that it costs a fraction of an open panel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from gpuwidget.model.clock import Clock
from gpuwidget.model.samples import Sample, is_settled
from gpuwidget.server.wire import MemoryOwnership

_INTERVAL_S = 2.0
"""Seconds between two samples while sampling continues after a scrape."""
_STALE_INTERVALS = 5.0
"""The newest sample is outdated if no other has arrived for this many intervals."""
_KEEP_SAMPLING_S = 150.0
"""Seconds for which sampling continues after a scrape. By default Prometheus scrapes every minute, and it may
miss one scrape."""
_COMPLETE_TIMEOUT_S = 1.5
"""Seconds for which the first scrape waits for the slow readings and the owners of the memory."""


class ScrapeState:
    """Tracks scrapes, and how long sampling must continue for them. All methods are called on the event
    loop."""

    def __init__(self, clock: Clock, interval_s: float) -> None:
        """``interval_s`` is the interval in seconds at which samples are taken for the panel."""
        self.interval_s = max(_INTERVAL_S, interval_s)
        """The interval in seconds at which samples are taken between scrapes."""
        self._clock = clock
        self._sample_until = float("-inf")
        self._scrapes = 0
        self._seen: tuple[Sample, float] | None = None
        """The newest sample and the time of its arrival in monotonic seconds."""
        self._complete = False
        """Whether a scrape has already waited for all values. If so, later scrapes do not wait for missing
        values."""
        self._arrived = asyncio.Event()

    @property
    def needs_sampling(self) -> bool:
        """Whether sampling must continue for scrapes."""
        return self._scrapes > 0 or self._clock.monotonic() < self._sample_until

    @property
    def is_waiting(self) -> bool:
        """Whether a scrape is waiting for values. If so, samples are taken at the full rate."""
        return self._scrapes > 0 and not (self._complete and self._newest is not None)

    @contextmanager
    def scraping(self) -> Iterator[None]:
        """Inside the ``with`` block, count one more scrape as in progress."""
        self._scrapes += 1
        try:
            yield
        finally:
            self._scrapes -= 1

    def add_sample(self, sample: Sample) -> None:
        """Store the newest sample."""
        self._seen = (sample, self._clock.monotonic())
        self._complete = self._complete and self.needs_sampling
        self._arrived.set()

    def discard_sample(self) -> None:
        """Discard the newest sample, because sampling has stopped."""
        self._seen = None

    def stop(self) -> None:
        """Stop sampling for scrapes."""
        self._sample_until = float("-inf")

    @property
    def _newest(self) -> Sample | None:
        """The newest sample; None if it is so old that sampling must be hanging."""
        max_age_s = _STALE_INTERVALS * self.interval_s
        if self._seen is None or self._clock.monotonic() - self._seen[1] > max_age_s:
            return None
        return self._seen[0]

    async def wait_for_sample(
        self, timeout_s: float, ownership: Callable[[], MemoryOwnership | None]
    ) -> Sample | None:
        """Wait briefly for the slow readings and the owners of the memory, then return the newest sample.

        Returns None if no sample arrives within ``timeout_s``. In that case sampling does not continue.
        """
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._wait_until(lambda: self._newest is not None), timeout_s)
        if self._newest is None:
            return None
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(
                self._wait_until(lambda: self._is_complete(ownership())), _COMPLETE_TIMEOUT_S
            )
        newest = self._newest
        if newest is not None:
            self._complete = True
            self._sample_until = self._clock.monotonic() + _KEEP_SAMPLING_S
        return newest

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._arrived.clear()
            await self._arrived.wait()

    def _is_complete(self, ownership: MemoryOwnership | None) -> bool:
        newest = self._newest
        if self._complete or newest is None:
            return self._complete
        has_slow_readings = all(is_settled(reading, "energy_j") for reading in newest.readings)
        return has_slow_readings and ownership is not None and _has_sessions(ownership)


def _has_sessions(ownership: MemoryOwnership) -> bool:
    """Return whether the sessions of all kernels that hold memory are known. The server lists sessions in the
    background, so at first they may be missing."""
    holding = {holder.kernel for gpu in ownership.gpus for holder in gpu.holdings}
    return all(kernel.session is not None for kernel in ownership.kernels if kernel.id in holding)
