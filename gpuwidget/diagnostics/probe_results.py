"""The results of all probes for one environment on one machine, from which the checks are built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from gpuwidget.diagnostics.files_probe import CheckedPackage, DamagedFile
from gpuwidget.diagnostics.machine import MachineState
from gpuwidget.diagnostics.packages import InstalledPackages
from gpuwidget.diagnostics.probe_process import ProbeResult
from gpuwidget.diagnostics.target import NotebookState
from gpuwidget.model.diagnosis import EnvironmentKind
from gpuwidget.sources import nvml_messages
from gpuwidget.sources.nvml_diagnostics import (
    FOREIGN_BINDING,
    NO_BINDING,
    GpuDiagnostics,
    LostGpu,
    NvmlDiagnostics,
    PeerAccess,
)


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """The probes' results, which are the input of the checks."""

    place: EnvironmentKind
    version: str
    """Version of gpuwidget."""
    python: str
    variables: Mapping[str, str]
    machine: MachineState
    packages: InstalledPackages
    torch_result: ProbeResult
    """Result of :mod:`gpuwidget.diagnostics.torch_probe`."""
    cuda_result: ProbeResult
    """Result of :mod:`gpuwidget.diagnostics.cuda_probe`."""
    files_result: ProbeResult
    """Result of :mod:`gpuwidget.diagnostics.files_probe`."""
    nvml_result: ProbeResult
    """Result of :mod:`gpuwidget.diagnostics.nvml_probe`."""
    nvml: NvmlDiagnostics | None
    """The values of ``nvml_result``; None if the probe sent none."""
    timeout_s: float
    """The timeout of all probes together."""
    notebook: NotebookState

    @property
    def torch(self) -> Mapping[str, Any]:
        """The values that the torch probe sent, by step."""
        return self.torch_result.values

    @property
    def libcuda(self) -> Mapping[str, Any]:
        """The values that the CUDA probe sent about the driver library, by step."""
        return self.cuda_result.values

    @property
    def damaged(self) -> tuple[CheckedPackage, ...]:
        """The packages with files that are missing, empty or have the wrong size."""
        checked = (_parse_checked(values) for values in self.files_result.values.get("checked") or ())
        shared = {name for names in self.shared for name in names}
        required = self.packages.required
        # If two packages own the same files, only the one that torch requires is reported.
        return tuple(
            package
            for package in checked
            if package.count and (package.name not in shared or package.name in required)
        )

    @property
    def shared(self) -> tuple[tuple[str, ...], ...]:
        """Groups of installed packages that own the same shared libraries."""
        return tuple(tuple(names) for names in self.files_result.values.get("shared") or ())

    @property
    def torch_version(self) -> str | None:
        """The version of torch, from the imported module or else from its files."""
        files = self.packages.torch
        return self.torch.get("version") or (files.version if files is not None else None)

    @property
    def cuda(self) -> str | None:
        """The CUDA version that torch was built with, from the imported module or else from its files."""
        if self.torch.get("imported"):
            return self.torch.get("cuda")
        files = self.packages.torch
        return files.cuda if files is not None else None

    @property
    def driver(self) -> str | None:
        """The version of the driver, from NVML or else from the kernel module."""
        return (self.nvml.driver if self.nvml is not None else None) or self.machine.module

    @property
    def gpus(self) -> tuple[GpuDiagnostics, ...]:
        """The GPUs that NVML lists."""
        return self.nvml.gpus if self.nvml is not None else ()

    @property
    def capabilities(self) -> list[str]:
        """Compute capabilities of the GPUs, such as "9.0", as reported by NVML, or else by CUDA."""
        known = [gpu.compute_capability for gpu in self.gpus if gpu.compute_capability is not None]
        return known or [device["capability"] for device in self.libcuda.get("cu_devices") or []]

    @property
    def arm(self) -> bool:
        """Whether this machine needs PyTorch's ARM builds."""
        return self.machine.architecture in ("aarch64", "arm64")

    @property
    def cuda_works(self) -> bool:
        """Whether CUDA's driver library starts and lists a device. If so, the driver and its device files
        work."""
        return self.libcuda.get("cu_init") == 0 and bool(self.libcuda.get("cu_count"))

    @property
    def without_gpu(self) -> bool:
        """Whether this machine certainly has no NVIDIA GPU that a program could use. False if unknown.

        If a driver is installed but no GPU is found, the GPU may be broken.
        """
        machine = self.machine
        if machine.system == "darwin":
            return True
        has_driver = machine.module is not None or machine.devices or self._has_driver_library is not False
        return machine.system == "linux" and machine.nvidia_gpu_on_pci is False and not has_driver

    @property
    def _has_driver_library(self) -> bool | None:
        """Whether one of the driver's libraries is installed; None if unknown."""
        if self.nvml is None or "libcuda_error" not in self.libcuda:
            return None
        return self.nvml.error not in (NO_BINDING, FOREIGN_BINDING, nvml_messages.LIBRARY_NOT_FOUND)

    @property
    def nvml_hangs(self) -> bool:
        """Whether a call to NVML did not return. Without a driver, NVML would return an error."""
        return self.nvml is None and self.nvml_result.ending == "hung" and bool(self.nvml_result.unfinished)

    @property
    def missing_gpus_in_container(self) -> bool:
        """Whether this is a container that was started without the machine's GPUs."""
        machine = self.machine
        works = bool(self.gpus) or self.cuda_works or self.nvml_hangs
        return machine.container is not None and not machine.devices and not works

    def mapped(self, library: str) -> tuple[str, ...]:
        """Return the files of a library that the torch probe or the CUDA probe has mapped into memory."""
        mapped = dict.fromkeys((*(self.torch.get("mapped") or ()), *(self.libcuda.get("mapped") or ())))
        return tuple(path for path in mapped if _is_file_of(PurePosixPath(path).name, library))

    def on_library_path(self, library: str) -> dict[str, str]:
        """Return one file of the library for each folder in LD_LIBRARY_PATH that contains the library."""
        found = {}
        for folder, names in self.machine.libraries.items():
            ours = [name for name in names if _is_file_of(name, library)]
            if ours:
                found[folder] = ours[0]
        return found

    def in_library_path(self, folder: str) -> str | None:
        """Return how this folder is spelled in LD_LIBRARY_PATH; None if it is not in the variable."""
        if folder in self.machine.libraries:
            return folder
        return self.machine.real_folders.get(folder)

    def package(self, *prefixes: str) -> list[str]:
        """Return the installed packages with these name prefixes, each with its version and installer."""
        return [
            f"{package.name} {package.version} ({package.by})"
            for package in self.packages.cuda
            if package.name.startswith(prefixes)
        ]


def _parse_checked(values: Mapping[str, Any]) -> CheckedPackage:
    return CheckedPackage(**{**values, "damaged": tuple(DamagedFile(**file) for file in values["damaged"])})


def _is_file_of(name: str, library: str) -> bool:
    """Return whether a file belongs to a library.

    For example, libcudnn_ops.so.9 belongs to libcudnn, but libcublasLt.so.12 does not belong to libcublas.
    """
    rest = name.removeprefix(library)
    return rest != name and rest[:1] in (".", "_", "-")


def parse_nvml_result(result: ProbeResult) -> NvmlDiagnostics | None:
    """Return the NVML probe's values as dataclasses; None if it sent none."""
    values = result.values.get("nvml")
    if not isinstance(values, dict):
        return None
    gpus = tuple(
        GpuDiagnostics(**{name: _tuples(value) for name, value in gpu.items()}) for gpu in values["gpus"]
    )
    peers = tuple(PeerAccess(**peer) for peer in values["peers"])
    lost = tuple(LostGpu(**gpu) for gpu in values["lost"])
    return NvmlDiagnostics(**{**values, "gpus": gpus, "peers": peers, "lost": lost})


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
