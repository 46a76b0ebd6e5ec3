"""What GPUs NVML shows, and which of them are cut into MIG slices."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from gpuwidget.model.errors import GpuLostError
from gpuwidget.model.samples import Gpu
from gpuwidget.sources.nvml_device import Device, Library

_LOG = logging.getLogger(__name__)


def find_gpu(library: Library, index: int) -> list[tuple[Gpu, Device]]:
    """A GPU and the MIG slices that it is cut into. Raises NVMLError, GpuLostError, SourceLostError."""
    nvml = library.nvml
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = text(nvml.nvmlDeviceGetName(handle))
    device = Device(library, handle, f"GPU {index} ({name})")
    unknown: dict[str, str] = {}
    pci = device.ask("pci_bus_id", (nvml.nvmlDeviceGetPciInfo_v3,), unknown)
    capability = device.ask("compute_capability", (nvml.nvmlDeviceGetCudaComputeCapability,), unknown)
    total, reserved = device.memory_size()
    uuid = text(nvml.nvmlDeviceGetUUID(handle))
    device.watch(uuid)
    gpu = Gpu(
        uuid=uuid,
        index=index,
        mig_index=None,
        mig_parent=None,
        name=name,
        pci_bus_id=None if pci is None else text(pci.busId),
        memory_total=total,
        memory_reserved=reserved,
        unified_memory=device.unified,
        compute_capability=None if capability is None else "{}.{}".format(*capability),
    )
    return [(gpu, device), *_find_slices(library, gpu, device)]


def _find_slices(library: Library, parent: Gpu, whole: Device) -> list[tuple[Gpu, Device]]:
    nvml = library.nvml
    found: list[tuple[Gpu, Device]] = []
    # 0 where MIG is off or unknown, so that nvmlDeviceGetMigMode (144 µs on H200) need not be asked.
    count = whole.ask("mig", (nvml.nvmlDeviceGetMaxMigDeviceCount,), {}) or 0
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole.handle, index)
            name = text(nvml.nvmlDeviceGetName(handle))
            uuid = text(nvml.nvmlDeviceGetUUID(handle))
            device = Device(library, handle, f"MIG slice {index} of GPU {parent.index} ({name})", whole)
            total, reserved = device.memory_size()
        except (nvml.NVMLError, GpuLostError) as error:
            # The indices of slices have gaps, and one slice's trouble is not the others'.
            _LOG.debug("MIG slice %d of GPU %d is left out: %s", index, parent.index, error)
            continue
        slice_ = replace(
            parent,
            uuid=uuid,
            mig_index=index,
            mig_parent=parent.uuid,
            name=name,
            memory_total=total,
            memory_reserved=reserved,
            unified_memory=False,
        )
        found.append((slice_, device))
    return found


def cuda_version(nvml: Any) -> str | None:
    """The newest CUDA that the driver runs, as "13.0"; None where it does not say."""
    try:
        version = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
    except nvml.NVMLError:
        return None
    return f"{version // 1000}.{version % 1000 // 10}"


def text(value: str | bytes) -> str:
    """Text of NVML, which is bytes or str by the version of its binding."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
