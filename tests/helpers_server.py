"""A client that sends requests to the server under test, as a browser does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from fakes import FakeClock
from helpers_schemas import check_response
from tornado.httpclient import HTTPClientError

from gpuwidget.server.sample_hub import SampleHub

TICK_S = 0.2
USAGE = '{"type":"usage",'
"""The first characters of a message that lists the owners of the GPUs' memory."""
_PATIENCE_S = 20.0
_LOOK_S = 0.02


class Stream:
    """One client's websocket connection to the sample stream."""

    def __init__(self, socket: Any, clock: FakeClock | None) -> None:
        self._socket = socket
        self._clock = clock
        self._coming: asyncio.Future[Any] | None = None
        self._sample: Any = None

    async def next(self) -> Any:
        """Return the next initial message or sample, decoded; None if the server closed the stream.

        The fake clock advances while no message arrives. If a message contains only changes,
        they are applied to the previous sample, and the whole sample is returned.
        """
        text = await self.next_text()
        message = None if text is None else json.loads(text)
        if message is not None and message["type"] == "changes":
            pairs = zip(self._sample["readings"], message["readings"], strict=True)
            readings = [{**reading, **new} for reading, new in pairs]
            sample = {**self._sample, "time": message["time"], "readings": readings}
            message = {"type": "sample", "sample": sample}
        if message is not None:
            self._sample = message["sample"]
        return message

    async def usage(self) -> Any:
        """Decode and return the next message that lists the owners of the GPUs' memory in their own reading.

        While the clock advances, the server may find them so late that it first marks the previous ones as
        older.
        """
        while True:
            text = await self._next_of_any_kind()
            assert text is not None, "the server ended the stream"
            if text.startswith(USAGE) and '"older":true' not in text:
                return json.loads(text)

    async def next_text(self) -> str | None:
        """Return the text of the next message that is an initial message, a sample or a set of changes."""
        while True:
            text = await self._next_of_any_kind()
            if text is None or not text.startswith(USAGE):
                return text

    async def _next_of_any_kind(self) -> str | None:
        if self._coming is None:
            self._coming = asyncio.ensure_future(self._socket.read_message())
        for _ in range(int(_PATIENCE_S / _LOOK_S)):
            done, _pending = await asyncio.wait({self._coming}, timeout=_LOOK_S)
            if done:
                text: str | None = self._coming.result()
                self._coming = None
                return text
            if self._clock is not None:
                self._clock.advance(TICK_S)
        raise AssertionError("no message came")

    async def send(self, message: object) -> None:
        """Send a message. Text and bytes are sent unchanged, anything else as JSON."""
        raw = message if isinstance(message, (str, bytes)) else json.dumps(message)
        await self._socket.write_message(raw, binary=isinstance(raw, bytes))

    def close(self) -> None:
        """Close the websocket, as closing the browser tab does."""
        self._socket.close()


class Server:
    """A running server, with methods that send requests to its routes."""

    def __init__(
        self,
        app: Any,
        fetch: Callable[..., Awaitable[Any]],
        ws_fetch: Callable[..., Awaitable[Any]],
        hub: SampleHub,
        clock: FakeClock | None,
    ) -> None:
        self.app = app
        self.fetch = fetch
        self.ws_fetch = ws_fetch
        self.hub = hub
        self.clock = clock

    def with_still_clock(self) -> Server:
        """Return this server with methods that do not advance the fake clock while they wait."""
        return Server(self.app, self.fetch, self.ws_fetch, self.hub, None)

    async def get(self, *path: str, **query: object) -> tuple[int, Any]:
        """Return the status and the decoded reply of a GET request to ``gpuwidget/api/…``."""
        try:
            answer = await self.fetch("gpuwidget", "api", *path, params=query)
        except HTTPClientError as error:
            return _checked("get", path, *_refusal(error))
        return _checked("get", path, answer.code, json.loads(answer.body))

    async def post(self, *path: str, body: str | bytes = "", **query: str) -> tuple[int, Any]:
        """Return the status and the decoded reply of a POST request to ``gpuwidget/api/…``."""
        try:
            answer = await self.fetch("gpuwidget", "api", *path, method="POST", body=body, params=query)
        except HTTPClientError as error:
            return _checked("post", path, *_refusal(error))
        return _checked("post", path, answer.code, json.loads(answer.body or "null"))

    async def stream(self, **query: object) -> Stream:
        """Connect a new client to the sample stream."""
        return Stream(await self.ws_fetch("gpuwidget", "api", "stream", params=query), self.clock)

    async def refused(self, **query: object) -> tuple[int, Any]:
        """Request the stream, assert that the server refuses, and return the status and the decoded reply."""
        try:
            await self.ws_fetch("gpuwidget", "api", "stream", params=query)
        except HTTPClientError as error:
            return _refusal(error)
        raise AssertionError("the stream was given")

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until the condition holds. Meanwhile the server runs and the fake clock advances."""
        for _ in range(int(_PATIENCE_S / _LOOK_S)):
            if happened():
                return
            if self.clock is not None:
                self.clock.advance(TICK_S)
            await asyncio.sleep(_LOOK_S)
        raise AssertionError("what was waited for has not happened")


def _checked(method: str, path: tuple[str, ...], status: int, values: Any) -> tuple[int, Any]:
    """Return a response, after it was compared with the OpenAPI description."""
    check_response(method, "/".join(("/gpuwidget/api", *path)), status, values)
    return status, values


def _refusal(error: HTTPClientError) -> tuple[int, Any]:
    return error.code, json.loads(error.response.body if error.response is not None else "null")
