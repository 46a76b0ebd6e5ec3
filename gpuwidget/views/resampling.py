"""Fewer points and marks of a timeline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gpuwidget.measure.timeline import longest_gaps
from gpuwidget.model.report import Mark, Timeline

Bins = Sequence[tuple[int, int]]


def resample(timeline: Timeline, points: int) -> Timeline:
    """Return the timeline with each series reduced to at most ``points`` points."""
    bins = make_bins(len(timeline.t), points)
    return replace(
        timeline,
        t=bin_ends(timeline.t, bins),
        gpus=tuple(
            replace(
                gpu,
                utilization=bin_means(gpu.utilization, bins),
                device_memory=bin_maxima(gpu.device_memory, bins),
                power_w=bin_means(gpu.power_w, bins),
                sm_activity=bin_means(gpu.sm_activity, bins),
            )
            for gpu in timeline.gpus
        ),
        gaps=tuple(longest_gaps(timeline.gaps, points // 4)),
    )


def make_bins(count: int, points: int) -> Bins:
    """Return the start and end indices of at most ``points`` bins of equal length."""
    points = min(count, points)
    return [(n * count // points, (n + 1) * count // points) for n in range(points)]


def bin_ends(t: Sequence[float], bins: Bins) -> tuple[float, ...]:
    """Return the last time in each bin."""
    return tuple(t[end - 1] for _, end in bins)


def bin_means(values: Sequence[float | None], bins: Bins) -> tuple[float | None, ...]:
    """Return the mean of the known values in each bin."""
    try:
        # Most series have no gaps, so first compute the means without checking each value. The checks would
        # take most of the time needed for a card.
        means = [sum(values[start:end]) / (end - start) for start, end in bins]  # type: ignore[arg-type]
        if math.isfinite(sum(means)):
            return tuple(means)
    except TypeError:  # A bin contains None.
        pass
    known = [
        [value for value in values[start:end] if value is not None and math.isfinite(value)]
        for start, end in bins
    ]
    return tuple(sum(part) / len(part) if part else None for part in known)


def bin_maxima(values: Sequence[int | None], bins: Bins) -> tuple[int | None, ...]:
    """Return the highest known value in each bin, so that a peak stays visible."""
    try:
        return tuple(max(values[start:end]) for start, end in bins)  # type: ignore[type-var]
    except TypeError:  # A bin contains None.
        known = [[value for value in values[start:end] if value is not None] for start, end in bins]
        return tuple(max(part, default=None) for part in known)


def select_marks(marks: Sequence[Mark], count: int) -> tuple[Mark, ...]:
    """Return an even selection of at most ``count`` marks in order of time.

    The user's marks take precedence over printed lines and steps, which share the rest. All ranks have the
    same number of steps.
    """
    own, printed, steps = (
        [mark for mark in marks if mark.kind == kind] for kind in ("mark", "printed", "step")
    )
    kept = _evenly(own, count)
    rest = count - len(kept)
    kept += _evenly(printed, max(rest // 2, rest - len(steps)))
    kept += _steps_of_each_rank(steps, count - len(kept))
    return tuple(sorted(kept, key=lambda mark: mark.t))


def _steps_of_each_rank(steps: Sequence[Mark], count: int) -> list[Mark]:
    by_rank: dict[str, list[Mark]] = {}
    for step in steps:
        by_rank.setdefault(step.label.partition(":")[0], []).append(step)
    each = count // len(by_rank) if by_rank else 0
    if not each:
        return _evenly(steps, count)
    return [step for of_rank in by_rank.values() for step in _evenly(of_rank, each)]


def _evenly(marks: Sequence[Mark], count: int) -> list[Mark]:
    if len(marks) <= count:
        return list(marks)
    return [marks[n * len(marks) // count] for n in range(count)]
