"""The part of a run after its warm-up, so that a rate speaks of the work and not of its beginning."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from gpuwidget.model.report import Report

Course = Literal["utilization", "sm_activity", "power_w"]

_SETTLED_S = 1.0
"""The widest window that a reading may tell of: before this the warm-up may still be in it."""
_FEWEST_POINTS = 3


def warm_up(report: Report) -> float | None:
    """Seconds from the start until the steady state began; None where no beginning was told apart."""
    return report.time.warm_up_s if report.time is not None else None


def steady_mean(report: Report, uuid: str, course: Course, since: float) -> float | None:
    """Time-weighted mean of a GPU's course from ``since`` seconds on; None where too little is known."""
    timeline = report.timeline
    gpu = next((gpu for gpu in timeline.gpus if gpu.uuid == uuid), None) if timeline is not None else None
    if timeline is None or gpu is None:
        return None
    values: tuple[float | None, ...] = getattr(gpu, course)
    since = since + _SETTLED_S if since > 0 else since
    known = [
        (value, until - before)
        for (before, until), value in zip(pairwise((0.0, *timeline.t)), values, strict=True)
        if value is not None and until >= since and until > before
    ]
    if len(known) < _FEWEST_POINTS:
        return None
    return sum(value * seconds for value, seconds in known) / sum(seconds for _, seconds in known)
