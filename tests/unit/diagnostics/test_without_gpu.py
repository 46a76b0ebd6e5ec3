"""Tests of the doctor on machines without an NVIDIA GPU, and on a machine whose GPU has no driver."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_doctor import check_of, devices, fix, issue, no_driver, no_import, outcome, results

from gpuwidget.diagnostics.probe_process import ProbeResult
from gpuwidget.diagnostics.run_checks import diagnose
from gpuwidget.sources import nvml_messages
from gpuwidget.views import diagnosis_view, styles

NO_GPU: dict[str, Any] = {"devices": (), "module": None, "nvidia_gpu_on_pci": False}
NO_LIBRARIES: dict[str, Any] = {
    "nvml": no_driver(nvml_messages.LIBRARY_NOT_FOUND, "Not Found"),
    "torch": {
        "cuda": None,
        "libcuda_error": "libcuda.so.1: not found",
        "cu_init": None,
        "cu_count": None,
        "mapped": (),
    },
}


NO_NVIDIA_GPU = "This machine has no NVIDIA GPU."
ON_CPU = "PyTorch runs on the CPU, because this machine has no NVIDIA GPU."
IN_VM = "Expected one? If this is a virtual machine,"
IN_CONTAINER = "Expected one? Start this container on a machine with a GPU,"


@pytest.mark.parametrize(
    ("machine", "summary"),
    [
        (NO_GPU, f"{ON_CPU} {IN_VM}"),
        ({**NO_GPU, "container": "/.dockerenv"}, f"{ON_CPU} {IN_CONTAINER}"),
        ({"system": "darwin", "devices": (), "module": None, "shm": None}, f"{ON_CPU} {IN_VM}"),
    ],
    ids=["Linux", "container", "macOS"],
)
def test_a_machine_without_an_nvidia_gpu(machine: dict[str, Any], summary: str) -> None:
    """If the machine has no NVIDIA GPU, the summary says so, and what to do if there should be one. The
    checks that only concern GPUs are skipped, in one line."""
    diagnosis = diagnose(results(machine=machine, variables={"CUDA_VISIBLE_DEVICES": "0"}, **NO_LIBRARIES))
    assert (diagnosis.status, diagnosis.problems) == ("ok", ())
    assert diagnosis.summary.startswith(summary)
    found = "this machine has no NVIDIA GPU"
    skipped = {check.id for check in diagnosis.links if check.status == "skipped" and check.found == found}
    assert skipped >= {"driver", "device_files", "gpu", "visible", "sharing", "health", "pcie", "peers"}
    evidence = {check.id: check.evidence for check in diagnosis.links}["driver"]
    assert evidence["libcuda"] == "libcuda.so.1: not found"
    assert not any(name.startswith("finding") for name in evidence)
    lines = diagnosis_view.text(diagnosis, 1000).splitlines()
    [line] = [line for line in lines if line.startswith("skipped")]
    assert "GPU health, PCIe, Between GPUs" in line
    assert line.count(found) == 1


def test_no_gpu_is_neither_good_nor_bad() -> None:
    """Without an NVIDIA GPU, the edge of the diagnosis is neutral, not green. A torch for AMD's GPUs is not
    said to run on the CPU."""
    neutral = diagnosis_view.html(diagnose(results(machine=NO_GPU, **NO_LIBRARIES)))
    assert f"border-left:3px solid {styles.NEUTRAL}" in neutral
    assert f"border-left:3px solid {styles.SUCCESS}" in diagnosis_view.html(diagnose(results()))
    amd = {**NO_LIBRARIES, "torch": {**NO_LIBRARIES["torch"], "hip": "6.4"}}
    assert diagnose(results(machine=NO_GPU, **amd)).summary.startswith(f"{NO_NVIDIA_GPU} {IN_VM}")


@pytest.mark.parametrize(
    "values",
    [
        {"machine": {**NO_GPU, "nvidia_gpu_on_pci": None}},
        {"machine": {**NO_GPU, "system": "wsl"}},
        {"machine": {**NO_GPU, "system": "jetson"}},
        {"machine": {**NO_GPU, "module": "580.95.05"}},
        {"machine": {**NO_GPU, "devices": devices("nvidiactl")}},
        {"nvml": no_driver(nvml_messages.DRIVER_NOT_LOADED, "Driver Not Loaded")},
        {"nvml": None, "nvml_result": ProbeResult("hung", "", {"step": "nvmlInit"})},
        {"torch": {"cuda": None, "cu_init": 100, "cu_count": None}},
    ],
    ids=["no PCI", "WSL", "Jetson", "module", "device file", "libnvidia-ml", "no answer", "libcuda"],
)
def test_a_gpu_is_not_ruled_out_without_facts(values: dict[str, Any]) -> None:
    """If the PCI devices can't be listed, or if a part of the driver is installed, the doctor does not claim
    that there is no GPU."""
    of = results(**{"machine": NO_GPU, **NO_LIBRARIES, **values})
    assert not of.without_gpu
    assert diagnose(of).status == "broken"


def test_a_broken_torch_without_a_gpu() -> None:
    """On a machine without an NVIDIA GPU, a torch that can't be imported is still a problem."""
    of = results(machine=NO_GPU, **{**NO_LIBRARIES, "torch": {**NO_LIBRARIES["torch"], **no_import("odd")}})
    assert [(problem.check, problem.status) for problem in diagnose(of).problems] == [("torch", "broken")]


def test_a_gpu_without_a_driver() -> None:
    """If a GPU is on the PCI bus and the driver is missing, the doctor's fix is to install the driver. In a
    container, the fix is to start the container with GPUs."""
    on_pci = {**NO_GPU, "nvidia_gpu_on_pci": True}
    assert outcome(check_of("driver", results(machine=on_pci, **NO_LIBRARIES))) == (
        "broken",
        issue("driver-not-installed"),
        fix("install-gpu-driver"),
    )
    inside = results(machine={**on_pci, "container": "/.dockerenv"}, **NO_LIBRARIES)
    assert outcome(check_of("driver", inside))[1] == issue("container-without-gpus")
