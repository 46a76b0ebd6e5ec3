"""Find when a run's steady state begins, and compute the mean of a metric from that moment on.

The steady state begins at a mark set by the user, or when the run's time series takes one clear step up. If
the GPUs' work cannot be attributed to this process, only a mark counts, because another process may have
caused the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from gpuwidget.model.report import Report, Timeline

SteadyMetric = Literal["utilization", "sm_activity", "power_w"]

STEADY_MARKS = frozenset({"steady", "warm", "warmed up", "steady state"})
"""Labels of marks that begin the steady state, ignoring case."""
_MIN_RUN_S = 4.0
_MIN_POINTS_AFTER = 5
_LATEST = 0.6
"""Fraction of the run after which a step no longer counts as the end of the warm-up."""
_MIN_STEP = 25.0
"""Percentage points by which utilization must rise at the step."""
_MIN_POWER_RATIO = 1.3
_MIN_EXPLAINED = 0.8
"""Fraction of the time series' variance that the step alone must explain."""
_MAX_WINDOW_S = 1.0
"""Maximum length, in seconds, of the window that a reading covers. A reading taken up to this long after the
warm-up may still cover a part of the warm-up, so such readings are left out of means."""
_MIN_POINTS = 3


def warm_up_s(report: Report) -> float | None:
    """Return the seconds until the steady state began, as stored in the report, or None if unknown."""
    return report.time.warm_up_s if report.time is not None else None


def steady_mean(report: Report, uuid: str, metric: SteadyMetric, since: float) -> float | None:
    """Return a metric's time-weighted mean over the steady state, or None if there are too few points.

    The steady state begins ``since`` seconds into the run. Unless ``since`` is 0, the mean begins
    ``_MAX_WINDOW_S`` later.
    """
    timeline = report.timeline
    gpu = next((gpu for gpu in timeline.gpus if gpu.uuid == uuid), None) if timeline is not None else None
    if timeline is None or gpu is None:
        return None
    values: tuple[float | None, ...] = getattr(gpu, metric)
    since = since + _MAX_WINDOW_S if since > 0 else since
    known = [
        (value, until - before)
        for (before, until), value in zip(pairwise((0.0, *timeline.t)), values, strict=True)
        if value is not None and until >= since and until > before
    ]
    if len(known) < _MIN_POINTS:
        return None
    return sum(value * seconds for value, seconds in known) / sum(seconds for _, seconds in known)


def find_warm_up(report: Report) -> float | None:
    """Return the seconds until the steady state begins, or None if no clear beginning is found."""
    timeline = report.timeline
    if timeline is None:
        return None
    for mark in timeline.marks:
        if mark.kind == "mark" and mark.label.strip().casefold() in STEADY_MARKS:
            return mark.t
    # The work on the GPUs of a recording counts as the run's own.
    own = report.attributed or report.source.recorded
    if not own or report.cell.duration_s < _MIN_RUN_S:
        return None
    return _step_up(timeline, report.cell.duration_s)


def _step_up(timeline: Timeline, duration_s: float) -> float | None:
    """Return when the mean utilization of the GPUs takes one clear step up, or None if there is no such step.

    If utilization is unknown, use power instead.
    """
    points = _mean_series(timeline.t, [gpu.utilization for gpu in timeline.gpus])
    by_power = not points
    if by_power:
        points = _mean_series(timeline.t, [gpu.power_w for gpu in timeline.gpus])
    found = _best_step([value for _, value in points])
    if found is None:
        return None
    index, before, after, explained = found
    t = points[index][0]
    large = after >= _MIN_POWER_RATIO * before if by_power else after - before >= _MIN_STEP
    return t if large and explained >= _MIN_EXPLAINED and t <= _LATEST * duration_s else None


def _mean_series(t: Sequence[float], series: Sequence[Sequence[float | None]]) -> list[tuple[float, float]]:
    """Return the mean over the GPUs for each time at which the values of all GPUs are known."""
    points = []
    for index, moment in enumerate(t):
        known = [v for values in series if (v := values[index]) is not None and math.isfinite(v)]
        if known and len(known) == len(series):
            points.append((moment, sum(known) / len(known)))
    return points


def _best_step(values: Sequence[float]) -> tuple[int, float, float, float] | None:
    """Fit a step to the values. Return its index, the means on both sides, and the variance explained."""
    count = len(values)
    if count < 2 * _MIN_POINTS_AFTER:
        return None
    total = sum(values)
    spread = sum(value * value for value in values) - total * total / count
    if spread <= 0:
        return None
    best: tuple[int, float, float, float] | None = None
    below = 0.0
    for index in range(1, count):
        below += values[index - 1]
        if not 2 <= index <= count - _MIN_POINTS_AFTER:
            continue
        before, after = below / index, (total - below) / (count - index)
        explained = (after - before) ** 2 * index * (count - index) / count / spread
        if best is None or explained > best[3]:
            best = (index, before, after, explained)
    return best
