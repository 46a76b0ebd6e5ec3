"""Samples, which flow from a source to every view: the GPUs and their readings.

Every class is frozen, and no wire field has a default: an unknown value is passed as ``None``, with its
reason in ``missing``, and never as 0. Times are epoch seconds unless a name says otherwise; sizes are bytes,
power watts, energy joules, ratios percent (0 to 100).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

SCHEMA = 1
"""Version of the sample's schema, sent with every sample."""

NOT_READ_YET = "not read yet"
"""Reason for a value that arrives a moment later."""

SourceKind = Literal["nvml", "replay", "none"]
ProcessKind = Literal["compute", "graphics"]


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
class Process:
    """One process with a context on a GPU."""

    pid: int
    """Process id on the host, as NVML reports it; in a container it may match no process or an unrelated
    one."""
    kind: ProcessKind
    """NVML's list that contains it; a process in both is listed once, as compute."""
    memory: int | None
    """Bytes it holds, usedGpuMemory; None where the driver does not report it (WSL, WDDM)."""
    user: str | None = field(repr=False)
    """Login name of its owner; None where unreadable or where process ids do not match. Not part of ``repr``,
    which a notebook saves."""
    program: str | None
    """File name of its executable, with its script or module (``python train.py``); None where unreadable or
    where process ids do not match."""
    arguments: str | None = field(repr=False)
    """Its other arguments, shortened and without what may be secret; None where ``program`` is. Not part of
    ``repr``."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Hardware activity between two GPU performance-monitoring (GPM) samples; Hopper and later.

    All ratios are percent of the window. A value without a counter is None.
    """

    since: float
    """Start of the window, epoch seconds."""
    until: float
    """End of the window, epoch seconds."""
    graphics: float | None
    """Time any graphics or compute engine was active."""
    sm: float | None
    """Share of the multiprocessors with work in them (NVML_GPM_METRIC_SM_UTIL)."""
    sm_occupancy: float | None
    """Warps resident over warps possible (NVML_GPM_METRIC_SM_OCCUPANCY)."""
    tensor: float | None
    """Tensor-core pipes in use (NVML_GPM_METRIC_ANY_TENSOR_UTIL)."""
    dram: float | None
    """Memory bandwidth in use (NVML_GPM_METRIC_DRAM_BW_UTIL)."""
    fp64: float | None
    fp32: float | None
    fp16: float | None
    pcie_tx: float | None
    """Bytes a second sent by the GPU over PCIe."""
    pcie_rx: float | None
    """Bytes a second received by the GPU over PCIe."""
    nvlink_tx: float | None
    """Bytes a second sent over all NVLinks."""
    nvlink_rx: float | None
    """Bytes a second received over all NVLinks."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The values of one GPU at one moment, assembled from calls made at different rates."""

    uuid: str
    answered: float | None
    """When a call to the GPU last succeeded, epoch seconds; None before the first."""
    silent_since: float | None
    """Since when a call to it has not returned, epoch seconds; None while it answers."""
    lost_since: float | None
    """Since when the driver reports it lost (off the bus, needs a reset), epoch seconds, or None."""
    measured: float | None
    """When ``utilization``, ``memory_utilization`` and ``power_w`` were read, epoch seconds; a sample between
    two such reads may have a new ``memory_used`` only. None before the first."""
    utilization: float | None
    """Percent of the driver's last window in which any kernel ran, nvmlDeviceGetUtilizationRates gpu
    (nvidia-smi: utilization.gpu). It does not measure how much of the GPU worked: see ``activity``."""
    utilization_window: float | None
    """Seconds of the window that ``utilization`` is averaged over (200 ms on H200), None where unknown."""
    memory_utilization: float | None
    """Percent of that window in which device memory was read or written (nvidia-smi: utilization.memory)."""
    memory_used: int | None
    """Bytes in use without what the driver reserves, nvmlDeviceGetMemoryInfo_v2 used (nvidia-smi:
    memory.used)."""
    power_w: float | None
    """Watts now, NVML_FI_DEV_POWER_INSTANT (nvidia-smi: power.draw.instant)."""
    power_limit_w: float | None
    """Watts the GPU may draw, nvmlDeviceGetEnforcedPowerLimit (nvidia-smi: enforced.power.limit)."""
    temperature_c: float | None
    """Degrees Celsius of the core, nvmlDeviceGetTemperature (nvidia-smi: temperature.gpu)."""
    memory_temperature_c: float | None
    """Degrees Celsius of the memory, NVML_FI_DEV_MEMORY_TEMP (nvidia-smi: temperature.memory)."""
    sm_clock_mhz: float | None
    """Clock of the multiprocessors, nvmlDeviceGetClockInfo SM (nvidia-smi: clocks.sm)."""
    pstate: int | None
    """Performance state, 0 the fastest to 15, nvmlDeviceGetPerformanceState (nvidia-smi: pstate)."""
    throttle: tuple[str, ...] | None
    """Reasons why the clock is throttled; empty when it is not (nvmlDeviceGetCurrentClocksEventReasons,
    nvidia-smi: clocks_event_reasons)."""
    energy_j: float | None
    """Joules since the driver was loaded, nvmlDeviceGetTotalEnergyConsumption, read once a minute."""
    ecc_uncorrected: int | None
    """Uncorrected memory errors since the driver was loaded, nvmlDeviceGetTotalEccErrors uncorrected volatile
    (nvidia-smi: ecc.errors.uncorrected.volatile.total), read once a minute."""
    xid: int | None
    """Number of the newest error that the driver reported since this source was opened (XID,
    nvmlEventTypeXidCriticalError), read once a minute, kept for a lost GPU. None where there was none, or
    where it is unknown: then with its reason in ``missing``."""
    xid_time: float | None
    """When that error was read, up to a minute after it was reported, epoch seconds; None without one."""
    activity: Activity | None
    """The newest window of the hardware counters, None without GPM or while no view shows it."""
    processes: tuple[Process, ...] | None
    """Processes with a context on it, None where the driver does not list them."""
    missing: Mapping[str, str]
    """The reason for each field that is None, by field name."""


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
