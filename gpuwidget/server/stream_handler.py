"""The stream's websocket, ``WS gpuwidget/api/stream``."""

from __future__ import annotations

import math
from asyncio import Future
from collections.abc import Callable
from typing import Any

from jupyter_server.auth import decorator
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.websocket import WebSocketMixin
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from gpuwidget.server import client_limits
from gpuwidget.server.client_limits import MAX_MESSAGE_BYTES, MessageLimit, TooManyRequests
from gpuwidget.server.encoding import encode
from gpuwidget.server.handlers import GpuWidgetHandler
from gpuwidget.server.history_query import parse_seconds
from gpuwidget.server.sample_hub import SampleHub
from gpuwidget.server.wire import ActivityRequest, RateRequest, parse_stream_request

# Jupyter Server has this decorator since version 2.13. In older versions, get() rejects users who are not
# logged in.
_ws_authenticated: Callable[[Any], Any] = getattr(decorator, "ws_authenticated", lambda method: method)

_MAX_BACKLOG_S = 10.0
_MIN_BACKLOG = 10
_POLICY_VIOLATION = 1008
_TRY_AGAIN_LATER = 1013
_NOT_A_WEBSOCKET = "This address is a websocket: send the request with 'Upgrade: websocket'."


class SendQueue:
    """Writes to a websocket, while at most ``limit`` messages wait for the network.

    The limit prevents a slow client from using up the server's memory.
    """

    def __init__(self, write: Callable[[bytes], Future[None]], limit: int) -> None:
        self._write = write
        self._limit = limit
        self._unsent = 0

    def put(self, message: bytes) -> bool:
        """Send a message without waiting. Return False if the client is gone or reads too slowly."""
        if self._unsent >= self._limit:
            return False
        try:
            sent = self._write(message)
        except WebSocketClosedError:
            return False
        self._unsent += 1
        sent.add_done_callback(self._on_sent)
        return True

    def _on_sent(self, sent: Future[None]) -> None:
        self._unsent -= 1
        if not sent.cancelled():
            # Retrieve the exception, so that asyncio does not log it. on_close() handles closed connections.
            sent.exception()


class StreamHandler(WebSocketMixin, WebSocketHandler, GpuWidgetHandler):
    """``WS gpuwidget/api/stream?history=SECONDS``: an initial message with the history, then every sample."""

    def initialize(self, hub: SampleHub) -> None:
        """Store the server's sample hub."""
        super().initialize(hub)
        self._history_s = 0.0
        self._message_limit = MessageLimit(hub.clock)
        limit = max(_MIN_BACKLOG, math.ceil(_MAX_BACKLOG_S / hub.interval_s))
        self._send_queue = SendQueue(self._write, limit)

    @property
    def max_message_size(self) -> int:
        """The maximum size of a client's message in bytes.

        Tornado closes the connection when it has read the header of a larger message, before it reads the
        message.
        """
        return MAX_MESSAGE_BYTES

    def set_default_headers(self) -> None:
        """Set no headers, because Jupyter's default headers are for pages and not for websockets."""

    @_ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open the websocket if the user is authorized, the requested history is valid and there are not too
        many clients.

        A browser does not report to a page why a websocket failed. The page can therefore send the same
        request without an upgrade: the response is then the same error, or status 426 if this handler would
        accept the websocket. Tornado's checks, such as that of the origin, come after that.
        """
        if self.current_user is None:
            raise web.HTTPError(403)
        await self._get()

    @authorized
    async def _get(self) -> None:
        self._history_s = parse_seconds(self, "history", self._hub.history_s)
        if self._hub.clients >= client_limits.MAX_STREAMS:
            raise TooManyRequests(client_limits.TOO_MANY_STREAMS, client_limits.STREAM_RETRY_S)
        if self.request.headers.get("Upgrade", "").lower() != "websocket":
            raise web.HTTPError(426, _NOT_A_WEBSOCKET)
        await super().get()

    async def open(self, *args: Any, **kwargs: Any) -> None:
        """Send the initial message and start pinging the client."""
        super().open(*args, **kwargs)
        await self._hub.read_past()
        self._hub.join(self, self._history_s)

    def on_message(self, message: str | bytes) -> None:
        """Process a client's request. Ignore any other message. Close the connection if the client sends too
        many."""
        if not self._message_limit.allows():
            self._hub.leave(self)
            self.close(_POLICY_VIOLATION, client_limits.TOO_MANY_MESSAGES)
            return
        request = parse_stream_request(message)
        if isinstance(request, ActivityRequest):
            self._hub.set_activity(self, request.wanted)
        elif isinstance(request, RateRequest):
            self._hub.set_interval(self, request.interval_s)

    def on_close(self) -> None:
        """Remove the client, which has closed the connection or has not responded to pings."""
        self._hub.leave(self)

    def send(self, message: bytes) -> bool:
        """Send a message without waiting. Return False if the client is gone or reads too slowly."""
        return self._send_queue.put(message)

    def drop(self) -> None:
        """Close the connection. If messages are still unsent after a few seconds, Tornado discards them."""
        self.close(_TRY_AGAIN_LATER, "too slow: unsent samples accumulated")

    def _write(self, message: bytes) -> Future[None]:
        # Messages are bytes, because they are encoded once for all clients, but they are sent as text
        # messages.
        return self.write_message(message, binary=False)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Write an error that occurs before the websocket opens. It has the same JSON format as in the other
        routes."""
        error = kwargs.get("exc_info", (None, None))[1]
        self.set_retry_after(error)
        sentence = getattr(error, "log_message", None) or self._reason
        self.set_header("Content-Type", "application/json")
        self.finish(encode({"message": sentence}))
