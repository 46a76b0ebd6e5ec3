"""Probe results of a healthy machine with an H200, which tests modify,
and a fake torch and a fake CUDA driver library."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from helpers_programs import compile_library

from gpuwidget.diagnostics.machine import DeviceFile, MachineState
from gpuwidget.diagnostics.packages import InstalledPackage, InstalledPackages
from gpuwidget.diagnostics.probe_process import Ending, ProbeResult
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.diagnostics.run_checks import diagnose
from gpuwidget.diagnostics.target import NotebookState
from gpuwidget.diagnostics.torch_copies import TorchCopy, TorchFiles
from gpuwidget.model.diagnosis import Check
from gpuwidget.sources.nvml_diagnostics import GpuDiagnostics, NvmlDiagnostics, PeerAccess
from gpuwidget.system.host_limits import SharedMemory

GIB = 1024**3
SITE = "/env/lib/python3.12/site-packages"
CUDNN_FILE = f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"
PIP = "/env/bin/python -m pip"
WHEELS = "https://download.pytorch.org/whl"


def build(wheel: str, wanted: str | None = None) -> str:
    """Return the pip command that installs torch 2.13.0 from the index for ``wheel`` (such as cu130).
    If ``wanted`` is given, the command installs that requirement instead of torch 2.13.0."""
    return f"{PIP} install {wanted or f'torch==2.13.0+{wheel}'} --index-url {WHEELS}/{wheel}"


NO_CUDA = {"cu_init": None, "cu_count": None, "available": False}
"""Values that the probes report if CUDA can't be initialized."""
UUIDS = [f"GPU-{index}0000000-0000-4000-8000-000000000000" for index in range(8)]

TORCH: dict[str, Any] = {
    "step": "end",
    "imported": True,
    "version": "2.13.0",
    "file": f"{SITE}/torch/__init__.py",
    "cuda": "13.0",
    "hip": None,
    "archs": ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"],
    "cudnn": 91002,
    "cudnn_enabled": True,
    "cudnn_compiled": "9.10.2",
    "distributed": True,
    "nccl": "2.27.5",
    "available": True,
    "count": 1,
    "warnings": [],
    "mapped": [
        f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.13",
        CUDNN_FILE,
        f"{SITE}/nvidia/nccl/lib/libnccl.so.2",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05",
    ],
}
"""Values that the torch probe reports for a working torch."""
CUDA: dict[str, Any] = {
    "step": "end",
    "cuda_driver": 13000,
    "cu_init": 0,
    "cu_text": None,
    "cu_count": 1,
}
"""Values that the CUDA probe reports for a working driver library."""


def h200(index: int = 0, **results: Any) -> GpuDiagnostics:
    """Return the health of a healthy GPU, with the given fields replaced."""
    whole = GpuDiagnostics(
        index=index,
        uuid=UUIDS[index],
        name="NVIDIA H200",
        pci_bus_id=f"00000000:{index + 1:02X}:00.0",
        compute_capability="9.0",
        mig=False,
        mig_pending=False,
        slices=(),
        compute_mode="default",
        persistence=True,
        ecc=True,
        ecc_uncorrected=0,
        retired_pending=False,
        remapped=0,
        remap_pending=False,
        remap_failed=False,
        pcie_generation=5,
        pcie_generation_max=5,
        pcie_width=16,
        pcie_width_max=16,
        throttle=(),
        missing={},
    )
    return replace(whole, **results)


def nvml(*gpus: GpuDiagnostics, **values: Any) -> NvmlDiagnostics:
    """Return the NVML results of a working driver, with NVLink between all GPUs."""
    peers = tuple(
        PeerAccess(one.index, other.index, nvlink=True, reads=True)
        for one in gpus
        for other in gpus
        if one != other
    )
    return replace(NvmlDiagnostics(None, None, "580.95.05", "13.0", gpus, (), peers), **values)


def no_driver(error: int, text: str = "") -> NvmlDiagnostics:
    """Return the NVML results of a driver whose initialization fails with this error code and error text."""
    return NvmlDiagnostics(error, text, None, None, (), (), ())


def devices(*names: str, usable: bool = True) -> tuple[DeviceFile, ...]:
    """Return device files under /dev."""
    return tuple(DeviceFile(f"/dev/{name}", usable, "crw-rw-rw- 0:0") for name in names)


MACHINE = MachineState(
    system="linux",
    architecture="x86_64",
    container=None,
    devices=devices("nvidia0", "nvidiactl", "nvidia-uvm"),
    expected=(),
    module="580.95.05",
    shm=SharedMemory(64 * GIB, 60 * GIB),
    mps=None,
    nvcc=None,
    xids=(),
    libraries={},
)
PACKAGES = InstalledPackages(
    torch=TorchFiles(f"{SITE}/torch/__init__.py", (f"{SITE}/torch",), "2.13.0", "13.0"),
    torch_copies=(TorchCopy("2.13.0", SITE, "13.0", metadata=("2.13.0",), by="pip"),),
    required={"nvidia-cudnn-cu13": "==9.10.2.21", "nvidia-nccl-cu13": "==2.27.5"},
    installed={
        "nvidia-cudnn-cu13": InstalledPackage("nvidia-cudnn-cu13", "9.10.2.21", "pip"),
        "nvidia-nccl-cu13": InstalledPackage("nvidia-nccl-cu13", "2.27.5", "pip"),
        "torch": InstalledPackage("torch", "2.13.0", "pip"),
    },
    cuda=(
        InstalledPackage("nvidia-cudnn-cu13", "9.10.2.21", "pip"),
        InstalledPackage("nvidia-nccl-cu13", "2.27.5", "pip"),
        InstalledPackage("torch", "2.13.0", "pip"),
    ),
    binding=(InstalledPackage("nvidia-ml-py", "13.580.65", "pip"),),
    conda=False,
    isolated=False,
    ours="0.1.0",
    ours_by="pip",
    other=None,
    changed=(),
)


def results(
    *,
    torch: Mapping[str, Any] | None = None,
    ending: Ending = "ended",
    detail: str = "",
    machine: Mapping[str, Any] | None = None,
    packages: Mapping[str, Any] | None = None,
    **values: Any,
) -> ProbeResults:
    """Return the probe results of a healthy machine, with the given values replaced."""
    found = dict(torch or {})
    of_cuda = {*CUDA, "cu_devices", "libcuda_error"} - {"step"}
    whole = ProbeResults(
        place="kernel",
        version="0.1.0",
        python="/env/bin/python",
        variables={},
        machine=replace(MACHINE, **(machine or {})),
        packages=replace(PACKAGES, **(packages or {})),
        torch_result=ProbeResult(
            ending, detail, {**TORCH, **{name: found[name] for name in found if name not in of_cuda}}
        ),
        cuda_result=ProbeResult(
            "ended", "", {**CUDA, **{name: found[name] for name in found if name in of_cuda}}
        ),
        nvml_result=ProbeResult("ended", "", {"step": "end"}),
        files_result=ProbeResult("ended", "", {"step": "end"}),
        nvml=nvml(h200()),
        timeout_s=15.0,
        notebook=NotebookState(),
    )
    return replace(whole, **values)


def check_of(which: str, of: ProbeResults) -> Check:
    """Diagnose the probe results ``of``, and return the check with the id ``which``."""
    return next(one for one in diagnose(of).links if one.id == which)


def checks_by_id(doctor: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the checks of a diagnosis in JSON, by their ids."""
    return {check["id"]: check for check in doctor["links"]}


def no_import(error: str, kind: str = "ImportError") -> dict[str, Any]:
    """Return the values that the torch probe reports if ``import torch`` raises this error."""
    nothing = dict.fromkeys((*TORCH, "imported"))
    return {**nothing, "step": "end", "import_error": error, "import_error_type": kind, "mapped": []}


# -- a fake torch and a fake CUDA driver library for real probe processes --------------------------------


def fake_torch(folder: Path, body: str, *, version: str = "2.10.0", cuda: str | None = "12.8") -> Path:
    """Create a package ``torch`` in ``folder`` whose import runs ``body``.
    Return ``folder``, which a test adds to ``sys.path``."""
    package = folder / "torch"
    package.mkdir(parents=True)
    (package / "version.py").write_text(f"__version__ = {version!r}\ncuda: str | None = {cuda!r}\n")
    (package / "__init__.py").write_text(textwrap.dedent(body))
    return folder


WORKING = """
from types import SimpleNamespace as _Names
from torch import version
from torch.version import __version__

_C = _Names(
    _nccl_version=lambda: (2, 27, 5),
    _cuda_getArchFlags=lambda: "sm_80 sm_90 compute_90",
    _cudnn=_Names(getCompileVersion=lambda: (9, 10, 2)),
)
backends = _Names(cudnn=_Names(version=lambda: 91002, enabled=True))
from_numpy = list
distributed = _Names(is_available=lambda: True)
cuda = _Names(
    nccl=_Names(version=lambda: (2, 27, 5)), is_available=lambda: True, device_count=lambda: 1
)
print("a library that talks")
"""
"""The source of a fake torch with working CUDA."""

_LIBCUDA = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static const char *value(const char *name, const char *fallback) {
  const char *found = getenv(name);
  return found ? found : fallback;
}
static int number(const char *name, const char *fallback) { return atoi(value(name, fallback)); }
int cuInit(unsigned flags) {
  const char *said = value("FAKE_CUINIT", "0");
  (void)flags;
  while (!strcmp(said, "hang")) sleep(600);
  if (!strcmp(said, "abort")) abort();
  if (!strcmp(said, "segfault")) *(volatile int *)0 = 0;
  return atoi(said);
}
int cuDriverGetVersion(int *out) { *out = number("FAKE_CUDA_DRIVER", "13000"); return 0; }
int cuGetErrorName(int error, const char **out) { (void)error; *out = "CUDA_ERROR_OF_A_TEST"; return 0; }
int cuGetErrorString(int error, const char **out) { (void)error; *out = "what a test says"; return 0; }
int cuDeviceGetCount(int *out) { *out = number("FAKE_CUDA_COUNT", "1"); return 0; }
int cuDeviceGet(int *out, int place) { *out = place; return 0; }
int cuDeviceGetName(char *out, int size, int on) { (void)on; strncpy(out, "NVIDIA H200", size); return 0; }
int cuDeviceGetUuid(void *out, int device) { (void)device; memset(out, 0xab, 16); return 0; }
int cuDeviceGetAttribute(int *out, int which, int on) { (void)on; *out = which == 75 ? 9 : 0; return 0; }
"""


def build_libcuda(folder: Path) -> Path:
    """Build a fake CUDA driver library with one H200.

    Its cuInit returns the value of the environment variable FAKE_CUINIT, or hangs, aborts or crashes if that
    is ``hang``, ``abort`` or ``segfault``. FAKE_CUDA_DRIVER is the driver's newest CUDA version, such as
    12080, and FAKE_CUDA_COUNT the number of devices.
    """
    source = folder / "libcuda.c"
    source.write_text(_LIBCUDA)
    library = folder / "libcuda.so.1"
    compile_library(source, library)
    return library


NOT_INSTALLED: dict[str, Any] = {
    "torch": no_import("No module named 'torch'"),
    "packages": {"torch": None, "cuda": (), "required": {}, "installed": {}},
}
NO_GPUS: dict[str, Any] = {
    "nvml": no_driver(12),
    "torch": {"cu_init": None, "libcuda_error": "libcuda.so.1: cannot open", "available": False},
}
"""Arguments with which :func:`results` returns the results of a machine without a driver."""


def issue(id_: str, **params: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the id and the parameters of an expected issue."""
    return id_, params


def fix(id_: str, command: str | None = None, **params: Any) -> tuple[str, str | None, Mapping[str, Any]]:
    """Return the id, the command and the parameters of an expected fix."""
    return id_, command, params


def outcome(
    one: Check,
) -> tuple[str, tuple[str, Mapping[str, Any]] | None, tuple[str, str | None, Mapping[str, Any]] | None]:
    """Return a check's status, and its worst issue and the issue's fix, comparable to :func:`issue` and
    :func:`fix`."""
    if not one.issues:
        return one.status, None, None
    worst = one.issues[0]
    found = None if worst.fix is None else fix(worst.fix.id, worst.fix.command, **worst.fix.params)
    return one.status, issue(worst.id, **worst.params), found
