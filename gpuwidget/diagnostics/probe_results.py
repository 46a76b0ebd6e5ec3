"""All that was found out about one environment on one machine, before anything is made of it."""

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
from gpuwidget.sources.nvml_diagnostics import GpuHealth, NvmlHealth, PeerAccess


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """What the links are made of."""

    place: EnvironmentKind
    version: str
    """gpuwidget's."""
    python: str
    variables: Mapping[str, str]
    machine: MachineState
    packages: InstalledPackages
    torch_result: ProbeResult
    """What :mod:`gpuwidget.diagnostics.torch_probe` result."""
    cuda_result: ProbeResult
    """What :mod:`gpuwidget.diagnostics.cuda_probe` result."""
    files_result: ProbeResult
    """What :mod:`gpuwidget.diagnostics.files_probe` result."""
    nvml_result: ProbeResult
    """What :mod:`gpuwidget.diagnostics.nvml_probe` result."""
    nvml: NvmlHealth | None
    """The same, None where it did not come to its end."""
    timeout_s: float
    """How long the probes were waited for, all of them together."""
    notebook: NotebookState

    @property
    def torch(self) -> Mapping[str, Any]:
        """What the child result of torch, step by step."""
        return self.torch_result.values

    @property
    def libcuda(self) -> Mapping[str, Any]:
        """What CUDA's driver library result in a child without torch, step by step."""
        return self.cuda_result.values

    @property
    def damaged(self) -> tuple[CheckedPackage, ...]:
        """The packages with files that are missing, empty or of another size than recorded."""
        checked = (_parse_checked(one) for one in self.files_result.values.get("checked") or ())
        shared = {name for names in self.shared for name in names}
        required = self.packages.required
        # Of two packages with the same files, the one that torch requires is put right.
        return tuple(one for one in checked if one.count and (one.name not in shared or one.name in required))

    @property
    def shared(self) -> tuple[tuple[str, ...], ...]:
        """Groups of installed packages that own the same shared libraries."""
        return tuple(tuple(names) for names in self.files_result.values.get("shared") or ())

    @property
    def torch_version(self) -> str | None:
        """torch's version, by the module itself or else by its files."""
        files = self.packages.torch
        return self.torch.get("version") or (files.version if files is not None else None)

    @property
    def cuda(self) -> str | None:
        """The CUDA that torch was built with, by the module itself or else by its files."""
        if self.torch.get("imported"):
            return self.torch.get("cuda")
        files = self.packages.torch
        return files.cuda if files is not None else None

    @property
    def driver(self) -> str | None:
        """The driver's version, by NVML or else by the kernel module."""
        return (self.nvml.driver if self.nvml is not None else None) or self.machine.module

    @property
    def gpus(self) -> tuple[GpuHealth, ...]:
        """Those that NVML shows."""
        return self.nvml.gpus if self.nvml is not None else ()

    @property
    def capabilities(self) -> list[str]:
        """Those of the GPUs here, as "9.0", by NVML or else by CUDA."""
        known = [gpu.compute_capability for gpu in self.gpus if gpu.compute_capability is not None]
        return known or [one["capability"] for one in self.libcuda.get("cu_devices") or []]

    @property
    def arm(self) -> bool:
        """Whether PyTorch's builds for ARM are those that run here."""
        return self.machine.architecture in ("aarch64", "arm64")

    @property
    def cuda_works(self) -> bool:
        """Whether CUDA's own library starts and shows a device: then driver and device files do."""
        return self.libcuda.get("cu_init") == 0 and bool(self.libcuda.get("cu_count"))

    @property
    def missing_gpus_in_container(self) -> bool:
        """Whether this is a container that was started without the machine's GPUs."""
        machine = self.machine
        return machine.container is not None and not machine.devices and not self.gpus and not self.cuda_works

    def mapped(self, library: str) -> tuple[str, ...]:
        """The files of a library, named by its beginning, that torch or the driver's library mapped."""
        mapped = dict.fromkeys((*(self.torch.get("mapped") or ()), *(self.libcuda.get("mapped") or ())))
        return tuple(path for path in mapped if _is_file_of(PurePosixPath(path).name, library))

    def on_library_path(self, library: str) -> dict[str, str]:
        """A file of that library in each folder of LD_LIBRARY_PATH that has one."""
        found = {}
        for folder, names in self.machine.libraries.items():
            ours = [name for name in names if _is_file_of(name, library)]
            if ours:
                found[folder] = ours[0]
        return found

    def in_library_path(self, folder: str) -> str | None:
        """How LD_LIBRARY_PATH spells this folder; None where it has not got it."""
        if folder in self.machine.libraries:
            return folder
        return self.machine.real_folders.get(folder)

    def package(self, *prefixes: str) -> list[str]:
        """The installed packages whose names begin so, each with version and who installed it."""
        return [
            f"{one.name} {one.version} ({one.by})"
            for one in self.packages.cuda
            if one.name.startswith(prefixes)
        ]


def _parse_checked(values: Mapping[str, Any]) -> CheckedPackage:
    return CheckedPackage(**{**values, "damaged": tuple(DamagedFile(**one) for one in values["damaged"])})


def _is_file_of(name: str, library: str) -> bool:
    """``libcudnn_ops.so.9`` is of libcudnn; ``libcublasLt.so.12`` is not of libcublas."""
    rest = name.removeprefix(library)
    return rest != name and rest[:1] in (".", "_", "-")


def parse_nvml_result(result: ProbeResult) -> NvmlHealth | None:
    """What the child result of NVML, as it was there."""
    values = result.values.get("nvml")
    if not isinstance(values, dict):
        return None
    gpus = tuple(GpuHealth(**{name: _tuples(value) for name, value in gpu.items()}) for gpu in values["gpus"])
    peers = tuple(PeerAccess(**peer) for peer in values["peers"])
    return NvmlHealth(**{**values, "gpus": gpus, "peers": peers, "lost": tuple(values["lost"])})


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
