"""The Prometheus metrics of a GPU that are one number each: name, help text and value.

docs/prometheus.md documents them beside dcgm-exporter's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuwidget.model.readings import Activity, Reading
from gpuwidget.model.samples import Gpu

ReadValue = Callable[[Gpu, Reading], float | None]


@dataclass(frozen=True, slots=True)
class PrometheusMetric:
    """One number of each GPU."""

    name: str
    help: str
    read: ReadValue
    """Returns the value in the model's unit, None if unknown."""
    unit_size: float = 1.0
    """The metric's unit in the model's unit: 100 (percent) for a ratio."""
    is_counter: bool = False
    """Whether it only rises until the driver is reloaded."""


def _up(reading: Reading) -> float | None:
    if reading.lost_since is not None or reading.silent_since is not None:
        return 0
    return None if reading.answered is None else 1


def _activity(field: Callable[[Activity], float | None]) -> ReadValue:
    return lambda _gpu, reading: None if reading.activity is None else field(reading.activity)


_HARDWARE_COUNTERS = "by the hardware's own counters, while a viewer has them read."

PROMETHEUS_METRICS = (
    PrometheusMetric(
        "gpuwidget_gpu_up",
        "1 where the GPU answers, 0 where it is lost or a call to it hangs.",
        lambda _, reading: _up(reading),
    ),
    PrometheusMetric(
        "gpuwidget_gpu_answer_timestamp_seconds",
        "When the GPU last answered; the age of its values is time() minus this.",
        lambda _, reading: reading.answered,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_utilization_ratio",
        "Share of the driver's last window (1/6 to 1 s) in which anything ran, as nvidia-smi's "
        "utilization.gpu: not how much of the GPU worked.",
        lambda _, reading: reading.utilization,
        unit_size=100,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_memory_copy_utilization_ratio",
        "Share of that window in which device memory was read or written, as nvidia-smi's "
        "utilization.memory.",
        lambda _, reading: reading.memory_utilization,
        unit_size=100,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_memory_used_bytes",
        "Memory in use, without what the driver reserves.",
        lambda _, reading: reading.memory_used,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_memory_total_bytes",
        "Memory of the GPU, with what the driver reserves.",
        lambda gpu, _: gpu.memory_total,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_memory_reserved_bytes",
        "Memory that the driver keeps for itself; 0 where it counts as used.",
        lambda gpu, _: gpu.memory_reserved,
    ),
    PrometheusMetric("gpuwidget_gpu_power_watts", "Power drawn now.", lambda _, reading: reading.power_w),
    PrometheusMetric(
        "gpuwidget_gpu_power_limit_watts",
        "Power that the GPU may draw.",
        lambda _, reading: reading.power_limit_w,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_energy_joules_total",
        "Energy drawn since the driver was loaded, by its own counter, which is read once a minute.",
        lambda _, reading: reading.energy_j,
        is_counter=True,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_sm_clock_hertz",
        "Clock of the multiprocessors.",
        lambda _, reading: reading.sm_clock_mhz,
        unit_size=1e-6,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_temperature_celsius",
        "Temperature of the core.",
        lambda _, reading: reading.temperature_c,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_memory_temperature_celsius",
        "Temperature of the memory.",
        lambda _, reading: reading.memory_temperature_c,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_performance_state", "0, the fastest, to 15.", lambda _, reading: reading.pstate
    ),
    PrometheusMetric(
        "gpuwidget_gpu_ecc_uncorrected_errors_total",
        "Uncorrected memory errors since the driver was loaded, read once a minute.",
        lambda _, reading: reading.ecc_uncorrected,
        is_counter=True,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_xid",
        "Number of the newest error that the driver reported (XID) while this server watched; absent where "
        "there was none or nobody can say.",
        lambda _, reading: reading.xid,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_xid_timestamp_seconds",
        "When that error was noticed, up to a minute after it was reported.",
        lambda _, reading: reading.xid_time,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_engine_active_ratio",
        f"Time with any engine active, {_HARDWARE_COUNTERS}",
        _activity(lambda window: window.graphics),
        unit_size=100,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_sm_active_ratio",
        f"Multiprocessors with work in them, {_HARDWARE_COUNTERS}",
        _activity(lambda window: window.sm),
        unit_size=100,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_sm_occupancy_ratio",
        f"Warps resident over warps possible, {_HARDWARE_COUNTERS}",
        _activity(lambda window: window.sm_occupancy),
        unit_size=100,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_tensor_active_ratio",
        f"Tensor-core pipes in use, {_HARDWARE_COUNTERS}",
        _activity(lambda window: window.tensor),
        unit_size=100,
    ),
    PrometheusMetric(
        "gpuwidget_gpu_dram_active_ratio",
        f"Memory bandwidth in use, {_HARDWARE_COUNTERS}",
        _activity(lambda window: window.dram),
        unit_size=100,
    ),
)
