"""Answers of ``GET gpuwidget/api/cluster`` for tests of the cluster view, and a page that receives them."""

from __future__ import annotations

import json
import time
from typing import Any

from playwright.sync_api import Page, Route

GIB = 1024**3
CLUSTER_OPTION = "--GpuWidget.prometheus_url=http://127.0.0.1:9"
"""Option of a server that offers the cluster view, with an address at which no Prometheus listens."""
_MODELS = (("NVIDIA H200", 140, 700), ("NVIDIA H100 80GB HBM3", 80, 700), ("NVIDIA A100-SXM4-40GB", 40, 400))
_USERS = ("ada", "grace", "katherine", "linus")
LOST_NODE = "node005"
XID_NODE = "node002"
FREE_NODES = ("node008", "node012")
"""The only nodes with H200s of which four are free."""


def cluster(nodes: int = 64, *, seconds: float | None = None, step: int = 0) -> dict[str, Any]:
    """Return a snapshot with eight GPUs per node: three models, users, notebooks, jobs, a lost node, a lost
    GPU, errors and unknown values. ``step`` changes the values, ``seconds`` is its time."""
    now = time.time() if seconds is None else seconds
    names = [f"node{number:03}" for number in range(1, nodes + 1)]
    gpus = [_gpu(number, name, index, step) for number, name in enumerate(names) for index in range(8)]
    return {
        "time": now,
        "interval_s": 5.0,
        "problem": None,
        "nodes": [
            {"name": name, "up": name != LOST_NODE, "last_seen": now - 600 if name == LOST_NODE else now}
            for name in names
        ],
        "gpus": gpus,
    }


def _gpu(number: int, node: str, index: int, step: int) -> dict[str, Any]:
    model, memory, limit = _MODELS[number % 4 % 3]
    free = (node in FREE_NODES and index < 4) or (number % 5 == 4 and index == 0)
    idle = number % 7 == 3 and index == 7
    busy = (number * 37 + index * 11 + step * 13) % 100 + 1
    user = _USERS[number % 4]
    gpu: dict[str, Any] = {
        "uuid": f"GPU-{number:08x}-{index}",
        "node": node,
        "index": index,
        "model": model,
        "mig": None,
        "exporters": ["dcgm", "gpuwidget"],
        "utilization": 0.0 if free or idle else float(min(busy, 100)),
        "memory_used": 0 if free else GIB * memory * (30 if idle else busy // 2 + 40) // 100,
        "memory_total": memory * GIB,
        "power_w": limit * (12 if free or idle else 30 + busy // 2) / 100,
        "power_limit_w": float(limit),
        "temperature_c": 31.0 if free else 38.0 + busy // 2,
        "xid": None,
        "ecc_uncorrected": 0,
        "lost": False,
        "idle_s": 2400.0 if idle else 0.0,
        "users": [] if free else [user],
        "notebooks": [] if free or index > 3 else [f"train-{number % 6}.ipynb"],
        "job": None if free else str(4000 + number // 2),
    }
    unknown: dict[str, Any] = dict.fromkeys(
        ("utilization", "memory_used", "power_w", "temperature_c", "ecc_uncorrected", "idle_s")
    )
    if node == LOST_NODE:
        return {**gpu, **unknown, "users": [], "notebooks": [], "job": None}
    if node == XID_NODE and index == 3:
        return {**gpu, "xid": 79}
    if node == XID_NODE and index == 5:
        return {**gpu, "ecc_uncorrected": 2}
    if node == "node004" and index == 2:
        return {**gpu, **unknown, "lost": True}
    if node == "node006" and index == 1:
        return {**gpu, **unknown}
    return gpu


class FakeCluster:
    """Answers a page's requests about the cluster. Assign ``snapshot`` to change the answer, and ``status``
    to make the requests fail."""

    def __init__(self, snapshot: dict[str, Any]) -> None:
        self.snapshot = snapshot
        self.status = 200
        self.requests = 0

    def install(self, page: Page) -> None:
        """Answer this page's requests."""
        page.route("**/gpuwidget/api/cluster*", self._answer)

    def _answer(self, route: Route) -> None:
        self.requests += 1
        body = self.snapshot if self.status == 200 else {"message": "The server is tired."}
        route.fulfill(status=self.status, body=json.dumps(body), content_type="application/json")
