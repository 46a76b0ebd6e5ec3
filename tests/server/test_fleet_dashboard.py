"""The recording rules and the fleet dashboard show what simulated exporters report, in a real Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from helpers_exporters import SimulatedCluster, SimulatedGpu
from helpers_prometheus import (
    ALERTS,
    FLEET_DASHBOARD,
    RECORDING_RULES,
    Prometheus,
    dashboard_queries,
    find_programs,
)

from gpuwidget.prometheus.exporters import EXPORTERS

STARTED = time.time()
GPU_COUNTS = {"gpuwidget_gpus:count": 12, "gpuwidget_gpus_free:count": 3, "gpuwidget_gpus_held_idle:count": 3}
"""The numbers of GPUs that the dashboard shows at its top."""


def vary(gpus: Sequence[SimulatedGpu], now: float) -> None:
    """Let a notebook of Anna's work on the first GPU of each node, and one of Ben's hold the second idle.
    The third is free, and the last one has errors."""
    working, holding, free, broken = gpus
    for gpu in gpus:
        gpu.energy_j = 100 * (now - STARTED)
    working.utilization, working.memory_used_mib = 80, 60_000
    working.user, working.notebooks = "anna", ("train.ipynb",)
    working.held_s = holding.held_s = now - STARTED
    holding.utilization, holding.memory_used_mib = 0, 30_000
    holding.user, holding.notebooks = "ben", ("old.ipynb",)
    free.utilization, free.memory_used_mib = 0, 0
    broken.up, broken.xid, broken.xid_time, broken.ecc = False, 79, now - 60, 2 + int(now - STARTED)


@pytest.fixture
def fleet() -> Iterator[SimulatedCluster]:
    """Return three nodes with four GPUs each, of which all exporters report the same."""
    made = SimulatedCluster(3, 4, EXPORTERS, vary)
    yield made
    made.stop()


@pytest.fixture
def prometheus(fleet: SimulatedCluster, tmp_path: Path) -> Iterator[Prometheus]:
    """Return a Prometheus that scrapes the fleet and evaluates the rules every second, not every minute."""
    programs = find_programs()
    rules = []
    for path in (ALERTS, RECORDING_RULES):
        rules.append(tmp_path / path.name)
        text = path.read_text(encoding="utf-8").replace("interval: 1m", "interval: 1s")
        rules[-1].write_text(text.replace("for: 1m", "for: 1s"), encoding="utf-8")
    made = Prometheus(programs["prometheus"], tmp_path, fleet.scrape_configs(), rules)
    yield made
    made.stop()


async def test_every_panel_shows_the_fleet(prometheus: Prometheus) -> None:
    """Every query of the fleet dashboard returns series, and the tables have the expected values."""
    queries = dashboard_queries(FLEET_DASHBOARD)
    for query in queries:
        assert await prometheus.until(query), query
    for name, expected in GPU_COUNTS.items():
        assert await prometheus.until(f'sum(node:{name}{{node=~".*"}}) == {expected}')
        assert f'sum(node:{name}{{node=~".*"}})' in queries
    holders = next(query for query in queries if "notebook:gpuwidget_gpus_held_idle" in query)
    assert await prometheus.until(f"({holders}) == 3") == [({"user": "ben", "notebook": "id-old.ipyn"}, 3.0)]
    hours = next(query for query in queries if "user:gpuwidget_gpu_held_seconds" in query)
    assert await prometheus.until(f"count(({hours}) > 0) == 2")
    errors = next(query for query in queries if "gpuwidget_gpu_xid_timestamp" in query)
    assert await prometheus.until(f"count({errors}) == 3")
    assert {value for _, value in await prometheus.query(errors)} == {79.0}
