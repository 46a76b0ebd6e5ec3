"""The sample hub, which sends samples to the stream's clients.
On a busy server it sends them in batches, so that messages do not pile up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from fakes import FakeClock, FakeSource
from helpers_samples import h200, reading, sample

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
