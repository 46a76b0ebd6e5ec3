"""The hub on a server that is busy: messages go out in portions, and do not pile up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fakes import FakeClock, FakeSource

from gpuwidget.sampler import Sampler
from gpuwidget.server.hub import Hub
from gpuwidget.server.notebooks import Notebooks


class Client:
    """Takes everything."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def send(self, message: bytes) -> bool:
        self.got.append(message)
        return True

    def drop(self) -> None:
        raise AssertionError("it was not too slow")


class Nobody(Notebooks):
    """A server without kernels."""

    def __init__(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("turns", [2, 13])
async def test_messages_do_not_pile_up_on_a_busy_server(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    """A hundred clients, and so few turns of the event loop a sample: nobody falls ever further behind."""
    clock = FakeClock()
    hub = Hub(Sampler(FakeSource(), clock), Nobody(), clock, interval_s=0.2, history_s=600.0)
    clients = [Client() for _ in range(100)]
    hub._listeners.update(clients)
    waiting: list[Callable[[], Any]] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_later", lambda _, call: waiting.append(call), raising=False)
    behind = []
    for number in range(1, 301):
        hub._spread(b"%d" % number)
        for _ in range(turns):
            if waiting:
                waiting.pop()()
        behind.append(number - min(len(client.got) for client in clients))
    assert max(behind) <= 16 // turns + 1
    while waiting:
        waiting.pop()()
    assert all(client.got == [b"%d" % number for number in range(1, 301)] for client in clients)
