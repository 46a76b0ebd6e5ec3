"""The queue of messages to one client of the stream."""

from __future__ import annotations

import asyncio

from tornado.websocket import WebSocketClosedError

from gpuwidget.server.stream_handler import SendQueue


class Network:
    """A fake network connection. A message counts as sent once the test completes the message's future."""

    def __init__(self) -> None:
        self.closed = False
        self.written: list[bytes] = []
        self.futures: list[asyncio.Future[None]] = []

    def write(self, message: bytes) -> asyncio.Future[None]:
        if self.closed:
            raise WebSocketClosedError
        self.written.append(message)
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]


async def test_a_backlog_is_bounded() -> None:
    """The queue holds at most ``limit`` unsent messages. If it is full, ``put`` returns False."""
    network = Network()
    queue = SendQueue(network.write, limit=2)
    assert [queue.put(message) for message in (b"1", b"2", b"3")] == [True, True, False]
    assert network.written == [b"1", b"2"]


async def test_sent_messages_do_not_count() -> None:
    """A message that has been sent no longer counts towards the queue's limit,
    so a client that keeps up never reaches the limit."""
    network = Network()
    queue = SendQueue(network.write, limit=1)
    for number in range(100):
        assert queue.put(b"%d" % number)
        network.futures[-1].set_result(None)
        await asyncio.sleep(0)
    assert len(network.written) == 100


async def test_a_closed_client_is_reported() -> None:
    """``put`` returns False if the client's connection is closed."""
    network = Network()
    network.closed = True
    assert not SendQueue(network.write, limit=2).put(b"1")


async def test_a_broken_connection_logs_no_error() -> None:
    """If a queued message can't be sent because the connection breaks,
    asyncio logs no unretrieved exception."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    network = Network()
    queue = SendQueue(network.write, limit=3)
    queue.put(b"1")
    queue.put(b"2")
    network.futures[0].set_exception(WebSocketClosedError())
    network.futures[1].cancel()
    await asyncio.sleep(0)
    network.futures.clear()
    assert complaints == []
