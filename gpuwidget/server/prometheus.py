"""A sample and the owners of the memory in Prometheus's text format.

docs/admin/prometheus.md documents names, units and labels, and compares them with dcgm-exporter's. An unknown
value is omitted. It is never exported as 0 or NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gpuwidget.model.samples import Gpu, Sample, without_mig_parents
from gpuwidget.model.to_json import encodable
from gpuwidget.server.gpu_hours import UseCounters
from gpuwidget.server.gpu_use import GpuUseMonitor
from gpuwidget.server.prometheus_metrics import PROMETHEUS_METRICS
from gpuwidget.server.wire import GpuMemoryOwnership, MemoryHolder, MemoryOwnership, ServerKernel, SlurmJob
from gpuwidget.sources import throttle_reasons
from gpuwidget.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The text format that Prometheus and all compatible scrapers read. OpenMetrics would have no advantage,
because there are no exemplars and no creation times of counters."""

_Family = GaugeMetricFamily | CounterMetricFamily

_GPU_LABELS = ("gpu", "UUID", "model", "mig")
"""The first two labels have the names of dcgm-exporter's labels, so that metrics of both exporters can be
joined without renaming. The label modelName of dcgm-exporter is not used, because promtool's check rejects
it."""


@dataclass(frozen=True, slots=True)
class KernelLabels:
    """How the metrics identify this server's kernels."""

    notebook_id: Callable[[str], str]
    """Returns the id of the notebook at a path."""
    user: str
    """The user of this server."""
    names: bool
    """Whether the metrics contain the notebooks' names and paths besides the ids."""


def metrics_text(
    sample: Sample,
    ownership: MemoryOwnership | None,
    labels: KernelLabels,
    gpu_use: GpuUseMonitor | None = None,
) -> bytes:
    """Return the known values of ``sample``, ``ownership`` and ``gpu_use``.

    Without ``ownership``, kernels are omitted.
    """
    return generate_latest(
        _Collector(
            [
                *_machine_families(sample),
                *_gpu_families(sample),
                *_ownership_families(sample, ownership, labels),
                *_slurm_families(None if ownership is None else ownership.job),
                *(_use_families(gpu_use, labels) if gpu_use is not None else ()),
            ]
        )
    )


class _Collector(NamedTuple):
    """A collector for one scrape. It is passed to the exporter directly instead of being registered, because
    a registry would keep the metric families after the scrape."""

    families: Sequence[_Family]

    def collect(self) -> Iterator[_Family]:
        """Return the metric families that have samples."""
        return (family for family in self.families if family.samples)


def _add_value(family: _Family, labels: Sequence[str], value: float | None) -> None:
    if value is not None and math.isfinite(value):
        family.add_metric(labels, value)


def _info_family(
    name: str, text: str, labels: Sequence[str], rows: Iterable[Sequence[str | None]]
) -> _Family:
    """Return a metric whose value is always 1 and whose labels contain text."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for row in rows:
        # The name of a user's file may contain any bytes.
        family.add_metric([encodable(value or "") for value in row], 1)
    return family


def _machine_families(sample: Sample) -> Iterator[_Family]:
    origin = sample.origin
    yield _info_family(
        "gpuwidget_build_info",
        "gpuwidget's version, and where its numbers come from: nvml, replay (a recording) or none.",
        ("version", "source", "driver", "cuda_driver"),
        [(__version__, origin.kind, origin.driver, origin.cuda_driver)],
    )
    whole = sum(gpu.mig_parent is None for gpu in sample.gpus)
    yield GaugeMetricFamily("gpuwidget_gpus", "Number of GPUs, lost ones included, without slices.", whole)
    yield GaugeMetricFamily(
        "gpuwidget_sample_timestamp_seconds",
        "Time at which the values were collected; their age is time() minus this.",
        sample.time,
    )


# -- metrics of each GPU -------------------------------------------------------------------------------------


def _gpu_labels(gpu: Gpu) -> tuple[str, ...]:
    return (
        str(gpu.index),
        encodable(gpu.uuid),
        encodable(gpu.name),
        "" if gpu.mig_index is None else str(gpu.mig_index),
    )


def _gpu_families(sample: Sample) -> Iterator[_Family]:
    yield _info_family(
        "gpuwidget_gpu_info",
        "Properties of a GPU that do not change; mig_parent is the UUID of the GPU that a MIG "
        "slice is part of.",
        (*_GPU_LABELS, "mig_parent", "pci_bus_id", "compute_capability"),
        [(*_gpu_labels(gpu), gpu.mig_parent, gpu.pci_bus_id, gpu.compute_capability) for gpu in sample.gpus],
    )
    pairs = list(zip(sample.gpus, sample.readings, strict=True))
    for metric in PROMETHEUS_METRICS:
        exported = metric.exported
        kind = CounterMetricFamily if exported.counter else GaugeMetricFamily
        family = kind(exported.name, exported.help, labels=_GPU_LABELS)
        for gpu, reading in pairs:
            value = metric.read(gpu, reading)
            _add_value(family, _gpu_labels(gpu), None if value is None else value / exported.unit_size)
        yield family
    reasons = GaugeMetricFamily(
        "gpuwidget_gpu_throttle_reason",
        "1 for each reason that lowers the clock now, 0 for the others.",
        labels=(*_GPU_LABELS, "reason"),
    )
    for gpu, reading in pairs:
        if reading.throttle is not None:
            for reason in dict.fromkeys((*throttle_reasons.ALL_NAMES, *reading.throttle)):
                _add_value(reasons, (*_gpu_labels(gpu), reason), reason in reading.throttle)
    yield reasons


# -- owners of the memory ------------------------------------------------------------------------------------


def _ownership_families(
    sample: Sample, ownership: MemoryOwnership | None, labels: KernelLabels
) -> Iterator[_Family]:
    if ownership is None:
        return
    by_kernel = GaugeMetricFamily(
        "gpuwidget_kernel_memory_bytes",
        "Memory that a kernel and its child processes hold; source is driver or, if the driver's value can't "
        "be matched with the kernel, torch (torch's own count, without the CUDA context).",
        labels=(*_GPU_LABELS, "kernel", "source"),
    )
    others = GaugeMetricFamily(
        "gpuwidget_gpu_memory_other_bytes",
        "Memory that no kernel of this server holds, by holder: terminal (of this server), "
        "process, other_users (if the server hides other users' processes), or unattributed if the holder is "
        "unknown.",
        labels=(*_GPU_LABELS, "holder"),
    )
    gpus = {gpu.uuid: _gpu_labels(gpu) for gpu in sample.gpus}
    parents = {gpu.uuid: gpu.mig_parent for gpu in sample.gpus}
    listed = [gpu_ownership for gpu_ownership in ownership.gpus if gpu_ownership.uuid in gpus]
    # Memory in a MIG slice may also be listed for the slice's parent. It must be counted only once.
    in_slices = {
        (parents[gpu_ownership.uuid], held.kernel)
        for gpu_ownership in listed
        for held in gpu_ownership.holdings
    }
    undivided = {gpu.uuid for gpu in without_mig_parents(sample.gpus)}
    for gpu_ownership in (each for each in listed if not each.older):
        for held in gpu_ownership.holdings:
            if held.kernel is not None and (gpu_ownership.uuid, held.kernel) not in in_slices:
                _add_value(by_kernel, (*gpus[gpu_ownership.uuid], held.kernel, held.source), held.memory)
        for holder, memory in _other_memory(gpu_ownership) if gpu_ownership.uuid in undivided else ():
            _add_value(others, (*gpus[gpu_ownership.uuid], holder), memory)
    yield by_kernel
    yield others
    # The labels may contain the names of users' files. Export only kernels that hold memory, so that no other
    # names become public.
    holding = {held.kernel for gpu_ownership in listed for held in gpu_ownership.holdings}
    yield from _kernel_families([kernel for kernel in ownership.kernels if kernel.id in holding], labels)


def _other_memory(ownership: GpuMemoryOwnership) -> Iterator[tuple[str, int | None]]:
    others = [held for held in ownership.holdings if held.kernel is None]
    processes = [held for held in others if held.terminal is None]
    yield "terminal", _known_sum([held for held in others if held.terminal is not None])
    yield "process", _known_sum([held for held in processes if not held.other_users])
    yield "other_users", _known_sum([held for held in processes if held.other_users])
    yield "unattributed", ownership.unattributed


def _known_sum(holdings: Sequence[MemoryHolder]) -> int | None:
    """Return the sum of the holders' memory, or None if there are no holders or the memory of one is
    unknown."""
    known = [held.memory for held in holdings if held.memory is not None]
    return sum(known) if known and len(known) == len(holdings) else None


def _kernel_families(kernels: Sequence[ServerKernel], labels: KernelLabels) -> Iterator[_Family]:
    yield _info_family(
        "gpuwidget_kernel_info",
        "Properties of a kernel that holds memory: its notebook's id, the server's user, the "
        "kind of session and kernelspec; the notebook's path and name only if the "
        "administrator exports names.",
        ("kernel", "notebook", "user", "path", "name", "kind", "spec"),
        [
            (
                kernel.id,
                labels.notebook_id(kernel.path) if kernel.path is not None else None,
                labels.user,
                kernel.path if labels.names else None,
                kernel.name if labels.names else None,
                kernel.kind,
                kernel.spec,
            )
            for kernel in kernels
        ],
    )
    idle = GaugeMetricFamily(
        "gpuwidget_kernel_idle_since_timestamp_seconds",
        "Start of the idle time of a kernel that holds memory; absent while it works.",
        labels=("kernel",),
    )
    for kernel in kernels:
        _add_value(idle, (kernel.id,), kernel.idle_since)
    yield idle


def _slurm_families(job: SlurmJob | None) -> Iterator[_Family]:
    if job is None:
        return
    yield _info_family(
        "gpuwidget_slurm_job_info",
        "The Slurm job in which this server runs, and the number of GPUs that it has on this machine.",
        ("job", "gpus"),
        [(job.id, None if job.gpus is None else str(job.gpus))],
    )
    end = GaugeMetricFamily(
        "gpuwidget_slurm_job_end_timestamp_seconds", "Time at which Slurm ends the job.", labels=("job",)
    )
    _add_value(end, (job.id,), job.end)
    yield end


# -- use of the GPUs -----------------------------------------------------------------------------------------

_USE_LABELS = ("gpu", "UUID", "kernel", "notebook", "user")


def _use_families(gpu_use: GpuUseMonitor, labels: KernelLabels) -> Iterator[_Family]:
    rows = [
        (
            (
                str(row.gpu.index),
                encodable(row.gpu.uuid),
                row.kernel or "",
                "" if row.path is None else labels.notebook_id(row.path),
                encodable(labels.user),
            ),
            row,
        )
        for row in gpu_use.counters()
    ]
    for name, text, read in _USE_COUNTERS:
        family = CounterMetricFamily(name, text, labels=_USE_LABELS)
        for values, row in rows:
            _add_value(family, values, read(row))
        yield family
    holders = GaugeMetricFamily(
        "gpuwidget_kernel_idle_holder",
        "1 for a kernel that has been idle for longer, and holds more GPU memory, than the "
        "administrator's limits allow.",
        labels=("kernel",),
    )
    for kernel in gpu_use.idle_holders:
        _add_value(holders, (kernel,), 1)
    yield holders


_USE_COUNTERS: tuple[tuple[str, str, Callable[[UseCounters], float | None]], ...] = (
    (
        "gpuwidget_kernel_gpu_held_seconds",
        "Time in which a kernel held memory of the GPU since the server's start. The label kernel is empty "
        "for the server's terminals.",
        lambda row: row.held_s,
    ),
    (
        "gpuwidget_kernel_gpu_busy_seconds",
        "Time in which the GPU worked while all its processes belonged to the kernel.",
        lambda row: row.busy_s,
    ),
    (
        "gpuwidget_kernel_gpu_memory_byte_seconds",
        "Integral of the memory that a kernel held on the GPU.",
        lambda row: row.memory_byte_s,
    ),
    (
        "gpuwidget_kernel_gpu_energy_joules",
        "Energy that the GPU drew while all its processes belonged to the kernel, in whole minutes.",
        lambda row: row.energy_j,
    ),
)
