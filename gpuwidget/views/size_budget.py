"""Reduce a report so that its card fits in 20 kB. The 240 points of 16 GPUs alone would take 160 kB.

A card uses the most detailed of the detail levels that fits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from gpuwidget.model.mime_types import MIME_TYPE
from gpuwidget.model.report import Report
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
)
from gpuwidget.views.reductions import ReducedReport, reduce

LIMIT = 20_000
"""Maximum size of a whole bundle as JSON, in bytes."""
_POINT_SIZE = 24
"""Lower bound of the size of one point of one GPU's series as JSON, in bytes."""
_FEW_POINTS = 80
"""Number of points, over all GPUs, up to which the timeline hardly affects the size of a card."""
_ROW_SIZE = 60
"""Lower bound of the size of one GPU's row in the HTML, in bytes."""
_REASON_SIZE = 36
"""Lower bound of the size of the JSON around a reason's name and text, and of its id with parameters."""
_SEVERAL_GPUS = 4
"""Number of GPUs from which the JSON of a short run may not fit."""
_MANY_GPUS = 9
"""Number of GPUs from which the chart consists of strips."""
_BASE_SIZE = 1500
"""Lower bound of the size of a card's text and HTML without rows and panels, in bytes."""
_PANEL_SIZE = 200
_STRIP_SIZE = 12
"""Lower bound of the size of one GPU's panel of the chart in the HTML, and of a strip, in bytes."""

Bundle = dict[str, Any]


def fit(report: Report, render: Callable[[ReducedReport], dict[str, str]]) -> Bundle:
    """Return the most detailed bundle of at most 20 kB. It contains the result of ``render`` and the JSON."""
    for reduced in _candidates(report):
        bundle, size = _bundle(reduced, render)
        if size <= LIMIT:
            return bundle
    gpus = len(report.gpus)
    while size > LIMIT and gpus > 1:
        gpu_size = _json_size(bundle[MIME_TYPE]["gpus"]) // gpus + _ROW_SIZE
        gpus = max(1, gpus - math.ceil((size - LIMIT) / gpu_size))
        bundle, size = _bundle(reduce(report, replace(MINIMAL, gpus=gpus)), render)
    return bundle


def _bundle(reduced: ReducedReport, render: Callable[[ReducedReport], dict[str, str]]) -> tuple[Bundle, int]:
    """Return the bundle and its size in bytes. If the HTML can't fit beside the JSON, nothing is rendered,
    and the size is a lower bound."""
    data = {MIME_TYPE: reduced.stored}
    size = _json_size(data)
    rest = _smallest_rest(reduced)
    if size + rest > LIMIT:
        return data, size + rest
    rendered = render(reduced)
    # Joining two JSON objects adds ", " and removes "{}", so the size is the sum of both sizes.
    return {**rendered, **data}, _json_size(rendered) + size


def _smallest_rest(reduced: ReducedReport) -> int:
    """Return a lower bound of the size of the text and the HTML of a card with a chart."""
    if reduced.drawn.timeline is None or not reduced.level.drawn_points:
        return 0
    gpus = len(reduced.drawn.shown)
    panels = gpus * (_PANEL_SIZE if gpus < _MANY_GPUS else _STRIP_SIZE)
    return _BASE_SIZE + min(gpus, reduced.level.gpu_rows) * _ROW_SIZE + panels


def _candidates(report: Report) -> Iterator[ReducedReport]:
    """Yield the report at each detail level that may fit. Levels that can't fit are skipped, because the user
    waits."""
    timeline = report.timeline
    count = len(timeline.t) * len(timeline.gpus) if timeline is not None else 0
    levels = [FULL, FEWER_LINES, REDUCED, COMPACT]
    if count <= _FEW_POINTS and len(report.gpus) < _SEVERAL_GPUS:
        # The card of a short run usually fits, so yield this level without the estimate below, which takes
        # longer.
        yield reduce(report, levels.pop(0))
    compact = reduce(report, COMPACT)
    size = _json_size(compact.stored) + _smallest_rest(compact)
    reasons = (
        _reasons_size(report)
        - _json_size([gpu.get("missing") for gpu in compact.stored["gpus"]])
        - _json_size(compact.stored["notes"][-1:])
    )
    for level in levels:
        least = size + _POINT_SIZE * min(count, level.points * len(report.gpus))
        if least + (0 if level.terse else max(0, reasons)) <= LIMIT:
            yield compact if level is COMPACT else reduce(report, level)
    if size <= LIMIT:
        yield reduce(report, BRIEF)
    yield reduce(report, LEAST_CHART)
    yield reduce(report, FEW_POINTS)
    yield reduce(report, FEW_ROWS)
    yield reduce(report, MINIMAL)


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
