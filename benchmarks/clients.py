"""Clients of a Jupyter server's websockets, in a process of their own.

As a program: ``python -m benchmarks.clients ADDRESS MESSAGE PATH …`` is a client of each path, which tells it
MESSAGE where that is not empty, until standard input ends, with the server's token in GPUWIDGET_TOKEN.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.servers import Server
from benchmarks.settings import environment

_TOKEN = "GPUWIDGET_TOKEN"


@contextmanager
def clients(server: Server, paths: Sequence[str], message: str = "") -> Iterator[None]:
    """A client of each of these paths, connected, each of which has told the server ``message``, if any.

    Raises RuntimeError where they can't connect, or where the server has ended one of them meanwhile.
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


async def _listen(address: str, message: str, paths: Sequence[str]) -> None:
    from tornado.httpclient import HTTPRequest
    from tornado.websocket import websocket_connect

    headers = {"Authorization": f"token {os.environ[_TOKEN]}"}

    async def read(stream: Any) -> None:
        while await stream.read_message() is not None:
            pass

    streams = [
        await websocket_connect(HTTPRequest(f"ws://{address}{path}", headers=headers)) for path in paths
    ]
    if message:
        for stream in streams:
            await stream.write_message(message)
    readers = [asyncio.ensure_future(read(stream)) for stream in streams]
    print("connected", flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    done, _pending = await asyncio.wait([ended, *readers], return_when=asyncio.FIRST_COMPLETED)
    if ended not in done:
        # Not SystemExit, which would first wait for the thread that reads standard input.
        print("the server ended a stream", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    asyncio.run(_listen(sys.argv[1], sys.argv[2], sys.argv[3:]))
