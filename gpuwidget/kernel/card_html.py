"""A report as static HTML: no script, no style sheet, nothing loaded, whole without its SVG and styles.

Untrusted notebooks lose the SVG and most styles, other front ends never had the theme's variables: the
order of the text alone carries the meaning, every colour has a fallback that reads on white and on black,
and quiet text is the front end's own colour, fainter.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gpuwidget import units
from gpuwidget.kernel import card_facts as facts
from gpuwidget.kernel import card_text
from gpuwidget.kernel.card_size import Plan
from gpuwidget.kernel.card_table import columns, is_compact, row_names
from gpuwidget.kernel.sparkline import BUSY, Chart, Lane, hover, svg
from gpuwidget.measure.report import Mark, Report

_ROOT = "font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);font-variant-numeric:tabular-nums;"
_QUIET = "opacity:.75"
_ALERT = {
    "ok": "var(--jp-warn-color0,#c77700)",
    "error": "var(--jp-error-color1,#e5393f)",
    "interrupted": "var(--jp-warn-color0,#c77700)",
}
_TABLE = "margin:4px 0 0;text-align:right;table-layout:auto;border-collapse:collapse;"
_LANES = "position:absolute;left:0;top:0;width:100%;height:100%"
_FEWEST_POINTS = 3
_MOST_NOTE = 400


def card(report: Report, plan: Plan) -> str:
    """The full card of ``report``, whose timeline the plan has thinned already."""
    status = report.cell.status
    edge = BUSY if status == "ok" else _ALERT[status]
    gpus = report.shown[: plan.rows]
    chart = _chart(report, len(gpus))
    beside = chart is not None and len(gpus) == 1
    lead = _lead(report)
    if chart is not None and beside:
        picture = svg(chart, "display:block;width:100%;height:44px", 240, outlined=True)
        lead = (
            "<div style='display:flex;flex-wrap:wrap;gap:6px 20px'>"
            f"<div style='flex:1 1 340px'>{lead}</div>"
            "<div style='flex:1 1 200px;max-width:420px'><div style='position:relative'>"
            f"{picture}{hover(chart, plan.hover)}</div></div></div>"
        )
    table = _table(report, plan, None if beside else chart) if gpus else ""
    return (
        f"<div style='{_ROOT}border-left:3px solid {edge};padding:2px 0 2px 12px'>"
        f"{lead}{table}{_details(report, plan, chart is not None)}</div>"
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
    head, *rows = card_text.table_rows(reports)
    left = "style='text-align:left'"
    titles = "".join(
        f"<th scope='col'{f' {left}' if n < 2 else ''}>{name}</th>" for n, name in enumerate(head)
    )
    lines = "".join(
        f"<tr><th scope='row' {left}>{_unbroken(row[0])}</th><td {left}>{escape(row[1])}</td>"
        f"{''.join(f'<td>{_unbroken(cell)}</td>' for cell in row[2:])}</tr>"
        for row in rows
    )
    return (
        f"<div style='{_ROOT}overflow-x:auto'><table cellpadding='4' style='{_TABLE}font-size:12px'>"
        f"<thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table></div>"
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
    following = f" · {_segments(rest)}" if rest else ""
    parts.append(f"<div><b style='font-size:15px'>{opening}{following}</b></div>")
    second = facts.second_line(report)
    if second:
        parts.append(f"<div style='{_QUIET}'>{_segments(second)}</div>")
    for text in facts.warnings(report):
        parts.append(f"<div style='color:{_ALERT['ok']}'>{escape(text)}</div>")
    for text in facts.explanations(report):
        parts.append(f"<div style='{_QUIET}'><em>{escape(facts.clean(text, _MOST_NOTE))}</em></div>")
    return "".join(parts)


def _segments(segments: Sequence[str]) -> str:
    """Segments that break between each other and not within a number and its unit."""
    return " · ".join(escape(segment).replace(" ", "\N{NO-BREAK SPACE}") for segment in segments)


def _chart(report: Report, rows: int) -> Chart | None:
    course, cell = report.timeline, report.cell
    if course is None or len(course.t) < _FEWEST_POINTS or not course.gpus:
        return None
    by_uuid = {gpu.uuid: gpu for gpu in report.shown}
    known = [one for one in course.gpus if one.uuid in by_uuid][:rows]
    lanes = tuple(
        Lane(
            name=facts.gpu_name(by_uuid[one.uuid]),
            utilization=one.utilization,
            memory=one.device_memory,
            memory_total=by_uuid[one.uuid].memory_total,
        )
        for one in known
    )
    whole = max(cell.duration_s + (cell.gpu_tail_s or 0.0), course.t[-1])
    label = f"Utilization and memory over {units.duration(whole)}"
    if len(lanes) == 1:
        label += f": {', '.join(facts.headline(report)[1:])}"
    return Chart(course.t, whole, lanes, course.marks, label) if lanes else None


def _table(report: Report, plan: Plan, chart: Chart | None) -> str:
    gpus = report.shown[: plan.rows]
    compact = is_compact(gpus)
    shown = columns(gpus)
    left = "style='text-align:left'"
    head = "".join(f"<th scope='col'>{column.title}<br>{column.unit}</th>" for column in shown)
    # The lanes lie beside their rows whatever height a theme gives those; the empty second SVG holds the width.
    lanes = ""
    if chart is not None:
        picture = svg(chart, _LANES, 96 if compact else 160, outlined=not compact)
        spacer = "<svg width='150' height='1'></svg>"
        lanes = f"<td rowspan='{len(gpus)}' style='position:relative'>{picture}{hover(chart, plan.hover)}{spacer}</td>"
    tall = " style='height:44px'" if chart is not None else ""
    rows = []
    for place, name in enumerate(row_names(gpus)):
        picture = lanes if place == 0 else ""
        cells = [_unbroken(column.cells[place]) for column in shown]
        if compact:
            # End tags that HTML leaves optional are left out: of many rows they are a third.
            rows.append(f"<tr><th scope='row'>{escape(name)}{picture}<td>{'<td>'.join(cells)}")
        else:
            row = "".join(f"<td>{cell}</td>" for cell in cells)
            rows.append(f"<tr{tall}><th scope='row' {left}>{_unbroken(name)}</th>{picture}{row}</tr>")
    empty = "<td></td>" if lanes else ""
    more = len(report.shown) - len(gpus)
    after = f"<div>and {more} more GPUs</div>" if more else ""
    size = 11 if compact else 12
    return (
        "<div style='overflow-x:auto'>"
        f"<table cellpadding='4' style='{_TABLE}font-size:{size}px'>"
        f"<thead><tr><th scope='col' {left}>GPU</th>{empty}{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>{after}"
    )


def _unbroken(text: str) -> str:
    return escape(text).replace(" ", "\N{NO-BREAK SPACE}")


def _details(report: Report, plan: Plan, charted: bool) -> str:
    notes = [("Note", note) for note in report.notes]
    lines = [*notes, *facts.details(report)]
    marks = report.timeline.marks if report.timeline is not None else ()
    if charted:
        legend = "filled: utilization, dashed: memory of the GPU, both 0 to 100 %"
        ticks = "; long ticks: marks, short ones: printed lines" if marks else ""
        lines.append(("Chart", legend + ticks))
    items = "".join(
        f"<div><b>{escape(name)}:</b> {escape(facts.clean(text, _MOST_NOTE))}</div>" for name, text in lines
    )
    count = f", {len(notes)} note{'s' if len(notes) > 1 else ''}" if notes else ""
    return (
        f"<details style='{_QUIET};margin-top:4px'><summary>Details{count}</summary>"
        f"{items}{_marks(marks[: plan.marks])}</details>"
    )


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
