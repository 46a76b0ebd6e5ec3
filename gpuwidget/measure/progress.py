"""A run that is still going on, as the live chart sees it."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwidget.model.readings import Reading
from gpuwidget.model.report import Advice, Mark
from gpuwidget.model.samples import Gpu, Origin


@dataclass(frozen=True, slots=True)
class GpuProgress:
    """One GPU so far. The two courses have a value for each ``t`` of the progress."""

    gpu: Gpu
    reading: Reading
    """The newest reading."""
    torch_device: str | None
    process_memory: int | None
    """Bytes that this process and its children hold now; None where nobody can say."""
    utilization: tuple[float | None, ...]
    """Percent."""
    device_memory: tuple[float | None, ...]
    """Bytes of the whole GPU in use."""


@dataclass(frozen=True, slots=True)
class Progress:
    """All GPUs in use so far: at most 240 points, whatever the run's length."""

    elapsed_s: float
    origin: Origin | None
    """None until the first sample has come."""
    attributed: bool
    """False where nobody can say which GPU this kernel uses; ``gpus`` then holds all."""
    t: tuple[float, ...]
    """Seconds since the run's start, rising."""
    gpus: tuple[GpuProgress, ...]
    """The GPUs this kernel holds memory on, or all where that is not known; may be empty, may grow."""
    marks: tuple[Mark, ...]
    advice: Advice | None
    """The clearest, from half a minute on; None where there is none."""
