"""Tests of the doctor's NVML queries about the health and setup of GPUs, with a C library that stands in for
NVML."""

from __future__ import annotations

import pynvml
import pytest
from helpers_doctor import h200
from helpers_nvml import Machine
from nvml_standin import Standin

from gpuwidget.sources import nvml_diagnostics
from gpuwidget.sources.nvml_diagnostics import LostGpu, PeerAccess


@pytest.fixture
def standin(machine: Machine) -> Standin:
    """Return the library that stands in for NVML in this process."""
    return machine.standin


def test_a_healthy_gpu(standin: Standin) -> None:
    """For a healthy GPU, `query_diagnostics()` returns the versions and values that NVML reports, and shuts
    NVML down afterwards."""
    standin.scenario("driver=580.95.05", "cuda=13010", "gpu.0.throttle=1")
    found = nvml_diagnostics.query_diagnostics()
    assert (found.error, found.driver, found.cuda_driver, found.lost, found.peers) == (
        *(None, "580.95.05", "13.1"),
        *((), ()),
    )
    assert found.gpus == (h200(uuid="GPU-00000000-0000-4000-8000-000000000000", throttle=("idle",)),)
    calls = standin.calls()
    assert calls["nvmlInitWithFlags"] == calls["nvmlShutdown"] == 1


def test_a_gpu_with_problems(standin: Standin) -> None:
    """For a GPU with MIG slices, memory errors and a reduced PCIe width, `query_diagnostics()` returns the
    values that NVML reports."""
    standin.scenario(
        *("gpu.0.mig=0 2", "gpu.0.compute_mode=3", "gpu.0.persistence=0", "gpu.0.ecc=2", "gpu.0.remapped=1"),
        *("gpu.0.remap_pending=1", "gpu.0.remap_failed=1", "gpu.0.pcie_width=8", "gpu.0.mig_mode_pending=0"),
    )
    (gpu,) = nvml_diagnostics.query_diagnostics().gpus
    assert (gpu.mig, gpu.mig_pending, len(gpu.slices)) == (True, False, 2)
    assert (gpu.compute_mode, gpu.persistence, gpu.ecc_uncorrected) == ("exclusive process", False, 2)
    assert (gpu.remapped, gpu.remap_pending, gpu.remap_failed) == (1, True, True)
    assert (gpu.pcie_width, gpu.pcie_width_max) == (8, 16)


def test_unsupported_values_are_unknown(standin: Standin) -> None:
    """Values that a GPU does not support, such as ECC errors on a consumer card, are None with the reason.
    The other values are read."""
    names = ("RemappedRows", "EccMode", "TotalEccErrors", "MigMode")
    standin.scenario(*(f"gpu.0.nvmlDeviceGet{name}=error 3" for name in names))
    (gpu,) = nvml_diagnostics.query_diagnostics().gpus
    reason = "not supported by this GPU"
    assert gpu.missing == dict.fromkeys(("mig", "ecc", "remapped", "ecc_uncorrected"), reason)
    assert (gpu.ecc_uncorrected, gpu.remap_failed, gpu.mig) == (None, None, None)
    assert gpu.pcie_width == 16


def test_a_lost_gpu_hides_no_other(standin: Standin) -> None:
    """If one GPU is lost, `query_diagnostics()` contains its error, and still returns the other GPUs and the
    connections between them."""
    standin.scenario("gpus=3", "gpu.1.nvmlDeviceGetMigMode=error 15", "gpu.0.p2p.2.2=5")
    found = nvml_diagnostics.query_diagnostics()
    assert [gpu.index for gpu in found.gpus] == [0, 2]
    assert found.lost == (LostGpu(1, 15, "GPU is lost"),)
    assert found.peers == (
        PeerAccess(gpu=0, other=2, nvlink=False, reads=True),
        PeerAccess(gpu=2, other=0, nvlink=True, reads=True),
    )


@pytest.mark.parametrize("code", [9, 12, 18, 999])
def test_a_driver_that_does_not_start(standin: Standin, code: int) -> None:
    """If nvmlInit fails, `query_diagnostics()` returns the error code and NVML's text of the error."""
    standin.scenario(f"nvmlInitWithFlags=error {code}")
    found = nvml_diagnostics.query_diagnostics()
    assert (found.error, found.error_text, found.gpus) == (code, str(pynvml.NVMLError(code)), ())


def test_an_old_fork_of_the_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an old fork of pynvml is installed, `query_diagnostics()` reports the fork, not that the driver is
    broken."""
    monkeypatch.delattr(pynvml, "_nvmlGetFunctionPointer")
    found = nvml_diagnostics.query_diagnostics()
    assert (found.error, found.error_text) == (nvml_diagnostics.FOREIGN_BINDING, None)
