"""Draw a run's utilization and memory as a small static SVG with one lane per GPU.

Utilization is a filled line and memory a dashed line. All lanes share one SVG with integer coordinates, so
that even 16 lanes stay small. The values shown on hover are HTML titles of empty elements on top of the SVG,
not SVG titles, whose text would remain visible if the front end removes the SVG of an untrusted notebook. For
the same reason, the SVG contains a text about this as metadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from gpuwidget.model import units
from gpuwidget.model.report import Mark
from gpuwidget.model.translation import _, translatable
from gpuwidget.views.styles import MEMORY, UTILIZATION

_LANE_HEIGHT = 20
"""Height of a lane in SVG units. A line keeps one unit of distance from the lane's edges."""
_HOVER_LABEL_LENGTH = 48
UNTRUSTED = translatable("Trust the notebook to see the chart")
"""The text that is left of the chart where a front end removes the SVG, as in an untrusted notebook.
Browsers do not show SVG metadata."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The series of one GPU, with one value for each ``t`` of the chart."""

    name: str
    utilization: tuple[float | None, ...]
    """Percent."""
    memory: tuple[int | None, ...]
    """Bytes in use on the whole GPU."""
    memory_total: int | None
    """Total bytes of the GPU's memory. If None, the lane is scaled to the highest value."""


@dataclass(frozen=True, slots=True)
class Chart:
    """The series of all GPUs over one run."""

    t: tuple[float, ...]
    """Seconds since the start of the run, ascending."""
    duration: float
    """Seconds that the width of the chart represents."""
    lanes: tuple[Lane, ...]
    marks: tuple[Mark, ...]
    label: str
    """The chart's description for screen readers."""


def svg(chart: Chart, style: str, width: int, *, outlined: bool) -> str:
    """Return the chart as SVG. ``width`` is the SVG's width in its own units, not its size on the screen.

    Without ``outlined``, utilization is a filled shape without an outline. Such a shape takes fewer bytes,
    and is easier to read in low lanes.
    """
    height = _LANE_HEIGHT * len(chart.lanes)
    xs = [round(width * min(1.0, max(0.0, t / chart.duration))) for t in chart.t]
    fill, utilization, memory = "", "", ""
    for row, lane in enumerate(chart.lanes):
        bottom = _LANE_HEIGHT * (row + 1) - 1
        highest = lane.memory_total or max((size for size in lane.memory if size is not None), default=0) or 1
        for run in _runs(xs, lane.utilization, 100.0, bottom):
            utilization += _path(run)
            fill += f"{_path([(run[0][0], bottom), *run, (run[-1][0], bottom)])}z"
        for run in _runs(xs, lane.memory, highest, bottom):
            memory += _path(run)
    thin = "fill='none' vector-effect='non-scaling-stroke'"
    outline = baselines = ""
    if outlined:
        lines = "".join(f"M0 {_LANE_HEIGHT * (row + 1) - 1}h{width}" for row in range(len(chart.lanes)))
        baselines = f"<path d='{lines}' {thin} stroke='currentColor' opacity='.25'/>"
        outline = f"<path d='{utilization}' {thin} style='stroke:{UTILIZATION}' stroke-width='1.4'/>"
    return (
        f"<svg role='img' aria-label='{escape(chart.label)}' viewBox='0 0 {width} {height}' "
        f"preserveAspectRatio='none' style='{style}'><metadata>{escape(_(UNTRUSTED))}</metadata>"
        f"{baselines}{_ticks(chart, width, height, thin)}"
        f"<path d='{fill}' style='fill:{UTILIZATION}' opacity='{'.16' if outlined else '.5'}'/>{outline}"
        f"<path d='{memory}' {thin} stroke='{MEMORY}' stroke-width='1.3' stroke-dasharray='3 2'/></svg>"
    )


def hover_columns(chart: Chart, count: int) -> str:
    """Return ``count`` invisible columns. Each column's tooltip contains the values at its time."""
    if count == 0:
        return ""
    columns = "".join(f"<i title='{escape(text)}' style='flex:1'></i>" for text in _tooltips(chart, count))
    return f"<div style='position:absolute;left:0;top:0;width:100%;height:100%;display:flex'>{columns}</div>"


def _ticks(chart: Chart, width: int, height: int, line: str) -> str:
    """Return ticks: the user's marks over the full height, all others as short ticks at the top."""
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
    """Yield the points of each stretch of known values. Unknown values leave a gap."""
    run: list[tuple[int, int]] = []
    for x, value in zip(xs, values, strict=True):
        if value is None:
            if run:
                yield run
            run = []
            continue
        point = (x, bottom - round((_LANE_HEIGHT - 2) * min(1.0, max(0.0, value / highest))))
        if len(run) > 1 and run[-2][1] == run[-1][1] == point[1]:
            run[-1] = point
        elif not run or run[-1] != point:
            run.append(point)
    if run:
        yield run


def _path(points: Sequence[tuple[int, int]]) -> str:
    """Return SVG path data. Coordinates after the first point are relative, which makes the data shorter."""
    x, y = points[0]
    data = [f"M{x} {y}"]
    if len(points) == 1:
        # A single point would be invisible, so draw a line of one unit.
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


def _tooltips(chart: Chart, count: int) -> Iterator[str]:
    """Yield the tooltip of each column: its time, every lane's values and the marks in the column."""
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
            known = [value for n in inside if (value := lane.utilization[n]) is not None]
            mean = units.percent(sum(known) / len(known) if known else None)
            memory = max((size for n in inside if (size := lane.memory[n]) is not None), default=None)
            lines.append(
                _(
                    "{name}util {mean}, {memory}",
                    name=name,
                    mean=mean,
                    memory=units.memory(memory),
                )
            )
        lines += [
            mark.label[:_HOVER_LABEL_LENGTH]
            for mark in chart.marks
            if since <= mark.t < until or (last and mark.t >= until)
        ][:3]
        yield "\n".join(lines)
