"""Simulated progress of runs, for tests of live charts."""

from __future__ import annotations

from dataclasses import replace

from helpers_samples import GIB, h200
from helpers_samples import reading as busy

from gpuwidget.measure.progress import GpuProgress, Progress, SoFar
from gpuwidget.model.readings import Reading
from gpuwidget.model.report import Mark, Span
from gpuwidget.model.samples import Origin

TOTAL = 140 * GIB
REPLAY = Origin(
    kind="replay",
    reason=None,
    recording="recorded on four H200s",
    driver="580.95",
    cuda_driver="13.0",
)
LIVE = replace(REPLAY, kind="nvml", recording=None)


def reading(index: int, utilization: float | None = 97.0, memory: int | None = 56 * GIB) -> Reading:
    """Return the readings of a busy H200."""
    return busy(h200(index), utilization=utilization, memory_used=memory)


def gpu_progress(index: int, points: int = 3) -> GpuProgress:
    """Return the progress of one busy GPU. Its time series have ``points`` points."""
    return GpuProgress(
        gpu=h200(index),
        reading=reading(index),
        torch_device=f"cuda:{index}",
        process_memory=42 * GIB,
        utilization=(97.0,) * points,
        device_memory=(56 * GIB,) * points,
        so_far=SoFar(
            process_memory=Span(40 * GIB, 42 * GIB, 44 * GIB),
            device_memory=Span(50 * GIB, 56 * GIB, 58 * GIB),
            utilization=90.0,
        ),
    )


def progress(gpus: int = 1, points: int = 3, marks: tuple[Mark, ...] = ()) -> Progress:
    """Return the progress of a run on that many GPUs, with one point per second."""
    return Progress(
        elapsed_s=float(points),
        label=None,
        origin=LIVE,
        attributed=True,
        t=tuple(float(second) for second in range(points)),
        gpus=tuple(gpu_progress(index, points) for index in range(gpus)),
        marks=marks,
        advice=None,
    )
