"""Simulated progress of runs, for tests of live charts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
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


def moving(gpus: int, origin: Origin = LIVE, attributed: bool = True) -> Callable[[], Progress]:
    """Start a simulated run on GPUs with different loads, and return a function that returns its progress
    at the time of the call."""
    began = time.monotonic()

    def course(index: int, t: float) -> float:
        kinds = (
            94 + 5 * math.sin(7 * t),
            90.0 if t % 1.4 < 0.25 else 4.0,
            0.0,
            60 + 35 * math.sin(t),
        )
        return kinds[index % len(kinds)]

    def look() -> Progress:
        elapsed = time.monotonic() - began
        points = min(240, int(elapsed * 10) + 1)
        t = tuple(elapsed * i / max(1, points - 1) for i in range(points))
        shown = []
        for index in range(gpus):
            utilization = tuple(course(index, moment) for moment in t)
            share = [min(0.41, 0.1 + 0.05 * m) + 0.07 * index % 0.5 for m in t]
            memory = tuple(int(part * TOTAL) for part in share)
            now = replace(reading(index, utilization[-1], memory[-1]), power_w=80 + 6 * utilization[-1])
            shown.append(
                GpuProgress(h200(index), now, f"cuda:{index}", int(memory[-1] * 0.8), utilization, memory)
            )
        marks = [Mark(float(s), f"epoch {s // 3}", "mark") for s in range(3, int(elapsed), 3)]
        marks += [Mark(0.7 * line, f"step {line}", "printed") for line in range(int(elapsed / 0.7))]
        return Progress(elapsed, None, origin, attributed, t, tuple(shown), tuple(marks), None)

    return look
