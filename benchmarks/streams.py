"""What the panel costs a Jupyter server: other requests beside 1, 20 and 100 clients of the stream.

As a program: ``python -m benchmarks.streams URL COUNT`` is so many clients until standard input ends, with
the token in GPUWIDGET_TOKEN.
"""

from __future__ import annotations

import asyncio
import http.client
import math
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.figures import Figure
from benchmarks.settings import Settings, environment
from benchmarks.standin import machine

_GPUS = 8
_COUNTS = (1, 20, 100)
_BAR_MS = 3.0
_SAME = 1.05
"""Calls of two windows are the same within this ratio: each holds one full pass more or less."""
_READY_S = 60.0
_PAUSE_S = 0.01
_SETTLE_S = 2.0
_LINGER_S = 12.0
"""By then a server without clients has let go of the driver."""
_TOKEN = "GPUWIDGET_TOKEN"


def measure(settings: Settings) -> Iterator[Figure]:
    """p95 of ``GET /api/status`` with clients minus that without, and NVML's calls a second."""
    rounds, window_s = settings.pick(4, 1), settings.pick(10.0, 3.0)
    p95: dict[int, list[float]] = {count: [] for count in (0, *_COUNTS)}
    calls: dict[int, list[float]] = {count: [] for count in (0, *_COUNTS)}
    with TemporaryDirectory() as folder:
        standin = machine(Path(folder), _GPUS)
        with _server(Path(folder), standin.environment()) as (url, token):
            for number in range(rounds):
                # In turn to and fro, so that what drifts favours none.
                for count in (0, *_COUNTS) if number % 2 == 0 else (*reversed(_COUNTS), 0):
                    with _clients(url, token, count):
                        time.sleep(_SETTLE_S if count else _LINGER_S)
                        standin.calls()
                        began = time.perf_counter()
                        p95[count].append(_p95(_times(url, token, window_s)))
                        calls[count].append(sum(standin.calls().values()) / (time.perf_counter() - began))
    alone = p95[0]
    for count in _COUNTS:
        clients = "1 stream client" if count == 1 else f"{count} stream clients"
        yield Figure(
            benchmark="streams",
            what=f"p95 of GET /api/status beside {clients}, minus that without",
            unit="ms",
            bar=_BAR_MS,
            values=[there - before for there, before in zip(p95[count], alone, strict=True)],
            details={"p95 without, ms": alone, "p95 with, ms": p95[count]},
        )
    yield Figure(
        benchmark="streams",
        what=f"NVML calls a second with {_COUNTS[-1]} clients over those with one",
        unit="ratio",
        bar=_SAME,
        values=[most / one for most, one in zip(calls[_COUNTS[-1]], calls[1], strict=True)],
        conditions={"no call without a client": not any(calls[0])},
        details={f"calls a second, {count} clients": calls[count] for count in calls},
    )


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


@contextmanager
def _server(folder: Path, variables: dict[str, str]) -> Iterator[tuple[str, str]]:
    """A Jupyter server with only our extension, and its address and token."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    homes = {
        name: str(folder / name.lower())
        for name in ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    for home in homes.values():
        Path(home).mkdir()
    command = [
        *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
        *(f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--ServerApp.log_level=ERROR"),
        *(f"--ServerApp.root_dir={folder}", "--ServerApp.jpserver_extensions={'gpuwidget': True}"),
    ]
    process = subprocess.Popen(command, env=environment({**variables, **homes, "JUPYTER_TOKEN": token}))
    try:
        url = f"127.0.0.1:{port}"
        _wait_until_ready(process, url, token)
        yield url, token
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, token: str) -> None:
    deadline = time.monotonic() + _READY_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            _times(url, token, 0.0)
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the Jupyter server did not start")


def _times(url: str, token: str, window_s: float) -> list[float]:
    """Milliseconds of requests one after the other, over one connection as a browser keeps it."""
    connection = http.client.HTTPConnection(url, timeout=_READY_S)
    times: list[float] = []
    until = time.perf_counter() + window_s
    while not times or time.perf_counter() < until:
        began = time.perf_counter()
        connection.request("GET", "/api/status", headers={"Authorization": f"token {token}"})
        answer = connection.getresponse()
        answer.read()
        times.append(1000 * (time.perf_counter() - began))
        if answer.status != http.client.OK:
            raise RuntimeError(f"the Jupyter server answers {answer.status}")
        time.sleep(_PAUSE_S)
    connection.close()
    return times


@contextmanager
def _clients(url: str, token: str, count: int) -> Iterator[None]:
    """So many clients in a process of their own, connected."""
    if not count:
        yield
        return
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.streams", url, str(count)],
        env=environment({_TOKEN: token}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != b"connected":
            raise RuntimeError("the clients could not connect")
        yield
        process.stdin.close()


async def _listen(url: str, count: int) -> None:
    from tornado.httpclient import HTTPRequest
    from tornado.websocket import websocket_connect

    address = f"ws://{url}/gpuwidget/api/stream"
    headers = {"Authorization": f"token {os.environ[_TOKEN]}"}

    async def read(stream: Any) -> None:
        while await stream.read_message() is not None:
            pass

    streams = [await websocket_connect(HTTPRequest(address, headers=headers)) for _ in range(count)]
    readers = [asyncio.ensure_future(read(stream)) for stream in streams]
    print("connected", flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    done, _pending = await asyncio.wait([ended, *readers], return_when=asyncio.FIRST_COMPLETED)
    if ended not in done:
        raise SystemExit("the server ended a stream")


if __name__ == "__main__":
    asyncio.run(_listen(sys.argv[1], int(sys.argv[2])))
