"""The sample hub, which sends samples to the stream's clients.
On a busy server it sends them in batches, so that messages do not pile up."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from fakes import FakeClock, FakeSource
from helpers_samples import h200, reading, sample

from gpuwidget.model.samples import Sample
from gpuwidget.sampler import Sampler
from gpuwidget.server.encoded_samples import EncodedSample
from gpuwidget.server.kernel_inventory import InventorySnapshot, KernelInventory
from gpuwidget.server.sample_hub import SampleHub


class Client:
    """A client that accepts every message and records it."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def send(self, message: bytes) -> bool:
        self.got.append(message)
        return True

    def drop(self) -> None:
        raise AssertionError("it was not too slow")


class Nobody(KernelInventory):
    """A stand-in for the inventory of a server without kernels."""

    def __init__(self) -> None:
        pass

    def snapshot(self) -> InventorySnapshot:
        return InventorySnapshot((), {}, {}, 0)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("turns", [2, 13])
async def test_messages_do_not_pile_up_on_a_busy_server(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    """If the event loop runs only a few times per sample,
    none of 100 clients lags more than a few messages behind."""
    clock = FakeClock()
    hub = SampleHub(Sampler(FakeSource(), clock), Nobody(), clock, interval_s=0.2, history_s=600.0)
    clients = [Client() for _ in range(100)]
    hub._clients.update(clients)
    waiting: list[Callable[[], Any]] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_later", lambda _, call: waiting.append(call), raising=False)
    behind = []
    for number in range(1, 301):
        hub._broadcast(b"%d" % number)
        for _ in range(turns):
            if waiting:
                waiting.pop()()
        behind.append(number - min(len(client.got) for client in clients))
    assert max(behind) <= 16 // turns + 1
    while waiting:
        waiting.pop()()
    assert all(client.got == [b"%d" % number for number in range(1, 301)] for client in clients)


class Gone(Client):
    """A client that accepts the initial message but no later message."""

    def send(self, message: bytes) -> bool:
        super().send(message)
        return len(self.got) == 1

    def drop(self) -> None:
        pass


async def test_a_whole_sample_follows_a_dropped_one() -> None:
    """Changes are sent only to a client that has received the previous sample.
    Other clients get a whole sample."""
    clock = FakeClock()
    hub = SampleHub(Sampler(FakeSource(), clock), Nobody(), clock, interval_s=0.2, history_s=600.0)
    first, second, third, fourth = [sample((h200(0), reading(h200(0))), time=10.0 + n) for n in range(4)]
    client, late, gone = Client(), Client(), Gone()
    hub.join(client, 0.0)
    hub.join(gone, 0.0)
    hub._process(first, first, 1.0, EncodedSample(first, None))
    hub.join(late, 0.0)
    hub._process(second, second, 2.0, EncodedSample(second, first))
    hub._process(fourth, fourth, 4.0, EncodedSample(fourth, third))
    kinds = [[json.loads(message)["type"] for message in one.got] for one in (client, late)]
    assert kinds == [["hello", "sample", "changes", "sample"], ["hello", "changes", "sample"]]
    assert json.loads(client.got[3])["sample"]["time"] == 13.0
    assert hub._have_newest == {client, late}
    hub.leave(client)
    hub.leave(late)
    hub.close()


def past_of(hub: SampleHub, monkeypatch: pytest.MonkeyPatch, times: Iterable[float]) -> None:
    """Let the hub's sampler have a recording, which is slow to read, with samples at these times."""

    def recorded_past(since: float, interval_s: float) -> Iterator[Sample]:
        for at in times:
            time.sleep(0.002)
            yield sample((h200(0), reading(h200(0))), time=at)

    monkeypatch.setattr(hub._sampler, "recorded_past", recorded_past)


async def test_reading_the_past_of_a_recording_delays_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the last minutes of a recording are read for the first client, other requests run. A live sample
    that arrives meanwhile ends the reading, and is kept."""
    clock = FakeClock()
    hub = SampleHub(Sampler(FakeSource(), clock), Nobody(), clock, interval_s=0.2, history_s=600.0)
    now = clock.time()
    past_of(hub, monkeypatch, [now - 10 + n for n in range(9)])
    reading_past = asyncio.ensure_future(hub.read_past())
    turns = 0
    while not reading_past.done():
        turns += 1
        if turns == 5:
            hub._history.add(sample((h200(0), reading(h200(0))), time=now))
        await asyncio.sleep(0)
    await reading_past
    assert turns >= 5
    assert hub._history.newest == now
    times = json.loads(hub.history(600.0))["t"]
    assert 3 <= len(times) < 9
    hub.close()


@pytest.mark.stops_errors
async def test_a_past_that_can_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a recording's past can't be read to its end, a client joins nevertheless, with what was read."""
    clock = FakeClock()
    hub = SampleHub(Sampler(FakeSource(), clock), Nobody(), clock, interval_s=0.2, history_s=600.0)

    def broken() -> Iterator[float]:
        yield clock.time() - 5
        raise ValueError("a broken recording")

    past_of(hub, monkeypatch, broken())
    await hub.read_past()
    assert hub._history.newest == clock.time() - 5
    hub.close()


def test_a_sample_that_arrives_after_the_servers_end() -> None:
    """A sample that arrives while the server ends, when its event loop is already closed, is dropped without
    an error."""
    clock = FakeClock()

    async def served() -> SampleHub:
        hub = SampleHub(Sampler(FakeSource(), clock), Nobody(), clock, interval_s=0.2, history_s=600.0)
        hub.join(Client(), 0.0)
        return hub

    hub = asyncio.run(served())
    subscription = hub._subscription
    assert subscription is not None
    subscription.deliver(sample((h200(0), reading(h200(0))), time=10.0))
    subscription.close()
    hub._sampler.stop()
