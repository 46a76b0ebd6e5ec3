"""A report as static HTML: no script, no style sheet, nothing loaded, whole without its SVG and styles.

Untrusted notebooks lose the SVG and most styles, other front ends never had the theme's variables: the
order of the text alone carries the meaning, every colour has a fallback that reads on white and on black,
and quiet text is the front end's own colour, fainter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from gpuwidget.measure.notes import gpu_name
from gpuwidget.model import units
from gpuwidget.model.report import GpuReport, Mark, Report
from gpuwidget.views import card_summary as facts
from gpuwidget.views import card_text
from gpuwidget.views.card_details import details
from gpuwidget.views.card_table import columns, is_compact, row_names
from gpuwidget.views.size_budget import Plan
from gpuwidget.views.sparkline import BUSY, Chart, Lane, hover, svg

_ROOT = "font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);font-variant-numeric:tabular-nums;"
_QUIET = "opacity:.75"
_ADVICE = "margin-top:2px;max-width:75em"
_CHIP = "display:inline-block;border:1px solid;border-radius:9px;padding:0 8px"
_ALERT = {
    "ok": "var(--jp-warn-color0,#c77700)",
    "error": "var(--jp-error-color1,#e5393f)",
    "interrupted": "var(--jp-warn-color0,#c77700)",
}
_DOT = "\N{NO-BREAK SPACE}· "
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=[GMK]iB|B\b|%|[kM]?J\b|W\b|[mµ]?s\b|min\b|h\b)")
_LEFT = "style='text-align:left'"
_TABLE = "margin:4px 0 0;text-align:right;table-layout:auto;border-collapse:collapse;"
_LANES = "position:absolute;left:0;top:0;width:100%;height:100%"
_FEWEST_POINTS = 3


def card(report: Report, plan: Plan) -> str:
    """The full card of ``report``, whose timeline the plan has thinned already."""
    status = report.cell.status
    edge = BUSY if status == "ok" else _ALERT[status]
    gpus = report.shown[: plan.rows]
    chart = _chart(report, len(gpus))
    beside = chart is not None and len(gpus) == 1
    lead = _lead(report)
    if chart is not None and beside:
        picture = svg(chart, "display:block;width:300px;height:44px", 240, outlined=True)
        lead = (
            "<div style='display:flex;flex-wrap:wrap;gap:6px 20px'>"
            f"<div style='flex:1 1 380px'>{lead}</div>"
            f"<div style='position:relative'>{picture}{hover(chart, plan.hover)}</div></div>"
        )
    table = _table(report, plan, None if beside else chart) if gpus else ""
    return (
        f"<div style='{_ROOT}border-left:3px solid {edge};padding:2px 0 2px 12px'>"
        f"{lead}{_advice(report)}{table}{_details(report, plan, chart is not None)}</div>"
    )


def line(report: Report) -> str:
    """The quiet line under every cell."""
    status = report.cell.status
    edge = BUSY if status == "ok" else _ALERT[status]
    return (
        f"<div style='{_ROOT}border-left:3px solid {edge};padding:0 0 0 12px'>"
        f"<span style='{_QUIET}'>{_segments(facts.one_line(report))}</span></div>"
    )


def table(reports: Sequence[Report]) -> str:
    """Several reports, a row each."""
    return framed(rows_table(card_text.table_rows(reports), left=2))


def framed(inner: str) -> str:
    """HTML of ours in the card's own type."""
    return f"<div style='{_ROOT}overflow-x:auto'>{inner}</div>"


def rows_table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Rows of text under their heads, the first ``left`` columns flush left, figures flush right."""
    head, *body = rows
    titles = "".join(
        f"<th scope='col'{f' {_LEFT}' if n < left else ''}>{escape(name)}</th>" for n, name in enumerate(head)
    )
    lines = "".join(
        f"<tr><th scope='row' {_LEFT}>{_segments([row[0]])}</th>"
        f"{''.join(f'<td {_LEFT}>{escape(cell)}</td>' for cell in row[1:left])}"
        f"{''.join(f'<td>{_unbroken(cell)}</td>' for cell in row[left:])}</tr>"
        for row in body
    )
    return (
        f"<table cellpadding='4' style='{_TABLE}font-size:12px'>"
        f"<thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"
    )


def _lead(report: Report) -> str:
    parts = []
    if report.cell.label is not None:
        parts.append(f"<div style='{_QUIET}'>{escape(facts.clean(report.cell.label, 80))}</div>")
    first, *rest = facts.headline(report)
    status = report.cell.status
    opening = (
        escape(first) if status == "ok" else f"<span style='color:{_ALERT[status]}'>{escape(first)}</span>"
    )
    following = _segments(["", *rest])
    parts.append(f"<div><b style='font-size:15px'>{opening}{following}</b></div>")
    second = facts.second_line(report)
    if second:
        parts.append(f"<div style='{_QUIET}'>{_segments(second)}</div>")
    for text in facts.warnings(report):
        parts.append(f"<div style='color:{_ALERT['ok']}'>{escape(text)}</div>")
    label = facts.recording(report)
    if label is not None:
        parts.append(f"<div style='{_QUIET}'><span style='{_CHIP}'>{escape(label)}</span></div>")
    for text in facts.explanations(report):
        parts.append(f"<div style='{_QUIET}'><em>{escape(text)}</em></div>")
    return "".join(parts)


def _advice(report: Report) -> str:
    """A quiet line each, as wide as the card: what was seen, and what to do."""
    return "".join(
        f"<div style='{_ADVICE}'><b>{word}:</b> <span style='{_QUIET}'>{_segments([seen])}</span> "
        f"{_segments([fix])}</div>"
        for word, seen, fix in facts.advice(report)
    )


def _segments(segments: Sequence[str]) -> str:
    """Segments in a row that break after the dot between them, never between a number and its unit."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", escape(_DOT.join(segments)))


def _chart(report: Report, rows: int) -> Chart | None:
    """A lane for each of the first ``rows`` GPUs; None for a course of hardly any points."""
    timeline, cell = report.timeline, report.cell
    if timeline is None or len(timeline.t) < _FEWEST_POINTS or not timeline.gpus:
        return None
    courses = {course.uuid: course for course in timeline.gpus}
    unknown = (None,) * len(timeline.t)
    lanes = tuple(
        Lane(
            name=gpu_name(gpu),
            utilization=courses[gpu.uuid].utilization if gpu.uuid in courses else unknown,
            memory=courses[gpu.uuid].device_memory if gpu.uuid in courses else unknown,
            memory_total=gpu.memory_total,
        )
        for gpu in report.shown[:rows]
    )
    whole = max(cell.duration_s + (cell.gpu_tail_s or 0.0), timeline.t[-1])
    label = f"Utilization and memory over {units.duration(whole)}"
    if len(lanes) == 1:
        label += f": {', '.join(facts.headline(report)[1:])}"
    return Chart(timeline.t, whole, lanes, timeline.marks, label)


def _table(report: Report, plan: Plan, chart: Chart | None) -> str:
    gpus = report.shown[: plan.rows]
    more = len(report.shown) - len(gpus)
    after = f"<div>and {more} more GPUs</div>" if more else ""
    slight = is_compact(gpus)
    lanes = _lanes(chart, plan, slight) if chart is not None else ""
    made = _slight_table(gpus, lanes) if slight else _full_table(gpus, lanes)
    return f"<div style='overflow-x:auto'>{made}</div>{after}"


def _full_table(gpus: Sequence[GpuReport], lanes: str) -> str:
    shown = columns(gpus)
    quiet = "font-weight:400"
    heads = "".join(f"<th scope='col' style='{quiet}'>{c.title}<br>{c.unit}</th>" for c in shown)
    tall = "height:44px;" if lanes else ""
    rows = []
    # Of one GPU the second line has told model and device.
    names = row_names(gpus) if len(gpus) > 1 else [facts.gpu_number(gpus[0])]
    for place, name in enumerate(names):
        cells = "".join(f"<td>{_unbroken(column.cells[place])}</td>" for column in shown)
        rows.append(
            f"<tr style='{tall}background:none'><th scope='row' {_LEFT}>{_row_name(name)}</th>"
            f"{lanes if place == 0 else ''}{cells}</tr>"
        )
    empty = "<td></td>" if lanes else ""
    return (
        f"<table cellpadding='3' style='{_TABLE}font-size:12px'><thead><tr style='{_QUIET}'>"
        f"<th scope='col' style='text-align:left;{quiet}'>GPU</th>{empty}{heads}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _slight_table(gpus: Sequence[GpuReport], lanes: str) -> str:
    """Many rows: the end tags that HTML leaves optional, a third of their size, are left out."""
    shown = columns(gpus)
    heads = "".join(f"<th scope='col'>{column.title}<br>{column.unit}" for column in shown)
    rows = []
    for place, name in enumerate(row_names(gpus)):
        cells = "".join(f"<td>{_unbroken(column.cells[place])}" for column in shown)
        rows.append(f"<tr><th scope='row'>{_unbroken(name)}{cells}{lanes if place == 0 else ''}")
    return (
        f"<table cellpadding='3' style='{_TABLE}font-size:11px'><thead><tr style='{_QUIET}'>"
        f"<th scope='col'>GPU{heads}{'<td>' if lanes else ''}<tbody>{''.join(rows)}</table>"
    )


def _lanes(chart: Chart, plan: Plan, slight: bool) -> str:
    """The courses of all rows in one cell beside them, however high a theme makes the rows."""
    picture = svg(chart, _LANES, 96 if slight else 160, outlined=not slight)
    # The absolute picture has no width of its own to give to the cell.
    spacer = "<svg height='1' style='width:100%;min-width:60px;max-width:150px'></svg>"
    over = hover(chart, plan.hover)
    return f"<td rowspan='{len(chart.lanes)}' style='position:relative'>{picture}{over}{spacer}</td>"


def _row_name(name: str) -> str:
    """Breaks after the dot, where there is little room."""
    return _DOT.join(_unbroken(part) for part in name.split(" · "))


def _unbroken(text: str) -> str:
    return escape(text).replace(" ", "\N{NO-BREAK SPACE}")


def _details(report: Report, plan: Plan, charted: bool) -> str:
    notes = [("Note", note) for note in report.notes]
    lines = [*notes, *details(report, each=plan.each)]
    marks = report.timeline.marks if report.timeline is not None else ()
    if charted:
        legend = "filled: utilization, dashed: memory of the GPU, both 0 to 100 %"
        ticks = "; long ticks: marks, short ones: printed lines" if marks else ""
        lines.append(("Chart", legend + ticks))
    items = "".join(
        f"<div>{_name(name)}{escape(facts.clean(text, facts.MOST_NOTE))}</div>" for name, text in lines
    )
    count = f", {len(notes)} note{'s' if len(notes) > 1 else ''}" if notes else ""
    return (
        f"<details style='{_QUIET};margin-top:4px'><summary>Details{count}</summary>"
        f"{items}{_marks(marks[: plan.marks])}</details>"
    )


def _name(name: str) -> str:
    """What stands before a line of the details; a line that goes on with the one above has no name."""
    return f"<b>{escape(name)}:</b> " if name else "&emsp;"


def _marks(marks: Sequence[Mark]) -> str:
    if not marks:
        return ""
    times = [units.duration(mark.t) for mark in marks]
    width = max(map(len, times))
    lines = [
        f"{at:>{width}}  {'mark  ' if mark.kind == 'mark' else ''}{escape(mark.label)}"
        for at, mark in zip(times, marks, strict=True)
    ]
    text = "\n".join(lines)
    return f"<div><b>Marks and printed lines:</b></div><pre style='margin:0;font-size:12px'>{text}</pre>"
