"""Measure what the cluster view costs a Jupyter server, and how fresh its values are.

A real Prometheus scrapes simulated exporters every 5 s: 64 nodes with 8 GPUs each, which export as
dcgm-exporter and as gpuwidget do. 50 clients each request ``api/cluster`` every 5 s, as open panels do, at
different moments. The time to encode a snapshot is also measured for 4,096 GPUs. The exporters, Prometheus
and the clients are other processes, so the server's CPU time does not contain theirs.
"""

from __future__ import annotations

import gzip
import http.client
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from benchmarks.figures import Figure
from benchmarks.servers import Server, server
from benchmarks.settings import ROOT, Settings, environment

_GPUS_PER_NODE = 8
_NODES = 64
_MANY_NODES = 512
_CLIENTS = 50
_POLL_S = 5.0
_SCRAPES_TIMEOUT_S = 60.0
_CPU_BAR = 2.0
_FRESHNESS_BAR_MS = 5000.0


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure CPU time, freshness and encoding."""
    rounds, window_s = settings.pick(3, 1), settings.pick(60.0, 10.0)
    with TemporaryDirectory() as folder, _prometheus(Path(folder), _NODES) as there:
        if there is None:
            yield Figure("cluster", "CPU time of the server", "%", not_measured="no Prometheus on the PATH")
            return
        options = [f"--GpuWidget.prometheus_url={there}", "--GpuWidget.source=none"]
        place = Path(folder) / "server"
        place.mkdir()
        with server(place, "gpuwidget", environment(), options=options) as running:
            yield from _measure_server(running, rounds, window_s)
        yield from _measure_encoding(there, _NODES, settings.pick(20, 3))
    nodes = settings.pick(_MANY_NODES, _NODES)
    with TemporaryDirectory() as folder, _prometheus(Path(folder), nodes, "15s") as there:
        if there is not None:
            yield from _measure_encoding(there, nodes, settings.pick(20, 3))


def _measure_server(running: Server, rounds: int, window_s: float) -> Iterator[Figure]:
    shares: dict[str, list[float]] = {"/api/status": [], "/gpuwidget/api/cluster": []}
    ages: list[float] = []
    received: list[tuple[int, int]] = []
    for number in range(rounds):
        for path in shares if number % 2 == 0 else reversed(shares):
            answers = _Clients(running, path)
            answers.poll(_POLL_S)
            before, began = _cpu_s(running), time.perf_counter()
            answers.poll(window_s)
            shares[path].append(100 * (_cpu_s(running) - before) / (time.perf_counter() - began))
            if path == "/gpuwidget/api/cluster":
                ages += answers.ages_ms
                received.append((answers.gpus, answers.bytes))
    both = zip(shares["/gpuwidget/api/cluster"], shares["/api/status"], strict=True)
    yield Figure(
        benchmark="cluster",
        what=f"CPU of the server, {_CLIENTS} clients of api/cluster minus {_CLIENTS} of api/status; 512 GPUs",
        unit="%",
        bar=_CPU_BAR,
        values=[cluster - status for cluster, status in both],
        conditions={
            "every client receives 512 GPUs": all(gpus == _NODES * _GPUS_PER_NODE for gpus, _ in received)
        },
        details={
            "api/cluster, % of a core": shares["/gpuwidget/api/cluster"],
            "api/status, % of a core": shares["/api/status"],
            "compressed answer, bytes": [size for _, size in received],
        },
    )
    yield Figure(
        benchmark="cluster",
        what="age of a GPU's newest sample when a client receives it, scraped every 5 s",
        unit="ms",
        bar=_FRESHNESS_BAR_MS,
        values=ages,
    )


def _cpu_s(running: Server) -> float:
    used = psutil.Process(running.pid).cpu_times()
    return float(used.user + used.system)


class _Clients:
    """Clients that request a path every 5 s, each over its own connection and at its own moment."""

    def __init__(self, running: Server, path: str) -> None:
        self._path = path
        self._headers = {"Authorization": f"token {running.token}", "Accept-Encoding": "gzip"}
        self._connections = [http.client.HTTPConnection(running.address, timeout=30) for _ in range(_CLIENTS)]
        self._etags: list[str | None] = [None] * _CLIENTS
        self.ages_ms: list[float] = []
        """Age of the newest sample of the median node, for each answer with new values."""
        self.gpus = 0
        self.bytes = 0
        """Size of the last answer."""

    def poll(self, seconds: float) -> None:
        began = time.perf_counter()
        number = 0
        while (due := number * _POLL_S / _CLIENTS) < seconds:
            time.sleep(max(0.0, began + due - time.perf_counter()))
            self._request(number % _CLIENTS)
            number += 1

    def _request(self, number: int) -> None:
        connection, etag = self._connections[number], self._etags[number]
        headers = self._headers if etag is None else {**self._headers, "If-None-Match": etag}
        connection.request("GET", self._path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == http.client.NOT_MODIFIED:
            return
        if answer.status != http.client.OK:
            raise RuntimeError(f"{self._path} answers {answer.status}")
        self._etags[number] = answer.headers["ETag"]
        if self._path.endswith("cluster"):
            self._note(body, time.time())

    def _note(self, body: bytes, received: float) -> None:
        snapshot: Mapping[str, Any] = json.loads(gzip.decompress(body))
        self.gpus, self.bytes = len(snapshot["gpus"]), len(body)
        seen = sorted(node["last_seen"] for node in snapshot["nodes"] if node["up"])
        if seen:
            self.ages_ms.append(1000 * (received - seen[len(seen) // 2]))


def _measure_encoding(there: str, nodes: int, runs: int) -> Iterator[Figure]:
    from gpuwidget.prometheus.client import PrometheusClient
    from gpuwidget.prometheus.cluster_queries import hour_expression, now_expression
    from gpuwidget.prometheus.settings import prometheus_settings
    from gpuwidget.server.cluster_monitor import EncodedSnapshot
    from gpuwidget.server.cluster_snapshot import ClusterState, parse

    client = PrometheusClient(prometheus_settings(there, timeout_s=60))
    querying: dict[str, list[float]] = {"now": [], "last hour": []}
    for _ in range(3):
        for name, expression in (("now", now_expression(())), ("last hour", hour_expression(()))):
            began = time.perf_counter()
            found = client.query(expression)
            querying[name].append(1000 * (time.perf_counter() - began))
            if name == "now":
                values = found
    state = ClusterState()
    times: dict[str, list[float]] = {"snapshot from the answer": [], "JSON and gzip": []}
    for _ in range(runs):
        began = time.process_time()
        snapshot = state.add_now(parse(values))
        built = time.process_time()
        encoded = EncodedSnapshot.of(snapshot)
        times["snapshot from the answer"].append(1000 * (built - began))
        times["JSON and gzip"].append(1000 * (time.process_time() - built))
    gpus = nodes * _GPUS_PER_NODE
    for what, values_ms in times.items():
        yield Figure(
            benchmark="cluster",
            what=f"{what}, {gpus:,} GPUs, CPU time of the thread",
            unit="ms",
            values=values_ms,
            conditions={"all GPUs are in the snapshot": len(snapshot.gpus) == gpus},
            details={
                "JSON, bytes": len(encoded.json),
                "compressed, bytes": len(encoded.gzipped),
                **{f"query {name}, with transfer and parsing, ms": took for name, took in querying.items()},
            },
        )


@contextmanager
def _prometheus(folder: Path, nodes: int, interval: str = "5s") -> Iterator[str | None]:
    """Run simulated exporters and a Prometheus, and yield its address once it has all GPUs; None if there is
    no Prometheus."""
    from gpuwidget.prometheus.client import PrometheusClient
    from gpuwidget.prometheus.settings import prometheus_settings
    from tools import prometheus

    programs = prometheus.find()
    if programs is None:
        yield None
        return
    sys.path.insert(0, str(ROOT / "tests"))
    helpers = importlib.import_module("helpers_prometheus")
    exporters_file = str(ROOT / "tests" / "helpers_exporters.py")
    command = [sys.executable, exporters_file, str(nodes), str(_GPUS_PER_NODE), interval]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as exporters:
        assert exporters.stdin is not None
        assert exporters.stdout is not None
        scrape_configs = json.loads(exporters.stdout.readline())["scrape_configs"]
        running = helpers.Prometheus(programs["prometheus"], folder, scrape_configs)
        try:
            client = PrometheusClient(prometheus_settings(running.url))
            deadline = time.monotonic() + _SCRAPES_TIMEOUT_S
            while not _has(client, nodes * _GPUS_PER_NODE):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"Prometheus has not scraped all exporters:\n{running.log}")
                time.sleep(1)
            yield running.url
        finally:
            running.stop()
            exporters.stdin.close()


def _has(client: Any, gpus: int) -> bool:
    from gpuwidget.model.errors import PrometheusError

    try:
        names = ("DCGM_FI_DEV_FB_USED", "gpuwidget_gpu_info")
        return all(client.query(f"count({name}) == {gpus}") for name in names)
    except PrometheusError:
        return False
