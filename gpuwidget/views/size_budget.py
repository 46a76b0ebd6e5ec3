"""Reduce a report so that its card fits in 20 kB. The 240 points of 16 GPUs alone would take 160 kB.

A card uses the most detailed of the detail levels that fits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from gpuwidget.model.mime_types import MIME_TYPE
from gpuwidget.model.report import Report
from gpuwidget.views.chart import MIN_POINTS, MIN_TILES
from gpuwidget.views.detail_levels import (
    BRIEF,
    COMPACT,
    FEW_POINTS,
    FEW_ROWS,
    FEWER_LINES,
    FULL,
    LEAST_CHART,
    MINIMAL,
    REDUCED,
    DetailLevel,
)
from gpuwidget.views.reductions import ReducedReport, reduce

LIMIT = 20_000
"""Maximum size of a whole bundle as JSON, in bytes."""
_LEVELS = (FULL, FEWER_LINES, REDUCED, COMPACT, BRIEF, LEAST_CHART, FEW_POINTS, FEW_ROWS, MINIMAL)
_POINT_SIZE = 24
"""Lower bound of the size of one point of one GPU's series as JSON, in bytes."""
_FEW_POINTS = 80
"""Number of points, over all GPUs, up to which the timeline hardly affects the size of a card."""
_ROW_SIZE = 60
"""Lower bound of the size of one GPU's row in the HTML, in bytes."""
_REASON_SIZE = 36
"""Lower bound of the size of the JSON around a reason's name and text, and of its id with parameters."""
_SEVERAL_GPUS = 4
"""Number of GPUs from which the search begins at REDUCED or COMPACT if FULL probably doesn't fit."""
_MANY_GPUS = 9
"""Number of GPUs from which the chart consists of strips."""
_BASE_SIZE = 1500
"""Lower bound of the size of a card's text and HTML without rows and panels, in bytes."""
_PANEL_SIZE = 200
_STRIP_SIZE = 12
"""Lower bound of the size of one GPU's panel of the chart in the HTML, and of a strip, in bytes."""
_NOTE_SIZE = 1000
"""Bytes by which the text and the HTML of a level may be larger than those of the more detailed level before:
it has the note about what is omitted, and ranges instead of equal figures."""

Bundle = dict[str, Any]
_Render = Callable[[ReducedReport], dict[str, str]]


@dataclass(frozen=True, slots=True)
class _Sized:
    """A bundle with its size in bytes. A bundle that can't fit may lack the text and the HTML."""

    reduced: ReducedReport
    bundle: Bundle
    json: int
    rest: int
    """Size of the text and the HTML, or a lower bound of it if nothing was rendered."""

    @property
    def size(self) -> int:
        return self.json + self.rest

    @property
    def rendered(self) -> bool:
        return len(self.bundle) > 1


def fit(report: Report, render: _Render) -> Bundle:
    """Return the most detailed bundle of at most 20 kB. It contains the result of ``render`` and the JSON.

    The search begins at a level that probably fits, because the user waits for the card. On two CPUs, the
    fullest card of the tests with eight GPUs took 15 ms of CPU time, and 39 ms from the first level on.
    """
    likely = _LEVELS.index(_likely_level(report))
    made = _make(report, _LEVELS[likely], render)
    if made.size <= LIMIT:
        return _with_more_detail(report, made, reversed(_LEVELS[:likely]), render)
    for level in _LEVELS[likely + 1 :]:
        if level is BRIEF and not made.rendered:
            continue  # BRIEF rarely fits if COMPACT can't fit even with the smallest HTML.
        made = _make(report, level, render)
        if made.size <= LIMIT:
            return made.bundle
    gpus = len(report.gpus)
    while made.size > LIMIT and gpus > 1:
        gpu_size = _json_size(made.bundle[MIME_TYPE]["gpus"]) // gpus + _ROW_SIZE
        gpus = max(1, gpus - math.ceil((made.size - LIMIT) / gpu_size))
        made = _make(report, replace(MINIMAL, gpus=gpus), render)
    return made.bundle


def _likely_level(report: Report) -> DetailLevel:
    """Return a level at which the card probably fits, from rough sizes of the tests' cards."""
    gpus, points = len(report.gpus), 0 if report.timeline is None else len(report.timeline.t)
    full_gpu_size = 1500 + 30 * min(points, FULL.points)
    if points >= MIN_POINTS:
        full_gpu_size += 350 if gpus >= MIN_TILES else 60 * FULL.hover_columns
    if 5500 + gpus * full_gpu_size + _reasons_size(report) <= LIMIT:
        return FULL
    if gpus < _SEVERAL_GPUS:
        return FEWER_LINES
    return REDUCED if points * gpus <= _FEW_POINTS and gpus < _MANY_GPUS else COMPACT


def _with_more_detail(report: Report, made: _Sized, levels: Iterable[DetailLevel], render: _Render) -> Bundle:
    """Return the bundle of the most detailed of ``levels`` that fits; each has more detail than the one
    before and than ``made``."""
    for level in levels:
        if made.size - _NOTE_SIZE + _additional_size(report, made.reduced, level) > LIMIT:
            break
        more = _make(report, level, render, made.rest - _NOTE_SIZE)
        if more.size <= LIMIT:
            made = more
        elif more.size - _NOTE_SIZE > LIMIT:
            break
    return made.bundle


def _additional_size(report: Report, reduced: ReducedReport, level: DetailLevel) -> int:
    """Return a lower bound of the bytes that the JSON of the more detailed ``level`` has in addition."""
    timeline = report.timeline
    count = len(timeline.t) if timeline is not None else 0
    points = min(count, level.points) - min(count, reduced.level.points)
    size = _POINT_SIZE * points * len(report.shown)
    if reduced.level.terse and not level.terse:
        size += _reasons_size(report) - _json_size([gpu.get("missing") for gpu in reduced.stored["gpus"]])
    return size


def _make(report: Report, level: DetailLevel, render: _Render, least_rest: int = 0) -> _Sized:
    """Return the bundle at ``level``. If the text and the HTML can't fit beside the JSON, because they take
    at least ``least_rest`` bytes, nothing is rendered."""
    reduced = reduce(report, level)
    data = {MIME_TYPE: reduced.stored}
    size = _json_size(data)
    rest = max(least_rest, _smallest_rest(reduced))
    if size + rest > LIMIT:
        return _Sized(reduced, data, size, rest)
    rendered = render(reduced)
    # Joining two JSON objects adds ", " and removes "{}", so the size is the sum of both sizes.
    return _Sized(reduced, {**rendered, **data}, size, _json_size(rendered))


def _smallest_rest(reduced: ReducedReport) -> int:
    """Return a lower bound of the size of the text and the HTML of a card with a chart."""
    if reduced.drawn.timeline is None or not reduced.level.drawn_points:
        return 0
    gpus = len(reduced.drawn.shown)
    panels = gpus * (_PANEL_SIZE if gpus < _MANY_GPUS else _STRIP_SIZE)
    return _BASE_SIZE + min(gpus, reduced.level.gpu_rows) * _ROW_SIZE + panels


def _reasons_size(report: Report) -> int:
    """Return a lower bound of the size in bytes of the reasons and their ids, at levels that repeat them for
    each GPU."""
    return sum(
        2 * len(name) + min(len(reason), FEWER_LINES.reason_length) + _REASON_SIZE
        for gpu in report.gpus[: FULL.gpus]
        for name, reason in gpu.missing.items()
    )


def _json_size(values: object) -> int:
    """Return the size in bytes of the values' JSON, as notebooks contain it."""
    return len(json.dumps(values, ensure_ascii=False).encode(errors="surrogatepass"))
