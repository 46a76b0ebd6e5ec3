"""Read the use of GPUs by user, notebook or kernel from the counters that gpuwidget's servers export."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from gpuwidget.prometheus.client import InstantValue, PrometheusClient

UseGroup = Literal["user", "notebook", "kernel"]

_LABELS: Mapping[UseGroup, tuple[str, ...]] = {
    "user": ("user",),
    "notebook": ("user", "notebook"),
    "kernel": ("user", "notebook", "kernel"),
}
_HELD = "gpuwidget_kernel_gpu_held_seconds_total"
_BUSY = "gpuwidget_kernel_gpu_busy_seconds_total"
_MEMORY = "gpuwidget_kernel_gpu_memory_byte_seconds_total"
_ENERGY = "gpuwidget_kernel_gpu_energy_joules_total"


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The use of GPUs by one user, notebook or kernel. A label that the group does not have is None."""

    user: str
    notebook: str | None
    """The notebook's id; empty for use without a notebook."""
    path: str | None
    """The notebook's path; None if the servers do not export names."""
    kernel: str | None
    """Jupyter's id of the kernel; empty for a server's terminals."""
    held_s: float
    """Seconds in which it held memory of a GPU, summed over the GPUs."""
    busy_s: float | None
    """Seconds in which a GPU worked while it was the only owner of processes there; None if unknown."""
    memory_byte_s: float | None
    """Byte-seconds; None if unknown."""
    energy_j: float | None
    """Joules that GPUs drew while it was the only owner of processes there; None if unknown."""


def gpu_use(
    client: PrometheusClient, matchers: tuple[str, ...], group: UseGroup, since_s: float
) -> tuple[GpuUse, ...]:
    """Return the use of GPUs in the last ``since_s`` seconds, the largest first. Raises PrometheusError.

    The values are Prometheus's ``increase()``: they include the restarts of servers, and are extrapolated by
    at most one scrape interval at the start and the end of each kernel.
    """
    labels = _LABELS[group]
    selector, time_range = f"{{{','.join(matchers)}}}", f"[{round(since_s)}s]"

    def values(name: str) -> dict[tuple[str, ...], float]:
        found = client.query(f"sum by ({', '.join(labels)}) (increase({name}{selector}{time_range}))")
        return {_key(value, labels): value.value for value in found if math.isfinite(value.value)}

    held, busy, memory, energy = (values(name) for name in (_HELD, _BUSY, _MEMORY, _ENERGY))
    paths = {}
    if group != "user":
        named = ",".join((*matchers, 'path!=""'))
        info = client.query(
            f"count by (notebook, path) (last_over_time(gpuwidget_kernel_info{{{named}}}{time_range}))"
        )
        paths = {value.labels.get("notebook", ""): value.labels["path"] for value in info}
    uses = [
        _use(key, labels, paths.get, seconds, busy.get(key), memory.get(key), energy.get(key))
        for key, seconds in held.items()
        if seconds > 0
    ]
    return tuple(sorted(uses, key=lambda use: (-use.held_s, use.user, use.notebook or "", use.kernel or "")))


def _key(value: InstantValue, labels: tuple[str, ...]) -> tuple[str, ...]:
    # Prometheus leaves out labels that are empty.
    return tuple(value.labels.get(label, "") for label in labels)


def _use(
    key: tuple[str, ...],
    labels: tuple[str, ...],
    path_of: Callable[[str], str | None],
    held_s: float,
    busy_s: float | None,
    memory_byte_s: float | None,
    energy_j: float | None,
) -> GpuUse:
    of = dict(zip(labels, key, strict=True))
    notebook = of.get("notebook")
    return GpuUse(
        user=of["user"],
        notebook=notebook,
        path=path_of(notebook) if notebook else None,
        kernel=of.get("kernel"),
        held_s=held_s,
        busy_s=busy_s,
        memory_byte_s=memory_byte_s,
        energy_j=energy_j,
    )
