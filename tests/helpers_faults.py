"""A simulated machine for the doctor: an environment with a fake torch, and stub libraries of NVIDIA's.

The fake torch loads its libraries with the dynamic loader, as a real one does, so that a missing library, a
library in LD_LIBRARY_PATH or a driver that crashes has its real effect in the doctor's probe processes.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers_doctor import build_libcuda
from helpers_programs import compile_library
from helpers_wheels import borrow_packages, standard_library
from nvml_standin import Standin

from gpuwidget.diagnostics.probe_process import ProbeEnvironment
from gpuwidget.diagnostics.run_checks import run_checks
from gpuwidget.diagnostics.target import NotebookState, Target
from gpuwidget.model.diagnosis import Diagnosis, EnvironmentKind
from gpuwidget.system import host_limits
from gpuwidget.system.host_limits import SharedMemory

GIB = 1024**3
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
CUDART, CUDNN, OPS, NCCL = "libcudart.so.913", "libcudnn.so.909", "libcudnn_ops.so.909", "libnccl.so.902"
"""The libraries' names have versions that do not exist, so that the loader finds none of the test's machine
instead."""
LIBRARIES = {
    "nvidia-cuda-runtime": ("13.0.96", "nvidia/cu13/lib", (CUDART,)),
    "nvidia-cudnn-cu13": ("9.10.2.21", "nvidia/cudnn/lib", (CUDNN, OPS)),
    "nvidia-nccl-cu13": ("2.27.5", "nvidia/nccl/lib", (NCCL,)),
}
"""NVIDIA's packages that the fake torch requires, each with its version, folder and libraries."""

TORCH = """
import ctypes, os
from types import SimpleNamespace as _Names
from torch import version
from torch.version import __version__
if version.cuda is not None:
    try:
        _lib = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libtorch_cuda.so"))
    except OSError as _error:
        raise ImportError(str(_error)) from None
{imports}
def _cudnn_version():
    found = _lib.cudnnGetVersion()
    parts = found // 10000, found % 10000 // 100, found % 100
    if parts[0] != 9 or parts[1] < 10:
        raise RuntimeError(
            f"cuDNN version incompatibility: PyTorch was compiled against (9, 10, 2) but found "
            f"runtime version {{parts}}."
        )
    return found

def from_numpy(array):
    return list(array)

def _nccl_version():
    return _lib.nccl_version()

def _is_available():
    return bool(version.cuda and _lib.devices())

distributed = _Names(is_available=lambda: True)
backends = _Names(cudnn=_Names(version=lambda: _cudnn_version() if version.cuda else None, enabled=True))
cuda = _Names(
    nccl=_Names(version=lambda: (2, _nccl_version() % 10000 // 100, _nccl_version() % 100)),
    is_available=_is_available,
    device_count=lambda: _lib.devices() if version.cuda else 0,
)
_C = _Names()
if version.cuda is not None:
    _C = _Names(
        _nccl_version=_nccl_version,
        _cuda_getArchFlags=lambda: {archs!r},
        _cudnn=_Names(getCompileVersion=lambda: (9, 10, 2)),
    )
"""
ARCHS = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"

_CUDART = r"""
#include <dlfcn.h>
#include <stddef.h>
int devices(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  int count = 0, newest = 0;
  if (driver == NULL) return 0;
  int (*start)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*get_count)(int *) = (int (*)(int *))dlsym(driver, "cuDeviceGetCount");
  int (*get_version)(int *) = (int (*)(int *))dlsym(driver, "cuDriverGetVersion");
  if (start == NULL || get_version == NULL || get_count == NULL) return 0;
  get_version(&newest);
  if (newest / 1000 < 13 || start(0) != 0) return 0;
  get_count(&count);
  return count;
}
"""
_CUDNN = "extern int cudnn_ops(void); unsigned long cudnnGetVersion(void) { return VERSION + cudnn_ops(); }\n"
_TORCH_CUDA = r"""
extern int devices(void); extern unsigned long cudnnGetVersion(void); extern int nccl_version(void);
int all(void) { return devices() + (int)cudnnGetVersion() + nccl_version(); }
"""
_RUNPATH = ":".join(
    (
        "$ORIGIN",
        *(f"$ORIGIN/../../{folder}" for _, folder, _ in LIBRARIES.values()),
        "$ORIGIN/../../../..",  # the folder lib of a conda environment
    )
)


class Stubs:
    """The stub libraries, compiled once: torch's own, and the same libraries of another version."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        own, other = folder / "own", folder / "other"
        for where, cudnn, nccl in ((own, 91002, 22705), (other, 90800, 22501)):
            where.mkdir(parents=True)
            self._compile(where / CUDART, f"{_CUDART}const int build = {nccl};\n", "-ldl")
            self._compile(where / OPS, f"int cudnn_ops(void) {{ return 0; }}\nconst int of = {cudnn};\n")
            beside = ("-Wl,-rpath,$ORIGIN", f"-L{where}", f"-l:{OPS}")
            self._compile(where / CUDNN, _CUDNN.replace("VERSION", str(cudnn)), *beside)
            self._compile(where / NCCL, f"int nccl_version(void) {{ return {nccl}; }}\n")
        libraries = (f"-L{own}", *(f"-l:{name}" for name in (CUDART, CUDNN, NCCL)))
        flags = (f"-Wl,-rpath,{_RUNPATH}", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined")
        self._compile(own / "libtorch_cuda.so", _TORCH_CUDA, *flags, *libraries)
        (folder / "driver").mkdir()
        self.libcuda = build_libcuda(folder / "driver")
        self._compile(folder / "no-driver.so", "int cuStub(void) { return 0; }\n")

    def _compile(self, library: Path, source: str, *options: str) -> None:
        file = library.with_suffix(".c")
        file.write_text(source)
        name = f"-Wl,-soname,{library.name},--build-id=sha1,--enable-new-dtags"
        compile_library(file, library, name, *options)

    def library(self, name: str, *, other: bool = False) -> Path:
        """Return the compiled library, or with ``other`` that of another version."""
        return self.folder / ("other" if other else "own") / name


@dataclass(frozen=True)
class Package:
    """A package that a test installs without pip."""

    name: str
    version: str
    files: Mapping[str, bytes | Path]
    requires: Sequence[str] = ()
    by: str = "pip"

    def install(self, site: Path) -> None:
        """Write the package's files and metadata into ``site``, as its installer does."""
        record = []
        for path, content in self.files.items():
            file = site / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                shutil.copy(content, file)
            else:
                file.write_bytes(content)
            record.append(f"{path},,{file.stat().st_size}")
        info = site / f"{self.name.replace('-', '_')}-{self.version}.dist-info"
        info.mkdir(parents=True)
        lines = [f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}"]
        (info / "METADATA").write_text(
            "\n".join([*lines, *(f"Requires-Dist: {one}" for one in self.requires)])
        )
        (info / "INSTALLER").write_text(f"{self.by}\n")
        (info / "RECORD").write_text("\n".join([*record, f"{info.name}/RECORD,,"]))


class FaultMachine:
    """A machine with one H200, a driver for CUDA 13, and a virtual environment with a working torch.

    Tests change it before they run the doctor.
    """

    def __init__(self, folder: Path, stubs: Stubs, nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.stubs = folder, stubs
        self.standin = Standin(nvml, folder / "driver", "gpus=1\ndriver=580.95.05")
        self.libcuda = Path(shutil.copy(stubs.libcuda, folder / "driver/libcuda.so.1"))
        self.root = folder / "root"
        for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
            self.root_file(f"dev/{name}")
        (self.root / "dev/shm").mkdir()
        self.root_file("proc/driver/nvidia/version", _module("580.95.05"))
        self.env = folder / "env"
        self.site = self.env / "lib" / PYTHON / "site-packages"
        self.site.mkdir(parents=True)
        (self.env / "bin").mkdir()
        (self.env / "bin/python").symlink_to(os.path.realpath(sys.executable))
        self.user_base = folder / "home/.local"
        self.user_site = self.user_base / "lib" / PYTHON / "site-packages"
        self.variables = {
            **self.standin.variables,
            "PATH": "/usr/bin:/bin",
            "LD_LIBRARY_PATH": str(self.standin.folder),
            "PYTHONUSERBASE": str(self.user_base),
        }
        self.first: list[str] = []
        """Folders that code has inserted at the front of ``sys.path``."""
        self.place: EnvironmentKind = "kernel"
        self.notebook = NotebookState()
        self.timeout_s = 60.0
        self.shm = SharedMemory(64 * GIB, 60 * GIB)
        monkeypatch.setattr(host_limits, "shared_memory", lambda _root: self.shm)
        self.borrowed = borrow_packages(folder / "borrowed")

    # -- the machine -------------------------------------------------------------------------------------

    def root_file(self, name: str, text: str = "") -> Path:
        """Write a file under the machine's root folder."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def remove_devices(self) -> None:
        """Remove all device files."""
        shutil.rmtree(self.root / "dev")
        (self.root / "dev").mkdir()

    def kernel_module(self, version: str | None) -> None:
        """Set the version of the loaded kernel module; None if none is loaded."""
        if version is None:
            shutil.rmtree(self.root / "proc/driver", ignore_errors=True)
        else:
            self.root_file("proc/driver/nvidia/version", _module(version))

    def remove_driver(self) -> None:
        """Uninstall the driver, with its libraries, kernel module and device files."""
        self.standin.library.unlink()
        self.libcuda.unlink()
        self.kernel_module(None)
        self.remove_devices()

    def library_path(self, folder: Path) -> None:
        """Put a folder first into LD_LIBRARY_PATH."""
        self.variables["LD_LIBRARY_PATH"] = f"{folder}:{self.variables['LD_LIBRARY_PATH']}"

    def put_libraries(self, folder: Path, *names: str, other: bool = False) -> Path:
        """Copy libraries into a folder, with ``other`` those of another version, and return the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(self.stubs.library(name, other=other), folder / name)
        return folder

    # -- the environment ---------------------------------------------------------------------------------

    def install_torch(
        self,
        site: Path | None = None,
        *,
        version: str = "2.13.0+cu130",
        cuda: str | None = "13.0",
        requires: Sequence[str] | None = None,
        imports: str = "",
        archs: str = ARCHS,
        by: str = "pip",
    ) -> Package:
        """Install a torch, by default one for CUDA 13 that requires NVIDIA's packages."""
        own = [f"{name}=={known[0]}" for name, known in LIBRARIES.items()] if cuda is not None else []
        source = TORCH.format(imports=imports, archs=archs)
        versions = f"__version__ = {version!r}\ncuda: str | None = {cuda!r}\nhip = None\n"
        files: dict[str, bytes | Path] = {
            "torch/__init__.py": source.encode(),
            "torch/version.py": versions.encode(),
        }
        if cuda is not None:
            files["torch/lib/libtorch_cuda.so"] = self.stubs.library("libtorch_cuda.so")
        package = Package("torch", version, files, own if requires is None else requires, by)
        package.install(self.site if site is None else site)
        return package

    def install_cpu_torch(self, site: Path | None = None) -> None:
        """Install torch 2.9 for the CPU."""
        self.install_torch(site, version="2.9.0+cpu", cuda=None)

    def install_libraries(self, *names: str, site: Path | None = None, by: str = "pip") -> None:
        """Install NVIDIA's packages with these names, by default all."""
        for name in names or LIBRARIES:
            version, folder, libraries = LIBRARIES[name]
            files = {f"{folder}/{library}": self.stubs.library(library) for library in libraries}
            Package(name, version, files, by=by).install(self.site if site is None else site)

    def install_all(self) -> None:
        """Install torch with its libraries, as pip does."""
        self.install_torch()
        self.install_libraries()

    def uninstall(self, name: str) -> None:
        """Remove a package's files and metadata from the environment."""
        for info in self.site.glob(f"{name.replace('-', '_')}-*.dist-info"):
            for line in (info / "RECORD").read_text().splitlines():
                (self.site / line.split(",")[0]).unlink(missing_ok=True)
            shutil.rmtree(info)
        for folder in sorted(self.site.rglob("*"), reverse=True):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def virtual(self) -> None:
        """Make the environment a virtual one, which has no user site-packages."""
        (self.env / "pyvenv.cfg").write_text(f"home = {os.path.dirname(os.path.realpath(sys.executable))}\n")

    @property
    def path(self) -> list[str]:
        """Return ``sys.path`` in the order in which Python's start builds it."""
        pythonpath = [entry for entry in self.variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
        virtual = (self.env / "pyvenv.cfg").exists()
        user = [str(self.user_site)] if self.user_site.is_dir() and not virtual else []
        added = [
            line
            for file in sorted(self.site.glob("*.pth"))
            for line in file.read_text().splitlines()
            if line.startswith("/")
        ]
        return [
            *self.first,
            *pythonpath,
            *standard_library(),
            *user,
            str(self.site),
            *added,
            str(self.borrowed),
        ]

    # -- the doctor --------------------------------------------------------------------------------------

    @property
    def python(self) -> str:
        return str(self.env / "bin/python")

    def run_doctor(self) -> Diagnosis:
        """Run the doctor's checks, with real probe processes."""
        environment = ProbeEnvironment(self.python, self.path, self.variables)
        target = Target(
            self.place, "0.1.0", environment, self.notebook, root=self.root, timeout_s=self.timeout_s
        )
        return run_checks(target)


def _module(version: str) -> str:
    return f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Fri Jan 17\n"
