"""Clients that connect to websockets of a Jupyter server from a separate process.

``python -m benchmarks.clients ADDRESS MESSAGE PATH …`` connects one client to each path. Each client sends
MESSAGE unless it is empty, and stays connected until standard input ends. The server's token is read from the
environment variable GPUWIDGET_TOKEN.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from benchmarks.servers import Server
from benchmarks.settings import environment

_TOKEN = "GPUWIDGET_TOKEN"


@contextmanager
def clients(server: Server, paths: Sequence[str], message: str = "") -> Iterator[None]:
    """Connect one client to each of these paths. Each client sends ``message``, unless it is empty.

    A context manager, which disconnects the clients at the end. Raises RuntimeError if a client can't
    connect, or if the server closes a connection before the block ends.
    """
    if not paths:
        yield
        return
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.clients", server.address, message, *paths],
        env=environment({_TOKEN: server.token}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != b"connected":
            raise RuntimeError("the clients could not connect")
        yield
        process.stdin.close()
    if process.returncode:
        raise RuntimeError("the clients did not stay connected")


def messages(server: Server, path: str, patience_s: float = 20.0) -> list[dict[str, Any]]:
    """Return the messages that a client of ``path`` receives within ``patience_s`` seconds."""

    async def read() -> list[dict[str, Any]]:
        stream = await _connect(server.address, path, server.token)
        received: list[dict[str, Any]] = []
        now = asyncio.get_running_loop().time
        until = now() + patience_s
        with suppress(asyncio.TimeoutError):
            while (message := await asyncio.wait_for(stream.read_message(), until - now())) is not None:
                received.append(json.loads(message))
        stream.close()
        return received

    return asyncio.run(read())


async def _connect(address: str, path: str, token: str) -> Any:
    from tornado.httpclient import HTTPRequest
    from tornado.websocket import websocket_connect

    headers = {"Authorization": f"token {token}"}
    return await websocket_connect(HTTPRequest(f"ws://{address}{path}", headers=headers))


async def _listen(address: str, message: str, paths: Sequence[str]) -> None:
    async def read(stream: Any) -> None:
        while await stream.read_message() is not None:
            pass

    streams = [await _connect(address, path, os.environ[_TOKEN]) for path in paths]
    if message:
        for stream in streams:
            await stream.write_message(message)
    readers = [asyncio.ensure_future(read(stream)) for stream in streams]
    print("connected", flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    done, _pending = await asyncio.wait([ended, *readers], return_when=asyncio.FIRST_COMPLETED)
    if ended not in done:
        # Do not raise SystemExit: the interpreter's exit would wait for the thread that reads standard input.
        print("the server ended a stream", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    asyncio.run(_listen(sys.argv[1], sys.argv[2], sys.argv[3:]))
