"""What is on its way to one client: bounded, so that a slow one costs neither memory nor anybody's time."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable

from tornado.websocket import WebSocketClosedError


class Outbox:
    """Writes to one websocket as long as at most ``most`` messages wait for the network."""

    def __init__(self, write: Callable[[bytes], Future[None]], most: int) -> None:
        self._write = write
        self._most = most
        self._unsent = 0

    def put(self, message: bytes) -> bool:
        """Send a message without waiting; False where the client is gone or too far behind."""
        if self._unsent >= self._most:
            return False
        try:
            sent = self._write(message)
        except WebSocketClosedError:
            return False
        self._unsent += 1
        sent.add_done_callback(self._sent)
        return True

    def _sent(self, sent: Future[None]) -> None:
        self._unsent -= 1
        if not sent.cancelled():
            # Looked at, or asyncio would log it: that the client has gone, the handler hears anyway.
            sent.exception()
