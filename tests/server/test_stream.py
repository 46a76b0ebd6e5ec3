"""The sample stream: what a client receives, when sampling runs, and what happens to a slow client."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from fakes import FakeSource, gpu
from helpers_server import TICK_S, USAGE, Server

import gpuwidget
from gpuwidget.model import installation
from gpuwidget.model.errors import GpuLostError
from gpuwidget.model.to_json import to_json
from gpuwidget.server import wire


async def test_the_initial_message_comes_first_then_every_sample(server: Server) -> None:
    """A client first receives one message with versions, rate and history,
    and then one message per sample."""
    stream = await server.stream()
    hello = await stream.next()
    assert hello == {
        "type": "hello",
        "schema": 2,
        "version": gpuwidget.__version__,
        "interval_s": 0.2,
        "history_s": 600.0,
        "install": None,
        "documentation": installation.documentation(),
        "always_on": False,
        "sample": None,
        "history": {"t": [], "gpus": []},
    }
    tick = await stream.next()
    assert set(tick) == {field.name for field in fields(wire.SampleMessage)}
    assert tick["type"] == "sample"
    assert [one["index"] for one in tick["sample"]["gpus"]] == [0, 1]
    assert [one["utilization"] for one in tick["sample"]["readings"]] == [50.0, 50.0]


async def test_a_sample_is_sent_whole_once(server: Server, source: FakeSource) -> None:
    """A client receives one whole sample and then only changes.
    From these, it can always build the newest sample."""
    stream = await server.stream()
    types = [json.loads(str(await stream.next_text()))["type"] for _ in range(4)]
    assert types == ["hello", "sample", "changes", "changes"]
    other = await server.stream()
    await other.next()
    sample = (await other.next())["sample"]
    source.utilization[0] = 90.0
    newest = server.hub._newest
    while (
        sample["readings"][0]["utilization"] != 90.0 or newest is None or sample["time"] < newest.sample.time
    ):
        sample = (await other.next())["sample"]
        newest = server.hub._newest
    assert sample == to_json(newest.sample)


async def test_a_late_client_starts_with_the_history(server: Server, source: FakeSource) -> None:
    """A client that connects later receives the history since the first client connected,
    up to the newest sample."""
    first = await server.stream()
    await first.next()
    seen = [(await first.next())["sample"]]
    source.utilization[0] = 90.0
    source.power[1] = None
    while seen[-1]["readings"][0]["utilization"] != 90.0:
        seen.append((await first.next())["sample"])
    late = await (await server.stream()).next()
    assert set(late) == {field.name for field in fields(wire.InitialMessage)}
    assert late["sample"] == seen[-1]
    assert late["history"] == {
        "t": [round(one["time"], 3) for one in seen],
        "gpus": [
            {
                "uuid": gpu(place).uuid,
                "utilization": [one["readings"][place]["utilization"] for one in seen],
                "memory_used": [1_000_000] * len(seen),
                "power_w": [one["readings"][place]["power_w"] for one in seen],
            }
            for place in (0, 1)
        ],
    }
    assert late["history"]["gpus"][1]["power_w"][-1] is None


async def test_no_history_unless_requested(server: Server) -> None:
    """With ``history=0``, the initial message contains the newest sample without the history."""
    first = await server.stream()
    await first.next()
    newest = await first.next()
    await server.until(lambda: len(server.hub.history(600.0)) > 200)
    assert server.clock is not None
    server.clock.advance(0.01)
    hello = await (await server.stream(history=0)).next()
    assert hello["history"] == {"t": [], "gpus": []}
    assert hello["sample"]["time"] >= newest["sample"]["time"]


async def test_all_clients_get_the_same_messages(server: Server) -> None:
    """Two clients receive identical messages for the same samples."""
    one, other = await server.stream(), await server.stream()
    await one.next()
    await other.next()
    ticks = [await other.next_text() for _ in range(3)]
    first = await one.next_text()
    while first != ticks[0]:  # The first stream connected earlier, so it may have received more samples.
        first = await one.next_text()
    assert [first, await one.next_text(), await one.next_text()] == ticks


async def test_sampling_runs_while_there_are_clients(server: Server, source: FakeSource) -> None:
    """Sampling runs while at least one client is connected, and starts again when a new client connects."""
    sampler = server.hub._sampler
    assert (sampler.running, source.calls["open"]) == (False, 0)
    one, other = await server.stream(), await server.stream()
    await one.next()
    await one.next()
    one.close()
    await server.until(lambda: len(server.hub._clients) == 1)
    assert sampler.wanted
    other.close()
    await server.until(lambda: not sampler.wanted)
    await server.until(lambda: not sampler.running)
    assert source.closed == 1
    calls = source.calls.copy()
    assert server.clock is not None
    server.clock.advance(60.0)
    assert source.calls == calls
    again = await server.stream()
    hello = await again.next()
    assert (hello["sample"], len(hello["history"]["t"]) > 0) == (None, True)
    assert (await again.next())["type"] == "sample"


async def test_a_lost_gpu_does_not_affect_others(server: Server, source: FakeSource) -> None:
    """If one GPU is lost, its readings are unknown and have a reason. The other GPU is still read."""
    stream = await server.stream()
    await stream.next()
    await stream.next()
    source.failing[1] = GpuLostError("gone")
    sample = (await stream.next())["sample"]
    while sample["readings"][1]["lost_since"] is None:
        sample = (await stream.next())["sample"]
    assert sample["readings"][1]["utilization"] is None
    assert sample["readings"][1]["missing"]["utilization"] == "the GPU is lost"
    assert sample["readings"][0]["utilization"] == 50.0
    late = await (await server.stream()).next()
    assert [one["utilization"][-1] for one in late["history"]["gpus"]] == [50.0, None]


def time_of(message: bytes) -> float:
    """Return the time of the sample in a message, which contains either the whole sample or only changes."""
    decoded = json.loads(message)
    return float(decoded["time"] if decoded["type"] == "changes" else decoded["sample"]["time"])


class Slow:
    """A client whose network accepts only ``takes`` messages."""

    def __init__(self, takes: int) -> None:
        self.left = takes
        self.got: list[bytes] = []
        self.dropped = 0

    def send(self, message: bytes) -> bool:
        if message.startswith(USAGE.encode()):
            return True
        self.left -= 1
        if self.left >= 0:
            self.got.append(message)
        return self.left >= 0

    def drop(self) -> None:
        self.dropped += 1


async def test_a_slow_client_is_dropped(server: Server) -> None:
    """A client that reads too slowly is disconnected; the other clients still receive every sample."""
    slow = Slow(takes=3)
    quick = await server.stream()
    await quick.next()
    server.hub.join(slow, 0.0)
    ticks = [await quick.next_text()]
    while not slow.dropped:
        ticks.append(await quick.next_text())
    hello, *samples = [one.decode() for one in slow.got]
    assert json.loads(hello)["type"] == "hello"
    begin = ticks.index(samples[0])
    assert ticks[begin : begin + 2] == samples
    assert json.loads(str(await quick.next_text()))["type"] == "changes"
    assert slow.dropped == 1
    quick.close()
    await server.until(lambda: not server.hub._sampler.wanted)


async def test_many_clients_get_every_sample_in_order(server: Server) -> None:
    """If 100 clients are connected,
    each of them receives every sample after the initial message, in order."""
    many = [Slow(takes=10_000) for _ in range(100)]
    for one in many:
        server.hub.join(one, 0.0)
    await server.until(lambda: min(len(one.got) for one in many) >= 20)
    assert {tuple(one.got[:20]) for one in many} == {tuple(many[0].got[:20])}
    times = [time_of(message) for message in many[0].got[1:20]]
    assert times == sorted(set(times))
    server.hub.leave(many[0])
    got = len(many[0].got)
    await server.until(lambda: len(many[1].got) > got + 2)
    assert len(many[0].got) == got
    assert sum(one.dropped for one in many) == 0


async def test_a_server_that_was_busy_catches_up(server: Server, source: FakeSource) -> None:
    """If the server was too busy to send samples,
    it then sends the missed samples in order, up to a limited number."""
    late = Slow(takes=10_000)
    server.hub.join(late, 0.0)
    await server.until(lambda: len(late.got) >= 2)
    before, calls = len(late.got), source.calls["fast"]
    assert server.clock is not None
    server.clock.until(lambda: source.calls["fast"] - calls >= 2 * 80, step=TICK_S)
    await server.until(lambda: len(late.got) > before + 60)
    times = [time_of(message) for message in late.got[before:]]
    assert times == sorted(set(times))
    assert 60 < len(times) < 80


async def test_a_client_that_closes_while_connecting(server: Server) -> None:
    """If a client disconnects while it is still connecting, sampling does not start."""
    gone = Slow(takes=0)
    server.hub.join(gone, 0.0)
    assert (gone.dropped, server.hub._sampler.wanted) == (1, False)


@pytest.mark.parametrize("history", ["601", "-1", "nan", "inf", "x", ""])
async def test_a_history_out_of_range_is_refused(server: Server, history: str) -> None:
    """The stream answers an invalid ``history`` with status 400 and a sentence that gives the allowed range,
    and sampling does not start."""
    assert await server.refused(history=history) == (
        400,
        {"message": "history must be a number of seconds from 0 to 600."},
    )
    assert not server.hub._sampler.wanted
