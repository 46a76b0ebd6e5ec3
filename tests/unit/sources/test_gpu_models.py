"""Tests of models other than the H200: each value is what the driver reports, or None with a reason."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from helpers_nvml import Machine
from nvml_standin import profiles

from gpuwidget.sources import nvml_diagnostics

_NOT_SUPPORTED = "not supported by this GPU"
_NO_GPM = "the driver provides no performance counters for this GPU (only for Hopper and later)"


class Model(NamedTuple):
    """What gpuwidget reads from one model of GPU."""

    name: str
    compute_capability: str
    peak_tflops: float
    bandwidth_gb: float
    """GB per second."""
    power_w: float
    window_s: float
    missing: dict[str, str]


MODELS = {
    "RTX 3090": Model(
        "NVIDIA GeForce RTX 3090",
        "8.6",
        44.1,
        936.1,
        28.0,
        0.5,
        {
            "activity": _NO_GPM,
            "ecc_uncorrected": _NOT_SUPPORTED,
            "memory_temperature_c": _NOT_SUPPORTED,
        },
    ),
    "RTX 4090": Model(
        "NVIDIA GeForce RTX 4090",
        "8.9",
        101.7,
        1008.1,
        20.0,
        1.0,
        {
            "activity": _NO_GPM,
            "ecc_uncorrected": _NOT_SUPPORTED,
            "memory_temperature_c": _NOT_SUPPORTED,
        },
    ),
    "V100": Model(
        "Tesla V100-SXM2-32GB",
        "7.0",
        15.7,
        898.0,
        42.0,
        0.167,
        {"activity": _NO_GPM, "fan_speed": _NOT_SUPPORTED},
    ),
    "A100": Model(
        "NVIDIA A100-SXM4-80GB",
        "8.0",
        19.5,
        2039.0,
        60.0,
        0.167,
        {"activity": _NO_GPM, "fan_speed": _NOT_SUPPORTED},
    ),
    "H100": Model("NVIDIA H100 80GB HBM3", "9.0", 66.9, 3352.3, 76.0, 0.2, {"fan_speed": _NOT_SUPPORTED}),
}


@pytest.fixture
def mixed(machine: Machine) -> Machine:
    """Return a machine that has one GPU of each model."""
    machine.set_scenario(*profiles.machine(*MODELS))
    return machine


def test_each_model_beside_the_others(mixed: Machine) -> None:
    """Each GPU of a machine with different models reports what its model supports. Every other value has a
    reason, and one GPU's missing values do not affect the others."""
    source = mixed.source()
    found = {}
    for model, gpu in zip(MODELS, source.open().gpus, strict=True):
        activity, fast = source.read(gpu, "activity"), source.read(gpu, "fast")
        status, slow = source.read(gpu, "status"), source.read(gpu, "slow")
        assert gpu.peak_fp32_flops is not None
        assert gpu.memory_bandwidth is not None
        assert fast.values["power_w"] is not None
        assert slow.values["utilization_window"] is not None
        missing: dict[str, str] = {**activity.missing, **fast.missing, **status.missing, **slow.missing}
        found[model] = Model(
            gpu.name,
            gpu.compute_capability or "",
            round(gpu.peak_fp32_flops / 1e12, 1),
            round(gpu.memory_bandwidth / 1e9, 1),
            fast.values["power_w"],
            slow.values["utilization_window"],
            missing,
        )
    assert found == MODELS


@pytest.mark.parametrize("model", MODELS)
def test_a_value_that_a_model_lacks_is_requested_once(machine: Machine, model: str) -> None:
    """A call that a model does not support is not repeated."""
    machine.set_scenario(*profiles.machine(model))
    source = machine.source()
    (gpu,) = source.open().gpus
    for _ in range(2):
        (
            source.read(gpu, "activity").values["activity"],
            source.read(gpu, "fast"),
            source.read(gpu, "status"),
            source.read(gpu, "slow"),
        )
        calls = machine.calls()
    missing = MODELS[model].missing
    assert ("nvmlDeviceGetTotalEccErrors" not in calls) == ("ecc_uncorrected" in missing)
    assert ("nvmlDeviceGetFanSpeed" not in calls) == ("fan_speed" in missing)
    assert "nvmlGpmQueryDeviceSupport" not in calls


def test_health_of_each_model(mixed: Machine) -> None:
    """The doctor reads the health of each model. Memory errors that a model does not count are unknown, and
    different models are not connected by NVLink."""
    mixed.set_scenario(*profiles.machine(*MODELS, "A100"))
    found = nvml_diagnostics.query_diagnostics()
    no_errors = {"ecc", "ecc_uncorrected", "remapped", "retired_pending"}
    assert [set(gpu.missing) for gpu in found.gpus] == [
        {*no_errors, "mig"},
        {*no_errors, "mig"},
        {"mig", "remapped"},
        set(),
        set(),
        set(),
    ]
    assert [gpu.ecc_uncorrected for gpu in found.gpus] == [None, None, 0, 0, 0, 0]
    assert {(peer.gpu, peer.other) for peer in found.peers if peer.nvlink} == {(3, 5), (5, 3)}


def test_peak_rates_of_an_old_driver(old_machine: Machine) -> None:
    """With a driver that is too old to report them, a GPU's peak rates are None."""
    (gpu,) = old_machine.source().open().gpus
    assert (gpu.peak_fp32_flops, gpu.memory_bandwidth) == (None, None)
