"""Tests of the checks of the driver and of its device files, with the exact ids and parameters of their
issues and fixes."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_doctor import (
    NO_CUDA,
    NO_GPUS,
    NOT_INSTALLED,
    PIP,
    WHEELS,
    build,
    check_of,
    devices,
    fix,
    h200,
    issue,
    no_driver,
    nvml,
    outcome,
    results,
)

from gpuwidget.diagnostics.packages import InstalledPackage
from gpuwidget.diagnostics.probe_process import ProbeResult
from gpuwidget.sources.nvml_diagnostics import FOREIGN_BINDING, NO_BINDING

LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
OLDER = "'torch>=2.0,<2.8'"
"""pip requirement for the torch versions that have a build for CUDA 11.8."""

# -- the driver ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "cuda", "least", "older"),
    [
        ("570.124.06", "13.0", "580", ("12.6", build("cu126"), "2.14")),
        ("470.256.02", "12.8", "525", ("11.8", build("cu118", OLDER), "2.7")),
    ],
)
def test_a_driver_too_old_for_torchs_cuda(
    driver: str, cuda: str, least: str, older: tuple[str, str, str]
) -> None:
    """If the driver is too old for torch's CUDA, the fix suggests either a newer driver or a torch build for
    an older CUDA."""
    one = results(
        torch={
            "cuda": cuda,
            "available": False,
            "warnings": ["The NVIDIA driver on your system is too old."],
        },
        nvml=nvml(h200(), driver=driver, cuda_driver="12.8"),
    )
    assert check_of("gpu", one).status == "ok"
    older_cuda, command, last = older
    assert outcome(check_of("driver", one)) == (
        "broken",
        issue("driver-too-old", driver=driver, cuda=cuda, minimum=least),
        fix("update-driver-or-install-torch", command, minimum=least, cuda=older_cuda, last_torch=last),
    )


def test_without_a_matching_build_only_the_driver_is_named() -> None:
    """If no torch build supports both the driver and the GPU, the fix is a driver update. If no torch build
    supports the GPU at all, the fix is another GPU or building PyTorch from source."""
    for driver, capability in (("440.33", "8.0"), ("515.65.01", "12.0")):
        there = nvml(h200(compute_capability=capability), driver=driver)
        too_old = results(torch={"cuda": "12.8", "available": False}, nvml=there)
        assert outcome(check_of("driver", too_old))[2] == fix("update-driver", minimum="525")
        assert outcome(check_of("torch", results(torch={"cuda": None}, nvml=there)))[2] == (
            fix("update-driver-first", driver=driver, minimum="580")
        )
    old = results(torch={"cuda": None}, nvml=nvml(h200(compute_capability="7.0"), driver="440.33"))
    assert outcome(check_of("torch", old))[2] == (fix("update-driver-first", driver="440.33", minimum="525"))
    ancient = results(torch={"cuda": None}, nvml=nvml(h200(compute_capability="3.7")))
    assert outcome(check_of("torch", ancient))[2] == fix("use-another-gpu")


def test_no_driver_is_named_for_a_gpu_that_this_cuda_has_dropped() -> None:
    """If the driver is too old for torch's CUDA, and that CUDA no longer supports the GPU, the fix is a torch
    build for an older CUDA, not a newer driver."""
    there = nvml(h200(compute_capability="7.0"), driver="570.86")
    one = results(torch={"cuda": "13.2", "available": False}, nvml=there)
    assert outcome(check_of("driver", one)) == (
        "broken",
        issue("driver-too-old", driver="570.86", cuda="13.2", minimum="580"),
        fix("install-torch-for-driver", build("cu126"), cuda="12.6", last_torch="2.14"),
    )


def test_arm_has_other_builds() -> None:
    """On ARM, the doctor offers no torch build for a GPU older than Ampere, because PyTorch's ARM builds do
    not support such GPUs."""
    there, arm = nvml(h200(compute_capability="7.5"), driver="580.95.05"), {"architecture": "aarch64"}
    assert outcome(check_of("torch", results(torch={"cuda": None}, nvml=there, machine=arm)))[2] == (
        fix("use-another-gpu")
    )


def test_the_default_build_on_arm_is_for_the_cpu() -> None:
    """On ARM, the install command for torch always contains PyTorch's index URL, because the
    torch build on PyPI is for the CPU."""
    one = results(machine={"architecture": "aarch64"}, **NOT_INSTALLED)
    assert outcome(check_of("torch", one))[2] == (
        fix(
            "install-torch",
            f"{PIP} install torch --index-url {WHEELS}/cu130",
            why="missing",
            last_torch=None,
        )
    )


def test_the_installed_build_works_here() -> None:
    """If the driver is too old for the newest torch build, the install command contains the index URL of a
    build that the driver supports."""
    there = nvml(h200(), driver="535.183.01")
    assert outcome(check_of("torch", results(nvml=there, **NOT_INSTALLED)))[2] == (
        fix("install-torch", build("cu126", "torch"), why="missing", last_torch="2.14")
    )


def test_a_driver_supports_all_minor_versions_of_its_cuda() -> None:
    """The driver check accepts driver 525 for a torch built with CUDA 12.9, although nvidia-smi shows 12.0 as
    the driver's newest CUDA."""
    one = results(torch={"cuda": "12.9"}, nvml=nvml(h200(), driver="525.60.13", cuda_driver="12.0"))
    assert outcome(check_of("driver", one)) == ("ok", None, None)


def test_issues_that_cuda_works_with_are_warnings() -> None:
    """If CUDA works, NVML failures and missing device files are only warnings. An old driver is accepted as
    well, because a forward-compatibility package may have replaced its libcuda.

    With PYTORCH_NVML_BASED_CUDA_CHECK, torch queries NVML instead of starting CUDA.
    This does not prove that CUDA works, so an old driver is "broken".
    """
    odd: dict[str, Any] = {
        "nvml": no_driver(999),
        "machine": {"devices": ()},
    }
    one = results(**odd)
    assert [check_of(which, one).status for which in ("driver", "device_files")] == ["warning", "warning"]
    broken = results(torch={"cu_init": None, "cu_count": None}, **odd)
    assert [check_of(which, broken).status for which in ("driver", "device_files")] == ["broken", "broken"]
    compatible = results(nvml=nvml(h200(), driver="535.183.01"))
    assert check_of("driver", compatible).status == "ok"
    unasked = results(
        nvml=nvml(h200(), driver="535.183.01"), variables={"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    )
    assert check_of("driver", unasked).status == "broken"


def test_libraries_and_kernel_module_that_do_not_fit() -> None:
    """If the driver was updated without a restart of the machine, the driver check names the version of the
    kernel module that is still loaded."""
    broken = no_driver(18)
    one = results(torch=NO_CUDA, nvml=broken, machine={"module": "570.86.15"})
    assert outcome(check_of("driver", one)) == (
        "broken",
        issue("driver-version-mismatch", module="570.86.15"),
        fix("restart-machine"),
    )
    assert check_of("gpu", one).status == "unknown"


@pytest.mark.parametrize("code", [4, 12, 15, 17, 999, 77])
def test_every_other_error_of_nvml_has_its_fix(code: int) -> None:
    """If nvmlInit fails with another error code, the issue of the driver check contains the code and NVML's
    text, and the fix is the one for this code."""
    assert outcome(check_of("driver", results(torch=NO_CUDA, nvml=no_driver(code, "odd")))) == (
        "broken",
        issue("driver-start-failed", code=code, error="odd"),
        fix("fix-driver-start", code=code),
    )


def test_a_driver_that_is_not_loaded() -> None:
    """If the driver is not loaded, the fix is the command that loads it, and the text after the command
    offers a reboot."""
    one = check_of("driver", results(torch=NO_CUDA, nvml=no_driver(9)))
    assert outcome(one) == (
        "broken",
        issue("driver-not-loaded", error=""),
        fix("load-driver", "sudo modprobe nvidia"),
    )
    assert (one.remedy or "").endswith("Then check that nvidia-smi works.")


def test_a_missing_binding_is_not_a_broken_driver() -> None:
    """If nvidia-ml-py is missing, the driver check is "unknown" and shows the kernel module's version."""
    one = check_of("driver", results(nvml=no_driver(NO_BINDING), packages={"binding": ()}))
    assert (one.status, one.found) == ("unknown", "580.95.05, for CUDA up to 13.0")
    assert outcome(one)[1:] == (
        issue("nvml-binding-missing"),
        fix("install-nvml-binding", f"{PIP} install --force-reinstall --no-deps nvidia-ml-py"),
    )


def test_another_module_pynvml() -> None:
    """The command that uninstalls a fork of pynvml first makes sure, with a dry run, that nvidia-ml-py can be
    installed. If another package requires the fork, there is no command."""
    both = (InstalledPackage("nvidia-ml-py", "13.580.65", "pip"), InstalledPackage("pynvml", "11.4.1", "pip"))
    foreign = no_driver(FOREIGN_BINDING)
    again = f"{PIP} install --force-reinstall --no-deps nvidia-ml-py==13.580.65"
    assert check_of("driver", results(nvml=foreign, packages={"binding": both})).command == (
        f"{again} --dry-run && {PIP} uninstall -y pynvml && {again}"
    )
    needed = {"binding": both, "required_by": {"pynvml": ("dask-cuda",)}}
    assert check_of("driver", results(nvml=foreign, packages=needed)).command is None


@pytest.mark.parametrize("machine", [{}, {"container": "/.dockerenv", "devices": ()}])
def test_a_driver_that_hangs(machine: dict[str, Any]) -> None:
    """If nvmlInit hangs, the driver check reports that nvmlInit did not return in time, also in a container
    without device files. The other checks still have results."""
    hung = ProbeResult("hung", "", {"step": "nvmlInit"})
    one = results(torch=NO_CUDA, nvml=None, nvml_result=hung, machine=machine)
    assert outcome(check_of("driver", one))[:2] == (
        "broken",
        issue("driver-timeout", timeout_s=15.0, step="nvmlInit"),
    )
    assert check_of("torch", one).status == check_of("shm", one).status == "ok"
    files = [one.id for one in check_of("device_files", one).issues]
    assert files == (["device-files-invisible"] if machine else [])


@pytest.mark.parametrize(
    ("variables", "remedy"),
    [
        ({}, fix("start-container-with-gpus")),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, fix("set-nvidia-visible-devices", value="void")),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, fix("request-kubernetes-gpu")),
    ],
)
def test_a_container_without_gpus(variables: dict[str, str], remedy: Any) -> None:
    """If a container has no device files although the host has a driver, the fix is to start the container
    with access to the GPUs."""
    one = results(machine={"container": "/.dockerenv", "devices": ()}, variables=variables, **NO_GPUS)
    assert outcome(check_of("driver", one)) == ("broken", issue("container-without-gpus"), remedy)
    assert outcome(check_of("device_files", one)) == (
        "broken",
        issue("container-without-device-files", driver="580.95.05"),
        remedy,
    )


@pytest.mark.parametrize(
    ("code", "which", "expected"),
    [
        (802, "driver", issue("fabric-manager-missing")),
        (804, "driver", issue("libcuda-mismatch", library=LIBCUDA, code=804)),
        (34, "driver", issue("libcuda-stub", library=LIBCUDA)),
        (46, "gpu", issue("gpu-in-exclusive-use")),
        (999, "gpu", issue("cuda-unknown-error")),
        (1, "gpu", issue("cuda-start-failed", code=1, error="CUDA_ERROR: words")),
    ],
)
def test_cuda_that_does_not_start(code: int, which: str, expected: Any) -> None:
    """If cuInit returns a known error code, the check's issue explains the error. If the code is unknown,
    the issue contains the text that CUDA provides for it."""
    one = results(
        torch={"cu_init": code, "cu_text": "CUDA_ERROR: words", "cu_count": None, "available": False}
    )
    assert outcome(check_of(which, one))[:2] == ("broken", expected)


def test_a_container_with_the_tools_but_without_cuda() -> None:
    """If NVML works in a container that has no libcuda, the fix is to add "compute" to
    NVIDIA_DRIVER_CAPABILITIES."""
    one = results(
        torch={"libcuda_error": "libcuda.so.1: cannot open shared object file", "cu_init": None},
        machine={"container": "/.dockerenv"},
        variables={"NVIDIA_DRIVER_CAPABILITIES": "utility"},
    )
    assert outcome(check_of("driver", one)) == (
        "broken",
        issue("container-without-compute", capabilities="utility"),
        fix("add-compute-capability"),
    )


# -- device files ----------------------------------------------------------------------------------------


def test_device_files_without_permission() -> None:
    """The device file check lists the files that the user has no permission to use, with their mode and
    owner."""
    one = results(torch=NO_CUDA, machine={"devices": devices("nvidia0", "nvidiactl", usable=False)})
    assert outcome(check_of("device_files", one))[:2] == (
        "broken",
        issue("device-files-forbidden", files=("/dev/nvidia0", "/dev/nvidiactl"), mode="crw-rw-rw- 0:0"),
    )


def test_device_files_that_are_missing() -> None:
    """The device file check distinguishes four cases: control files missing, GPU files missing, no device
    files although the driver is loaded, and no device files and no driver."""
    uvm = results(torch=NO_CUDA, machine={"expected": ("/dev/nvidia-uvm",)})
    assert outcome(check_of("device_files", uvm)) == (
        "broken",
        issue("control-files-missing", files=("/dev/nvidia-uvm",)),
        fix("create-device-files", "sudo nvidia-modprobe -c 0 -u"),
    )
    no_gpu = results(torch=NO_CUDA, machine={"devices": devices("nvidiactl", "nvidia-uvm")})
    assert outcome(check_of("device_files", no_gpu))[1] == issue("gpu-files-missing")
    broken = no_driver(9)
    loaded = results(torch=NO_CUDA, machine={"devices": ()}, nvml=broken)
    assert outcome(check_of("device_files", loaded))[1] == issue("device-files-missing")
    absent = results(torch=NO_CUDA, machine={"devices": (), "module": None}, nvml=broken)
    assert outcome(check_of("device_files", absent)) == (
        "broken",
        issue("no-driver-or-gpu"),
        fix("install-driver"),
    )


def test_wsl_has_another_file() -> None:
    """In WSL, the device file check expects /dev/dxg instead of /dev/nvidia*."""
    there = results(machine={"system": "wsl", "devices": devices("dxg")})
    assert (check_of("device_files", there).status, check_of("device_files", there).found) == (
        "ok",
        "/dev/dxg (WSL)",
    )
    assert check_of("device_files", results(machine={"system": "wsl", "devices": ()})).status == "broken"
