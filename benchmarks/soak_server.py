"""A day of a Jupyter server with gpuwidget, in a process whose clock is simulated.

``python -m benchmarks.soak_server HOURS FOLDER`` prints the size of the process at regular simulated times.
Clients of the stream, and requests to all routes, come as often as from open pages, from a Prometheus that
scrapes the server, and from users of the cluster view. One notebook's kernel runs all day; another one starts
and ends every other hour.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlencode

from jupyter_server.serverapp import ServerApp
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler
from tornado.websocket import websocket_connect
from traitlets.config import Config

import gpuwidget.server
from benchmarks.changing_source import ChangingSource
from benchmarks.growth import own_size
from benchmarks.simulated_clock import SimulatedClock
from gpuwidget.server.sample_hub import SampleHub

_GPUS = 2
_TICK_S = 0.2
_MEASURED_EVERY_S = 1200
_NODES = 8
_TOKEN = "soak"
_SLOW_AFTER = 3000
"""Messages that the slow client accepts before it is dropped."""
_KERNEL = "soak"
_HEADERS = {"Authorization": f"token {_TOKEN}"}
_DAY_S = 86400


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time includes the time that a clock has skipped."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__()
        self._clock = clock

    def time(self) -> float:
        """Return the loop's time."""
        return super().time() + self._clock.monotonic()


class CountingClient:
    """A client of the stream that counts messages. After ``limit`` messages it is too slow, until renewed."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self.received = 0
        self.dropped = False

    def send(self, message: bytes) -> bool:
        """Accept a message unless the client is too slow."""
        self.received += 1
        return self._limit is None or self.received <= self._limit

    def drop(self) -> None:
        """Record that the hub has dropped this client."""
        self.dropped = True


class Views:
    """Clients of the stream, like open pages. A page is reloaded every minute."""

    def __init__(self, hub: SampleHub) -> None:
        self._hub = hub
        self._slow = CountingClient(_SLOW_AFTER)
        self._reloaded = CountingClient()
        self.dashboard, self.panel, self.rare = CountingClient(), CountingClient(), CountingClient()
        for client, interval_s in ((self.dashboard, 0.0), (self.panel, 1.0), (self.rare, 10.0)):
            hub.join(client, 600.0)
            hub.set_interval(client, interval_s)
        hub.set_activity(self.dashboard, wanted=True)
        hub.join(self._slow, 0.0)
        hub.join(self._reloaded, 600.0)

    def reload(self) -> None:
        """Reload one page, and reconnect the slow client if it was dropped."""
        self._hub.leave(self._reloaded)
        self._reloaded = CountingClient()
        self._hub.join(self._reloaded, 600.0)
        self._hub.set_activity(self._reloaded, wanted=True)
        if self._slow.dropped:
            self._slow = CountingClient(_SLOW_AFTER)
            self._hub.join(self._slow, 60.0)


class FakePrometheus(RequestHandler):
    """Answers the queries for the cluster with changing values of some machines, and no history."""

    def initialize(self, clock: SimulatedClock) -> None:
        self._clock = clock

    def post(self, path: str) -> None:
        """Answer a query."""
        form = parse_qs(self.request.body.decode())
        kind = "matrix" if path == "query_range" else "vector"
        result = [] if kind == "matrix" else self._values(form["query"][0])
        self.finish(json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}))

    def _values(self, query: str) -> list[Any]:
        now = self._clock.time()
        if "time()" not in query.partition(" or ")[0]:
            return []
        rows: list[tuple[dict[str, str], float]] = [({"metric": "time"}, now)]
        for number in range(_NODES * 8):
            uuid, node = f"GPU-{number}", f"node{number // 8}"
            gpu = {"exporter": "dcgm", "uuid": uuid, "Hostname": node, "gpu": str(number % 8), "job": "dcgm"}
            used = {"metric": "utilization", "uuid": uuid}
            rows += [(gpu, now), (used, float((number + int(now)) % 100))]
        return [{"metric": labels, "value": [now, str(value)]} for labels, value in rows]


class Day:
    """A server, its clock and its clients."""

    def __init__(self, folder: Path, clock: SimulatedClock) -> None:
        self.clock = clock
        self.source = ChangingSource(clock, _GPUS, [os.getpid()])
        socket, port = bind_unused_port()
        self._prometheus = HTTPServer(
            Application([(r"/api/v1/(\w+)", FakePrometheus, {"clock": clock})], log_function=lambda _: None)
        )
        self._prometheus.add_socket(socket)
        self.app, self.hub = _server(folder, f"http://127.0.0.1:{port}", self.source, clock)
        self.views = Views(self.hub)

    async def run(self, hours: float) -> list[dict[str, float]]:
        """Let ``hours`` pass. Return the size of this process at regular times."""
        rows = []
        kernel = await self.start_kernel("day.ipynb")
        self.source.pids.append(kernel)
        for second in range(round(3600 * hours) + 1):
            if second % _MEASURED_EVERY_S == 0:
                rows.append({"hours": second / 3600, **own_size()})
            await self.second()
            await self._requests(second)
        return rows

    async def second(self) -> None:
        """Let a second pass, with the ticks of the sampler and of the event loop."""
        for _ in range(round(1 / _TICK_S)):
            self.clock.advance(_TICK_S)
            await asyncio.sleep(0)
        while self.hub._ownership._running:
            await asyncio.sleep(0)

    async def _requests(self, second: int) -> None:
        for period, request in self._periodic():
            if second % period == period - 1:
                await request()

    def _periodic(self) -> tuple[tuple[int, Callable[[], Awaitable[object]]], ...]:
        return (
            (5, lambda: self.get("api/cluster")),
            (10, lambda: self.get("api/sample")),
            (15, lambda: self.get("metrics")),
            (60, self._reload),
            (60, lambda: self.get("api/history", seconds=600)),
            (120, lambda: self._history(600)),
            (120, lambda: self._history(3600)),
            (600, lambda: self._history(_DAY_S)),
            (600, lambda: self._history(3600, node="node3")),
            (600, self._page),
            (7200, self._short_kernel),
        )

    async def _reload(self) -> None:
        self.views.reload()

    async def _history(self, seconds: int, **more: object) -> None:
        now = self.clock.time()
        await self.get(
            "api/history", since=now - seconds, until=now, points=600, metrics="utilization,power_w", **more
        )

    async def get(self, path: str, **query: object) -> bytes:
        """Return the response to a request."""
        address = f"{self.app.connection_url}gpuwidget/{path}?{urlencode(query)}"
        response = await AsyncHTTPClient().fetch(HTTPRequest(address, headers=_HEADERS))
        return bytes(response.body)

    async def _page(self) -> None:
        """Open the stream as a page does, and close it after some samples."""
        address = f"{self.app.connection_url}gpuwidget/api/stream?history=600".replace("http", "ws", 1)
        stream = await websocket_connect(HTTPRequest(address, headers=_HEADERS))
        for _ in range(20):
            self.clock.advance(_TICK_S)
            await stream.read_message()
        stream.close()
        while await stream.read_message() is not None:
            pass

    async def start_kernel(self, path: str) -> int:
        """Start a notebook's kernel, and return its process id."""
        session = await self.app.session_manager.create_session(
            path=path, name=path, type="notebook", kernel_name=_KERNEL
        )
        provisioner: Any = self.app.kernel_manager.get_kernel(session["kernel"]["id"]).provisioner
        return int(provisioner.pid)

    async def _short_kernel(self) -> None:
        pid = await self.start_kernel("short.ipynb")
        self.source.pids.append(pid)
        for _ in range(30):
            await self.second()
        self.source.pids.remove(pid)
        (session,) = [
            one for one in await self.app.session_manager.list_sessions() if one["path"] == "short.ipynb"
        ]
        await self.app.session_manager.delete_session(session["id"])


def _server(
    folder: Path, prometheus: str, source: ChangingSource, clock: SimulatedClock
) -> tuple[ServerApp, SampleHub]:
    """Start a server in this process, with this source and this clock. Return it with its sample hub."""
    hubs: list[SampleHub] = []
    load = gpuwidget.server.load
    mock.patch("gpuwidget.server.load", lambda app, _: hubs.append(load(app, clock))).start()
    mock.patch("gpuwidget.server.settings.open_source", return_value=source).start()
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        os.environ[name] = str(folder / name.lower())
    spec = folder / "jupyter_data_dir" / "kernels" / _KERNEL / "kernel.json"
    spec.parent.mkdir(parents=True)
    extension = "--IPKernelApp.extensions=['gpuwidget']"
    program = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", extension]
    variables = {"GPUWIDGET_SOURCE": "none"}
    spec.write_text(
        json.dumps({"argv": program, "display_name": _KERNEL, "language": "python", "env": variables})
    )
    socket, port = bind_unused_port()
    socket.close()
    config = Config(
        {
            "ServerApp": {
                "jpserver_extensions": {"gpuwidget": True},
                "log_level": "ERROR",
                "port": port,
                "port_retries": 0,
                "open_browser": False,
                "allow_root": True,
                "root_dir": str(folder),
            },
            "IdentityProvider": {"token": _TOKEN},
            "GpuWidget": {
                "prometheus_url": prometheus,
                "gpu_hours": True,
                "gpu_activity": True,
                "idle_holder_memory": 1.0,
                "metrics_names": True,
            },
        }
    )
    app = ServerApp.instance(config=config)
    app.init_signal = lambda: None  # type: ignore[method-assign]
    app.initialize(argv=[], find_extensions=False)
    app.start_app()
    return app, hubs[0]


async def _day(hours: float, folder: Path, clock: SimulatedClock) -> list[dict[str, float]]:
    day = Day(folder, clock)
    rows = await day.run(hours)
    await day.app._cleanup()
    return rows


if __name__ == "__main__":
    os.environ.pop("GPUWIDGET_SOURCE", None)
    simulated = SimulatedClock()
    loop = SkippingLoop(simulated)
    asyncio.set_event_loop(loop)
    print(json.dumps(loop.run_until_complete(_day(float(sys.argv[1]), Path(sys.argv[2]), simulated))))
