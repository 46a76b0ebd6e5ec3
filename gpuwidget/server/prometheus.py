"""A sample, and who holds what, in Prometheus' text format.

Names, units and labels are documented in docs/prometheus.md beside dcgm-exporter's. What is unknown is
absent, never 0 and never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gpuwidget.model.samples import Gpu, Sample
from gpuwidget.server.metric_table import METRICS
from gpuwidget.server.wire import GpuMemoryOwnership, MemoryHolder, MemoryOwnership, ServerKernel
from gpuwidget.sources import throttle_reasons
from gpuwidget.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The text format that every Prometheus reads, and whatever else reads what is meant for one. OpenMetrics
would add nothing here: there are no exemplars, and no times at which counters began."""

_Family = GaugeMetricFamily | CounterMetricFamily

_GPU = ("gpu", "UUID", "model", "mig")
"""The first two as dcgm-exporter has them, so that a join needs no renaming; its modelName is no label that
promtool's check lets pass."""


def metrics_text(sample: Sample, usage: MemoryOwnership | None) -> bytes:
    """All of ``sample`` and ``usage`` that is known; without ``usage`` nothing of kernels."""
    return generate_latest(_Known([*_machine(sample), *_gpus(sample), *_held(sample, usage)]))


class _Known(NamedTuple):
    """What prometheus_client asks for metrics: no registry, which would hold them from scrape to scrape."""

    families: Sequence[_Family]

    def collect(self) -> Iterator[_Family]:
        """Those of which anything is known."""
        return (family for family in self.families if family.samples)


def _put(family: _Family, labels: Sequence[str], value: float | None) -> None:
    if value is not None and math.isfinite(value):
        family.add_metric(labels, value)


def _info(name: str, text: str, labels: Sequence[str], rows: Iterable[Sequence[str | None]]) -> _Family:
    """Words, which are labels of a metric that is always 1."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for row in rows:
        family.add_metric([_text(word or "") for word in row], 1)
    return family


def _text(word: str) -> str:
    """A user's word in what UTF-8 can encode: a file's name may be made of any bytes."""
    return word.encode("utf-8", "replace").decode("utf-8")


def _machine(sample: Sample) -> Iterator[_Family]:
    origin = sample.origin
    yield _info(
        "gpuwidget_build_info",
        "gpuwidget's version, and where its numbers come from: nvml, replay (a recording) or none.",
        ("version", "source", "driver", "cuda_driver"),
        [(__version__, origin.kind, origin.driver, origin.cuda_driver)],
    )
    whole = sum(gpu.mig_parent is None for gpu in sample.gpus)
    yield GaugeMetricFamily("gpuwidget_gpus", "Number of GPUs, lost ones included, without slices.", whole)
    yield GaugeMetricFamily(
        "gpuwidget_sample_timestamp_seconds",
        "When the numbers were put together; their age is time() minus this.",
        sample.time,
    )


# -- GPUs ----------------------------------------------------------------------------------------------------


def _labels(gpu: Gpu) -> tuple[str, ...]:
    return str(gpu.index), gpu.uuid, gpu.name, "" if gpu.mig_index is None else str(gpu.mig_index)


def _gpus(sample: Sample) -> Iterator[_Family]:
    yield _info(
        "gpuwidget_gpu_info",
        "What does not change of a GPU; mig_parent is the UUID of the GPU that a MIG slice is cut from.",
        (*_GPU, "mig_parent", "pci_bus_id", "compute_capability"),
        [(*_labels(gpu), gpu.mig_parent, gpu.pci_bus_id, gpu.compute_capability) for gpu in sample.gpus],
    )
    pairs = list(zip(sample.gpus, sample.readings, strict=True))
    for metric in METRICS:
        kind = CounterMetricFamily if metric.counter else GaugeMetricFamily
        family = kind(metric.name, metric.text, labels=_GPU)
        for gpu, reading in pairs:
            value = metric.read(gpu, reading)
            _put(family, _labels(gpu), None if value is None else value / metric.per)
        yield family
    reasons = GaugeMetricFamily(
        "gpuwidget_gpu_throttle_reason",
        "1 for each reason that holds the clock down, 0 for the others.",
        labels=(*_GPU, "reason"),
    )
    for gpu, reading in pairs:
        if reading.throttle is not None:
            for reason in dict.fromkeys((*throttle_reasons.ALL_NAMES, *reading.throttle)):
                _put(reasons, (*_labels(gpu), reason), reason in reading.throttle)
    yield reasons


# -- who holds what ------------------------------------------------------------------------------------------


def _held(sample: Sample, usage: MemoryOwnership | None) -> Iterator[_Family]:
    if usage is None:
        return
    by_kernel = GaugeMetricFamily(
        "gpuwidget_kernel_memory_bytes",
        "Memory that a kernel and its children hold; source is driver, or torch for its own count, without "
        "the CUDA context, where process ids can't be matched.",
        labels=(*_GPU, "kernel", "source"),
    )
    others = GaugeMetricFamily(
        "gpuwidget_gpu_memory_other_bytes",
        "Memory that no kernel of this server holds, by holder: terminal (of this server), process, or "
        "unattributed where nobody can say.",
        labels=(*_GPU, "holder"),
    )
    gpus = {gpu.uuid: _labels(gpu) for gpu in sample.gpus}
    parents = {gpu.uuid: gpu.mig_parent for gpu in sample.gpus}
    there = [one for one in usage.gpus if one.uuid in gpus]
    # What is held in a MIG slice may be told of its parent too, and sums count it once.
    in_slices = {(parents[one.uuid], held.kernel) for one in there for held in one.holdings}
    cut = set(parents.values())
    for one in there:
        for held in one.holdings:
            if held.kernel is not None and (one.uuid, held.kernel) not in in_slices:
                _put(by_kernel, (*gpus[one.uuid], held.kernel, held.source), held.memory)
        for holder, memory in _others(one) if one.uuid not in cut else ():
            _put(others, (*gpus[one.uuid], holder), memory)
    yield by_kernel
    yield others
    # Of those alone that hold something: the names of a user's files go no further than they have to.
    holding = {held.kernel for one in there for held in one.holdings}
    yield from _kernels([kernel for kernel in usage.kernels if kernel.id in holding])


def _others(usage: GpuMemoryOwnership) -> Iterator[tuple[str, int | None]]:
    rest = [held for held in usage.holdings if held.kernel is None]
    yield "terminal", _sum([held for held in rest if held.terminal is not None])
    yield "process", _sum([held for held in rest if held.terminal is None])
    yield "unattributed", usage.unattributed


def _sum(holdings: Sequence[MemoryHolder]) -> int | None:
    """None where there are none, or where what one of them holds is not known."""
    known = [held.memory for held in holdings if held.memory is not None]
    return sum(known) if known and len(known) == len(holdings) else None


def _kernels(kernels: Sequence[ServerKernel]) -> Iterator[_Family]:
    yield _info(
        "gpuwidget_kernel_info",
        "What a kernel is that holds memory: its notebook's path and name, its kind of session and "
        "kernelspec.",
        ("kernel", "path", "name", "kind", "spec"),
        [(one.id, one.path, one.name, one.kind, one.spec) for one in kernels],
    )
    idle = GaugeMetricFamily(
        "gpuwidget_kernel_idle_since_timestamp_seconds",
        "Since when a kernel that holds memory has had nothing to do; absent while it works.",
        labels=("kernel",),
    )
    for one in kernels:
        _put(idle, (one.id,), one.idle_since)
    yield idle
