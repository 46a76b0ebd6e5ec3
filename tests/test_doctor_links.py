"""Each link, from what was found out: the reason and the one remedy, word by word."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from helpers_doctor import (
    CUDNN_FILE,
    GIB,
    SITE,
    TORCH,
    UUIDS,
    devices,
    facts,
    h200,
    link,
    no_driver,
    no_import,
    nvml,
)

from gpuwidget.diagnosis import Link
from gpuwidget.health.children import Said
from gpuwidget.health.examination import diagnosis
from gpuwidget.health.facts import Facts
from gpuwidget.health.packages import Copy, Installed, TorchFiles
from gpuwidget.health.patient import Notebook
from gpuwidget.host import SharedMemory
from gpuwidget.sources import nvml_words as words
from gpuwidget.sources.nvml_health import NO_BINDING, GpuHealth, Peer

PIP = "/env/bin/python -m pip"
ANEW = f"Install it anew with its libraries: {PIP} install --force-reinstall torch."
WHEELS = "https://download.pytorch.org/whl"
FROM = f"install --force-reinstall torch --index-url {WHEELS}"
LAST = "is the last with such a build."


NO_CUDA = {"cu_init": None, "cu_count": None, "available": False}
"""What the child says where CUDA does not start."""


def told(one: Link) -> tuple[str, str | None, str | None]:
    """Status, reason and remedy."""
    return one.status, one.reason, one.remedy


def test_where_all_is_found_nothing_is_to_do() -> None:
    """Every link says what it found, in the chain's order."""
    doctor = diagnosis(facts())
    assert (doctor.status, doctor.summary) == ("ok", "All links were found, from PyTorch to the GPU.")
    assert [(one.id, one.status, one.found) for one in doctor.links] == [
        ("torch", "ok", "2.13.0, built for CUDA 13.0"),
        ("cuda", "ok", "13.0"),
        ("cudnn", "ok", "9.10.2"),
        ("nccl", "ok", "2.27.5"),
        ("driver", "ok", "580.95.05, for CUDA up to 13.0"),
        ("device_files", "ok", "1 GPU under /dev"),
        ("gpu", "ok", "1 \N{MULTIPLICATION SIGN} NVIDIA H200"),
        ("visible", "ok", "all: CUDA_VISIBLE_DEVICES is not set"),
        ("sharing", "ok", "whole GPUs"),
        ("health", "ok", "no errors of memory, nothing slows them"),
        ("pcie", "ok", "full width (x16)"),
        ("peers", "skipped", "one GPU"),
        ("shm", "ok", "64.0 GiB"),
        ("package", "ok", "0.1.0"),
    ]
    assert {(one.reason, one.remedy) for one in doctor.links} == {(None, None)}


def test_no_toolkit_is_no_fault() -> None:
    """PyTorch brings its own CUDA: nvcc is neither needed nor missed."""
    assert link("cuda", facts()).evidence["CUDA toolkit (nvcc)"] == "none, and none is needed"
    with_it = facts(machine={"nvcc": "/usr/local/cuda/bin/nvcc"})
    assert link("cuda", with_it).evidence["CUDA toolkit (nvcc)"] == "/usr/local/cuda/bin/nvcc"


# -- PyTorch ---------------------------------------------------------------------------------------------

NOT_INSTALLED: dict[str, Any] = {"torch": no_import("No module named 'torch'"), "packages": {"torch": None}}


def test_torch_that_is_not_installed() -> None:
    """A notebook or a shell is told how to install it into this very environment; a server needs none."""
    assert told(link("torch", facts(**NOT_INSTALLED))) == (
        "broken",
        "PyTorch is not installed in this environment.",
        f"Install it: {PIP} install torch.",
    )
    server = facts(place="server", **NOT_INSTALLED)
    assert told(link("torch", server)) == ("skipped", None, None)
    assert link("cuda", server).status == link("cudnn", server).status == "skipped"


@pytest.mark.parametrize(
    ("driver", "capability", "wheel", "last"),
    [
        ("580.95.05", "9.0", "cu130", ""),
        ("535.183.01", "9.0", "cu126", f" PyTorch 2.14 {LAST}"),
        ("570.86", "10.0", "cu128", f" PyTorch 2.11 {LAST}"),
        ("580.95.05", "7.0", "cu126", f" PyTorch 2.14 {LAST}"),
    ],
)
def test_the_cpu_build(driver: str, capability: str, wheel: str, last: str) -> None:
    """What is installed, and the build that this driver and this GPU can run."""
    one = facts(
        torch={"cuda": None, "version": "2.13.0+cpu"},
        nvml=nvml(h200(compute_capability=capability), driver=driver),
    )
    assert link("torch", one).found == "2.13.0+cpu, built for the CPU only"
    assert told(link("torch", one)) == (
        "broken",
        "This build of PyTorch can't use a GPU: it has no CUDA.",
        f"Install a build with CUDA: {PIP} {FROM}/{wheel}.{last}",
    )


def test_builds_for_something_else() -> None:
    """AMD's, Apple's, and conda's for the CPU."""
    amd = facts(torch={"cuda": None, "hip": "6.2"})
    assert told(link("torch", amd))[1] == "This build of PyTorch is for AMD's GPUs: it has no CUDA."
    apple = facts(torch={"cuda": None}, machine={"system": "darwin"})
    assert told(link("torch", apple))[1:] == (
        "PyTorch for macOS has no CUDA.",
        "Use a machine with an NVIDIA GPU and Linux.",
    )
    conda = facts(torch={"cuda": None}, packages={"cuda": (Installed("pytorch", "2.9.0", "conda"),)})
    assert told(link("torch", conda))[2] == "Install conda's build with CUDA: conda install pytorch-gpu."


@pytest.mark.parametrize(
    ("origin", "folders", "what"),
    [("/home/anna/torch.py", (), "/home/anna/torch.py"), (None, ("/home/anna/torch",), "/home/anna/torch")],
)
def test_a_file_of_ones_own_in_the_way(origin: str | None, folders: tuple[str, ...], what: str) -> None:
    """A torch.py beside the notebook is named: otherwise nobody finds that."""
    one = facts(
        torch={"imported": True, "version": None}, packages={"torch": TorchFiles(origin, folders, None, None)}
    )
    assert told(link("torch", one)) == (
        "broken",
        f"{what} is what 'import torch' finds in place of the package.",
        f"Give {what} another name, and start the kernel anew.",
    )


@pytest.mark.parametrize(
    ("library", "which", "title"),
    [
        ("libcudnn.so.9", "cudnn", "cuDNN"),
        ("libcublasLt.so.13", "cuda", "CUDA"),
        ("libnccl.so.2", "nccl", "NCCL"),
    ],
)
def test_an_import_that_lacks_a_library(library: str, which: str, title: str) -> None:
    """torch is broken, and so is the link whose library it is; version and CUDA are known all the same."""
    error = f"{library}: cannot open shared object file: No such file or directory"
    one = facts(torch=no_import(error))
    assert link("torch", one).found == "2.13.0, which can't be imported"
    assert told(link("torch", one)) == ("broken", f"'import torch' raises ImportError: {error}.", ANEW)
    assert told(link(which, one)) == (
        "broken",
        f"{library}, which PyTorch needs, is not found or does not fit.",
        ANEW,
    )
    assert link("driver", one).status == "ok"


def test_an_import_that_fails_by_the_library_path() -> None:
    """An older library in LD_LIBRARY_PATH comes before the one that PyTorch was built with."""
    error = "libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12"
    folder = "/usr/local/cuda-12.1/lib64"
    one = facts(torch=no_import(error), machine={"libraries": {folder: ("libcusparse.so.12",)}})
    remedy = (
        f"Take {folder} out of LD_LIBRARY_PATH, whose files come before those PyTorch was "
        "built with, and start "
        "the kernel's server anew."
    )
    assert told(link("torch", one))[2] == remedy
    assert told(link("cuda", one))[2] == remedy


def test_other_failures_of_the_import() -> None:
    """A system that is too old, a crash, one that does not end, and an exception of any kind."""
    old = facts(torch=no_import("/lib/libc.so.6: version `GLIBC_2.28' not found"))
    assert told(link("torch", old))[2] == (
        "This system is older than that build of PyTorch: install an older PyTorch."
    )
    nothing = {**no_import(""), "import_error": None}
    del nothing["import_error"]
    without = replace(
        facts(), torch_said=replace(facts().torch_said, ending="crashed", how="SIGSEGV", values={})
    )
    assert told(link("torch", without)) == ("broken", "'import torch' crashes Python (SIGSEGV).", ANEW)
    hung = replace(facts(), torch_said=replace(facts().torch_said, ending="hung", values={"step": "import"}))
    assert told(link("torch", hung))[:2] == ("broken", "'import torch' has not ended after 60 s.")
    preloaded = facts(torch=no_import("no\nmore", "OSError"), variables={"LD_PRELOAD": "/x/lib.so"})
    assert told(link("torch", preloaded)) == (
        "broken",
        "'import torch' raises OSError: no.",
        "Unset LD_PRELOAD (/x/lib.so) and try again: it puts a library before all others.",
    )
    of_python = facts(
        torch=no_import("No module named 'sympy'", "ModuleNotFoundError"),
        machine={"libraries": {"/usr/local/cuda/lib64": ("libcudart.so.12",)}},
    )
    assert told(link("torch", of_python))[2] == ANEW


def test_an_import_that_ends_python_without_a_word() -> None:
    """There is no exception to tell, and no crash."""
    silent = replace(facts(), torch_said=Said("ended", "", {"step": "import"}))
    assert told(link("torch", silent))[1] == "'import torch' ends Python without a word."


def test_a_torch_that_was_loaded_before_another_was_installed() -> None:
    """pip install in a cell changes nothing until the kernel is restarted."""
    assert told(link("torch", facts(notebook=Notebook("2.9.0")))) == (
        "warning",
        "This notebook has PyTorch 2.9.0 loaded, while 2.13.0 is installed by now.",
        "Restart the kernel.",
    )
    assert link("torch", facts(notebook=Notebook("2.13.0"))).status == "ok"


def test_two_torches_on_the_path() -> None:
    """One in the user's own folder comes before that of the environment."""
    copies = (Copy("2.9.0", "/home/anna/.local/lib"), Copy("2.13.0", SITE))
    assert told(link("torch", facts(packages={"torch_copies": copies}))) == (
        "warning",
        f"PyTorch is installed 2 times: 2.9.0 in /home/anna/.local/lib, 2.13.0 in {SITE}. "
        "The first one is used.",
        f"Keep one of them: {PIP} uninstall torch removes the one in /home/anna/.local/lib.",
    )


def test_another_cudnn_in_the_library_path_that_is_not_loaded_yet() -> None:
    """Its parts are loaded at the first convolution: that is told before."""
    one = facts(machine={"libraries": {"/opt/cudnn8": ("libcudnn.so.8", "libcudnn_ops_infer.so.8")}})
    assert told(link("cudnn", one))[:2] == (
        "warning",
        "/opt/cudnn8 in LD_LIBRARY_PATH has another cuDNN (libcudnn.so.8), whose parts may be mixed in.",
    )


def test_memory_that_is_too_little_for_the_import() -> None:
    """Killed for it, or not given what it asked for."""
    killed = replace(facts(), torch_said=Said("crashed", "SIGKILL", {"step": "import"}))
    assert told(link("torch", killed))[1:] == (
        "'import torch' was killed (SIGKILL), as happens where memory runs out.",
        "Give this environment more memory; the kernel log (dmesg) says whether that was it.",
    )
    limited = facts(torch=no_import("libtorch_cuda.so: failed to map segment from shared object"))
    assert told(link("torch", limited))[2] == (
        "See whether memory is limited (ulimit -v), or the file system mounted with noexec."
    )


# -- cuDNN, NCCL -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "one", [facts(torch={"cudnn_enabled": False}), facts(notebook=Notebook("2.13.0", cudnn_off=True))]
)
def test_cudnn_switched_off(one: Facts) -> None:
    """By the environment, or by this notebook: it works, and is slow."""
    assert told(link("cudnn", one)) == (
        "warning",
        "cuDNN is switched off (torch.backends.cudnn.enabled is False): convolutions are slow.",
        "Switch it on: torch.backends.cudnn.enabled = True.",
    )


def test_cudnn_of_another_version_than_the_build() -> None:
    """torch's own words, in their first line."""
    error = (
        "cuDNN version incompatibility: PyTorch was compiled against (9, 10, 2) but found (8, 9, 7).\nMore"
    )
    one = link("cudnn", facts(torch={"cudnn": None, "cudnn_error": error}))
    assert told(one)[:2] == ("broken", f"cuDNN fails: {error.splitlines()[0]}")


def test_cudnn_from_two_folders_at_once() -> None:
    """Parts of two versions don't fit each other; the one that LD_LIBRARY_PATH brings is the stranger."""
    other = "/usr/lib/cudnn8"
    one = facts(
        torch={"mapped": [CUDNN_FILE, f"{other}/libcudnn_ops.so.9"]},
        machine={"libraries": {other: ("libcudnn_ops.so.9",)}},
    )
    found = link("cudnn", one)
    folder = CUDNN_FILE.rpartition("/")[0]
    assert found.status == "broken"
    assert found.reason == f"cuDNN was loaded from 2 folders at once: {folder} and {other}."
    assert found.remedy is not None
    assert found.remedy.startswith(f"Take {other} out of LD_LIBRARY_PATH")
    assert found.evidence["finding 2"] == (
        f"libcudnn_ops.so.9 was loaded from {other}, which is in LD_LIBRARY_PATH."
    )


def test_copies_by_pip_and_by_conda() -> None:
    """Both are named with who installed them; a helper package of Python's is no copy."""
    cuda = (
        Installed("cudnn", "9.3.0", "conda"),
        Installed("libcudnn", "9.3.0", "conda"),
        Installed("nvidia-cudnn-cu13", "9.10.2.21", "pip"),
        Installed("nvidia-cudnn-frontend", "1.14", "pip"),
    )
    assert told(link("cudnn", facts(packages={"cuda": cuda}))) == (
        "warning",
        "cuDNN is installed 2 times: nvidia-cudnn-cu13 9.10.2.21 (pip), cudnn 9.3.0 (conda).",
        "Keep one copy of cuDNN: uninstall the one that this PyTorch was not installed with.",
    )


def test_a_library_that_shadows_torchs_own() -> None:
    """Which file was really loaded is known, and that it is another than torch came with."""
    folder = "/usr/local/cuda/lib64"
    one = facts(
        torch={"mapped": [f"{folder}/libcudart.so.13"]}, machine={"libraries": {folder: ("libcudart.so.13",)}}
    )
    assert told(link("cuda", one))[:2] == (
        "warning",
        f"libcudart.so.13 was loaded from {folder}, which is in LD_LIBRARY_PATH.",
    )
    own = f"{SITE}/nvidia/cuda_runtime/lib"
    harmless = facts(
        torch={"mapped": [f"{own}/libcudart.so.13"]}, machine={"libraries": {own: ("libcudart.so.13",)}}
    )
    assert link("cuda", harmless).status == "ok"


def test_a_library_path_that_leads_there_by_links() -> None:
    """The kernel names the real folder; what is to be taken out is named as the variable has it."""
    spelt, real = "/usr/local/cuda/lib64/", "/usr/local/cuda-13.0/targets/x86_64-linux/lib"
    path = {"libraries": {spelt: ("libcudart.so.13",)}, "real_folders": {real: spelt}}
    found = link("cuda", facts(torch={"mapped": [f"{real}/libcudart.so.13"]}, machine=path))
    assert found.reason == (
        f"libcudart.so.13 was loaded from {real}, which is in LD_LIBRARY_PATH as {spelt}."
    )
    assert found.remedy is not None
    assert found.remedy.startswith(f"Take {spelt} out of LD_LIBRARY_PATH")
    slash = {"libraries": {f"{real}/": ("libcudart.so.13",)}, "real_folders": {real: f"{real}/"}}
    found = link("cuda", facts(torch={"mapped": [f"{real}/libcudart.so.13"]}, machine=slash))
    assert found.reason == f"libcudart.so.13 was loaded from {real}, which is in LD_LIBRARY_PATH."


def test_a_library_path_that_leads_to_torchs_own_by_links() -> None:
    """That is no stranger, by whatever name: of the folder, or of torch's."""
    own, spelt = CUDNN_FILE.rpartition("/")[0], "/home/anna/cudnn"
    path = {"libraries": {spelt: ("libcudnn.so.9",)}, "real_folders": {own: spelt}}
    assert link("cudnn", facts(machine=path)).status == "ok"
    linked = facts(
        torch={"file": "/env/lib64/python3.12/site-packages/torch/__init__.py"},
        machine={"libraries": {own: ("libcudnn.so.9",)}, "real_folders": {own: own}},
        packages={"torch": TorchFiles("/x/torch/__init__.py", (), "2", "13", f"{SITE}/torch/__init__.py")},
    )
    assert link("cudnn", linked).status == "ok"


def test_nccl() -> None:
    """A build without it is none for several GPUs, and no fault; a switch that makes it slow is named."""
    assert link("nccl", facts(torch={"nccl": None})).status == "skipped"
    assert told(link("nccl", facts(variables={"NCCL_P2P_DISABLE": "1"})))[:2] == (
        "warning",
        "NCCL_P2P_DISABLE is set: NCCL does without GPUs' direct access, and is slower.",
    )
    assert link("nccl", facts(variables={"NCCL_P2P_DISABLE": "0"})).status == "ok"


# -- the driver ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "cuda", "least", "older"),
    [
        ("570.124.06", "13.0", "580", f"12.6: {PIP} {FROM}/cu126. PyTorch 2.14 {LAST}"),
        ("470.256.02", "12.8", "525", f"11.8: {PIP} {FROM}/cu118. PyTorch 2.7 {LAST}"),
    ],
)
def test_a_driver_too_old_for_torchs_cuda(driver: str, cuda: str, least: str, older: str) -> None:
    """Which is needed, and the two ways out of it."""
    one = facts(
        torch={
            "cuda": cuda,
            "available": False,
            "warnings": ["The NVIDIA driver on your system is too old."],
        },
        nvml=nvml(h200(), driver=driver, cuda_driver="12.8"),
    )
    assert link("gpu", one).status == "ok"
    assert told(link("driver", one)) == (
        "broken",
        f"Driver {driver} is too old for a PyTorch built with CUDA {cuda}, which needs {least} or newer.",
        f"Update the driver to {least} or newer, or install a PyTorch built with CUDA {older}",
    )


def test_where_no_build_runs_only_the_driver_is_named() -> None:
    """A driver before CUDA 11's, or one that is too old for a new GPU's only builds."""
    for driver, capability in (("440.33", "8.0"), ("515.65.01", "12.0")):
        there = nvml(h200(compute_capability=capability), driver=driver)
        too_old = facts(torch={"cuda": "12.8", "available": False}, nvml=there)
        assert told(link("driver", too_old))[2] == "Update the driver to 525 or newer."
        assert told(link("torch", facts(torch={"cuda": None}, nvml=there)))[2] == (
            f"Update the driver to 580 or newer first: no build of PyTorch runs with {driver}."
        )
    old = facts(torch={"cuda": None}, nvml=nvml(h200(compute_capability="7.0"), driver="440.33"))
    assert told(link("torch", old))[2] == (
        "Update the driver to 525 or newer first: no build of PyTorch runs with 440.33."
    )
    ancient = facts(torch={"cuda": None}, nvml=nvml(h200(compute_capability="3.7")))
    assert told(link("torch", ancient))[2] == (
        "PyTorch's builds have no code for this GPU any more: use another GPU, or build it from source."
    )


def test_no_driver_is_named_for_a_gpu_that_this_cuda_has_dropped() -> None:
    """A Volta with a PyTorch for CUDA 13: a newer driver would run that, but it has no code for the GPU."""
    there = nvml(h200(compute_capability="7.0"), driver="570.86")
    one = facts(torch={"cuda": "13.2", "available": False}, nvml=there)
    assert told(link("driver", one)) == (
        "broken",
        "Driver 570.86 is too old for a PyTorch built with CUDA 13.2, which needs 580 or newer.",
        f"Install a PyTorch built with CUDA 12.6: {PIP} {FROM}/cu126. PyTorch 2.14 {LAST}",
    )


def test_on_arm_the_builds_are_others() -> None:
    """None of them is for a GPU before Ampere."""
    there, arm = nvml(h200(compute_capability="7.5"), driver="580.95.05"), {"architecture": "aarch64"}
    assert told(link("torch", facts(torch={"cuda": None}, nvml=there, machine=arm)))[2] == (
        "PyTorch's builds have no code for this GPU any more: use another GPU, or build it from source."
    )


@pytest.mark.parametrize("machine", [{"architecture": "aarch64"}, {"system": "win32"}])
def test_where_the_build_without_an_address_is_for_the_cpu(machine: dict[str, Any]) -> None:
    """On a GH200, and on Windows, pip needs the address also for the newest build."""
    one = facts(machine=machine, **NOT_INSTALLED)
    assert told(link("torch", one))[2] == f"Install it: {PIP} install torch --index-url {WHEELS}/cu130."


def test_an_installation_brings_a_build_that_runs_here() -> None:
    """Without an address pip takes the newest one, for which a driver may be too old."""
    there = nvml(h200(), driver="535.183.01")
    build = f"torch --index-url {WHEELS}/cu126. PyTorch 2.14 {LAST}"
    assert told(link("torch", facts(nvml=there, **NOT_INSTALLED)))[2] == (
        f"Install it: {PIP} install {build}"
    )
    broken = facts(nvml=there, torch=no_import("No module named 'sympy'", "ModuleNotFoundError"))
    assert told(link("torch", broken))[2] == (
        f"Install it anew with its libraries: {PIP} install --force-reinstall {build}"
    )


def test_one_driver_runs_all_minor_versions_of_its_cuda() -> None:
    """CUDA 12.9 runs with driver 525, though nvidia-smi then says 12.0."""
    one = facts(torch={"cuda": "12.9"}, nvml=nvml(h200(), driver="525.60.13", cuda_driver="12.0"))
    assert told(link("driver", one)) == ("ok", None, None)


def test_what_cuda_gets_along_with_is_not_broken() -> None:
    """Where CUDA starts and shows a GPU, a trouble of NVML's or of files is a warning; and an old driver that
    a forward-compatibility package makes do is none."""
    odd: dict[str, Any] = {"nvml": no_driver(999, words.cannot_start(999, "")), "machine": {"devices": ()}}
    one = facts(**odd)
    assert [link(which, one).status for which in ("driver", "device_files")] == ["warning", "warning"]
    broken = facts(torch={"cu_init": None, "cu_count": None}, **odd)
    assert [link(which, broken).status for which in ("driver", "device_files")] == ["broken", "broken"]
    compatible = facts(nvml=nvml(h200(), driver="535.183.01"))
    assert link("driver", compatible).status == "ok"
    unasked = facts(nvml=nvml(h200(), driver="535.183.01"), variables={"PYTORCH_NVML_BASED_CUDA_CHECK": "1"})
    assert link("driver", unasked).status == "broken"


def test_libraries_and_kernel_module_that_do_not_fit() -> None:
    """After an update without a restart; the module that is still loaded is named."""
    broken = no_driver(18, words.cannot_start(18, ""))
    one = facts(torch=NO_CUDA, nvml=broken, machine={"module": "570.86.15"})
    assert told(link("driver", one)) == (
        "broken",
        "The driver's libraries were updated while the old kernel module runs (570.86.15 is still loaded).",
        "Restart the machine, or reload the driver's modules; a container must be started anew after that.",
    )
    assert link("gpu", one).status == "unknown"


@pytest.mark.parametrize("code", [4, 9, 12, 15, 17, 999, 77])
def test_every_other_error_of_nvml_has_its_remedy(code: int) -> None:
    """The words are those that every view has for it, as reason and remedy."""
    one = link("driver", facts(torch=NO_CUDA, nvml=no_driver(code, words.cannot_start(code, "odd"))))
    assert one.status == "broken"
    assert f"{one.reason} {one.remedy}" == words.cannot_start(code, "odd")


def test_a_missing_binding_is_not_a_broken_driver() -> None:
    """Without nvidia-ml-py torch works; the driver's version is the kernel module's."""
    one = link("driver", facts(nvml=no_driver(NO_BINDING, words.NO_PYNVML)))
    assert (one.status, one.found) == ("unknown", "580.95.05, for CUDA up to 13.0")
    assert one.remedy == "Install it: pip install nvidia-ml-py."


def test_a_driver_that_hangs() -> None:
    """It is said how long it was waited for; the links beside it are examined all the same."""
    one = facts(torch=NO_CUDA, nvml=None, nvml_said=Said("hung", ""))
    assert told(link("driver", one))[:2] == ("broken", "The driver has not answered within 60 s.")
    assert link("torch", one).status == link("shm", one).status == "ok"


NO_GPUS: dict[str, Any] = {
    "nvml": no_driver(12, words.cannot_start(12, "")),
    "torch": {"cu_init": None, "libcuda_error": "libcuda.so.1: cannot open", "available": False},
}


@pytest.mark.parametrize(
    ("variables", "remedy"),
    [
        ({}, "Start the container with the machine's GPUs: docker run --gpus all …"),
        (
            {"NVIDIA_VISIBLE_DEVICES": "void"},
            "NVIDIA_VISIBLE_DEVICES is 'void' here: set it to all, or docker run --gpus all …",
        ),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
            "Ask for a GPU in the pod's resources: limits: nvidia.com/gpu: 1.",
        ),
    ],
)
def test_a_container_without_gpus(variables: dict[str, str], remedy: str) -> None:
    """No library, no device files, a container: that is how it shows, though the host has a driver."""
    one = facts(machine={"container": "/.dockerenv", "devices": ()}, variables=variables, **NO_GPUS)
    assert told(link("driver", one)) == (
        "broken",
        "This container was started without the machine's GPUs.",
        remedy,
    )
    assert told(link("device_files", one)) == (
        "broken",
        "This container has no /dev/nvidia* (the host's driver is 580.95.05).",
        remedy,
    )


@pytest.mark.parametrize(
    ("code", "which", "reason"),
    [
        (
            802,
            "driver",
            "The driver is not ready: GPUs that are joined by NVSwitch wait for the fabric "
            "manager (error 802).",
        ),
        (
            804,
            "driver",
            "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05 does not fit the driver that is loaded "
            "(error 804).",
        ),
        (
            34,
            "driver",
            "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05 is a stub to link with, not the driver.",
        ),
        (46, "gpu", "The GPU is taken by another process that has it alone."),
        (999, "gpu", "CUDA does not start (error 999): the driver's module for memory may be out of order."),
        (1, "gpu", "CUDA does not start: CUDA_ERROR: words (1)."),
    ],
)
def test_cuda_that_does_not_start(code: int, which: str, reason: str) -> None:
    """The error of CUDA's own driver library, with what it means where that is known."""
    one = facts(torch={"cu_init": code, "cu_text": "CUDA_ERROR: words", "cu_count": None, "available": False})
    assert told(link(which, one))[:2] == ("broken", reason)


def test_a_container_with_the_tools_but_without_cuda() -> None:
    """nvidia-smi works there, and torch does not: the container's capabilities are short of 'compute'."""
    one = facts(
        torch={"libcuda_error": "libcuda.so.1: cannot open shared object file", "cu_init": None},
        machine={"container": "/.dockerenv"},
        variables={"NVIDIA_DRIVER_CAPABILITIES": "utility"},
    )
    assert told(link("driver", one)) == (
        "broken",
        "CUDA's driver library is not in this container: its capabilities are 'utility'.",
        "Start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility.",
    )


# -- device files ----------------------------------------------------------------------------------------


def test_device_files_without_permission() -> None:
    """Which, and how they are set."""
    one = facts(torch=NO_CUDA, machine={"devices": devices("nvidia0", "nvidiactl", usable=False)})
    found = link("device_files", one)
    assert (found.status, found.reason) == (
        "broken",
        "This user may not use /dev/nvidia0, /dev/nvidiactl (crw-rw-rw- 0:0).",
    )


def test_device_files_that_are_missing() -> None:
    """None of a GPU's, none to control it, none at all with the driver loaded or not."""
    uvm = facts(torch=NO_CUDA, machine={"expected": ("/dev/nvidia-uvm",)})
    assert told(link("device_files", uvm)) == (
        "broken",
        "/dev/nvidia-uvm missing: CUDA does not start without.",
        "Make them: sudo nvidia-modprobe -c 0 -u.",
    )
    no_gpu = facts(torch=NO_CUDA, machine={"devices": devices("nvidiactl", "nvidia-uvm")})
    assert told(link("device_files", no_gpu))[1] == (
        "There are the driver's files, but none of a GPU (/dev/nvidia0)."
    )
    broken = no_driver(9, words.cannot_start(9, ""))
    loaded = facts(torch=NO_CUDA, machine={"devices": ()}, nvml=broken)
    assert told(link("device_files", loaded))[1] == "The driver is loaded, but there is no /dev/nvidia*."
    absent = facts(torch=NO_CUDA, machine={"devices": (), "module": None}, nvml=broken)
    assert told(link("device_files", absent)) == (
        "broken",
        "There is no /dev/nvidia*: no NVIDIA driver is loaded, or there is no NVIDIA GPU.",
        "See whether lspci lists an NVIDIA GPU, and install its driver.",
    )


def test_wsl_has_another_file() -> None:
    """The GPU comes through /dev/dxg there."""
    there = facts(machine={"system": "wsl", "devices": devices("dxg")})
    assert (link("device_files", there).status, link("device_files", there).found) == ("ok", "/dev/dxg (WSL)")
    assert link("device_files", facts(machine={"system": "wsl", "devices": ()})).status == "broken"


# -- the GPUs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "archs", "status"),
    [
        ("9.0", "sm_80 sm_90", "ok"),
        ("8.9", "sm_80 sm_86", "ok"),
        ("9.0", "sm_80 compute_80", "warning"),
        ("9.0", "sm_80 sm_90a", "broken"),
        ("12.0", "sm_80 sm_90", "broken"),
        ("6.1", "sm_75 sm_80 compute_80", "broken"),
        ("8.0", "sm_86", "broken"),
    ],
)
def test_code_for_this_gpu(capability: str, archs: str, status: str) -> None:
    """Made for it or an older one of its family; else compiled from PTX; else none."""
    gpu = h200(compute_capability=capability, name="NVIDIA X")
    assert link("gpu", facts(torch={"archs": archs.split()}, nvml=nvml(gpu))).status == status


def test_no_code_for_a_gpu_says_which_way_to_go() -> None:
    """A newer torch for a newer GPU, an older one for an older GPU."""
    newer = facts(
        torch={"archs": ["sm_80", "sm_90"]},
        nvml=nvml(h200(compute_capability="12.0", name="NVIDIA RTX 5090"), driver="570.86"),
    )
    assert told(link("gpu", newer)) == (
        "broken",
        "This PyTorch has no code for NVIDIA RTX 5090 (compute capability 12.0): it was "
        "built for sm_80 sm_90.",
        f"Install a newer PyTorch: {PIP} {FROM}/cu128. PyTorch 2.11 {LAST}",
    )
    older = facts(torch={"archs": ["sm_75"]}, nvml=nvml(h200(compute_capability="6.1", name="NVIDIA P4")))
    assert told(link("gpu", older))[2] == (
        "Install an older PyTorch, which still knows NVIDIA P4, or a build with CUDA 12.6: "
        f"{PIP} {FROM}/cu126. PyTorch 2.14 {LAST}"
    )
    kepler = facts(torch={"archs": ["sm_75"]}, nvml=nvml(h200(compute_capability="3.7", name="NVIDIA K80")))
    assert told(link("gpu", kepler))[2] == "Install an older PyTorch, which still knows NVIDIA K80."


def test_a_lost_gpu_among_others() -> None:
    """It is named, and the others are there."""
    lost = ("GPU 1 fell off the bus or lost its power; a reboot of the machine usually brings it back.",)
    found = link("gpu", facts(nvml=nvml(h200(), lost=lost)))
    assert (found.status, found.reason) == ("warning", lost[0])
    assert link("gpu", facts(nvml=nvml(lost=lost))).status == "broken"


def test_torch_that_cannot_use_a_cuda_that_starts() -> None:
    """Its own warning is the reason."""
    one = facts(torch={"available": False, "warnings": ["CUDA initialization: Unexpected error."]})
    assert told(link("gpu", one))[:2] == (
        "broken",
        "CUDA starts, but PyTorch can't use it: CUDA initialization: Unexpected error.",
    )


@pytest.mark.parametrize("said", [{"cu_init": 100, "cu_count": None}, {"cu_init": 0, "cu_count": 0}])
def test_cuda_that_finds_no_gpu(said: dict[str, Any]) -> None:
    """Told once: by what hides or forbids them all, else by the GPU's own link."""
    nothing = {**said, "available": False}
    unexplained = facts(torch=nothing, variables={"CUDA_VISIBLE_DEVICES": "0"})
    assert told(link("gpu", unexplained))[:2] == (
        "broken",
        "The driver lists GPUs, but CUDA finds none that it may use.",
    )
    hidden = facts(torch=nothing, variables={"CUDA_VISIBLE_DEVICES": "-1"})
    forbidden = facts(torch=nothing, nvml=nvml(h200(compute_mode="prohibited")))
    assert [link("gpu", one).status for one in (hidden, forbidden)] == ["ok", "ok"]
    assert (link("visible", hidden).status, link("sharing", forbidden).status) == ("broken", "broken")


@pytest.mark.parametrize(
    ("value", "status", "found"),
    [
        ("", "broken", "none"),
        ("0", "ok", "1 of 2 GPUs"),
        ("1,0", "ok", "2 of 2 GPUs"),
        (UUIDS[1][:12], "ok", "1 of 2 GPUs"),
        ("0,2", "warning", "1 of 2 GPUs"),
        ("-1", "broken", "none"),
        ("NoDevFiles", "broken", "none"),
        ("0,0", "broken", "none"),
    ],
)
def test_cuda_visible_devices(value: str, status: str, found: str) -> None:
    """What it leaves of the GPUs."""
    one = facts(variables={"CUDA_VISIBLE_DEVICES": value}, nvml=nvml(h200(0), h200(1)))
    visible = link("visible", one)
    assert (visible.status, visible.found) == (status, found)


def shown(*indices: int) -> dict[str, Any]:
    """What the child says where CUDA shows these GPUs to it."""
    if not indices:
        return {"cu_init": 100, "cu_count": None, "available": False}
    cuda = [
        {"name": "NVIDIA H200", "uuid": UUIDS[index][4:].replace("-", ""), "capability": "9.0"}
        for index in indices
    ]
    return {"cu_devices": cuda, "cu_count": len(cuda)}


@pytest.mark.parametrize(
    ("value", "mine", "now", "what", "found"),
    [
        ("", (0, 1), (), "CUDA_VISIBLE_DEVICES was set to ''", "2 of 2 GPUs"),
        ("7", (0, 1), (), "CUDA_VISIBLE_DEVICES was set to '7'", "2 of 2 GPUs"),
        ("1", (0, 1), (1,), "CUDA_VISIBLE_DEVICES was set to '1'", "2 of 2 GPUs"),
        ("1", (0,), (1,), "CUDA_VISIBLE_DEVICES was set to '1'", "1 of 2 GPUs"),
        (None, (0,), (0, 1), "CUDA_VISIBLE_DEVICES was unset", "1 of 2 GPUs"),
    ],
)
def test_a_variable_that_was_set_after_cuda_was_started(
    value: str | None, mine: tuple[int, ...], now: tuple[int, ...], what: str, found: str
) -> None:
    """The notebook goes on with the GPUs that it has: nothing is broken, and nothing is hidden."""
    one = facts(
        torch=shown(*now),
        variables={} if value is None else {"CUDA_VISIBLE_DEVICES": value},
        nvml=nvml(h200(0), h200(1)),
        notebook=Notebook("2.13.0", devices=[UUIDS[index][4:] for index in mine]),
    )
    assert told(link("visible", one)) == (
        "warning",
        f"{what} after CUDA was started: it has no effect in this notebook until a restart.",
        "Restart the kernel, and set it before anything uses CUDA.",
    )
    assert link("visible", one).found == f"{found} in this notebook"
    assert diagnosis(one).status == "warning"


def test_a_variable_that_was_set_in_time() -> None:
    """The notebook has what CUDA shows now; nor is a GPU that was lost since a variable's work."""
    two = nvml(h200(0), h200(1))
    mine = Notebook("2.13.0", devices=[UUIDS[1][4:]])
    value = {"CUDA_VISIBLE_DEVICES": "1"}
    one = facts(torch=shown(1), variables=value, nvml=two, notebook=mine)
    assert told(link("visible", one)) == ("ok", None, None)
    unsaid = facts(torch=shown(1), variables=value, nvml=two, notebook=Notebook("2.0", devices=[None]))
    assert link("visible", unsaid).status == "ok"
    both = Notebook("2.13.0", devices=[UUIDS[0][4:], UUIDS[1][4:]])
    lost = facts(torch=shown(0), nvml=nvml(h200(0), lost=("GPU 1 is lost.",)), notebook=both)
    assert link("visible", lost).status == "ok"


def test_a_bad_entry_of_cuda_visible_devices_is_named() -> None:
    """And what becomes of those after it."""
    one = facts(variables={"CUDA_VISIBLE_DEVICES": "0,7,1"}, nvml=nvml(h200(0), h200(1)))
    assert told(link("visible", one)) == (
        "warning",
        "CUDA_VISIBLE_DEVICES is '0,7,1', of which '7' is no GPU here: there are 2 GPUs, "
        "numbered from 0. CUDA "
        "passes over it and all that follows.",
        "Unset CUDA_VISIBLE_DEVICES, or name GPUs by nvidia-smi -L's numbers or UUIDs, and "
        "start the kernel anew.",
    )


def test_mig_without_a_slice() -> None:
    """Such a GPU can't be used at all; beside others that can, it is a warning."""
    empty = h200(0, mig=True, mig_pending=True)
    assert told(link("sharing", facts(nvml=nvml(empty)))) == (
        "broken",
        "MIG is on without a slice on GPU 0: CUDA can't use it.",
        "Cut it: sudo nvidia-smi mig -cgi 0 -C (profiles: nvidia-smi mig -lgip), or switch MIG off (-mig 0).",
    )
    assert link("sharing", facts(nvml=nvml(empty, h200(1)))).status == "warning"
    cut = h200(0, mig=True, mig_pending=True, slices=("MIG-a", "MIG-b"))
    assert told(link("sharing", facts(nvml=nvml(cut)))) == ("ok", None, None)
    assert link("sharing", facts(nvml=nvml(cut))).found == "MIG: 2 slices"


def test_compute_modes_and_mps() -> None:
    """'prohibited' breaks, 'exclusive process' is to be known, unless MPS shares the GPU."""
    assert told(link("sharing", facts(nvml=nvml(h200(compute_mode="prohibited")))))[:2] == (
        "broken",
        "The compute mode of GPU 0 is 'prohibited': CUDA can't use it.",
    )
    alone = nvml(h200(compute_mode="exclusive process"))
    assert told(link("sharing", facts(nvml=alone)))[:2] == (
        "warning",
        "GPU 0 takes one process at a time (compute mode 'exclusive process').",
    )
    shared = link("sharing", facts(nvml=alone, machine={"mps": "/tmp/nvidia-mps"}))
    assert (shared.status, shared.found) == ("ok", "whole GPUs, MPS runs")


# -- how well they are -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "status", "reason"),
    [
        (
            {"ecc_uncorrected": 2},
            "warning",
            "GPU 0 had 2 uncorrected memory errors since the driver was loaded: results of "
            "programs that ran then "
            "may be lost.",
        ),
        (
            {"remap_pending": True},
            "warning",
            "GPU 0 has memory to set aside after an error, which waits for a reset.",
        ),
        (
            {"retired_pending": True},
            "warning",
            "GPU 0 has memory to set aside after an error, which waits for a reset.",
        ),
        (
            {"remap_failed": True},
            "broken",
            "GPU 0 has broken memory that it could not replace (row remapping failed).",
        ),
        ({"throttle": ("too hot (hardware)",)}, "warning", "GPU 0 is slowed down now: too hot (hardware)."),
        (
            {"persistence": False},
            "warning",
            "Nothing keeps 1 GPU initialised (persistence mode is off): the first use "
            "after a pause waits seconds "
            "for the driver, and what was set is lost.",
        ),
    ],
)
def test_what_ails_a_gpu(trouble: dict[str, Any], status: str, reason: str) -> None:
    """Memory errors, heat, a driver that nothing keeps ready."""
    assert told(link("health", facts(nvml=nvml(h200(**trouble)))))[:2] == (status, reason)


def test_one_bad_gpu_among_good_ones_breaks_nothing() -> None:
    """torch computes on the others; the one is named."""
    one = facts(nvml=nvml(h200(0), h200(1, remap_failed=True)))
    assert told(link("health", one)) == (
        "warning",
        "GPU 1 has broken memory that it could not replace (row remapping failed).",
        "Have the GPU replaced, and do not use it until then.",
    )
    assert diagnosis(one).status == "warning"
    both = facts(nvml=nvml(h200(0, remap_failed=True), h200(1, remap_failed=True)))
    assert link("health", both).status == "broken"


@pytest.mark.parametrize("throttle", [("power cap",), ("idle",), ("clock setting",), None])
def test_what_is_meant_to_be_so_ails_nobody(throttle: tuple[str, ...] | None) -> None:
    """A GPU under full load is at its power limit."""
    assert link("health", facts(nvml=nvml(h200(throttle=throttle)))).status == "ok"


def test_errors_in_the_kernels_log() -> None:
    """Those of GPUs are told with what they mean; those of users' programs are read and no fault."""
    one = facts(machine={"xids": (("0000:17:00", 31), ("0000:17:00", 79), ("0000:17:00", 79))})
    found = link("health", one)
    assert found.reason == "The driver has reported XID 79 of 0000:17:00 (the GPU fell off the bus)."
    assert found.evidence["errors in the kernel's log"] == (
        "XID 31 of 0000:17:00 (a kernel read or wrote memory that is not its own), "
        "XID 79 of 0000:17:00 (the GPU fell off the bus)"
    )
    assert link("health", facts(machine={"xids": (("0000:17:00", 13),)})).status == "ok"
    unread = link("health", facts(machine={"xids": None}))
    assert (unread.status, unread.evidence["errors in the kernel's log"]) == (
        "ok",
        "this user may not read it",
    )


def test_pcie_with_fewer_lanes_than_it_could_have() -> None:
    """Its width is a fault; a generation that falls while it is idle is none."""
    assert told(link("pcie", facts(nvml=nvml(h200(pcie_width=8)))))[:2] == (
        "warning",
        "GPU 0 has 8 of its 16 PCIe lanes: copies to and from it are slower.",
    )
    assert link("pcie", facts(nvml=nvml(h200(pcie_generation=1)))).status == "ok"
    assert link("pcie", facts(nvml=nvml(h200(pcie_width=None)))).status == "skipped"


def test_the_matrix_of_gpus() -> None:
    """Who reaches whom, and how; consumer cards that all go through the host are no fault."""
    pair = (h200(0), h200(1))
    assert link("peers", facts(nvml=nvml(*pair))).evidence == {"GPU 0": "1:NVLink", "GPU 1": "0:NVLink"}
    three = (*pair, h200(2))
    some = tuple(
        Peer(one, other, nvlink=False, reads=2 not in (one, other))
        for one in range(3)
        for other in range(3)
        if one != other
    )
    assert told(link("peers", facts(nvml=nvml(*three, peers=some)))) == (
        "warning",
        "Some GPUs can't read each other's memory: 0 and 2, 1 and 2; copies go through the host.",
        "Put GPUs that work together where they reach each other: nvidia-smi topo -m.",
    )
    none = tuple(Peer(one, 1 - one, nvlink=False, reads=False) for one in range(2))
    assert link("peers", facts(nvml=nvml(*pair, peers=none))).status == "ok"
    unsaid = tuple(Peer(one, 1 - one, nvlink=None, reads=None) for one in range(2))
    assert link("peers", facts(nvml=nvml(*pair, peers=unsaid))).status == "unknown"


# -- around them -----------------------------------------------------------------------------------------


def test_small_shared_memory() -> None:
    """Docker's 64 MiB are too few for a DataLoader's workers."""
    small = {"shm": SharedMemory(64 * 1024**2, 64 * 1024**2)}
    docker = link("shm", facts(machine={**small, "container": "/.dockerenv"}))
    assert told(docker) == (
        "warning",
        "/dev/shm has 64 MiB: workers of a DataLoader die with a bus error when it is full.",
        "Start the container with more: docker run --shm-size=8g … (Kubernetes: an "
        "emptyDir with medium Memory).",
    )
    assert told(link("shm", facts(machine=small)))[2] == (
        "Make it larger: sudo mount -o remount,size=50% /dev/shm."
    )
    full = link("shm", facts(machine={"shm": SharedMemory(8 * GIB, 0)}))
    assert full.reason == "/dev/shm is full: 0 MiB of 8.0 GiB are free."
    assert link("shm", facts(machine={"shm": None})).status == "skipped"


def test_another_packages_files_over_ours() -> None:
    """PyPI's older gpuwidget has our import name: what it overwrote is named, and how to get it back."""
    anew = f"{PIP} uninstall -y gpuwidget, then install --force-reinstall --no-deps jupyterlab-gpuwidget."
    over = facts(packages={"other": "0.0.3", "changed": ("gpuwidget/__init__.py",)})
    assert told(link("package", over)) == (
        "warning",
        "1 file of gpuwidget's was overwritten by the package gpuwidget 0.0.3.",
        anew,
    )
    beside = facts(packages={"other": "0.0.3"})
    assert told(link("package", beside))[1:] == (
        "The package gpuwidget 0.0.3, somebody else's, is installed beside "
        "jupyterlab-gpuwidget: both have the import "
        "name gpuwidget.",
        anew,
    )


def test_a_recording_is_not_this_machine() -> None:
    """Where charts play a recording, the doctor says that it looked at the machine."""
    assert told(link("package", facts(variables={"GPUWIDGET_SOURCE": "replay"}))) == (
        "warning",
        "GPUWIDGET_SOURCE is 'replay': charts do not show this machine's GPUs. The doctor looked at those.",
        "Unset GPUWIDGET_SOURCE to see this machine's GPUs.",
    )


def test_the_summary_names_what_to_mend_first() -> None:
    """The first broken link with its reason, and how many more."""
    broken = diagnosis(facts(machine={"container": "/.dockerenv", "devices": ()}, **NO_GPUS))
    assert (broken.status, broken.summary) == (
        "broken",
        "Broken: Driver. This container was started without the machine's GPUs. 1 other link is broken too.",
    )
    doubtful = diagnosis(facts(nvml=nvml(h200(pcie_width=8))))
    assert (doubtful.status, doubtful.summary) == (
        "warning",
        "Nothing is broken; 1 link to look at: PCIe first.",
    )


def test_no_secret_is_shown() -> None:
    """Of the environment's variables only those on the list are looked at."""
    variables = {"AWS_SECRET_ACCESS_KEY": "s3cret", "CUDA_VISIBLE_DEVICES": "0", "HF_TOKEN": "s3cret"}
    doctor = diagnosis(facts(variables=variables))
    assert doctor.variables == {"CUDA_VISIBLE_DEVICES": "0"}
    assert "s3cret" not in repr(doctor)


def test_a_fact_that_nobody_knows_breaks_no_link() -> None:
    """With nothing known of anything, every link says something, and none is called broken for that alone."""
    unknown: dict[str, Any] = {
        field.name: None for field in fields(GpuHealth) if str(field.type).endswith("| None")
    }
    blank = facts(torch=dict.fromkeys(TORCH), nvml=nvml(h200(**unknown)))
    statuses = {one.id: one.status for one in diagnosis(blank).links}
    assert [which for which, status in statuses.items() if status == "broken"] == ["torch"]
