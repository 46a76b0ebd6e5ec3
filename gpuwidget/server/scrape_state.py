"""What goes on between the scrapes of a Prometheus, which comes every few seconds and stays for none.

To open the driver for each scrape would cost more than to leave it open, errors reported meanwhile would be
lost, and what is read slowly would never be there. So sampling goes on for a while after each scrape, seldom:
at a fraction of what it costs to have the panel open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from gpuwidget.model.clock import Clock
from gpuwidget.model.samples import Sample, is_settled
from gpuwidget.server.wire import Usage

_INTERVAL_S = 2.0
"""From sample to sample between two scrapes."""
_OLD_AFTER = 5.0
"""So many intervals without a sample are too many."""
_KEEP_S = 150.0
"""So long sampling goes on after a scrape: Prometheus comes every minute by default, and may miss one."""
_PATIENCE_S = 1.5
"""So long the first scrape waits for what is read slowly, and for whose the memory is."""


class Scrapes:
    """Who scrapes now, and for how long nobody has. All methods belong to the server's event loop."""

    def __init__(self, clock: Clock, interval_s: float) -> None:
        """``interval_s`` is that of the samples which the panel sees."""
        self.interval_s = max(_INTERVAL_S, interval_s)
        """Seconds from sample to sample while nobody waits."""
        self._clock = clock
        self._until = float("-inf")
        self._under_way = 0
        self._seen: tuple[Sample, float] | None = None
        """The newest sample, and when it came."""
        self._complete = False
        """Whether everything was there once: what is missing then stays so."""
        self._came = asyncio.Event()

    @property
    def go_on(self) -> bool:
        """Whether sampling is to go on."""
        return self._under_way > 0 or self._clock.monotonic() < self._until

    @property
    def hurry(self) -> bool:
        """Whether somebody waits for samples."""
        return self._under_way > 0 and not (self._complete and self._newest is not None)

    @contextmanager
    def one(self) -> Iterator[None]:
        """A scrape is under way."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def see(self, sample: Sample) -> None:
        """Take up the newest sample."""
        self._seen = (sample, self._clock.monotonic())
        self._complete = self._complete and self.go_on
        self._came.set()

    def pause(self) -> None:
        """Nobody samples any more: what was seen is the past's."""
        self._seen = None

    def end(self) -> None:
        """No sampling for scrapes any more."""
        self._until = float("-inf")

    @property
    def _newest(self) -> Sample | None:
        """None too where the last one is so old that the sampling must be stuck."""
        if self._seen is None or self._clock.monotonic() - self._seen[1] > _OLD_AFTER * self.interval_s:
            return None
        return self._seen[0]

    async def whole(self, timeout_s: float, told: Callable[[], Usage | None]) -> Sample | None:
        """The newest sample, once everything is there; what comes late is waited for a short while only.

        None where no sample comes within ``timeout_s``; then sampling does not go on.
        """
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._until_there(lambda: self._newest is not None), timeout_s)
        if self._newest is None:
            return None
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._until_there(lambda: self._is_complete(told())), _PATIENCE_S)
        newest = self._newest
        if newest is not None:
            self._complete = True
            self._until = self._clock.monotonic() + _KEEP_S
        return newest

    async def _until_there(self, there: Callable[[], bool]) -> None:
        while not there():
            self._came.clear()
            await self._came.wait()

    def _is_complete(self, usage: Usage | None) -> bool:
        newest = self._newest
        if self._complete or newest is None:
            return self._complete
        slow = all(is_settled(one, "energy_j") for one in newest.readings)
        return slow and usage is not None and _named(usage)


def _named(usage: Usage) -> bool:
    """Whether every kernel that holds something is known by its session: that is listed a moment later."""
    holding = {held.kernel for one in usage.gpus for held in one.holdings}
    return all(kernel.session is not None for kernel in usage.kernels if kernel.id in holding)
