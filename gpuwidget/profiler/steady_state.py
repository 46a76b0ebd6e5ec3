"""Where a run's steady state begins: by a mark of the user's, or where its course shows one clear step up.

What others begin to do on a GPU is no warm-up of this run: where nobody knows whose its GPUs are, only a mark
says it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuwidget.model.report import Report, Timeline

STEADY_MARKS = frozenset({"steady", "warm", "warmed up", "steady state"})
"""Labels of a mark that says so, in any case of letters."""
_SHORTEST_S = 4.0
_FEWEST_POINTS = 5
_LATEST = 0.6
"""Part of the run after which what begins is no steady state but its last part."""
_LEAST_STEP = 25.0
"""Points of utilization."""
_LEAST_RISE = 1.3
"""Of power, over what it was before."""
_LEAST_EXPLAINED = 0.8
"""Part of the course's variance that the step alone has to explain."""


def steady(report: Report) -> tuple[float, float]:
    """Seconds since the run's start between which it was steady: to its end, from 0 without a warm-up."""
    tail = report.cell.gpu_tail_s or 0.0
    return warm_up(report) or 0.0, report.cell.duration_s + tail


def warm_up(report: Report) -> float | None:
    """Seconds until the steady state began; None where no beginning can be told apart."""
    timeline = report.timeline
    if timeline is None:
        return None
    for mark in timeline.marks:
        if mark.kind == "mark" and mark.label.strip().casefold() in STEADY_MARKS:
            return mark.t
    # A recording's GPUs count as the run's own.
    own = report.attributed or report.source.recorded
    if not own or report.cell.duration_s < _SHORTEST_S:
        return None
    return _step(timeline, report.cell.duration_s)


def _step(timeline: Timeline, duration_s: float) -> float | None:
    """Where the mean over the GPUs takes its one step up, and stays there; power's, without utilization."""
    points, enough = _mean(timeline.t, [gpu.utilization for gpu in timeline.gpus]), _clearly_busier
    if not points:
        points, enough = _mean(timeline.t, [gpu.power_w for gpu in timeline.gpus]), _clearly_more_power
    found = _best_step([value for _, value in points])
    if found is None:
        return None
    at, before, after, explained = found
    t = points[at][0]
    clear = enough(before, after) and explained >= _LEAST_EXPLAINED
    return t if clear and t <= _LATEST * duration_s else None


def _clearly_busier(before: float, after: float) -> bool:
    return after - before >= _LEAST_STEP


def _clearly_more_power(before: float, after: float) -> bool:
    return after >= _LEAST_RISE * before


def _mean(t: Sequence[float], courses: Sequence[Sequence[float | None]]) -> list[tuple[float, float]]:
    points = []
    for place, at in enumerate(t):
        known = [v for course in courses if (v := course[place]) is not None and math.isfinite(v)]
        if known and len(known) == len(courses):
            points.append((at, sum(known) / len(known)))
    return points


def _best_step(values: Sequence[float]) -> tuple[int, float, float, float] | None:
    """Where two constants explain the course best: place, mean before, mean from there on, part explained."""
    count = len(values)
    if count < 2 * _FEWEST_POINTS:
        return None
    total = sum(values)
    spread = sum(value * value for value in values) - total * total / count
    if spread <= 0:
        return None
    best: tuple[int, float, float, float] | None = None
    below = 0.0
    for place in range(1, count):
        below += values[place - 1]
        if not 2 <= place <= count - _FEWEST_POINTS:
            continue
        before, after = below / place, (total - below) / (count - place)
        explained = (after - before) ** 2 * place * (count - place) / count / spread
        if best is None or explained > best[3]:
            best = (place, before, after, explained)
    return best
