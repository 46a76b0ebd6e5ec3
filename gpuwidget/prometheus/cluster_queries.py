"""The two fixed queries for the state of a cluster: its values now, and what happened within the last hour.

Nothing in a query comes from a browser. A result's series have a label that tells what they are:

- ``exporter``: one GPU or MIG slice as one exporter reports it; the value is the time of its newest sample,
- ``metric``: a value of the GPU in the label ``uuid``; with ``time``, the time of the query,
- ``kernel`` and ``uuid``: the memory that a notebook's kernel holds on a GPU,
- ``kernel`` alone: names of the kernel's notebook and user.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gpuwidget.prometheus.exporters import (
    EXPORTERS,
    Apply,
    Exporter,
    Over,
    by_uuid,
    memory_total_expression,
    metric_expression,
    recordings,
    selector,
    with_uuid,
)

HOUR_S = 3600
GRID_S = 60
"""Seconds between the moments of the last hour that are evaluated."""
HELD_BYTES = 1e9
"""A GPU whose used memory exceeds this holds memory: more than a context of an idle program or a desktop."""
_VALUES = ("utilization", "memory_used", "power_w", "temperature_c")
"""The metrics of the table that a snapshot contains."""

NODE_LABELS = ("Hostname", "hostname", "node", "nodename", "kubernetes_node", "instance")
"""Labels with the name of a GPU's machine, the most reliable first: the first two are dcgm-exporter's own,
the others come from the scrape configuration."""
JOB_LABELS = ("hpc_job", "exported_pod", "pod", "pod_name")
"""Labels with the job or pod that uses a GPU, of dcgm-exporter."""
_EXPORTER_LABELS: dict[Exporter, tuple[str, ...]] = {
    "gpuwidget": ("gpu", "model", "mig_parent"),
    "dcgm": ("gpu", "modelName", "GPU_I_PROFILE", *JOB_LABELS, "exported_container", "container"),
    "nvidia_gpu": ("index", "name", "profile"),
}
_PRESENCE: dict[Exporter, tuple[str, ...]] = {
    "gpuwidget": ("gpuwidget_gpu_info",),
    "dcgm": ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_TEMP"),
    "nvidia_gpu": ("nvidia_smi_gpu_info", "nvidia_smi_mig_info"),
}
"""Series that an exporter has for each GPU. dcgm-exporter's second is for where the first is switched off."""
_PRESENCE_IN_THE_HOUR = {**_PRESENCE, "dcgm": _PRESENCE["dcgm"][:1]}
"""As ``_PRESENCE``, for the query that evaluates them for many moments."""


def now_expression(matchers: Sequence[str]) -> str:
    """Return PromQL for the newest values of all GPUs."""
    parts = [
        '(label_replace(vector(time()), "metric", "time", "", ""))',
        _identities(matchers, _timestamp),
        *(_as_metric(key, metric_expression(key, matchers)) for key in _VALUES),
        _as_metric("lost", f"{_of('gpuwidget', 'gpuwidget_gpu_up', matchers)} == 0"),
        # An error's number or count that changes is a reason to repeat the other query at once.
        _as_metric("errors", f"{_of('dcgm', 'DCGM_FI_DEV_XID_ERRORS', matchers)} > 0"),
        _as_metric("errors_of_gpuwidget", _of("gpuwidget", "gpuwidget_gpu_xid_timestamp_seconds", matchers)),
        _as_metric(
            "errors_of_nvidia_gpu", _of("nvidia_gpu", "nvidia_smi_xid_last_timestamp_seconds", matchers)
        ),
        _as_metric("ecc_errors", f"({metric_expression('ecc_uncorrected', matchers)}) > 0"),
        f"(max by (uuid, kernel) ({_kernels(matchers)}))",
        "(max by (kernel, name, notebook, user) "
        f"({selector('gpuwidget', 'gpuwidget_kernel_info', matchers)}))",
    ]
    return " or ".join(parts)


def hour_expression(matchers: Sequence[str]) -> str:
    """Return PromQL for the GPUs, errors and use of the last hour, and for values that hardly change."""
    parts = [
        _as_metric("power_limit_w", metric_expression("power_limit_w", matchers)),
        _as_metric("memory_total", memory_total_expression(matchers)),
        _identities(matchers, _last_timestamp),
        _as_metric("busy", _last_busy(matchers)),
        _as_metric("xid", _dcgm_xid(matchers)),
        _as_metric("xid_of_gpuwidget", _gpuwidget_xid(matchers)),
        f'(label_replace({_nvidia_gpu_xid(matchers)}, "metric", "xid_time", "", ""))',
        _as_metric("ecc_increase", _ecc(matchers, Over("increase", HOUR_S))),
        _as_metric(
            "ecc_range",
            f"(({_ecc(matchers, Over('max_over_time', HOUR_S))}) - on (uuid) "
            f"({_ecc(matchers, Over('min_over_time', HOUR_S))})) > 0",
        ),
    ]
    return " or ".join(parts)


def _as_metric(name: str, vector: str) -> str:
    return f'(label_replace({vector}, "metric", "{name}", "", ""))'


def _of(exporter: Exporter, name: str, matchers: Sequence[str], apply: Apply | None = None) -> str:
    return by_uuid(exporter, selector(exporter, name, matchers, apply=apply))


def _timestamp(series: str) -> str:
    return f"timestamp({series})"


def _last_timestamp(series: str) -> str:
    # The labels are changed after this and not in the subquery, where that would take most of the time.
    return f"max_over_time(timestamp({series})[{HOUR_S}s:{GRID_S}s])"


def _identities(matchers: Sequence[str], time_of: Apply) -> str:
    """Return PromQL for the time of each GPU's newest sample, with the labels that describe the GPU."""
    found = []
    for exporter in EXPORTERS:
        labels = ", ".join(dict.fromkeys(("uuid", "job", *NODE_LABELS, *_EXPORTER_LABELS[exporter])))
        names = _PRESENCE[exporter] if time_of is _timestamp else _PRESENCE_IN_THE_HOUR[exporter]
        present = " or ".join(f"({selector(exporter, name, matchers, apply=time_of)})" for name in names)
        if exporter == "gpuwidget" and time_of is _last_timestamp:
            # A server with a recording may have ended since.
            present += f" unless on (job, instance) last_over_time({recordings(matchers)}[{HOUR_S}s])"
        newest = f"max by ({labels}) ({with_uuid(exporter, f'({present})')})"
        found.append(f'(label_replace({newest}, "exporter", "{exporter}", "", ""))')
    return " or ".join(found)


def _kernels(matchers: Sequence[str]) -> str:
    return with_uuid("gpuwidget", f"({selector('gpuwidget', 'gpuwidget_kernel_memory_bytes', matchers)} > 0)")


def _last_busy(matchers: Sequence[str]) -> str:
    """Return PromQL for the last moment of the grid in whose minute a GPU was utilized, held no memory or
    appeared. A GPU that was idle and held memory for the whole hour is absent."""
    utilized = f"({metric_expression('utilization', matchers, apply=Over('max_over_time', GRID_S))}) > 0"
    lowest = metric_expression("memory_used", matchers, apply=Over("min_over_time", GRID_S))
    before = metric_expression("memory_used", matchers, apply=lambda series: f"{series} offset {GRID_S}s")
    appeared = f"({metric_expression('memory_used', matchers)}) unless on (uuid) ({before})"
    event = f"({utilized}) or on (uuid) (({lowest}) < {HELD_BYTES:.15g}) or on (uuid) ({appeared})"
    return f"max_over_time(timestamp({event})[{HOUR_S}s:{GRID_S}s])"


def _dcgm_xid(matchers: Sequence[str]) -> str:
    """Return PromQL for the newest XID of each GPU, if it differed within the hour.

    dcgm-exporter exports the last XID for as long as it runs, however old it is. In newer versions each XID
    is a separate series, with the label ``err_code``.
    """
    name = "DCGM_FI_DEV_XID_ERRORS"

    def extreme(kind: Literal["min", "max"]) -> str:
        series = selector("dcgm", name, matchers, apply=Over(f"{kind}_over_time", HOUR_S))  # type: ignore[arg-type]
        return f"{kind} by (uuid) ({with_uuid('dcgm', series)})"

    unchanged = f"{extreme('min')} == on (uuid) {extreme('max')}"
    return f"({_of('dcgm', name, matchers)} > 0) unless on (uuid) ({unchanged})"


def _gpuwidget_xid(matchers: Sequence[str]) -> str:
    when = _of("gpuwidget", "gpuwidget_gpu_xid_timestamp_seconds", matchers)
    return f"{_of('gpuwidget', 'gpuwidget_gpu_xid', matchers)} and on (uuid) ({when} > time() - {HOUR_S})"


def _nvidia_gpu_xid(matchers: Sequence[str]) -> str:
    """Return PromQL for the times of the last hour's XIDs, with the number as the label ``xid``."""
    series = with_uuid(
        "nvidia_gpu", selector("nvidia_gpu", "nvidia_smi_xid_last_timestamp_seconds", matchers)
    )
    return f"max by (uuid, xid) ({series}) > time() - {HOUR_S}"


def _ecc(matchers: Sequence[str], apply: Apply) -> str:
    return metric_expression("ecc_uncorrected", matchers, apply=apply)
