"""Test on a real GPU that the metrics for Prometheus agree with nvidia-smi, even if no panel is open."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_gpu import nvidia_smi
from helpers_programs import free_ports
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.gpu

MIB = 1024**2
_READY_S = 60.0


@pytest.fixture
def metrics_request(tmp_path: Path) -> Iterator[urllib.request.Request]:
    """Start a Jupyter server that samples this machine's GPUs. Yield a request for its metrics."""
    (port,) = free_ports(1)
    token = secrets.token_hex(8)
    folders = ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    command = [
        *(sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser"),
        *(f"--ServerApp.port={port}", "--ServerApp.port_retries=0"),
        f"--ServerApp.root_dir={tmp_path}",
        "--ServerApp.jpserver_extensions={'gpuwidget': True}",
    ]
    environment = {
        **os.environ,
        **dict.fromkeys(folders, str(tmp_path)),
        "GPUWIDGET_SOURCE": "nvml",
        "JUPYTER_TOKEN": token,
    }
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/gpuwidget/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api", timeout=5):
                    break
            except (urllib.error.URLError, OSError):
                assert time.monotonic() < deadline, (tmp_path / "server.log").read_text()
                time.sleep(0.1)
        yield request
    finally:
        server.terminate()
        server.wait(timeout=30)


def test_the_first_scrape_matches_nvidia_smi(metrics_request: urllib.request.Request) -> None:
    """The first scrape contains each GPU's memory, power limit and temperature, which agree with nvidia-smi,
    and an energy counter."""
    with urllib.request.urlopen(metrics_request, timeout=10) as answer:
        text = answer.read().decode()
    rows = nvidia_smi("uuid,memory.total,memory.used,temperature.gpu,enforced.power.limit")
    found: dict[str, dict[str, float]] = {row[0]: {} for row in rows}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            if one.labels.get("UUID") in found:
                found[one.labels["UUID"]][one.name.removeprefix("gpuwidget_gpu_")] = one.value
    for uuid, total, used, temperature, limit in rows:
        values = found[uuid]
        assert values["up"] == 1
        assert values["memory_total_bytes"] == pytest.approx(float(total) * MIB, abs=MIB)
        assert values["memory_used_bytes"] == pytest.approx(float(used) * MIB, abs=2 * MIB)
        assert values["temperature_celsius"] == pytest.approx(float(temperature), abs=3)
        assert values["power_limit_watts"] == pytest.approx(float(limit))
        assert values["energy_joules_total"] > 0
        assert 0 <= values["utilization_ratio"] <= 1
