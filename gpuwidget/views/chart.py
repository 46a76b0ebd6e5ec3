"""Draw a run's utilization and memory as a static SVG with one panel per GPU, as large as the live chart.

Utilization is a filled line and memory a dashed line. More than eight GPUs have a low strip each, whose
coordinates are coarse. All panels share a few paths with integer coordinates,
so that even 16 panels stay small. The paths are stretched to the width of the output; the labels, the peaks'
markers and everything else that must not be stretched is placed in percent of this width. The values shown on
hover are HTML titles of empty elements on top of the SVG.

A front end that removes the SVG of an untrusted notebook keeps the text in it. The text therefore has the
font size 0 outside of the SVG, and a text that tells how to see the chart stands in SVG metadata, which
browsers don't show.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar

from gpuwidget.model import units
from gpuwidget.model.report import Mark
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.translation import _, translatable
from gpuwidget.views.styles import MEMORY, UTILIZATION
from gpuwidget.views.time_axis import TimeAxis

_Panels = TypeVar("_Panels", bound="ChartPanels")
MIN_TILES = 5
"""Number of GPUs from which the panels are tiles."""
MIN_POINTS = 3
"""Number of points from which a card has a chart."""
_MIN_STRIPS = 9
_STRIP = 10
"""Vertical units from one strip to the next. A strip is one unit lower."""
_STRIPS_WIDTH = 64
"""Horizontal units of the strips. With so few units, a point takes four bytes."""
_STRIPS_LEFT, _DIGIT = 18, 6
"""Pixels for the numbers on the left of the strips, and for one of their digits."""
_STRIPS_FOOT = 20
"""Pixels below the strips, for the legend."""
_LEFT = "28px"
RIGHT = "clamp(136px,30%,278px)"
"""The space beside the plots of rows. On the right are the live chart's readings, and this chart's legend."""
_HOVER_LABEL_LENGTH = 48
_NAME_LENGTH = 20
_MIN_LABEL_DISTANCE = 0.25
"""A tick that is closer than this fraction of the run to its end has no label."""
UNTRUSTED = translatable("Trust the notebook to see the chart")
"""The text that is left of the chart where a front end removes the SVG, as in an untrusted notebook."""


@dataclass(frozen=True, slots=True)
class ChartPanels:
    """The positions and sizes of the panels of a chart, static or live, for a given number of GPUs.

    Up to four GPUs are shown in rows, more in tiles. Vertical lengths are in pixels, horizontal lengths in
    percent of the chart's width.
    """

    panels: int
    columns: int
    row_height: int
    """Pixels from the top of one row of panels to the top of the next."""
    top: int
    """Pixels from the top of a row to the top of its plot."""
    height: int
    """Height of a plot in pixels, for 0 to 100 percent."""
    width: float
    """Width of a plot in percent of the chart."""
    gap: float
    """Space between two plots in percent of the chart."""

    @classmethod
    def for_gpus(cls: type[_Panels], gpus: int) -> _Panels:
        """Return panels in rows for up to four GPUs, and in tiles for more."""
        if gpus < MIN_TILES:
            return cls(gpus, columns=1, row_height=98, top=8, height=64, width=100.0, gap=0.0)
        return cls(gpus, columns=4, row_height=104, top=22, height=36, width=23.5, gap=2.0)

    @property
    def tiles(self) -> bool:
        """Whether the panels are tiles, several in a row."""
        return self.columns > 1

    @property
    def total_height(self) -> int:
        """Height of the chart in pixels."""
        return self.row_height * -(-self.panels // self.columns)

    def left(self, panel: int) -> float:
        """Return the left edge of a panel's plot."""
        return (panel % self.columns) * (self.width + self.gap)

    def floor(self, panel: int) -> int:
        """Return the pixels from the top of the chart to 0 percent in a panel's plot."""
        return panel // self.columns * self.row_height + self.top + self.height


@dataclass(frozen=True, slots=True)
class Lane:
    """The series of one GPU, with one value for each ``t`` of the chart."""

    name: str
    utilization: tuple[float | None, ...]
    """Percent."""
    memory: tuple[float | None, ...]
    """Bytes in use on the whole GPU."""
    memory_total: int | None
    """Total bytes of the GPU's memory. If None, no memory is drawn, because the axis is in percent."""
    compared: tuple[float | None, ...] = ()
    """Utilization of another run, drawn as a gray line; empty without another run."""
    at_least: int | None = None
    """Bytes that were in use at some time, if samples missed the peak; None if nothing shows that."""


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
    runs: tuple[str, str] | None = None
    """The names of the compared run and of the run itself, if there is a compared run."""


def html(chart: Chart, hover_columns: int) -> str:
    """Return the chart as HTML with ``hover_columns`` tooltips over the run; tiles have none."""
    panels = ChartPanels.for_gpus(len(chart.lanes))
    strips = len(chart.lanes) >= _MIN_STRIPS
    space = "" if panels.tiles else f"padding:0 {RIGHT} 0 {_LEFT};"
    if strips:
        space = f"padding-left:{_STRIPS_LEFT}px;"
    hover = "" if panels.tiles or not hover_columns else _hover(chart, hover_columns)
    untrusted = f"<metadata>{escape(_(UNTRUSTED))}</metadata>"
    return (
        f"<svg width='0' height='0' style='position:absolute'>{untrusted}</svg>"
        f"<div style='position:relative;font-size:0'><svg role='img' aria-label='{escape(chart.label)}' "
        f"style='display:block;box-sizing:border-box;width:100%;height:{panels.total_height}px;{space}"
        f"overflow:visible'>{_strips(chart, panels) if strips else _plots(chart, panels)}"
        f"<g font-size='11' fill='currentColor' opacity='.8'>"
        f"{_strip_labels(chart, panels) if strips else _labels(chart, panels)}</g></svg>"
        f"{hover}</div>"
    )


# -- what is stretched -----------------------------------------------------------------------------------


def _plots(chart: Chart, panels: ChartPanels) -> str:
    """Return the lines of all panels. A unit is a pixel vertically, and about a pixel horizontally."""
    whole = 400 if panels.tiles else 600
    fill, utilization, memory, compared, floors = "", "", "", "", ""
    for panel, lane in enumerate(chart.lanes):
        left, width = panels.left(panel) * whole / 100, panels.width * whole / 100
        floor, height = panels.floor(panel), panels.height
        xs = [round(left + width * _place(chart, t)) for t in chart.t]
        floors += f"M{left:.0f} {floor}h{width:.0f}"
        for run in _runs(xs, lane.utilization, 100.0, floor, height):
            # Tiles have no outline, because a filled shape alone takes fewer bytes.
            utilization += "" if panels.tiles else _path(run)
            fill += f"{_path([(run[0][0], floor), *run, (run[-1][0], floor)])}z"
        for run in _memory_runs(xs, lane, floor, height):
            memory += _path(run)
        for run in _runs(xs, lane.compared, 100.0, floor, height):
            compared += _path(run)
    thin = "fill='none' vector-effect='non-scaling-stroke'"
    gray = f"<path d='{compared}' {thin} stroke='#888' stroke-width='1.2'/>" if compared else ""
    return (
        f"<svg width='100%' height='{panels.total_height}' viewBox='0 0 {whole} {panels.total_height}' "
        f"preserveAspectRatio='none'><path d='{floors}' {thin} stroke='currentColor' opacity='.25'/>"
        f"{_ticks(chart, panels, whole, thin)}"
        f"<path d='{fill}' style='fill:{UTILIZATION}' opacity='{'.5' if panels.tiles else '.16'}'/>{gray}"
        f"<path d='{utilization}' {thin} style='stroke:{UTILIZATION}' stroke-width='1.4'/>"
        f"<path d='{memory}' {thin} stroke='{MEMORY}' stroke-width='1.4' stroke-dasharray='4 3'/></svg>"
    )


def _strips(chart: Chart, panels: ChartPanels) -> str:
    """Return the lines of many GPUs, each in a strip of the whole width, all together as high as tiles."""
    fill = memory = ""
    xs = [round(_STRIPS_WIDTH * _place(chart, t)) for t in chart.t]
    xs[0] = 0  # a value is the mean since the point before
    for row, lane in enumerate(chart.lanes, 1):
        floor = _STRIP * row
        for run in _runs(xs, lane.utilization, 100.0, floor, _STRIP - 1):
            fill += f"{_path([(run[0][0], floor), *run, (run[-1][0], floor)])}z"
        for run in _memory_runs(xs, lane, floor, _STRIP - 1):
            memory += _path(run)
    thin = "vector-effect='non-scaling-stroke'"
    dashed = f"<path d='{memory}' {thin} fill='none' stroke='{MEMORY}' stroke-dasharray='4 3'/>"
    return (
        f"<svg width='100%' height='{panels.total_height - _STRIPS_FOOT}' "
        f"viewBox='0 0 {_STRIPS_WIDTH} {_STRIP * panels.panels}' preserveAspectRatio='none'><path d='{fill}' "
        f"{thin} style='fill:{UTILIZATION};stroke:{UTILIZATION}' opacity='.6'/>"
        f"{dashed if memory else ''}</svg>"
    )


def _strip_labels(chart: Chart, panels: ChartPanels) -> str:
    """Return the numbers of the GPUs on the left of their strips, as one text, and the legend."""
    text, xs, ys = "", [], []
    step = (panels.total_height - _STRIPS_FOOT) / panels.panels
    for row, lane in enumerate(chart.lanes):
        number = lane.name.removeprefix("GPU ").partition(" ")[0]
        text += number
        xs += [f"{_DIGIT * place - 4}" for place in range(-len(number), 0)]
        ys += [f"{step * (row + 1) - 4:.0f}"] * len(number)
    numbers = f"<text x='{' '.join(xs)}' y='{' '.join(ys)}'>{escape(text)}</text>"
    return numbers + _legend(chart, panels)


def _ticks(chart: Chart, panels: ChartPanels, whole: int, line: str) -> str:
    """Return ticks: the user's marks over the full height of a plot, all others as short ticks below rows."""
    full: set[float] = set()
    short: set[float] = set()
    for mark in chart.marks:
        if mark.kind == "mark" or not panels.tiles:
            (full if mark.kind == "mark" else short).add(_place(chart, mark.t))
    ticks = ""
    for places, above, below, opacity in ((full, panels.height, 4, ".6"), (short - full, 0, 4, ".45")):
        data = "".join(
            f"M{(panels.left(panel) + panels.width * place) * whole / 100:.0f} {panels.floor(panel) - above}"
            f"v{above + below}"
            for panel in range(panels.panels)
            for place in sorted(places)
        )
        if data:
            ticks += f"<path d='{data}' {line} stroke='currentColor' opacity='{opacity}'/>"
    return ticks


def _place(chart: Chart, t: float) -> float:
    """Return the place of a time in the chart, from 0 to 1."""
    return min(1.0, max(0.0, t / chart.duration))


def _runs(
    xs: Sequence[int], values: Sequence[float | None], highest: float, floor: int, height: int
) -> Iterator[list[tuple[int, int]]]:
    """Yield the points of each stretch of known values. Unknown values leave a gap."""
    run: list[tuple[int, int]] = []
    for x, value in zip(xs, values, strict=False):
        if value is None:
            if run:
                yield run
            run = []
            continue
        point = (x, floor - round(height * min(1.0, max(0.0, value / highest))))
        if len(run) > 1 and run[-2][1] == run[-1][1] == point[1]:
            run[-1] = point
        elif not run or run[-1] != point:
            run.append(point)
    if run:
        yield run


def _memory_runs(xs: Sequence[int], lane: Lane, floor: int, height: int) -> Iterator[list[tuple[int, int]]]:
    """Yield the stretches of a lane's memory; none if its percentage is unknown."""
    return _runs(xs, lane.memory, lane.memory_total, floor, height) if lane.memory_total else iter(())


def _path(points: Sequence[tuple[int, int]]) -> str:
    """Return SVG path data. Coordinates after the first point are relative, which makes the data shorter."""
    x, y = points[0]
    if len(points) == 1:
        # A single point would be invisible, so draw a dash.
        return f"M{max(0, x - 3)} {y}h6"
    data = [f"M{x} {y}"]
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


# -- what is not stretched -------------------------------------------------------------------------------


def _labels(chart: Chart, panels: ChartPanels) -> str:
    """Return the axes' numbers, the peaks' markers and the legend."""
    found = [_legend(chart, panels)]
    for panel, lane in enumerate(chart.lanes):
        left, floor = panels.left(panel), panels.floor(panel)
        top = floor - panels.height
        peak, marker = _peak(chart, panels, panel)
        if panels.tiles:
            found += [
                _text(left, top - 6, clean_line(lane.name, _NAME_LENGTH)),
                _text(left + panels.width / 2, floor + 13, peak, "middle", MEMORY),
            ]
        else:
            found += [
                f"<text x='-6' y='{y}' text-anchor='end'>{n}</text>" for y, n in ((top + 4, 100), (floor, 0))
            ]
            if panel == panels.panels - 1:  # all rows have the same axis
                times = _times(chart.duration)
                found += [_text(100 * at, floor + 14, text, anchor) for at, text, anchor in times]
            name = escape(clean_line(lane.name, _NAME_LENGTH))
            found.append(f"<text x='100%' dx='14' y='{top + 9}' font-weight='600'>{name}</text>")
            if peak:  # beside the plot, where no line crosses it
                key = f"<circle cx='22' r='3' fill='{MEMORY}'/>" if marker else ""
                found.append(_key(top + 21, key, 36 if key else 14, peak))
        found.append(marker)
    return "".join(found)


def _legend(chart: Chart, panels: ChartPanels) -> str:
    """Return the keys of the lines, to the right of the rows or, with the tiles' time axis, below them."""
    utilization = _("GPU utilization, %")
    compared, own = chart.runs or ("", utilization)
    keys = (
        (_known(lane.compared for lane in chart.lanes), "#888", "", compared),
        (_known(lane.utilization for lane in chart.lanes), UTILIZATION, "", own),
        (
            _known(lane.memory for lane in chart.lanes if lane.memory_total),
            MEMORY,
            "4 3",
            _("GPU memory, %"),
        ),
    )
    found = ""
    for row, (_shown, color, dashes, text) in enumerate(key for key in keys if key[0]):
        x, y = (
            ("100%", panels.floor(0) - 24 + 16 * row) if not panels.tiles else ("0", panels.total_height - 6)
        )
        shift = 14 if not panels.tiles else 170 * row
        line = (
            f"<path d='M{shift} 0h16' stroke-width='2' style='stroke:{color}' stroke-dasharray='{dashes}'/>"
        )
        found += _key(y - 3, line, shift + 22, text, x)
    if panels.tiles:
        found += _text(100, panels.total_height - 6, f"0\N{EN DASH}{units.duration(chart.duration)}", "end")
    return found


def _key(y: int, mark: str, left: int, text: str, x: str = "100%") -> str:
    """Return a mark of the plots with its meaning, which begins ``left`` pixels from ``x``."""
    return f"<svg x='{x}' y='{y}' overflow='visible'>{mark}<text x='{left}' y='3'>{escape(text)}</text></svg>"


def _known(series: Iterable[Sequence[float | None]]) -> bool:
    return any(value is not None for values in series for value in values)


def _peak(chart: Chart, panels: ChartPanels, panel: int) -> tuple[str, str]:
    """Return the highest memory of a panel's GPU as text, and its marker if it has a place in the plot."""
    lane = chart.lanes[panel]
    known = [(size, -place) for place, size in enumerate(lane.memory) if size is not None]
    if not known:
        return "", ""
    size, place = max(known)
    missed = lane.at_least is not None
    peak = f"\N{GREATER-THAN OR EQUAL TO} {units.memory(lane.at_least)}" if missed else units.memory(size)
    text = _("peak {peak}", peak=peak) if panels.tiles else _("GPU peak {peak}", peak=peak)
    if missed or not lane.memory_total:
        return text, ""
    at = _place(chart, chart.t[-place])
    x = panels.left(panel) + panels.width * at
    y = panels.floor(panel) - round(panels.height * min(1.0, size / lane.memory_total))
    marker = f"<circle cx='{x:.4g}%' cy='{y}' r='3' fill='{MEMORY}'/>"
    return text, marker


def _times(duration: float) -> Iterator[tuple[float, str, str]]:
    """Yield the place, text and anchor of each label of the time axis. The last one is the run's end."""
    axis = TimeAxis.reaching(duration)
    for tick in axis.ticks:
        place = tick * axis.seconds / duration
        if place <= 1 - _MIN_LABEL_DISTANCE:
            yield place, f"{tick:g}", "middle"
    yield 1.0, units.duration(duration), "end"


def _text(x: float, y: int, text: str, anchor: str = "start", color: str = "") -> str:
    fill = f" fill='{color}'" if color else ""
    place = "" if anchor == "start" else f" text-anchor='{anchor}'"
    return f"<text x='{x:.4g}%' y='{y}'{place}{fill}>{escape(text)}</text>" if text else ""


def _hover(chart: Chart, count: int) -> str:
    """Return ``count`` invisible columns over the rows. Each column's tooltip has the values at its time."""
    columns = "".join(f"<i title='{escape(text)}' style='flex:1'></i>" for text in tooltips(chart, count))
    place = f"position:absolute;left:{_LEFT};right:{RIGHT};top:0;height:100%"
    return f"<div style='{place};display:flex'>{columns}</div>"


def tooltips(chart: Chart, count: int, at: Callable[[float], str] = units.duration) -> Iterator[str]:
    """Yield the tooltip of each of ``count`` columns: its time as ``at`` formats it, every lane's values and
    the marks in the column."""
    width = chart.duration / count
    for column in range(count):
        since, until = column * width, (column + 1) * width
        middle = (since + until) / 2
        last = column == count - 1
        inside = range(bisect_left(chart.t, since), len(chart.t) if last else bisect_left(chart.t, until))
        if not inside:
            nearest = min(range(len(chart.t)), key=lambda n: abs(chart.t[n] - middle))
            inside = range(nearest, nearest + (abs(chart.t[nearest] - middle) <= width))
        lines = [at(middle)]
        for lane in chart.lanes:
            if chart.runs is not None:
                series = (lane.compared, lane.utilization)
                lines += [
                    f"{run}: {_mean(values, inside)}" for run, values in zip(chart.runs, series, strict=True)
                ]
                continue
            name = f"{lane.name}: " if len(chart.lanes) > 1 else ""
            mean = _mean(lane.utilization, inside)
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


def _mean(values: Sequence[float | None], inside: Sequence[int]) -> str:
    known = [value for n in inside if (value := values[n]) is not None]
    return units.percent(sum(known) / len(known) if known else None)
