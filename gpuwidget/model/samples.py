"""Samples, which flow from a source to every view: the GPUs and their readings.

Every class is frozen, and no wire field has a default: an unknown value is passed as ``None``, with its
reason in ``missing``, and never as 0. Times are epoch seconds unless a name says otherwise; sizes are bytes,
power watts, energy joules, ratios percent (0 to 100).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from gpuwidget.model.readings import Reading

SCHEMA = 1
"""Version of the sample's schema, sent with every sample."""

NOT_READ_YET = "not read yet"
"""Reason for a value that arrives a moment later."""

SourceKind = Literal["nvml", "replay", "none"]


class SourceCapabilities(NamedTuple):
    """What a kind of source can do."""

    live: bool
    """It reads the GPUs of this machine now."""
    recorded: bool
    """It plays a recording."""
    local_processes: bool
    """It lists processes of this machine."""


_CAPABILITIES: Mapping[SourceKind, SourceCapabilities] = {
    "nvml": SourceCapabilities(live=True, recorded=False, local_processes=True),
    "replay": SourceCapabilities(live=False, recorded=True, local_processes=False),
    "none": SourceCapabilities(live=False, recorded=False, local_processes=False),
}


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of the readings."""

    kind: SourceKind
    """``nvml`` for a driver's GPUs, ``replay`` for a recording, ``none`` where there is no GPU."""
    reason: str | None
    """Why there is no GPU and what to do, or None."""
    recording: str | None
    """The label of a recording, shown wherever its values are; None for live GPUs."""
    driver: str | None
    """Driver version, nvmlSystemGetDriverVersion (nvidia-smi: Driver Version)."""
    cuda_driver: str | None
    """Newest CUDA version it supports, as "13.0", nvmlSystemGetCudaDriverVersion_v2 (nvidia-smi: CUDA
    Version)."""

    @property
    def live(self) -> bool:
        """Whether the readings are of this machine's GPUs, taken now."""
        return _CAPABILITIES[self.kind].live

    @property
    def recorded(self) -> bool:
        """Whether the readings are a recording's."""
        return _CAPABILITIES[self.kind].recorded

    @property
    def local_processes(self) -> bool:
        """Whether the processes listed are processes of this machine."""
        return _CAPABILITIES[self.kind].local_processes


@dataclass(frozen=True, slots=True)
class Gpu:
    """Identity and constants of a GPU or MIG slice."""

    uuid: str
    """``GPU-…`` or ``MIG-…``, nvmlDeviceGetUUID (nvidia-smi -L). The key that joins everything."""
    index: int
    """NVML's index, nvidia-smi's number; a MIG slice has its parent's."""
    mig_index: int | None
    """Index of a MIG slice within its parent (nvidia-smi -L: MIG Device), None for a whole GPU."""
    mig_parent: str | None
    """UUID of the GPU that a MIG slice is part of, None for a whole GPU."""
    name: str
    """Product name, nvmlDeviceGetName."""
    pci_bus_id: str | None
    """PCI bus id as "00000000:17:00.0", nvmlDeviceGetPciInfo_v3."""
    memory_total: int | None
    """Bytes of memory, nvmlDeviceGetMemoryInfo_v2 total."""
    memory_reserved: int | None
    """Bytes of it that the driver reserves and ``memory_used`` leaves out, nvmlDeviceGetMemoryInfo_v2
    reserved; 0 where it counts them as used."""
    unified_memory: bool
    """Whether the GPU uses the host's memory, so that ``memory_*`` are the host's (GB10, Jetson)."""
    compute_capability: str | None
    """As "9.0", nvmlDeviceGetCudaComputeCapability."""


@dataclass(frozen=True, slots=True)
class Sample:
    """All GPUs at one moment."""

    schema: int
    time: float
    """When it was assembled, epoch seconds."""
    origin: Origin
    gpus: tuple[Gpu, ...]
    """Every GPU of the source, lost ones included, in NVML's order, a parent before its MIG slices."""
    readings: tuple[Reading, ...]
    """One for each of ``gpus``, in the same order."""


def is_settled(reading: Reading, name: str) -> bool:
    """Return whether a value is known, or will not arrive with a later reading."""
    return getattr(reading, name) is not None or reading.missing.get(name, NOT_READ_YET) != NOT_READ_YET
