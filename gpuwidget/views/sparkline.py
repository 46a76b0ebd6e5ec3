"""The course of a run as a small static SVG: a lane a GPU, utilization a filled line, memory a dashed one.

All of a report's lanes are one SVG of integer coordinates, so that 16 of them stay small. Values to hover
over are HTML titles of empty elements above it: an untrusted notebook loses the SVG with its container's
height, and the text of SVG titles would be left over as words without a picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from gpuwidget.model import units
from gpuwidget.model.report import Mark

BUSY = "var(--jp-brand-color1,#1976d2)"
MEMORY = "#ab47bc"
"""Readable on white and on black: the themes have no colour for a second line."""
_LANE = 20
"""Units of height of one lane; a line keeps a unit of distance to the lane's edges."""
_HOVER_LABEL = 48


@dataclass(frozen=True, slots=True)
class Lane:
    """One GPU's course, a value for each ``t`` of the chart."""

    name: str
    utilization: tuple[float | None, ...]
    """Percent."""
    memory: tuple[int | None, ...]
    """Bytes in use of the whole GPU."""
    memory_total: int | None
    """Bytes; the highest value stands in for it where it is unknown."""


@dataclass(frozen=True, slots=True)
class Chart:
    """All GPUs' courses over one run."""

    t: tuple[float, ...]
    """Seconds since the run's start, rising."""
    duration: float
    """Seconds that the chart's width stands for."""
    lanes: tuple[Lane, ...]
    marks: tuple[Mark, ...]
    label: str
    """What a reader who does not see it is told."""


def svg(chart: Chart, style: str, width: int, *, outlined: bool) -> str:
    """The picture. ``width`` is its resolution in units, whatever size it is shown at.

    Without ``outlined`` utilization is a filled shape alone: in low lanes that reads better, and is smaller.
    """
    height = _LANE * len(chart.lanes)
    xs = [round(width * min(1.0, max(0.0, t / chart.duration))) for t in chart.t]
    fill, busy, memory = "", "", ""
    for place, lane in enumerate(chart.lanes):
        bottom = _LANE * (place + 1) - 1
        highest = lane.memory_total or max((size for size in lane.memory if size is not None), default=0) or 1
        for run in _runs(xs, lane.utilization, 100.0, bottom):
            busy += _path(run)
            fill += f"{_path([(run[0][0], bottom), *run, (run[-1][0], bottom)])}z"
        for run in _runs(xs, lane.memory, highest, bottom):
            memory += _path(run)
    thin = "fill='none' vector-effect='non-scaling-stroke'"
    outline = ground = ""
    if outlined:
        lines = "".join(f"M0 {_LANE * (place + 1) - 1}h{width}" for place in range(len(chart.lanes)))
        ground = f"<path d='{lines}' {thin} stroke='currentColor' opacity='.25'/>"
        outline = f"<path d='{busy}' {thin} style='stroke:{BUSY}' stroke-width='1.4'/>"
    return (
        f"<svg role='img' aria-label='{escape(chart.label)}' viewBox='0 0 {width} {height}' "
        f"preserveAspectRatio='none' style='{style}'>{ground}{_ticks(chart, width, height, thin)}"
        f"<path d='{fill}' style='fill:{BUSY}' opacity='{'.16' if outlined else '.5'}'/>{outline}"
        f"<path d='{memory}' {thin} stroke='{MEMORY}' stroke-width='1.3' stroke-dasharray='3 2'/></svg>"
    )


def hover(chart: Chart, count: int) -> str:
    """``count`` invisible columns that say, when pointed at, what was so at that time."""
    if count == 0:
        return ""
    columns = "".join(f"<i title='{escape(text)}' style='flex:1'></i>" for text in _columns(chart, count))
    return f"<div style='position:absolute;left:0;top:0;width:100%;height:100%;display:flex'>{columns}</div>"


def _ticks(chart: Chart, width: int, height: int, line: str) -> str:
    """The user's marks over the whole height, printed lines as short ticks from above."""
    full: set[int] = set()
    short: set[int] = set()
    for mark in chart.marks:
        x = round(width * min(1.0, max(0.0, mark.t / chart.duration)))
        (full if mark.kind == "mark" else short).add(x)
    lengths = ((sorted(full), height, ".7"), (sorted(short - full), 4, ".5"))
    ticks = ""
    for xs, length, opacity in lengths:
        if xs:
            data = "".join(f"M{x} 0v{length}" for x in xs)
            ticks += f"<path d='{data}' {line} stroke='currentColor' opacity='{opacity}'/>"
    return ticks


def _runs(
    xs: Sequence[int], values: Sequence[float | None], highest: float, bottom: int
) -> Iterator[list[tuple[int, int]]]:
    """The points of each stretch of known values; what is unknown is a gap, not a line along the ground."""
    run: list[tuple[int, int]] = []
    for x, value in zip(xs, values, strict=True):
        if value is None:
            if run:
                yield run
            run = []
            continue
        point = (x, bottom - round((_LANE - 2) * min(1.0, max(0.0, value / highest))))
        if len(run) > 1 and run[-2][1] == run[-1][1] == point[1]:
            run[-1] = point
        elif not run or run[-1] != point:
            run.append(point)
    if run:
        yield run


def _path(points: Sequence[tuple[int, int]]) -> str:
    """SVG path data, relative after the first point, which is shorter."""
    x, y = points[0]
    data = [f"M{x} {y}"]
    if len(points) == 1:
        # A lone known value would leave nothing to see.
        data.append("h1")
    for next_x, next_y in points[1:]:
        dx, dy = next_x - x, next_y - y
        if dy == 0:
            data.append(f"h{dx}")
        elif dx == 0:
            data.append(f"v{dy}")
        else:
            data.append(f"l{dx}{dy}" if dy < 0 else f"l{dx} {dy}")
        x, y = next_x, next_y
    return "".join(data)


def _columns(chart: Chart, count: int) -> Iterator[str]:
    """What each column says: its time, every lane's values there, and the marks in it."""
    width = chart.duration / count
    for column in range(count):
        since, until = column * width, (column + 1) * width
        middle = (since + until) / 2
        last = column == count - 1
        inside = [n for n, t in enumerate(chart.t) if since <= t < until or (last and t >= until)]
        if not inside:
            inside = [min(range(len(chart.t)), key=lambda n: abs(chart.t[n] - middle))]
        lines = [units.duration(middle)]
        for lane in chart.lanes:
            name = f"{lane.name}: " if len(chart.lanes) > 1 else ""
            busy = [lane.utilization[n] for n in inside]
            known = [value for value in busy if value is not None]
            mean = units.percent(sum(known) / len(known) if known else None)
            memory = max((size for n in inside if (size := lane.memory[n]) is not None), default=None)
            lines.append(f"{name}{mean} busy, {units.memory(memory)}")
        lines += [
            mark.label[:_HOVER_LABEL]
            for mark in chart.marks
            if since <= mark.t < until or (last and mark.t >= until)
        ][:3]
        yield "\n".join(lines)
