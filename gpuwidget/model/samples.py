"""Samples: the GPUs and their readings at one moment. Sources produce them, and all views receive them.

All classes are frozen, and no field that is sent to views has a default. An unknown value is ``None``, never
0, and ``missing`` has the reason. Unless a field's name implies otherwise, times are in epoch seconds, sizes
in bytes, power in watts, energy in joules and ratios in percent (0 to 100).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol, TypeVar

from gpuwidget.model.messages import Message, MessageId, message
from gpuwidget.model.readings import Reading

SAMPLE_SCHEMA = 1
"""Version of the JSON schema. It is sent with every sample."""

NOT_READ_YET = message("not-read-yet", "not read yet")
"""The reason in ``missing`` for a value that a later reading will contain."""

SourceKind = Literal["nvml", "replay", "none"]


class SourceCapabilities(NamedTuple):
    """What a kind of source can provide."""

    live: bool
    """Whether the source reads the current values of this machine's GPUs."""
    recorded: bool
    """Whether the source replays a recording."""
    local_processes: bool
    """Whether the source lists processes of this machine."""


_CAPABILITIES: Mapping[SourceKind, SourceCapabilities] = {
    "nvml": SourceCapabilities(live=True, recorded=False, local_processes=True),
    "replay": SourceCapabilities(live=False, recorded=True, local_processes=False),
    "none": SourceCapabilities(live=False, recorded=False, local_processes=False),
}


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of the readings."""

    kind: SourceKind
    """``nvml`` for the driver's GPUs, ``replay`` for a recording, ``none`` if there is no GPU."""
    reason: Message | None
    """Why there is no GPU and what to do, or None if there is one."""
    reason_id: MessageId | None = field(init=False)
    """The id of ``reason``."""
    recording: str | None
    """The recording's label, which every view of the recording's values shows. None for live GPUs."""
    driver: str | None
    """Driver version: nvmlSystemGetDriverVersion (nvidia-smi: Driver Version)."""
    cuda_driver: str | None
    """Newest CUDA version that the driver supports, such as "13.0": nvmlSystemGetCudaDriverVersion_v2
    (nvidia-smi: CUDA Version)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason_id", None if self.reason is None else self.reason.message_id)

    @property
    def live(self) -> bool:
        """Whether the readings are the current values of this machine's GPUs."""
        return _CAPABILITIES[self.kind].live

    @property
    def recorded(self) -> bool:
        """Whether the readings come from a recording."""
        return _CAPABILITIES[self.kind].recorded

    @property
    def local_processes(self) -> bool:
        """Whether the listed processes run on this machine."""
        return _CAPABILITIES[self.kind].local_processes


def origin_without_gpus(reason: Message, driver: str | None = None, cuda_driver: str | None = None) -> Origin:
    """Return the origin of samples that contain no GPUs, with the reason."""
    return Origin(kind="none", reason=reason, recording=None, driver=driver, cuda_driver=cuda_driver)


@dataclass(frozen=True, slots=True)
class Gpu:
    """Identity and constant properties of a GPU or MIG slice."""

    uuid: str
    """``GPU-…`` or ``MIG-…``: nvmlDeviceGetUUID (nvidia-smi -L). The UUID identifies the GPU in all data."""
    index: int
    """NVML's index, as in nvidia-smi. A MIG slice has the index of its parent."""
    mig_index: int | None
    """Index of a MIG slice within its parent (nvidia-smi -L: MIG Device), or None for a whole GPU."""
    mig_parent: str | None
    """UUID of the GPU that a MIG slice is part of, or None for a whole GPU."""
    name: str
    """Product name: nvmlDeviceGetName."""
    pci_bus_id: str | None
    """PCI bus id, such as "00000000:17:00.0": nvmlDeviceGetPciInfo_v3."""
    memory_total: int | None
    """Bytes of memory: nvmlDeviceGetMemoryInfo_v2 total."""
    memory_reserved: int | None
    """Bytes of ``memory_total`` that the driver reserves and that ``memory_used`` does not include:
    nvmlDeviceGetMemoryInfo_v2 reserved. 0 if the driver counts reserved bytes as used."""
    unified_memory: bool
    """Whether the GPU uses the host's memory, as GB10 and Jetson do. If so, ``memory_*`` describe the host's
    memory."""
    compute_capability: str | None
    """Compute capability, such as "9.0": nvmlDeviceGetCudaComputeCapability."""
    peak_fp32_flops: float | None
    """Peak float32 operations per second, without tensor cores: two per core (nvmlDeviceGetNumGpuCores) and
    cycle of the highest SM clock (nvmlDeviceGetMaxClockInfo). None for a MIG slice."""
    memory_bandwidth: float | None
    """Peak bytes per second between the GPU and its memory: two transfers of the bus's width
    (nvmlDeviceGetMemoryBusWidth) per cycle of the highest memory clock (nvmlDeviceGetMaxClockInfo). None for
    a MIG slice."""


class GpuOrSlice(Protocol):
    """What tells whether a GPU is divided into MIG slices. :class:`Gpu` and a report's GPUs have it."""

    @property
    def uuid(self) -> str: ...

    @property
    def mig_parent(self) -> str | None:
        """UUID of the GPU that a MIG slice is part of, or None for a whole GPU."""
        ...


_AnyGpu = TypeVar("_AnyGpu", bound=GpuOrSlice)


def without_mig_parents(gpus: Iterable[_AnyGpu]) -> tuple[_AnyGpu, ...]:
    """Return ``gpus`` without those that are divided into MIG slices, if any of their slices is in ``gpus``.

    The driver lists memory and processes of a slice for its parent, too. Sums over GPUs therefore use this
    function, so that nothing counts twice.
    """
    gpus = tuple(gpus)
    parents = {gpu.mig_parent for gpu in gpus}
    return tuple(gpu for gpu in gpus if gpu.uuid not in parents)


_UNOPENED = ("GPU-unopened-", "MIG-unopened-")


def unopened_gpu(index: int) -> Gpu:
    """Return a GPU of which only NVML's index is known, because it was lost before it could be opened."""
    return Gpu(
        uuid=f"{_UNOPENED[0]}{index}",
        index=index,
        mig_index=None,
        mig_parent=None,
        name="unknown GPU",
        pci_bus_id=None,
        memory_total=None,
        memory_reserved=None,
        unified_memory=False,
        compute_capability=None,
        peak_fp32_flops=None,
        memory_bandwidth=None,
    )


def unopened_slice(parent: Gpu, mig_index: int) -> Gpu:
    """Return a MIG slice of which only the index is known, because it could not be opened."""
    return replace(
        unopened_gpu(parent.index),
        uuid=f"{_UNOPENED[1]}{parent.index}-{mig_index}",
        mig_index=mig_index,
        mig_parent=parent.uuid,
        name="unknown MIG slice",
    )


def is_unopened(gpu: Gpu) -> bool:
    """Return whether the UUID of a GPU or slice is unknown, because it could not be opened."""
    return gpu.uuid.startswith(_UNOPENED)


@dataclass(frozen=True, slots=True)
class Sample:
    """All GPUs at one moment."""

    schema: int
    time: float
    """Time at which the sample was assembled, in epoch seconds."""
    origin: Origin
    gpus: tuple[Gpu, ...]
    """All GPUs of the source, including lost ones, in NVML's order. A whole GPU precedes its MIG slices."""
    readings: tuple[Reading, ...]
    """One reading per entry of ``gpus``, in the same order."""


def is_settled(reading: Reading, name: str) -> bool:
    """Return whether a caller can stop waiting for a value: it is known, or no later reading will contain
    it."""
    return (
        getattr(reading, name) is not None or why_missing(reading, name, NOT_READ_YET).id != NOT_READ_YET.id
    )


def why_missing(reading: Reading, name: str, default: Message) -> Message:
    """Return the reason why a value of ``reading`` is unknown, or ``default`` if the reading has none."""
    found = reading.missing.get(name, default)
    return default if found.id == NOT_READ_YET.id else found
