"""The state of a run in progress, as the live chart displays it."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwidget.model.readings import Reading
from gpuwidget.model.report import Advice, Mark, Span
from gpuwidget.model.samples import Gpu, Origin


@dataclass(frozen=True, slots=True)
class SoFar:
    """What is known of one GPU since the run's start. A span's end is the newest value."""

    process_memory: Span | None
    """Bytes that this process and its children hold, or None if unknown."""
    device_memory: Span
    """Bytes in use on the whole GPU."""
    utilization: float | None
    """Mean utilization in percent."""


@dataclass(frozen=True, slots=True)
class GpuProgress:
    """One GPU during a run. Both time series have one value for each entry of :attr:`Progress.t`."""

    gpu: Gpu
    reading: Reading
    """The newest reading."""
    torch_device: str | None
    process_memory: int | None
    """Bytes that this process and its children currently hold, or None if unknown."""
    utilization: tuple[float | None, ...]
    """Utilization in percent."""
    device_memory: tuple[float | None, ...]
    """Bytes in use on the whole GPU."""
    so_far: SoFar | None = None
    """None if there is no run, as on the dashboard."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of the run so far. A time series has at most 240 points, regardless of the run's length."""

    elapsed_s: float
    label: str | None
    origin: Origin | None
    """The source of the readings, or None before the first sample."""
    attributed: bool
    """Whether it is known which GPUs this kernel uses. If not, ``gpus`` contains all GPUs."""
    t: tuple[float, ...]
    """Seconds since the run's start, in ascending order."""
    gpus: tuple[GpuProgress, ...]
    """The selected GPUs. If none are selected, the GPUs that this kernel uses, or all GPUs if it is unknown
    which it uses. GPUs may be added during the run."""
    marks: tuple[Mark, ...]
    advice: Advice | None
    """The most important advice, available after the first 30 seconds, or None if there is none."""
    workers: int = 0
    """Number of workers that are running: child processes that use a GPU, ranks and Dask workers."""
    worker_memory: int | None = 0
    """Bytes that the workers hold on all GPUs, or None if unknown."""
