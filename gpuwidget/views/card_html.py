"""Format a report as static HTML without scripts, style sheets or external resources.

In an untrusted notebook, the front end removes the SVG and most styles, so the text must be understandable
without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gpuwidget.measure.notes import gpu_name
from gpuwidget.model import units
from gpuwidget.model.report import GpuReport, Mark, Report
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.translation import _, counted
from gpuwidget.views import card_summary as summary
from gpuwidget.views import card_text, card_workers, styles
from gpuwidget.views.card_details import details
from gpuwidget.views.card_gpus import is_compact, row_names, table_columns
from gpuwidget.views.detail_levels import DetailLevel
from gpuwidget.views.size_budget import bin_ends, bin_maxima, bin_means, make_bins
from gpuwidget.views.sparkline import Chart, Lane, hover_columns, svg
from gpuwidget.views.styles import QUIET

_STATUS_COLORS = {"ok": styles.UTILIZATION, "error": styles.ERROR, "interrupted": styles.WARNING}
_LEFT = f"style='{styles.LEFT}'"
_CHIP = "display:inline-block;border:1px solid;border-radius:9px;padding:0 8px"
_MIN_POINTS = 3


def card(report: Report, level: DetailLevel) -> str:
    """Return the full card as HTML. ``report`` must already be reduced to ``level``."""
    gpus = report.shown[: level.gpus]
    chart = _chart(report, level)
    chart_beside_lead = chart is not None and len(gpus) == 1
    lead = _lead(report)
    if chart is not None and chart_beside_lead:
        picture = svg(chart, "display:block;width:300px;height:44px", 240, outlined=True)
        lead = (
            "<div style='display:flex;flex-wrap:wrap;gap:6px 20px'>"
            f"<div style='flex:1 1 380px'>{lead}</div>"
            f"<div style='position:relative'>{picture}{hover_columns(chart, level.hover_columns)}</div></div>"
        )
    table = _table(report, level, None if chart_beside_lead else chart) if gpus else ""
    return styles.frame(
        f"{lead}{_advice(report)}{table}{_workers(report, level)}"
        f"{_details(report, level, chart is not None)}",
        _STATUS_COLORS[report.cell.status],
    )


def short_line(report: Report) -> str:
    """Return the report as one line of HTML."""
    text = f"<span style='{QUIET}'>{styles.segments(summary.short_line(report))}</span>"
    return styles.frame(text, _STATUS_COLORS[report.cell.status], padding="0 0 0 12px")


def table(reports: Sequence[Report]) -> str:
    """Return an HTML table with one row per report."""
    return styles.scrollable(styles.html_table(card_text.table_rows(reports), left=2))


def _lead(report: Report) -> str:
    parts = []
    if report.cell.label is not None:
        parts.append(styles.quiet(escape(clean_line(report.cell.label, 80))))
    first, *rest = summary.headline(report)
    opening = escape(first)
    if report.cell.status != "ok":
        opening = f"<span style='color:{_STATUS_COLORS[report.cell.status]}'>{opening}</span>"
    parts.append(f"<div><b style='font-size:15px'>{opening}{styles.segments(['', *rest])}</b></div>")
    *second, started = summary.second_line(report)
    started = started.replace(" ", "\N{NO-BREAK SPACE}")
    parts.append(styles.quiet(styles.segments([*second, started])))
    for text in summary.warnings(report):
        parts.append(f"<div style='color:{styles.WARNING}'>{escape(text)}</div>")
    recording = summary.recording_label(report)
    if recording is not None:
        parts.append(styles.quiet(f"<span style='{_CHIP}'>{escape(recording)}</span>"))
    for text in summary.explanations(report):
        parts.append(styles.quiet(f"<em>{escape(text)}</em>"))
    return "".join(parts)


def _advice(report: Report) -> str:
    """Return the report's advice as HTML, with one line per piece of advice."""
    return "".join(
        f"<div style='margin-top:2px;max-width:75em'><b>{label}:</b> "
        f"<span style='{QUIET}'>{styles.segments([text])}</span> {styles.segments([fix])}</div>"
        for label, text, fix in summary.advice(report)
    )


# -- the table and its chart -----------------------------------------------------------------------------


def _chart(report: Report, level: DetailLevel) -> Chart | None:
    """Return a chart with one lane per row of the table, or None if there are fewer than three points."""
    timeline, cell = report.timeline, report.cell
    if timeline is None or not timeline.gpus:
        return None
    bins = make_bins(len(timeline.t), level.drawn_points)
    if len(bins) < _MIN_POINTS:
        return None
    t = bin_ends(timeline.t, bins)
    series = {gpu.uuid: gpu for gpu in timeline.gpus}
    unknown = (None,) * len(t)
    lanes = tuple(
        Lane(
            name=gpu_name(gpu),
            utilization=bin_means(series[gpu.uuid].utilization, bins) if gpu.uuid in series else unknown,
            memory=bin_maxima(series[gpu.uuid].device_memory, bins) if gpu.uuid in series else unknown,
            memory_total=gpu.memory_total,
        )
        for gpu in report.shown[: level.gpus]
    )
    duration = max(cell.duration_s + (cell.gpu_tail_s or 0.0), t[-1])
    label = _("Utilization and memory over {duration}", duration=units.duration(duration))
    if len(lanes) == 1:
        label += f": {', '.join(summary.headline(report)[1:])}"
    return Chart(t, duration, lanes, timeline.marks, label)


def _table(report: Report, level: DetailLevel, chart: Chart | None) -> str:
    gpus = report.shown[: level.gpus]
    more = len(report.shown) - len(gpus)
    after = f"<div>{_('and {more} more GPUs', more=more)}</div>" if more else ""
    compact = is_compact(gpus)
    lanes = _lanes(chart, level, compact) if chart is not None else ""
    table = _compact_table(gpus, lanes) if compact else _full_table(gpus, lanes)
    return f"<div style='overflow-x:auto'>{table}</div>{after}"


def _full_table(gpus: Sequence[GpuReport], lanes: str) -> str:
    columns = table_columns(gpus)
    normal = "font-weight:400"
    header = "".join(f"<th scope='col' style='{normal}'>{c.title}<br>{c.unit}</th>" for c in columns)
    height = "height:44px;" if lanes else ""
    rows = []
    # For a single GPU, the card's second line already contains the model and the device.
    names = row_names(gpus) if len(gpus) > 1 else [(summary.gpu_number(gpus[0]),)]
    for row, name in enumerate(names):
        cells = "".join(f"<td>{styles.unbroken(column.cells[row])}</td>" for column in columns)
        rows.append(
            f"<tr style='{height}background:none'><th scope='row' {_LEFT}>{_row_name(name)}</th>"
            f"{lanes if row == 0 else ''}{cells}</tr>"
        )
    empty = "<td></td>" if lanes else ""
    return (
        f"<table cellpadding='3' style='{styles.AUTO_TABLE}font-size:12px'><thead><tr style='{QUIET}'>"
        f"<th scope='col' style='text-align:left;{normal}'>GPU</th>{empty}{header}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _compact_table(gpus: Sequence[GpuReport], lanes: str) -> str:
    """Return the table for many GPUs. It omits HTML's optional end tags, which saves a third of the size."""
    columns = table_columns(gpus)
    header = "".join(f"<th scope='col'>{column.title}<br>{column.unit}" for column in columns)
    rows = []
    for row, name in enumerate(map(" · ".join, row_names(gpus))):
        cells = "".join(f"<td>{styles.unbroken(column.cells[row])}" for column in columns)
        rows.append(f"<tr><th scope='row'>{styles.unbroken(name)}{cells}{lanes if row == 0 else ''}")
    return (
        f"<table cellpadding='3' style='{styles.AUTO_TABLE}font-size:11px'><thead><tr style='{QUIET}'>"
        f"<th scope='col'>GPU{header}{'<td>' if lanes else ''}<tbody>{''.join(rows)}</table>"
    )


def _lanes(chart: Chart, level: DetailLevel, compact: bool) -> str:
    """Return one table cell that contains the lanes of all rows.

    The cell spans all rows, so each lane stays beside its row even if a theme has different row heights.
    """
    style = "position:absolute;left:0;top:0;width:100%;height:100%"
    picture = svg(chart, style, 96 if compact else 160, outlined=not compact)
    # The picture is positioned absolutely, so it does not widen the cell. A spacer widens it instead.
    spacer = "<svg height='1' style='width:100%;min-width:60px;max-width:150px'></svg>"
    hover = hover_columns(chart, level.hover_columns)
    return f"<td rowspan='{len(chart.lanes)}' style='position:relative'>{picture}{hover}{spacer}</td>"


def _row_name(parts: Sequence[str]) -> str:
    """Return a row's name as HTML in which a line may break only after a separating dot."""
    return styles.SEPARATOR.join(map(styles.unbroken, parts))


def _workers(report: Report, level: DetailLevel) -> str:
    """Return the table of the workers as HTML, or nothing if there are none."""
    rows = card_workers.table(report, level.workers)
    return f"<div style='overflow-x:auto'>{styles.html_table(rows)}</div>" if rows else ""


# -- the details -----------------------------------------------------------------------------------------


def _details(report: Report, level: DetailLevel, charted: bool) -> str:
    notes = [(_("Note"), _(note)) for note in report.notes]
    lines = [*notes, *details(report, per_gpu=level.per_gpu)]
    marks = report.timeline.marks if report.timeline is not None else ()
    if charted:
        legend = _("filled: utilization, dashed: memory, 0 to 100 %")
        short = _("printed lines and steps of ranks") if _has_steps(marks) else _("printed lines")
        ticks = _("; long ticks: marks, short ticks: {short}", short=short) if marks else ""
        lines.append((_("Chart"), legend + ticks))
    items = "".join(
        f"<div>{_name(name)}{escape(clean_line(text, summary.NOTE_LENGTH))}</div>" for name, text in lines
    )
    count = _(counted(len(notes), ", {number} note", ", {number} notes")) if notes else ""
    return (
        f"<details style='{QUIET};margin-top:4px'><summary>{_('Details')}{count}</summary>"
        f"{items}{_marks(marks[: level.marks])}</details>"
    )


def _name(name: str) -> str:
    """Return a line's name as HTML, or an indent for a nameless line, which continues the line above."""
    return f"<b>{escape(name)}:</b> " if name else "&emsp;"


def _marks(marks: Sequence[Mark]) -> str:
    if not marks:
        return ""
    times = [units.duration(mark.t) for mark in marks]
    width = max(map(len, times))
    lines = [
        f"{time:>{width}}  {_('mark  ') if mark.kind == 'mark' else ''}{escape(mark.label)}"
        for time, mark in zip(times, marks, strict=True)
    ]
    text = "\n".join(lines)
    title = (
        _("Marks, printed lines and steps of ranks") if _has_steps(marks) else _("Marks and printed lines")
    )
    return f"<div><b>{title}:</b></div><pre style='margin:0;font-size:12px'>{text}</pre>"


def _has_steps(marks: Sequence[Mark]) -> bool:
    return any(mark.kind == "step" for mark in marks)
