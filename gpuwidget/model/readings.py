"""Readings of GPUs.

GENERATED from the table in ``metrics.py``: change the table, then run ``python -m tools.metrics``. Each
field's docstring contains its unit, NVML call and nvidia-smi name. An unknown value is None, and ``missing``
contains the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuwidget.model.gpu_process import Process
from gpuwidget.model.messages import Message, MessageId, message_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Hardware activity between two GPU performance-monitoring (GPM) samples; Hopper and later.

    A value without a counter is None.
    """

    since: float
    """Start of the window, epoch seconds."""
    until: float
    """End of the window, epoch seconds."""
    graphics: float | None
    """Percent of time during which any graphics or compute engine was active,
    NVML_GPM_METRIC_GRAPHICS_UTIL."""
    sm: float | None
    """Multiprocessors that had work, in percent, NVML_GPM_METRIC_SM_UTIL."""
    sm_occupancy: float | None
    """Resident warps, in percent of the maximum, NVML_GPM_METRIC_SM_OCCUPANCY."""
    tensor: float | None
    """Tensor-core pipes in use, in percent, NVML_GPM_METRIC_ANY_TENSOR_UTIL."""
    dram: float | None
    """Memory bandwidth in use, in percent, NVML_GPM_METRIC_DRAM_BW_UTIL."""
    fp64: float | None
    """Double-precision pipes in use, in percent, NVML_GPM_METRIC_FP64_UTIL."""
    fp32: float | None
    """Single-precision pipes in use, in percent, NVML_GPM_METRIC_FP32_UTIL."""
    fp16: float | None
    """Half-precision pipes in use, in percent, NVML_GPM_METRIC_FP16_UTIL."""
    pcie_tx: float | None
    """Bytes per second sent by the GPU over PCIe, NVML_GPM_METRIC_PCIE_TX_PER_SEC."""
    pcie_rx: float | None
    """Bytes per second received by the GPU over PCIe, NVML_GPM_METRIC_PCIE_RX_PER_SEC."""
    nvlink_tx: float | None
    """Bytes per second sent over all NVLinks, NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC."""
    nvlink_rx: float | None
    """Bytes per second received over all NVLinks, NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The values of one GPU at one moment, assembled from calls made at different rates."""

    uuid: str
    answered: float | None
    """When a call to the GPU last succeeded, epoch seconds; None before the first success."""
    silent_since: float | None
    """Since when a call to it has not returned, epoch seconds; None while it answers."""
    lost_since: float | None
    """When the driver first reported the GPU as lost (off the bus or in need of a reset), epoch seconds; None
    if the GPU is not lost."""
    measured: float | None
    """When ``utilization``, ``memory_utilization`` and ``power_w`` were read, epoch seconds; between two such
    reads, a sample may have a new ``memory_used`` only. None before the first read."""
    utilization: float | None
    """Percent of time during which any kernel ran, over the driver's last window,
    nvmlDeviceGetUtilizationRates gpu (nvidia-smi: utilization.gpu). It does not measure how much of the GPU
    worked: see ``activity``."""
    memory_utilization: float | None
    """Percent of time during which device memory was read or written, over the driver's last window,
    nvmlDeviceGetUtilizationRates memory (nvidia-smi: utilization.memory)."""
    memory_used: int | None
    """Bytes in use, without those that the driver reserves, nvmlDeviceGetMemoryInfo_v2 used (nvidia-smi:
    memory.used)."""
    power_w: float | None
    """Power draw in watts, NVML_FI_DEV_POWER_INSTANT (nvidia-smi: power.draw.instant)."""
    power_limit_w: float | None
    """Power limit in watts, nvmlDeviceGetEnforcedPowerLimit (nvidia-smi: enforced.power.limit)."""
    temperature_c: float | None
    """Temperature of the core in degrees Celsius, nvmlDeviceGetTemperature (nvidia-smi: temperature.gpu)."""
    memory_temperature_c: float | None
    """Temperature of the memory in degrees Celsius, NVML_FI_DEV_MEMORY_TEMP (nvidia-smi:
    temperature.memory)."""
    sm_clock_mhz: float | None
    """Clock of the multiprocessors in MHz, nvmlDeviceGetClockInfo SM (nvidia-smi: clocks.sm)."""
    memory_clock_mhz: float | None
    """Clock of the memory in MHz, nvmlDeviceGetClockInfo MEM (nvidia-smi: clocks.mem)."""
    pstate: int | None
    """Performance state, from 0 (fastest) to 15, nvmlDeviceGetPerformanceState (nvidia-smi: pstate)."""
    fan_speed: float | None
    """Intended fan speed in percent of the fan's maximum; may exceed 100, nvmlDeviceGetFanSpeed (nvidia-smi:
    fan.speed)."""
    encoder_utilization: float | None
    """Percent of time during which the video encoder worked, over the driver's last window,
    nvmlDeviceGetEncoderUtilization (nvidia-smi: utilization.encoder)."""
    decoder_utilization: float | None
    """Percent of time during which the video decoder worked, over the driver's last window,
    nvmlDeviceGetDecoderUtilization (nvidia-smi: utilization.decoder)."""
    throttle: tuple[str, ...] | None
    """Reasons why the clock is throttled; empty if it is not (nvmlDeviceGetCurrentClocksEventReasons,
    nvidia-smi: clocks_event_reasons)."""
    energy_j: float | None
    """Energy in joules that the GPU has used since the driver was loaded,
    nvmlDeviceGetTotalEnergyConsumption."""
    utilization_window: float | None
    """Seconds over which the driver averages ``utilization`` (0.2 on an H200), nvmlDeviceGetSamples
    NVML_GPU_UTILIZATION_SAMPLES."""
    ecc_uncorrected: int | None
    """Number of uncorrected memory errors since the driver was loaded, nvmlDeviceGetTotalEccErrors
    uncorrected volatile (nvidia-smi: ecc.errors.uncorrected.volatile.total)."""
    xid: int | None
    """Number of the newest error that the driver reported since this source was opened (XID,
    nvmlEventTypeXidCriticalError), read once a minute, kept for a lost GPU. None if there was none or if it
    is unknown; in the second case ``missing`` has the reason."""
    xid_time: float | None
    """When that error was read, up to a minute after it was reported, epoch seconds; None if there is no such
    error."""
    activity: Activity | None
    """The newest window of the hardware counters, or None without GPM or while no view shows it."""
    processes: tuple[Process, ...] | None
    """Processes that have a context on the GPU; None if the driver does not list them."""
    missing: Mapping[str, Message]
    """The reason for each field that is None, by field name."""
    missing_ids: Mapping[str, MessageId] = field(init=False)
    """The ids of ``missing``, by field name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing_ids", message_ids(self.missing))
