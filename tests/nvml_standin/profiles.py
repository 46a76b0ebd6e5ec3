"""Scenario lines that make a GPU of the stand-in another model than an H200.

Names, memory, cores, clocks, bus widths and power limits are published figures. Which calls a model does not
support follows from NVML's documentation. None of this was measured on a real GPU: the lengths of the
utilization windows, for example, are taken from the documented range (1/6 s to 1 s).
"""

from __future__ import annotations

from collections.abc import Mapping

MIB = 1024**2
_NOT_SUPPORTED = "error 3"
_NVLINK, _NO_NVLINK = 2, 5
"""NVML_P2P_CAPS_INDEX_NVLINK and NVML_P2P_STATUS_NOT_SUPPORTED."""

_NO_GPM = {"gpm": "0"}
_NO_INSTANT_POWER = {"field.186": _NOT_SUPPORTED}
_NO_MIG = dict.fromkeys(("nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigMode"), _NOT_SUPPORTED)
_GEFORCE = {
    **_NO_GPM,
    **_NO_MIG,
    **dict.fromkeys(
        (
            "nvmlDeviceGetEccMode",
            "nvmlDeviceGetTotalEccErrors",
            "nvmlDeviceGetRemappedRows",
            "nvmlDeviceGetRetiredPagesPendingStatus",
            "field.82",  # temperature of the memory
        ),
        _NOT_SUPPORTED,
    ),
    "persistence": "0",
    "fan": "30",
    "pcie_gen": "4",
    "pcie_gen_max": "4",
}

PROFILES: Mapping[str, Mapping[str, str]] = {
    "RTX 3090": {
        **_GEFORCE,
        "name": "NVIDIA GeForce RTX 3090",
        "compute_capability": "8.6",
        "memory_total": str(24576 * MIB),
        "cores": "10496",
        "sm_clock_max": "2100",
        "memory_clock_max": "9751",
        "bus_width": "384",
        "power_limit": "350",
        "power": "28",
        "power_average": "28",
        "window": "0.5",
    },
    "RTX 4090": {
        **_GEFORCE,
        "name": "NVIDIA GeForce RTX 4090",
        "compute_capability": "8.9",
        "memory_total": str(24564 * MIB),
        "cores": "16384",
        "sm_clock_max": "3105",
        "memory_clock_max": "10501",
        "bus_width": "384",
        "power_limit": "450",
        "power": "20",
        "power_average": "20",
        "window": "1",
    },
    "V100": {
        **_NO_GPM,
        **_NO_MIG,
        **_NO_INSTANT_POWER,
        "nvmlDeviceGetRemappedRows": _NOT_SUPPORTED,  # Volta retires pages instead
        "name": "Tesla V100-SXM2-32GB",
        "compute_capability": "7.0",
        "memory_total": str(32768 * MIB),
        "cores": "5120",
        "sm_clock_max": "1530",
        "memory_clock_max": "877",
        "bus_width": "4096",
        "power_limit": "300",
        "power_average": "42",
        "pcie_gen": "3",
        "pcie_gen_max": "3",
        "window": "0.167",
    },
    "A100": {
        **_NO_GPM,
        **_NO_INSTANT_POWER,
        "name": "NVIDIA A100-SXM4-80GB",
        "compute_capability": "8.0",
        "memory_total": str(81920 * MIB),
        "cores": "6912",
        "sm_clock_max": "1410",
        "memory_clock_max": "1593",
        "bus_width": "5120",
        "power_limit": "400",
        "power_average": "60",
        "pcie_gen": "4",
        "pcie_gen_max": "4",
        "window": "0.167",
    },
    "H100": {
        "name": "NVIDIA H100 80GB HBM3",
        "memory_total": str(81559 * MIB),
        "memory_clock_max": "2619",
        "bus_width": "5120",
    },
    # The driver reports neither memory nor its clock, because the GPU uses the host's memory.
    "GB10": {
        **_NO_GPM,
        **_NO_MIG,
        **dict.fromkeys(
            (
                "nvmlDeviceGetMemoryInfo_v2",
                "nvmlDeviceGetMemoryInfo",
                "nvmlDeviceGetMemoryBusWidth",
                "memory_clock",
                "memory_clock_max",
                "nvmlDeviceGetEnforcedPowerLimit",
                "nvmlDeviceGetTotalEccErrors",
                "nvmlDeviceGetEccMode",
                "nvmlDeviceGetRemappedRows",
                "field.82",
            ),
            _NOT_SUPPORTED,
        ),
        "name": "NVIDIA GB10",
        "compute_capability": "12.1",
        "cores": "6144",
        "sm_clock_max": "3003",
        "power": "5",
    },
    "H200": {},
}
"""For each model, the scenario's keys and values without the prefix ``gpu.N.``. The stand-in's defaults are
an H200's."""


def machine(*models: str) -> list[str]:
    """Return the scenario of a machine that has these models of GPUs, in nvidia-smi's order.

    NVLink connects only data-center GPUs of the same model.
    """
    lines = [f"gpus={len(models)}"]
    for index, model in enumerate(models):
        lines += [f"gpu.{index}.{key}={value}" for key, value in PROFILES[model].items()]
        lines += [
            f"gpu.{index}.p2p.{other}.{_NVLINK}={_NO_NVLINK}"
            for other, other_model in enumerate(models)
            if other != index and (other_model != model or "RTX" in model)
        ]
    return lines
