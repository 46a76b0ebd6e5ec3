"""``GET gpuwidget/api/cluster``: a Jupyter server that queries a real Prometheus, which scrapes simulated
exporters of all three kinds."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers_exporters import MIB, TOTAL_MIB, SimulatedCluster, SimulatedGpu
from helpers_prometheus import Prometheus
from helpers_server import Server
from tornado.httpclient import HTTPClientError

from gpuwidget.server import cluster_snapshot

PATH = ("gpuwidget", "api", "cluster")
_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimulatedCluster]:
    """Four nodes: with dcgm-exporter alone, with dcgm-exporter of a newer version and gpuwidget, with
    nvidia_gpu_exporter alone, and with all three. And a Jupyter server that plays a recording."""
    made = SimulatedCluster(5, 2, ("gpuwidget", "dcgm", "nvidia_gpu"))
    made.down |= {"node001/gpuwidget", "node001/nvidia_gpu", "node002/nvidia_gpu"}
    made.down |= {"node003/gpuwidget", "node003/dcgm", "node005/dcgm", "node005/nvidia_gpu"}
    made.recordings.add("node005")
    for gpu in made.all_gpus:
        gpu.utilization, gpu.memory_used_mib, gpu.power_w = 50.0 + gpu.index, 20_000, 612.4
    for gpu in made.by_node["node002"]:
        gpu.hostname_label = "hostname"
    train, idle = made.by_node["node002"]
    train.notebooks, train.user, train.job = ('<img src=x onerror="alert(1)">.ipynb',), "anna", "4711"
    idle.utilization, idle.memory_used_mib = 0, 4
    made.by_node["node003"][1].xid, made.by_node["node003"][1].xid_time = 79, time.time()
    made.by_node["node004"][0].utilization = None
    made.by_node["node004"][1].up = False
    yield made
    made.stop()


@pytest.fixture
def configuration(prometheus: Prometheus) -> dict[str, object]:
    """The Jupyter server has no GPU and queries the Prometheus."""
    return {"source": "none", "prometheus_url": prometheus.url}


@pytest.fixture
def frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server query Prometheus after each scrape, every second, instead of every 5 s."""
    monkeypatch.setattr(cluster_snapshot, "MIN_INTERVAL_S", 1.0)


async def until(server: Server, holds: Callable[[Any], bool]) -> Any:
    """Request the cluster until the condition holds, and return the answer."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        status, answer = await server.get("cluster")
        assert status == 200
        if holds(answer):
            return answer
        assert time.monotonic() < deadline, json.dumps(answer, indent=1)
        await asyncio.sleep(0.2)


async def all_gpus(prometheus: Prometheus, server: Server) -> Any:
    """Wait until Prometheus has scraped every exporter, and return the answer with all GPUs."""
    await prometheus.until("(count(up == 1) == 8) and (count(count_over_time(up[1m]) >= 3) == 15)")
    return await until(server, lambda answer: sum(len(gpu["exporters"]) for gpu in answer["gpus"]) == 14)


async def test_every_gpu_once(prometheus: Prometheus, real_server: Server, cluster: SimulatedCluster) -> None:
    """Each GPU is one entry with the same units, whichever exporters report it. Errors, notebooks, users and
    jobs are on the GPU that has them, names arrive unchanged, and a recording's GPUs are absent."""
    answer = await all_gpus(prometheus, real_server)
    assert answer["problem"] is None
    assert answer["interval_s"] == 5.0
    assert abs(answer["time"] - time.time()) < 60
    assert [(node["name"], node["up"]) for node in answer["nodes"]] == [
        (f"node00{number}", True) for number in range(1, 5)
    ]
    assert [gpu["uuid"] for gpu in answer["gpus"]] == [gpu.uuid for gpu in cluster.all_gpus[:8]]
    first = answer["gpus"][0]
    assert first == {
        "uuid": cluster.all_gpus[0].uuid,
        "node": "node001",
        "index": 0,
        "model": "NVIDIA H200",
        "mig": None,
        "exporters": ["dcgm"],
        "utilization": 50.0,
        "memory_used": 20_000 * MIB,
        "memory_total": TOTAL_MIB * MIB,
        "power_w": 612.4,
        "power_limit_w": 700.0,
        "temperature_c": 30.0,
        "xid": None,
        "ecc_uncorrected": 0,
        "lost": False,
        "idle_s": 0.0,
        "users": [],
        "notebooks": [],
        "job": None,
    }
    varying = ("uuid", "node", "index", "exporters", "utilization")
    assert {**answer["gpus"][5], **dict.fromkeys(varying), "xid": None} == {
        **first,
        **dict.fromkeys(varying),
    }
    assert [gpu["exporters"] for gpu in answer["gpus"][::2]] == [
        ["dcgm"],
        ["gpuwidget", "dcgm"],
        ["nvidia_gpu"],
        ["gpuwidget", "dcgm", "nvidia_gpu"],
    ]
    assert [gpu["utilization"] for gpu in answer["gpus"]] == [50, 51, 50, 0, 50, 51, None, 51]
    assert [gpu["xid"] for gpu in answer["gpus"]] == [None] * 5 + [79, None, None]
    assert [gpu["lost"] for gpu in answer["gpus"]] == [False] * 7 + [True]
    assert [gpu["idle_s"] for gpu in answer["gpus"]] == [0, 0, 0, 0, 0, 0, None, 0]
    train = answer["gpus"][2]
    assert (train["users"], train["notebooks"], train["job"]) == (
        ["anna"],
        ['<img src=x onerror="alert(1)">.ipynb'],
        "4711",
    )


async def test_history_of_a_node(
    prometheus: Prometheus, real_server: Server, cluster: SimulatedCluster
) -> None:
    """The history of another machine contains the GPUs of that machine, in the format of the server's own."""
    await all_gpus(prometheus, real_server)
    query = {"node": "node001", "metrics": "power_w,temperature_c", "seconds": 60}
    status, answer = await real_server.get("history", **query)
    assert status == 200
    assert [one["uuid"] for one in answer["gpus"]] == [gpu.uuid for gpu in cluster.by_node["node001"]]
    for one in answer["gpus"]:
        # On a busy machine, Prometheus scrapes late, which leaves gaps.
        assert set(one["metrics"]["power_w"]["mean"]) - {None} == {612.4}
        assert set(one["metrics"]["temperature_c"]["mean"]) - {None} == {30.0}


async def test_a_node_that_drops_off_and_comes_back(
    frequent: None, prometheus: Prometheus, real_server: Server, cluster: SimulatedCluster
) -> None:
    """A node whose exporters no longer answer stays, marked as down with the time of its newest value, and
    its GPUs have no values. When it answers again, it is as before."""
    before = await all_gpus(prometheus, real_server)
    cluster.down.add("node001")
    try:
        gone = await until(real_server, lambda answer: not answer["nodes"][0]["up"])
    finally:
        cluster.down.discard("node001")
    assert [node["up"] for node in gone["nodes"]] == [False, True, True, True]
    assert gone["nodes"][0]["name"] == "node001"
    assert before["time"] - 10 < gone["nodes"][0]["last_seen"] < gone["time"]
    unknown = [gpu for gpu in gone["gpus"] if gpu["node"] == "node001"]
    assert [(gpu["uuid"], gpu["model"], gpu["utilization"], gpu["memory_used"]) for gpu in unknown] == [
        (gpu.uuid, "NVIDIA H200", None, None) for gpu in cluster.by_node["node001"]
    ]
    back = await until(real_server, lambda answer: answer["nodes"][0]["up"])
    assert [gpu["utilization"] for gpu in back["gpus"][:2]] == [50, 51]


async def test_a_gpu_that_is_no_longer_listed(
    frequent: None, prometheus: Prometheus, real_server: Server, cluster: SimulatedCluster
) -> None:
    """A GPU that its exporter no longer lists, while the node's other GPUs answer, is lost."""
    await all_gpus(prometheus, real_server)
    gpus: list[SimulatedGpu] = cluster.by_node["node001"]
    second = gpus.pop()
    try:
        answer = await until(real_server, lambda answer: answer["gpus"][1]["lost"])
    finally:
        gpus.append(second)
    assert (answer["gpus"][1]["uuid"], answer["gpus"][1]["utilization"]) == (second.uuid, None)
    assert answer["nodes"][0]["up"] is True
    await until(real_server, lambda answer: not answer["gpus"][1]["lost"])


async def test_a_snapshot_that_the_client_has_is_not_sent_again(
    prometheus: Prometheus, real_server: Server
) -> None:
    """A client that names the ETag of its snapshot gets status 304 until there is a newer one; a client that
    accepts gzip gets it compressed."""
    await until(real_server, lambda answer: len(answer["gpus"]) == 8)
    headers = {"Accept-Encoding": "gzip"}
    answer = await real_server.fetch(
        "gpuwidget", "api", "cluster", headers=headers, decompress_response=False
    )
    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(json.loads(gzip.decompress(answer.body))["gpus"]) == 8
    with pytest.raises(HTTPClientError) as raised:
        await real_server.fetch(*PATH, headers={"If-None-Match": answer.headers["ETag"]})
    assert raised.value.code == 304


class TestMatchers:
    """A server whose administrator restricts the queries."""

    @pytest.fixture
    def configuration(self, prometheus: Prometheus, matchers: str) -> dict[str, object]:
        return {"source": "none", "prometheus_url": prometheus.url, "prometheus_matchers": matchers}

    @pytest.mark.parametrize("matchers", ['instance=~"node001:.*|node004:9835"'])
    async def test_only_matching_gpus_are_shown(
        self, prometheus: Prometheus, real_server: Server, matchers: str
    ) -> None:
        """Only GPUs whose series match are shown."""
        await prometheus.until("count(up == 1) == 8")
        answer = await until(real_server, lambda answer: len(answer["gpus"]) == 4)
        assert [gpu["exporters"] for gpu in answer["gpus"]] == [["dcgm"]] * 2 + [["nvidia_gpu"]] * 2

    @pytest.mark.parametrize("matchers", ['job="none"'])
    async def test_nothing_matches(self, prometheus: Prometheus, real_server: Server, matchers: str) -> None:
        """If no GPU matches, the reason is given."""
        answer = await until(real_server, lambda answer: answer["time"] is not None)
        assert (answer["gpus"], answer["nodes"]) == ([], [])
        assert answer["problem"].startswith("Prometheus has no GPUs.")
        assert "prometheus_matchers" in answer["problem"]


@pytest.mark.parametrize("configuration", [{"source": "none"}])
async def test_without_a_prometheus(configuration: dict[str, object], real_server: Server) -> None:
    """Without a configured Prometheus, there is no cluster view, and the error names the setting."""
    assert "gpuwidgetCluster" not in real_server.app.web_app.settings.get("page_config_data", {})
    status, answer = await real_server.get("cluster")
    assert status == 404
    assert answer["message"].startswith("No Prometheus is configured")
    assert answer["message"].endswith("c.GpuWidget.prometheus_url.")
