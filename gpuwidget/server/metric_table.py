"""The metrics of a GPU that are one number each: name, meaning, and where in the model it is found.

docs/prometheus.md has them beside dcgm-exporter's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuwidget.model.readings import Activity, Reading
from gpuwidget.model.samples import Gpu

Read = Callable[[Gpu, Reading], float | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of each GPU."""

    name: str
    text: str
    read: Read
    """The value in the model's unit, None where it is not known."""
    per: float = 1.0
    """So many of the model's unit make one of the metric's."""
    counter: bool = False
    """Whether it only rises, until the driver is loaded anew."""


def _up(reading: Reading) -> float | None:
    if reading.lost_since is not None or reading.silent_since is not None:
        return 0
    return None if reading.answered is None else 1


def _active(field: Callable[[Activity], float | None]) -> Read:
    return lambda _gpu, one: None if one.activity is None else field(one.activity)


_COUNTERS = "by the hardware's own counters, while a viewer has them read."

METRICS = (
    Metric(
        "gpuwidget_gpu_up",
        "1 where the GPU answers, 0 where it is lost or a call to it hangs.",
        lambda _, one: _up(one),
    ),
    Metric(
        "gpuwidget_gpu_answer_timestamp_seconds",
        "When the GPU last answered; the age of its values is time() minus this.",
        lambda _, one: one.answered,
    ),
    Metric(
        "gpuwidget_gpu_utilization_ratio",
        "Share of the driver's last window (1/6 to 1 s) in which anything ran, as nvidia-smi's "
        "utilization.gpu: not how much of the GPU worked.",
        lambda _, one: one.utilization,
        per=100,
    ),
    Metric(
        "gpuwidget_gpu_memory_copy_utilization_ratio",
        "Share of that window in which device memory was read or written, as nvidia-smi's "
        "utilization.memory.",
        lambda _, one: one.memory_utilization,
        per=100,
    ),
    Metric(
        "gpuwidget_gpu_memory_used_bytes",
        "Memory in use, without what the driver reserves.",
        lambda _, one: one.memory_used,
    ),
    Metric(
        "gpuwidget_gpu_memory_total_bytes",
        "Memory of the GPU, with what the driver reserves.",
        lambda gpu, _: gpu.memory_total,
    ),
    Metric(
        "gpuwidget_gpu_memory_reserved_bytes",
        "Memory that the driver keeps for itself; 0 where it counts as used.",
        lambda gpu, _: gpu.memory_reserved,
    ),
    Metric("gpuwidget_gpu_power_watts", "Power drawn now.", lambda _, one: one.power_w),
    Metric(
        "gpuwidget_gpu_power_limit_watts", "Power that the GPU may draw.", lambda _, one: one.power_limit_w
    ),
    Metric(
        "gpuwidget_gpu_energy_joules_total",
        "Energy drawn since the driver was loaded, by its own counter, which is read once a minute.",
        lambda _, one: one.energy_j,
        counter=True,
    ),
    Metric(
        "gpuwidget_gpu_sm_clock_hertz",
        "Clock of the multiprocessors.",
        lambda _, one: one.sm_clock_mhz,
        per=1e-6,
    ),
    Metric("gpuwidget_gpu_temperature_celsius", "Temperature of the core.", lambda _, one: one.temperature_c),
    Metric(
        "gpuwidget_gpu_memory_temperature_celsius",
        "Temperature of the memory.",
        lambda _, one: one.memory_temperature_c,
    ),
    Metric("gpuwidget_gpu_performance_state", "0, the fastest, to 15.", lambda _, one: one.pstate),
    Metric(
        "gpuwidget_gpu_ecc_uncorrected_errors_total",
        "Uncorrected memory errors since the driver was loaded, read once a minute.",
        lambda _, one: one.ecc_uncorrected,
        counter=True,
    ),
    Metric(
        "gpuwidget_gpu_xid",
        "Number of the newest error that the driver reported (XID) while this server watched; absent where "
        "there was none or nobody can say.",
        lambda _, one: one.xid,
    ),
    Metric(
        "gpuwidget_gpu_xid_timestamp_seconds",
        "When that error was noticed, up to a minute after it was reported.",
        lambda _, one: one.xid_time,
    ),
    Metric(
        "gpuwidget_gpu_engine_active_ratio",
        f"Time with any engine active, {_COUNTERS}",
        _active(lambda window: window.graphics),
        per=100,
    ),
    Metric(
        "gpuwidget_gpu_sm_active_ratio",
        f"Multiprocessors with work in them, {_COUNTERS}",
        _active(lambda window: window.sm),
        per=100,
    ),
    Metric(
        "gpuwidget_gpu_sm_occupancy_ratio",
        f"Warps resident over warps possible, {_COUNTERS}",
        _active(lambda window: window.sm_occupancy),
        per=100,
    ),
    Metric(
        "gpuwidget_gpu_tensor_active_ratio",
        f"Tensor-core pipes in use, {_COUNTERS}",
        _active(lambda window: window.tensor),
        per=100,
    ),
    Metric(
        "gpuwidget_gpu_dram_active_ratio",
        f"Memory bandwidth in use, {_COUNTERS}",
        _active(lambda window: window.dram),
        per=100,
    ),
)
