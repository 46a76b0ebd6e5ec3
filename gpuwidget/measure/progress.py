"""The state of a run that is still going on, as the live chart displays it."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwidget.model.readings import Reading
from gpuwidget.model.report import Advice, Mark
from gpuwidget.model.samples import Gpu, Origin


@dataclass(frozen=True, slots=True)
class GpuProgress:
    """One GPU so far. The two time series have a value for each ``t`` of the progress."""

    gpu: Gpu
    reading: Reading
    """The newest reading."""
    torch_device: str | None
    process_memory: int | None
    """Bytes that this process and its children hold now; None where unknown."""
    utilization: tuple[float | None, ...]
    """Percent."""
    device_memory: tuple[float | None, ...]
    """Bytes of the whole GPU in use."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The run so far: at most 240 points, whatever its length."""

    elapsed_s: float
    origin: Origin | None
    """None before the first sample."""
    attributed: bool
    """Whether it is known which GPUs this kernel uses; if not, ``gpus`` has all."""
    t: tuple[float, ...]
    """Seconds since the run's start, rising."""
    gpus: tuple[GpuProgress, ...]
    """The GPUs on which this kernel holds memory, or all where that is unknown; may be empty, may grow."""
    marks: tuple[Mark, ...]
    advice: Advice | None
    """The weightiest advice, from half a minute on; None without one."""
