"""Find the steady part of a run, and compute the mean of a metric over it.

The steady state begins at a mark set by the user, or when the run's time series takes one clear step up. If
the GPUs' work cannot be attributed to this process, only a mark counts, because another process may have
caused the step.

If other processes do a run's GPU work (ranks of distributed training), the run begins with their start-up and
ends with their shutdown. :func:`find_steady_window` then returns the time in between, which is used instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal, NamedTuple

from gpuwidget.model.report import Mark, Report, Timeline
from gpuwidget.model.samples import without_mig_parents

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
_ACTIVE_PART = 0.7
"""Fraction of the GPUs' usual utilization above which they count as doing the run's work. In recorded runs:
0.97 or more while ranks train, 0.1 or less while they start."""
_USUAL = 0.9
"""Quantile of the utilization over a run that counts as usual while the ranks work."""
_MIN_USUAL = 5.0
"""Usual utilization, in percent, below which a run has no steady window."""
_MAX_PAUSE_S = 2.0
"""Maximum pause, in seconds, within a steady window."""
_MIN_WINDOW_S = 3.0


class SteadyWindow(NamedTuple):
    """The steady part of a run, in seconds since the run's start."""

    since: float
    until: float
    """Infinity if the steady part ends with the run."""


def stored_window(report: Report) -> SteadyWindow | None:
    """Return the steady part that is stored in the report, or None if it is the whole run or unknown."""
    time = report.time
    if time is None or (time.warm_up_s is None and time.steady_until_s is None):
        return None
    return SteadyWindow(
        time.warm_up_s or 0.0, math.inf if time.steady_until_s is None else time.steady_until_s
    )


def steady_mean(report: Report, uuid: str, metric: SteadyMetric, window: SteadyWindow) -> float | None:
    """Return a metric's time-weighted mean over the steady part, or None if there are too few points.

    Unless the steady part begins with the run, the mean begins ``_MAX_WINDOW_S`` later. As in the report's
    means, no value counts for the time in which nothing was sampled.
    """
    timeline = report.timeline
    gpu = next((gpu for gpu in timeline.gpus if gpu.uuid == uuid), None) if timeline is not None else None
    if timeline is None or gpu is None:
        return None
    values: tuple[float | None, ...] = getattr(gpu, metric)
    since = window.since + _MAX_WINDOW_S if window.since > 0 else 0.0
    known = [
        (value, seconds)
        for (before, until), value in zip(pairwise((0.0, *timeline.t)), values, strict=True)
        if value is not None and since <= until <= window.until
        if (seconds := until - before - _inside(timeline.gaps, before, until)) > 0
    ]
    if len(known) < _MIN_POINTS:
        return None
    return sum(value * seconds for value, seconds in known) / sum(seconds for _, seconds in known)


def _inside(gaps: Sequence[tuple[float, float]], since: float, until: float) -> float:
    """Return the seconds of ``gaps`` that lie between ``since`` and ``until``."""
    return sum(max(0.0, min(end, until) - max(begin, since)) for begin, end in gaps)


def steady_mark(marks: Sequence[Mark]) -> float | None:
    """Return the time of the first mark with which the user begins the steady state, or None."""
    for mark in marks:
        if mark.kind == "mark" and mark.label.strip().casefold() in STEADY_MARKS:
            return mark.t
    return None


def find_warm_up(report: Report) -> float | None:
    """Return the seconds until the steady state begins, or None if no clear beginning is found."""
    timeline = report.timeline
    if timeline is None:
        return None
    marked = steady_mark(timeline.marks)
    if marked is not None:
        return marked
    # The work on the GPUs of a recording counts as the run's own.
    own = report.attributed or report.source.recorded
    if not own or report.cell.duration_s < _MIN_RUN_S:
        return None
    # Where only other processes worked, a step is theirs.
    others = {gpu.uuid for gpu in without_mig_parents(report.shown)} - {gpu.uuid for gpu in report.counted}
    gpus = tuple(gpu for gpu in timeline.gpus if gpu.uuid not in others)
    return _step_up(replace(timeline, gpus=gpus), report.cell.duration_s)


def find_steady_window(
    parts: Sequence[tuple[float, float, float | None]], earliest: float = 0.0, latest: float = math.inf
) -> SteadyWindow | None:
    """Return the longest time in which the GPUs did their usual work, or None if it is shorter than 3 s.

    ``parts`` contains the beginning, the end and the mean utilization of the busiest GPU for each part of the
    run. The window lies between ``earliest`` and ``latest``, in seconds since the run's start. Where there is
    other time before or after the work, the window begins or ends one second inside the work, so that no
    reading covers that time.
    """
    known = [
        (since, until, value)
        for since, until, value in parts
        if value is not None and until > since and since >= earliest and until <= latest
    ]
    usual = _quantile([(value, until - since) for since, until, value in known], _USUAL)
    if usual is None or usual < _MIN_USUAL:
        return None
    longest = SteadyWindow(0.0, 0.0)
    window: SteadyWindow | None = None
    for since, until, value in known:
        if value < _ACTIVE_PART * usual:
            continue
        if window is not None and since - window.until <= _MAX_PAUSE_S:
            window = SteadyWindow(window.since, until)
        else:
            window = SteadyWindow(since, until)
        if window.until - window.since > longest.until - longest.since:
            longest = window
    since, until = longest
    if since > parts[0][0]:
        since += _MAX_WINDOW_S
    if until < parts[-1][1]:
        until -= _MAX_WINDOW_S
    return SteadyWindow(since, until) if until - since >= _MIN_WINDOW_S else None


def _quantile(weighted: Sequence[tuple[float, float]], part: float) -> float | None:
    """Return the smallest value such that values up to it have at least ``part`` of the total weight."""
    rest = part * sum(weight for _, weight in weighted)
    for value, weight in sorted(weighted):
        rest -= weight
        if rest <= 0:
            return value
    return None


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
