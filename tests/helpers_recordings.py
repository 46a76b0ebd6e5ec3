"""Small recordings that tests write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuwidget.model.errors import RecordingError
from gpuwidget.sources.recording import read

GPU_FACTS = {
    "name": "NVIDIA H200",
    "memory_total": 150754820096,
    "memory_reserved": 644939776,
    "power_limit_mw": 700000,
    "max_sm_mhz": 1980,
    "pci_bus_id": "00000000:00:06.0",
}
GPM = {
    "graphics": 90.0,
    "sm": 50.0,
    "sm_occupancy": 25.0,
    "tensor": 10.0,
    "dram": 20.0,
    "fp64": 0.0,
    "fp32": 5.0,
    "fp16": 1.0,
    "pcie_tx_mib_s": 1.0,
    "pcie_rx_mib_s": 2.0,
    "nvlink_rx_mib_s": 3.0,
    "nvlink_tx_mib_s": 4.0,
}


def meta(gpus: int = 1, **facts: Any) -> dict[str, Any]:
    """Return the first line of a recording, which describes its GPUs."""
    return {
        "meta": {
            "driver": "580.159.04",
            "cuda_driver": 13000,
            "tick_s": 1.0,
            "gpus": [GPU_FACTS | facts for _ in range(gpus)],
        }
    }


def values(**changed: Any) -> dict[str, Any]:
    """Return the values of one GPU in one tick of a recording."""
    return {
        "util": 50,
        "mem_util": 5,
        "mem_used": 1024,
        "power_mw": 100000,
        "temp_c": 30,
        "mem_temp_c": 35,
        "sm_mhz": 1980,
        "throttle": 0,
        "procs": [[7, 1000]],
    } | changed


def tick(t: float, *gpus: dict[str, Any]) -> dict[str, Any]:
    """Return one line of a recording: the values of all GPUs at ``t`` seconds."""
    return {"t": t, "phase": "test", "gpus": list(gpus)}


def write(path: Path, *lines: dict[str, Any]) -> Path:
    """Write the lines to an uncompressed recording, and return its path."""
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def why_not(path: Path) -> str:
    """Return the message of the error that is raised when the file is read as a recording."""
    with pytest.raises(RecordingError) as caught:
        read(path)
    return str(caught.value)
