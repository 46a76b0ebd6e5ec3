"""Clients that send anything, too much, too often, or are too many: the server answers with a sentence, and
other clients are not affected."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from random import Random
from typing import Any

import pytest
from fakes import EPOCH, FakeClock, FakeSource
from helpers_hostile import mutated, value
from helpers_samples import h200, reading, sample
from helpers_server import Server, Stream
from tornado.httpclient import HTTPClientError
from tornado.websocket import WebSocketClientConnection

from gpuwidget.server import client_limits, handlers
from gpuwidget.server.client_limits import MessageLimit
from gpuwidget.server.history import HistoryStore
from gpuwidget.server.wire import parse_stream_request

VALID = ({"type": "rate", "interval_s": 2.0}, {"type": "activity", "wanted": True})


def socket_of(stream: Stream) -> WebSocketClientConnection:
    """Return a stream's websocket connection."""
    socket = stream._socket
    assert isinstance(socket, WebSocketClientConnection)
    return socket


async def closed(server: Server, stream: Stream) -> tuple[int | None, str | None]:
    """Read a stream until the server has closed it, and return the close code and the reason."""
    while await stream.next_text() is not None:
        pass
    return socket_of(stream).close_code, socket_of(stream).close_reason


# -- messages --------------------------------------------------------------------------------------------


def test_no_message_raises_an_error() -> None:
    """Whatever a client sends, it is either a valid request or ignored."""
    found = set()
    for seed in range(2000):
        random = Random(seed)
        sent = value(random) if seed % 3 == 0 else mutated(random, VALID[seed % 2], 1)
        try:
            text = json.dumps(sent)
        except (RecursionError, ValueError):
            text = "[" * 200
        for message in (text, text[:200], text[: random.randrange(len(text) + 1)]):
            found.add(type(parse_stream_request(message)).__name__)
            parse_stream_request(message.encode("utf-16", "surrogatepass"))
            parse_stream_request(bytes(random.randrange(256) for _ in range(20)))
    assert found == {"NoneType", "RateRequest", "ActivityRequest"}


async def test_messages_of_every_shape_close_nothing(server: Server) -> None:
    """A client that sends nonsense, but slowly, stays connected, and so does every other client."""
    stream, other = await server.stream(), await server.stream()
    await stream.next()
    await other.next()
    for seed in range(20):
        await stream.send(json.dumps(mutated(Random(seed), VALID[seed % 2], 1), default=str)[:4000])
    await stream.send(b"\xff\xfe\x00")
    await stream.send("[" * 4000)
    assert (await stream.next())["type"] == "sample"
    assert (await other.next())["type"] == "sample"
    assert server.hub.clients == 2


async def test_a_flood_of_messages_ends_the_stream(server: Server) -> None:
    """A client that sends more messages than any page does is disconnected with code 1008 and a sentence. The
    other clients and the limits of later clients are not affected."""
    server = server.with_still_clock()
    flood, other = await server.stream(), await server.stream()
    await flood.next()
    await other.next()
    for _ in range(30):
        await flood.send(VALID[1])
    await server.until(lambda: bool(server.hub._activity_clients))
    assert server.hub.clients == 2
    await flood.send("nonsense counts too")
    assert await closed(server, flood) == (1008, "too many messages: more than 5 per second")
    await server.until(lambda: server.hub.clients == 1)
    assert server.hub._activity is None
    again = await server.stream()
    assert (await again.next())["type"] == "hello"


def test_the_rate_of_messages() -> None:
    """A client may send 30 messages at once, and then 5 per second."""
    clock = FakeClock()
    limit = MessageLimit(clock)
    assert [limit.allows() for _ in range(32)] == [True] * 30 + [False] * 2
    clock.advance(0.21)
    assert [limit.allows() for _ in range(2)] == [True, False]
    clock.advance(3600.0)
    assert [limit.allows() for _ in range(31)] == [True] * 30 + [False]


@pytest.mark.parametrize("fragments", [1, 3])
async def test_a_large_message_is_refused_before_it_is_read(
    server: Server, jp_http_port: int, jp_base_url: str, fragments: int
) -> None:
    """If a client announces a large message, the server disconnects it with code 1009 before it has sent the
    message, also if the message has several fragments."""
    token = server.app.identity_provider.token
    reader, writer = await asyncio.open_connection("127.0.0.1", jp_http_port)
    lines = (
        f"GET {jp_base_url}gpuwidget/api/stream?token={token} HTTP/1.1",
        f"Host: 127.0.0.1:{jp_http_port}",
        *("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    writer.write("\r\n".join((*lines, "", "")).encode())
    assert (await reader.readline()).split()[1] == b"101"
    await server.until(lambda: server.hub.clients == 1)
    for number in range(fragments - 1):
        # A fragment of 2000 zero bytes: the first is text, and the later ones continue it.
        writer.write(struct.pack("!BBH4s", 0 if number else 1, 0x80 | 126, 2000, os.urandom(4)) + bytes(2000))
    # The header of a last fragment of 2 GiB, without its content.
    writer.write(struct.pack("!BBQ4s", 0x80 | (0 if fragments > 1 else 1), 0x80 | 127, 2 << 30, b"mask"))
    await writer.drain()
    received = b""
    while piece := await asyncio.wait_for(reader.read(1 << 16), 20):
        received += piece
    assert struct.pack("!H", 1009) + b"message too big" in received
    await server.until(lambda: server.hub.clients == 0)
    writer.close()


# -- the number of clients -------------------------------------------------------------------------------


async def refusal(server: Server, *path: str, **query: object) -> tuple[int, str, str | None]:
    """Return the status, the message and the header ``Retry-After`` of a request that is refused."""
    with pytest.raises(HTTPClientError) as refused:
        await server.fetch("gpuwidget", "api", *path, params=query)
    response = refused.value.response
    assert response is not None
    return refused.value.code, json.loads(response.body)["message"], response.headers.get("Retry-After")


async def test_too_many_streams(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """If there are as many clients as the server allows, another one is refused with status 429 and a
    sentence. It can connect once a client has disconnected."""
    monkeypatch.setattr(client_limits, "MAX_STREAMS", 2)
    first, second = await server.stream(), await server.stream()
    for stream in (first, second):
        await stream.next()
    sentence = (
        "256 clients already receive this server's GPU data, the maximum. Close pages or programs that "
        "receive it, then try again."
    )
    assert await server.refused() == (429, {"message": sentence})
    # A page can't read the response to a websocket's request. It repeats the request without an upgrade.
    assert await refusal(server, "stream") == (429, sentence, "30")
    assert (await first.next())["type"] == "sample"
    second.close()
    await server.until(lambda: server.hub.clients == 1)
    assert (await (await server.stream()).next())["type"] == "hello"


async def test_the_stream_without_an_upgrade(server: Server, jp_auth_header: dict[str, str]) -> None:
    """A request to the stream that is no websocket returns 426 if a websocket would open, else the reason."""
    sentence = "This address is a websocket: send the request with 'Upgrade: websocket'."
    assert await refusal(server, "stream") == (426, sentence, None)
    assert (await refusal(server, "stream", history=601))[0] == 400
    jp_auth_header.clear()
    assert (await refusal(server, "stream"))[0] == 403
    assert not server.hub._sampler.wanted


# -- history requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [{}, {"metrics": "all"}])
async def test_too_many_history_requests(
    server: Server, monkeypatch: pytest.MonkeyPatch, query: dict[str, str]
) -> None:
    """While the server answers as many history requests as it allows, another one is refused with status 429,
    a sentence, and the time after which to try again. Requests that have ended or failed do not count."""
    monkeypatch.setattr(client_limits, "MAX_HISTORY_REQUESTS", 2)
    for _ in range(4):
        assert (await server.get("history", points=1))[0] == 400
    go_on = asyncio.Event()
    answer, started = handlers.HistoryHandler._answer, 0

    async def wait(handler: Any) -> None:
        nonlocal started
        started += 1
        await go_on.wait()
        await answer(handler)

    monkeypatch.setattr(handlers.HistoryHandler, "_answer", wait)
    requests = [asyncio.ensure_future(server.get("history", **query)) for _ in range(2)]
    await server.until(lambda: started == 2)
    status, message, retry_after = await refusal(server, "history", **query)
    assert (status, retry_after) == (429, "5")
    assert "16 history requests" in message
    assert "in 5 seconds" in message
    go_on.set()
    assert [status for status, _ in await asyncio.gather(*requests)] == [200, 200]
    assert (await server.get("history", **query))[0] == 200


# -- the initial message ---------------------------------------------------------------------------------


def filled(gpus: int, ticks: int, interval_s: float = 0.05) -> HistoryStore:
    """Return a history of an hour at the highest rate, with ``ticks`` samples."""
    store = HistoryStore(3600.0, interval_s)
    cards = [h200(index) for index in range(gpus)]
    readings = [(card, reading(card, power_w=612.4)) for card in cards]
    for number in range(ticks):
        store.add(sample(*readings, time=EPOCH + number * interval_s))
    return store


def test_the_initial_history_is_limited() -> None:
    """However long the history is, the first message contains at most 200,000 values of it: the newest
    ones. Without the limit, as in the history's route, it is complete."""
    store = filled(gpus=16, ticks=5000)
    whole = json.loads(store.encode_recent(0.0))
    part = json.loads(store.encode_recent(0.0, client_limits.MAX_INITIAL_VALUES))
    assert len(whole["t"]) == 5000
    ticks = 200_000 // (1 + 3 * 16)
    assert part["t"] == whole["t"][-ticks:]
    for one, all_of_it in zip(part["gpus"], whole["gpus"], strict=True):
        assert one == {
            name: series[-ticks:] if isinstance(series, list) else series
            for name, series in all_of_it.items()
        }
    assert len(store.encode_recent(0.0, client_limits.MAX_INITIAL_VALUES)) < 2_500_000


@pytest.mark.parametrize(
    ("limit", "ticks"), [(0, 0), (3, 0), (4, 1), (4 * 64, 64), (4 * 65, 65), (10**9, 200)]
)
def test_any_limit_of_the_history(limit: int, ticks: int) -> None:
    """The limit holds exactly, also within a chunk of the history."""
    whole = json.loads(filled(1, 200).encode_recent(0.0))
    part = json.loads(filled(1, 200).encode_recent(0.0, limit))
    assert part["t"] == whole["t"][200 - ticks :]
    assert [len(one["power_w"]) for one in part["gpus"]] == [ticks] * len(part["gpus"])


async def test_a_client_can_fetch_the_rest(
    server: Server, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the first message contains only a part of the history, the history's route returns all of it."""
    first = await server.stream()
    await first.next()
    for _ in range(10):
        await first.next()
    monkeypatch.setattr("gpuwidget.server.sample_hub.MAX_INITIAL_VALUES", 3 * 7)
    hello = await (await server.stream()).next()
    _, history = await server.get("history")
    assert len(hello["history"]["t"]) == 3
    assert len(history["t"]) >= 10
    assert hello["history"]["t"] == [t for t in history["t"] if t >= hello["history"]["t"][0]][:3]
