"""The queries for a metric of each GPU, answered by a real Prometheus that scrapes simulated exporters of all
three kinds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers_exporters import MIB, TOTAL_MIB, SimulatedCluster, SimulatedGpu
from helpers_prometheus import Prometheus

from gpuwidget.model.metrics import METRICS
from gpuwidget.prometheus.exporters import Over, memory_total_expression, metric_expression

Values = dict[str, float]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimulatedCluster]:
    """Three nodes, each with another exporter, a fourth with all of them, and a server that plays a
    recording."""
    made = SimulatedCluster(5, 2, ("gpuwidget", "dcgm", "nvidia_gpu"))
    kinds = {"node001": "gpuwidget", "node002": "dcgm", "node003": "nvidia_gpu", "node005": "gpuwidget"}
    made.recordings.add("node005")
    for node, only in kinds.items():
        made.down.update(f"{node}/{kind}" for kind in made.kinds if kind != only)
    for gpu in made.all_gpus:
        gpu.utilization = 29 + gpu.index
        gpu.memory_used_mib = 1000
        gpu.power_w = 612.4
    made.by_node["node002"][1].power_w = 2147483632
    made.by_node["node002"][1].temperature_c = float("nan")
    made.by_node["node003"][1].utilization = None
    sliced = made.by_node["node002"]
    sliced.append(
        SimulatedGpu("node002", 0, sliced[0].uuid, instance=3, profile="1g.18gb", memory_used_mib=7)
    )
    sliced[2].utilization = None
    also_sliced = made.by_node["node003"]
    also_sliced.append(
        SimulatedGpu("node003", 0, also_sliced[0].uuid, instance=5, profile="1g.18gb", memory_used_mib=9)
    )
    yield made
    made.stop()


async def values(prometheus: Prometheus, expression: str) -> Values:
    """Return the values by UUID. Fails if a series has another label, or two have the same UUID."""
    await prometheus.until("count(up == 1) == 7")
    found = await prometheus.query(expression)
    assert [set(labels) for labels, _ in found] == [{"uuid"}] * len(found)
    by_uuid = {labels["uuid"]: value for labels, value in found}
    assert len(by_uuid) == len(found)
    return by_uuid


async def test_all_exporters_have_the_same_unit(cluster: SimulatedCluster, prometheus: Prometheus) -> None:
    """A metric has the same unit and one series for each GPU, whichever exporters the GPU has. MIG slices of
    one GPU are distinct, and GPUs of a recording are absent."""
    real = [gpu for gpu in cluster.all_gpus if gpu.node not in cluster.recordings]
    uuids = [gpu.uuid for gpu in real if gpu.instance is None]
    utilization = await values(prometheus, metric_expression("utilization", ()))
    assert {uuid: round(value, 6) for uuid, value in utilization.items()} == {
        uuid: 29.0 + index % 2 for index, uuid in enumerate(uuids) if index != 5
    }
    assert await values(prometheus, metric_expression("memory_used", ())) == {
        **dict.fromkeys(uuids, 1000.0 * MIB),
        f"{uuids[2]}/3": 7.0 * MIB,
        f"{uuids[4]}/5": 9.0 * MIB,
    }
    total = await values(prometheus, memory_total_expression(()))
    assert total == {
        **dict.fromkeys(uuids, float(TOTAL_MIB * MIB)),
        f"{uuids[2]}/3": float(TOTAL_MIB * MIB),
    }


async def test_unknown_values_are_absent(cluster: SimulatedCluster, prometheus: Prometheus) -> None:
    """Numbers that stand for an unknown value in DCGM, and NaN, are absent, not a value."""
    unknown = cluster.by_node["node002"][1].uuid
    assert unknown not in await values(prometheus, metric_expression("power_w", ()))
    assert unknown not in await values(prometheus, metric_expression("temperature_c", ()))


async def test_chosen_gpus(cluster: SimulatedCluster, prometheus: Prometheus) -> None:
    """A query can be restricted to GPUs of any exporter, and to series with a label."""
    chosen = [cluster.by_node[node][1].uuid for node in ("node001", "node002", "node003")]
    found = await values(prometheus, metric_expression("memory_used", (), [*chosen, 'GPU-x"y|z']))
    assert sorted(found) == chosen
    only = await values(prometheus, metric_expression("memory_used", ('instance="node003:9835"',), chosen))
    assert sorted(only) == chosen[2:]


async def test_means_over_time(cluster: SimulatedCluster, prometheus: Prometheus) -> None:
    """A query can be for the mean over the seconds before each point."""
    uuid = cluster.by_node["node004"][0].uuid
    mean = Over("avg_over_time", 60)
    found = await values(prometheus, metric_expression("memory_used", (), [uuid], mean))
    assert found == {uuid: 1000.0 * MIB}


async def test_every_exported_metric_has_a_valid_query(prometheus: Prometheus) -> None:
    """Prometheus accepts the query for each metric of the table that is exported."""
    for metric in METRICS:
        if metric.exported is not None:
            await values(prometheus, metric_expression(metric.key, ()))
