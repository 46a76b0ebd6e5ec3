"""The state of the machine apart from its driver: device files, container, shared memory, libraries, kernel
log."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gpuwidget.diagnostics.same_library import same_library
from gpuwidget.sources import xids
from gpuwidget.sources.xids import XidAction
from gpuwidget.system import host_limits, kernel_log

VARIABLES = (
    "CUDA_DEVICE_ORDER",
    "CUDA_HOME",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "GPUWIDGET_SOURCE",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NCCL_IB_DISABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "PYTHONPATH",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NVML_BASED_CUDA_CHECK",
)
"""The only environment variables that are shown: those that CUDA, NCCL, torch's CUDA part and CPU threads,
Python's search for modules, the dynamic loader and gpuwidget itself read."""
_CONTAINERS = re.compile(r"docker|kubepods|containerd|crio|libpod|lxc|podman")
_GPU_FILE = re.compile(r"nvidia\d+")
_CONTROL_FILES = ("nvidiactl", "nvidia-uvm")
_NVIDIA_VENDOR, _DISPLAY_CLASS = "0x10de", "0x03"
"""PCI's id of NVIDIA, and the start of the class of display and 3D controllers, which GPUs have."""
_MODULE_VERSION = re.compile(r"Kernel Module(?: for \w+)?\s+([\d.]+)|\s(\d{3}\.\d+(?:\.\d+)?)\s")
_MAX_VALUE_LENGTH = 1000
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """One file through which programs access the driver."""

    path: str
    usable: bool
    """Whether this user has permission to read and write it."""
    mode: str
    """The file's permissions as ``ls -l`` shows them, with owner and group as numbers."""


class LoggedXid(NamedTuple):
    """An error that the driver has written to the kernel log."""

    gpu: str
    """The GPU's PCI address, such as ``0000:65:00``."""
    number: int
    time: float
    """Epoch seconds."""
    action: XidAction


@dataclass(frozen=True, slots=True)
class MachineState:
    """The state of the machine, as visible to this process."""

    system: str
    """One of ``linux``, ``wsl``, ``jetson``, ``darwin`` (macOS)."""
    architecture: str
    container: str | None
    """The evidence that this is a container; None outside a container."""
    devices: tuple[DeviceFile, ...]
    """The device files of the GPUs and their control files, ordered by name."""
    expected: tuple[str, ...]
    """Control files that are missing although a GPU's device file exists."""
    module: str | None
    """Version of the loaded kernel module; None if none is loaded. In a container, this is the host's
    module."""
    shm: host_limits.SharedMemory | None
    mps: str | None
    """Folder with the pipes of a running MPS daemon; None if none runs."""
    nvcc: str | None
    """Path of CUDA's compiler, which torch does not need; None if it is not installed."""
    xids: tuple[LoggedXid, ...] | None
    """The XID errors in the kernel log, oldest first; None without permission to read the log."""
    libraries: Mapping[str, tuple[str, ...]]
    """The file names of the CUDA libraries in each folder of LD_LIBRARY_PATH. The keys are the folders as
    they are spelled in the variable."""
    real_folders: Mapping[str, str] = field(default_factory=dict)
    """The folders of LD_LIBRARY_PATH that are keys of ``libraries``, by real path. If a folder contains links
    to libraries in other folders, it is listed under the real paths of those folders, too."""
    nvidia_gpu_on_pci: bool | None = None
    """Whether an NVIDIA GPU is on the PCI bus; None if unknown. A container has the host's list of PCI
    devices."""
    same_as_torchs: frozenset[str] = frozenset()
    """The files of ``libraries`` that are the same builds as torch's own, by path and by real path."""


def inspect(
    variables: Mapping[str, str], root: Path, names: Sequence[str], own_folders: Sequence[str] = ()
) -> MachineState:
    """Return the state of the machine under ``root`` (/ except in tests).

    ``names`` are the names of the libraries to look for in LD_LIBRARY_PATH. ``own_folders`` are the folders
    with the libraries that come with torch.
    """
    devices = _device_files(root)
    present = {Path(device.path).name for device in devices}
    libraries = _cuda_libraries(variables.get("LD_LIBRARY_PATH", ""), names)
    has_gpu = any(_GPU_FILE.fullmatch(name) for name in present)
    return MachineState(
        system=_system(root),
        architecture=os.uname().machine,
        container=_detect_container(variables, root),
        devices=tuple(devices),
        expected=tuple(f"/dev/{name}" for name in _CONTROL_FILES if has_gpu and name not in present),
        module=_module_version(root),
        shm=host_limits.shared_memory(root),
        mps=_mps_pipes(variables, root),
        nvcc=_find_nvcc(variables),
        xids=_logged_xids(root),
        libraries=libraries,
        real_folders=_real_folders(libraries),
        nvidia_gpu_on_pci=_nvidia_gpu_on_pci(root),
        same_as_torchs=frozenset(_same_as_torchs(libraries, own_folders)),
    )


def _system(root: Path) -> str:
    if sys.platform != "linux":
        return sys.platform
    if "microsoft" in _read_text(root / "proc/sys/kernel/osrelease").lower() or (root / "dev/dxg").exists():
        return "wsl"
    return "jetson" if (root / "dev/nvmap").exists() else "linux"


def select_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``VARIABLES`` that are set. Long values are truncated."""
    return {name: variables[name][:_MAX_VALUE_LENGTH] for name in VARIABLES if name in variables}


def _device_files(root: Path) -> list[DeviceFile]:
    folder = root / "dev"
    wanted = [path for path in _entries(folder) if _GPU_FILE.fullmatch(path.name)]
    wanted += [folder / name for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "dxg")]
    wanted += [path for path in _entries(folder / "nvidia-caps") if path.name.startswith("nvidia-cap")]
    found = []
    for path in wanted:
        try:
            status = path.stat()
        except OSError:
            continue
        mode = f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid}"
        usable = os.access(path, os.R_OK | os.W_OK)
        found.append(DeviceFile(f"/{path.relative_to(root)}", usable, mode))
    return found


def _nvidia_gpu_on_pci(root: Path) -> bool | None:
    """Return whether a PCI device is an NVIDIA GPU; None if unknown.

    Without any PCI device, the list may be hidden. If NVIDIA's only devices are not GPUs, this may be a
    Jetson, whose GPU is not on the PCI bus, or the GPU may be used by a virtual machine.
    """
    devices = [
        (_read_text(device / "vendor").strip(), _read_text(device / "class").strip())
        for device in _entries(root / "sys/bus/pci/devices")
    ]
    if any(vendor == _NVIDIA_VENDOR and kind.startswith(_DISPLAY_CLASS) for vendor, kind in devices):
        return True
    is_known = bool(devices) and all(vendor not in ("", _NVIDIA_VENDOR) for vendor, _ in devices)
    return False if is_known else None


def _entries(folder: Path) -> list[Path]:
    try:
        # Sort by length first, so that nvidia2 comes before nvidia10.
        return sorted(folder.iterdir(), key=lambda path: (len(path.name), path.name))
    except OSError:
        return []


def _detect_container(variables: Mapping[str, str], root: Path) -> str | None:
    for path in (".dockerenv", "run/.containerenv", "singularity.d", ".singularity.d"):
        if (root / path).exists():
            return f"/{path}"
    if variables.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes"
    if variables.get("container"):
        return "the variable 'container'"
    found = _CONTAINERS.search(_read_text(root / "proc/1/cgroup"))
    return None if found is None else f"/proc/1/cgroup ({found[0]})"


def _module_version(root: Path) -> str | None:
    text = _read_text(root / "proc/driver/nvidia/version") or _read_text(root / "sys/module/nvidia/version")
    found = _MODULE_VERSION.search(text) or re.search(r"()(\d{3}\.\d+(?:\.\d+)?)", text)
    return (found[1] or found[2]) if found is not None else None


def _mps_pipes(variables: Mapping[str, str], root: Path) -> str | None:
    folder = variables.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"
    place = root / folder.lstrip("/")
    if not (place / "control").exists():
        return None
    # The files of a daemon remain after it has died, so check whether its process exists. In a container,
    # this can't be checked, because the file contains a process id of the host.
    number = _read_text(place / "nvidia-cuda-mps-control.pid").strip()
    has_ended = (
        number.isdecimal() and _detect_container(variables, root) is None and not _is_running(int(number))
    )
    return None if has_ended else folder


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _find_nvcc(variables: Mapping[str, str]) -> str | None:
    home = variables.get("CUDA_HOME") or variables.get("CUDA_PATH")
    folders = [variables.get("PATH", os.defpath), *([os.path.join(home, "bin")] if home else [])]
    return shutil.which("nvcc", path=os.pathsep.join([*folders, "/usr/local/cuda/bin"]))


def _cuda_libraries(paths: str, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for folder in dict.fromkeys(filter(None, re.split("[:;]", paths))):
        files = [path.name for path in _entries(Path(folder))]
        ours = tuple(name for name in files if ".so" in name and _stem(name) in names)
        if ours:
            found[folder] = ours
    return found


def _real_folders(libraries: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the folders of LD_LIBRARY_PATH by real path.

    If a folder contains links to libraries in other folders, it is listed under the real paths of those
    folders, too. The real paths are needed because /proc lists mapped files by their real paths, and all
    files in /usr/local/cuda/lib64 are links.
    """
    found: dict[str, str] = {}
    for folder, names in libraries.items():
        real = [os.path.realpath(os.path.join(folder, name)) for name in names]
        for candidate in (os.path.realpath(folder), *map(os.path.dirname, real)):
            found.setdefault(candidate, folder)  # the first folder in the variable is searched first
    return found


def _same_as_torchs(libraries: Mapping[str, Sequence[str]], own_folders: Sequence[str]) -> Iterator[str]:
    """Yield the path and the real path of each library that is the same build as torch's own."""
    own: dict[str, Path] = {}
    for path in (path for folder in own_folders for path in _entries(Path(folder))):
        own.setdefault(path.name, path)
    for folder, names in libraries.items():
        for name in names:
            file = os.path.join(folder, name)
            if name in own and same_library(file, str(own[name])):
                yield from (file, os.path.realpath(file))


def _stem(name: str) -> str:
    """Return a library's name without suffixes and cuDNN's parts: ``libcudnn`` for ``libcudnn_ops.so.9``."""
    stem = name.partition(".")[0]
    return stem.partition("_")[0] if stem.startswith("libcudnn") else stem


def _logged_xids(root: Path) -> tuple[LoggedXid, ...] | None:
    """Return the XIDs in the kernel log, oldest first; None without permission to read it.

    Nothing else of the log is kept, since it contains the names of other users' programs.
    """
    lines = kernel_log.read(None, root, matching=_XID)
    if lines is None:
        return None
    return tuple(
        LoggedXid(match[1].lower(), number := int(match[2]), line.time, xids.action(number, line.text))
        for line in lines
        if (match := _XID.match(line.text)) is not None
    )


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
