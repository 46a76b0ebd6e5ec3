"""A server that runs for hours stores as much as after the first hour, whoever connects and disconnects."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from types import FrameType, FunctionType, ModuleType

from server.test_sample_hub import Nobody

from benchmarks.changing_source import ChangingSource
from benchmarks.simulated_clock import SimulatedClock
from benchmarks.soak_server import CountingClient, Views
from gpuwidget.sampler import Sampler
from gpuwidget.server.sample_hub import SampleHub

TICK_S = 1.0
CHUNK_S = 64
"""Seconds of a chunk of the history at this rate. After them, the newest chunk is as full as before."""
NOT_STORED = (type, ModuleType, FunctionType, FrameType, asyncio.AbstractEventLoop)


def stored(hub: SampleHub) -> Counter[str]:
    """Return the number of objects of each type that a hub refers to, directly or indirectly."""
    seen: set[int] = set()
    count: Counter[str] = Counter()
    waiting: list[object] = [hub]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and not isinstance(one, NOT_STORED):
            seen.add(id(one))
            count[type(one).__name__] += 1
            if not isinstance(one, CountingClient):  # Its counts may be ints that others have, too.
                waiting += gc.get_referents(one)
    return count


async def test_a_simulated_hour_fills_the_history_and_nothing_else() -> None:
    """With pages that are reloaded, read slowly or have different rates, a hub stores ten minutes of samples
    at the full rate, and an hour by the second. From then on, it stores exactly as many objects as before."""
    clock = SimulatedClock()
    sampler = Sampler(ChangingSource(clock, 2, [1, 2]), clock)
    hub = SampleHub(sampler, Nobody(), clock, interval_s=TICK_S, history_s=600.0)
    views = Views(hub)

    async def run(seconds: int) -> Counter[str]:
        for second in range(1, seconds + 1):
            clock.advance(TICK_S)
            await asyncio.sleep(0)
            while hub._ownership._running:
                await asyncio.sleep(0)
            if second % 60 == 0:
                views.reload()
        views.reload()
        while hub._outgoing:
            await asyncio.sleep(0.001)
        return stored(hub)

    before = await run(3600 + 2 * CHUNK_S)
    history = hub._history
    assert [len(chunk) for chunk in history._full_rate.chunks][:-1] == [CHUNK_S] * 10
    assert [len(chunk) for chunk in history._rollup._seconds.chunks][:-1] == [CHUNK_S] * 57
    assert len(sampler.recent._rows) == 240
    assert await run(15 * CHUNK_S) == before
    assert (len(hub._clients), len(hub._activity_clients), len(hub._arrived)) == (5, 2, 0)
    hub.close()
    assert stored(hub)["CountingClient"] == 0
