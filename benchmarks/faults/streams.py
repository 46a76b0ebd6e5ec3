"""Clients of the server's stream: one that reads, some that never read, and some that disconnect abruptly."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_PATH = "/gpuwidget/api/stream?history=60"
_ROUTES = ("/gpuwidget/metrics", "/gpuwidget/api/sample", "/gpuwidget/api/history?seconds=60")
_PATIENCE_S = 30.0
_MAX_SLOW = 2


@dataclass(frozen=True)
class Received:
    """A sample that the reading client received."""

    at: float
    """``time.monotonic()`` when it was received."""
    gpus: list[dict[str, Any]]
    readings: list[dict[str, Any]]


class StreamClients:
    """The clients, on one thread. All methods may be called from any other thread."""

    def __init__(self, address: str, token: str) -> None:
        self._address, self._headers = address, {"Authorization": f"token {token}"}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._lock = threading.Lock()
        self._received: list[Received] = []
        self.newest: Received | None = None
        """The newest sample that the reading client received."""
        self._problems: list[str] = []
        self._slow: list[Any] = []
        self._closing = False
        self._reader = self._run(self._read())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def take(self) -> tuple[list[Received], list[str]]:
        """Return the samples and the problems since the last call."""
        with self._lock:
            found = self._received, self._problems
            self._received, self._problems = [], []
        return found

    def drop(self) -> None:
        """Connect a client that disconnects without closing the WebSocket."""
        self._run(self._guarded(self._drop()))

    def slow(self) -> None:
        """Connect a client that never reads."""
        self._run(self._guarded(self._add_slow()))

    def request(self, number: int) -> None:
        """Request one of the other routes."""
        self._run(self._guarded(self._get(_ROUTES[number % len(_ROUTES)])))

    def expect_close(self) -> None:
        """Accept from now on that the server closes connections."""
        self._closing = True

    def close(self) -> None:
        """Disconnect all clients."""
        self._closing = True
        with suppress(Exception):
            self._run(self._close_all()).result(_PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()

    # -- on the clients' thread --------------------------------------------------------------------------

    async def _connect(self) -> Any:
        from tornado.httpclient import HTTPRequest
        from tornado.websocket import websocket_connect

        request = HTTPRequest(f"ws://{self._address}{_PATH}", headers=self._headers)
        return await websocket_connect(request)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            if not self._closing:
                self._problem(f"a client failed: {type(error).__name__}: {error}")

    def _problem(self, text: str) -> None:
        with self._lock:
            self._problems.append(text)

    async def _read(self) -> None:
        await self._guarded(self._read_all())

    async def _read_all(self) -> None:
        stream = await self._connect()
        try:
            await self._read_stream(stream)
        finally:
            stream.close()  # Tornado warns when an unclosed connection is collected, maybe in another test.

    async def _read_stream(self, stream: Any) -> None:
        await stream.write_message(json.dumps({"type": "activity", "wanted": True}))
        gpus: list[dict[str, Any]] = []
        readings: list[dict[str, Any]] = []
        while (message := await stream.read_message()) is not None:
            content = json.loads(message, parse_constant=self._constant)
            if content["type"] in ("hello", "sample") and content["sample"] is not None:
                gpus, readings = content["sample"]["gpus"], content["sample"]["readings"]
            elif content["type"] == "changes":
                readings = [{**old, **new} for old, new in zip(readings, content["readings"], strict=True)]
            else:
                continue
            # The first message contains the newest sample, which may be old.
            if content["type"] != "hello":
                self.newest = Received(time.monotonic(), gpus, readings)
                with self._lock:
                    self._received.append(self.newest)
        if not self._closing:
            self._problem("the server ended the reading client's stream")

    def _constant(self, name: str) -> None:
        self._problem(f"the stream contains {name}, which is not JSON")

    async def _drop(self) -> None:
        stream = await self._connect()
        await stream.read_message()
        stream.protocol.stream.close()
        stream.close()  # Now Tornado knows that it is closed, too.

    async def _add_slow(self) -> None:
        self._slow.append(await self._connect())
        while len(self._slow) > _MAX_SLOW:
            self._slow.pop(0).close()

    async def _get(self, path: str) -> None:
        from tornado.httpclient import AsyncHTTPClient

        answer = await AsyncHTTPClient().fetch(
            f"http://{self._address}{path}", headers=self._headers, raise_error=False
        )
        # Before its first sample, a server responds with 503.
        if answer.code not in (200, 503) and not self._closing:
            self._problem(f"GET {path} returned {answer.code}: {answer.body[:300]!r}")

    async def _close_all(self) -> None:
        for stream in self._slow:
            stream.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
