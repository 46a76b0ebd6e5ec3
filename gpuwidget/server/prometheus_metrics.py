"""The Prometheus metrics that consist of one number per GPU, with name, help text and value.

Some of them are generated from the table in :mod:`gpuwidget.model.metrics`. docs/admin/prometheus.md
documents all of them, and compares them with dcgm-exporter's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuwidget.model.metrics import METRICS, Exported, Metric
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Gpu

ReadValue = Callable[[Gpu, Reading], float | None]


@dataclass(frozen=True, slots=True)
class PrometheusMetric:
    """A metric with one number per GPU."""

    exported: Exported
    read: ReadValue
    """Returns the value in the model's unit, or None if it is unknown."""


def _up(reading: Reading) -> float | None:
    if reading.lost_since is not None or reading.silent_since is not None:
        return 0
    return None if reading.answered is None else 1


def _read(metric: Metric) -> ReadValue:
    key = metric.key
    if metric.group == "activity":
        return lambda _, reading: None if reading.activity is None else getattr(reading.activity, key)
    return lambda _, reading: getattr(reading, key)


PROMETHEUS_METRICS = (
    PrometheusMetric(
        Exported(
            name="gpuwidget_gpu_up",
            help="1 if the GPU answers, 0 if it is lost or a call to it hangs.",
        ),
        lambda _, reading: _up(reading),
    ),
    PrometheusMetric(
        Exported(
            name="gpuwidget_gpu_answer_timestamp_seconds",
            help="Time of the GPU's last answer; the age of its values is time() minus this.",
        ),
        lambda _, reading: reading.answered,
    ),
    PrometheusMetric(
        Exported(
            name="gpuwidget_gpu_memory_total_bytes",
            help="Memory of the GPU, including what the driver reserves.",
        ),
        lambda gpu, _: gpu.memory_total,
    ),
    PrometheusMetric(
        Exported(
            name="gpuwidget_gpu_memory_reserved_bytes",
            help="Memory that the driver reserves for itself; 0 if it counts as used.",
        ),
        lambda gpu, _: gpu.memory_reserved,
    ),
    PrometheusMetric(
        Exported(
            name="gpuwidget_gpu_xid",
            help="Number of the newest error that the driver reported (XID) while this server "
            "watched; absent if there was none or it is unknown.",
        ),
        lambda _, reading: reading.xid,
    ),
    PrometheusMetric(
        Exported(
            name="gpuwidget_gpu_xid_timestamp_seconds",
            help="Time at which that error was noticed, up to a minute after it was reported.",
        ),
        lambda _, reading: reading.xid_time,
    ),
    *(PrometheusMetric(metric.exported, _read(metric)) for metric in METRICS if metric.exported is not None),
)
