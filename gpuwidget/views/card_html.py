"""Format a report as static HTML without scripts, style sheets or external resources.

In an untrusted notebook, the front end removes the SVG and most styles, so the text must be understandable
without them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from gpuwidget.model import units
from gpuwidget.model.report import GpuReport, Mark, Report
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.translation import _
from gpuwidget.views import (
    card_details,
    card_gpus,
    card_text,
    card_workers,
    chart,
    elements,
    headline,
    styles,
)
from gpuwidget.views import card_summary as summary
from gpuwidget.views.chart import MIN_POINTS, Chart, Lane
from gpuwidget.views.comparison import LastRun
from gpuwidget.views.detail_levels import DetailLevel
from gpuwidget.views.resampling import bin_ends, bin_maxima, bin_means, make_bins
from gpuwidget.views.styles import QUIET

_STATUS_COLORS = {
    "ok": styles.UTILIZATION,
    "error": styles.ERROR,
    "interrupted": styles.WARNING,
    "died": styles.ERROR,
}
_CHIP = "display:inline-block;border:1px solid;border-radius:9px;padding:0 8px"
MAX_TITLE_LENGTH = 60
CLAUSE = re.compile(r"(?<=[:.])\s+|(?<=[\N{FULLWIDTH COLON}\N{IDEOGRAPHIC FULL STOP}])\s*")
"""The end of the first clause of an advice, which is its title."""


def card(report: Report, level: DetailLevel, last: LastRun | None = None) -> str:
    """Return the full card as HTML. ``report`` must already be reduced to ``level``."""
    return styles.frame(
        f"{headline.lead(report.cell.label, summary.figures(report))}{_chart(report, level)}"
        f"{alerts(report, summary.warnings(report))}{_explanations(report)}{_advice(report)}"
        f"{_time(report) if report.advice else ''}{_gpus(report, level)}{_workers(report, level)}"
        f"{_folds(report, level, last)}",
        _STATUS_COLORS[report.cell.status],
    )


def short_line(report: Report) -> str:
    text = f"<span style='{QUIET}'>{styles.segments(summary.short_line(report))}</span>"
    return styles.frame(text, _STATUS_COLORS[report.cell.status], padding="0 0 0 12px")


def table(reports: Sequence[Report]) -> str:
    """Return an HTML table with one row per report."""
    return styles.scrollable(styles.html_table(card_text.table_rows(reports), left=2))


def alerts(report: Report, warnings: Iterable[str]) -> str:
    """Return warnings, and whether the values are a recording: what no fold hides."""
    parts = [f"<div style='color:{styles.WARNING}'>{escape(text)}</div>" for text in warnings]
    recording = summary.recording_label(report)
    if recording is not None:
        parts.append(styles.quiet(f"<span style='{_CHIP}'>{escape(recording)}</span>"))
    return "".join(parts)


def _explanations(report: Report) -> str:
    return "".join(styles.quiet(escape(text)) for text in summary.explanations(report))


def _chart(report: Report, level: DetailLevel) -> str:
    """Return a chart with one panel per GPU, or nothing if there are fewer than three points."""
    timeline, cell = report.timeline, report.cell
    if timeline is None or not timeline.gpus:
        return ""
    bins = make_bins(len(timeline.t), level.drawn_points)
    if len(bins) < MIN_POINTS:
        return ""
    t = bin_ends(timeline.t, bins)
    series = {gpu.uuid: gpu for gpu in timeline.gpus}
    unknown = (None,) * len(t)
    lanes = tuple(
        Lane(
            name=" · ".join(name),
            utilization=bin_means(series[gpu.uuid].utilization, bins) if gpu.uuid in series else unknown,
            memory=bin_maxima(series[gpu.uuid].device_memory, bins)
            if gpu.uuid in series and level.drawn_memory
            else unknown,
            memory_total=gpu.memory_total,
            at_least=_missed_peak(gpu, series[gpu.uuid].device_memory) if gpu.uuid in series else None,
        )
        for gpu, name in zip(
            report.shown[: level.gpus], card_gpus.chart_names(report.shown[: level.gpus]), strict=True
        )
    )
    duration = max(cell.duration_s + (cell.gpu_tail_s or 0.0), t[-1])
    label = _("Utilization and memory over {duration}", duration=units.duration(duration))
    return chart.html(Chart(t, duration, lanes, timeline.marks, label), level.hover_columns)


def _missed_peak(gpu: GpuReport, samples: Sequence[int | None]) -> int | None:
    """Return the least peak of a GPU's memory, if torch's exact peak shows that samples missed it."""
    exact = None if gpu.torch is None else gpu.torch.reserved.peak
    known = [size for size in samples if size is not None]
    if exact is None or not known:
        return None
    process = None if gpu.process_memory is None else gpu.process_memory.peak
    is_missed = exact > max(known) or (process is not None and exact > process)
    return max(exact, *known) if is_missed else None


# -- advice, and where the time went ---------------------------------------------------------------------


def _advice(report: Report) -> str:
    """Return the most important piece of advice as HTML. The others are folded."""
    return "".join(map(_notice, summary.advice(report)[:1]))


def _notice(advice: tuple[bool, str, str]) -> str:
    sure, text, fix = advice
    ends = (end for end in CLAUSE.finditer(text) if text.count("`", 0, end.start()) % 2 == 0)
    end = next(ends, None)  # not inside of code
    start = ""
    if end is not None and end.start() <= MAX_TITLE_LENGTH:
        start, text = f"<b>{elements.with_code(text[: end.start()])}</b> ", text[end.end() :]
    shown = elements.with_code(text)
    unsure = "" if sure else f"<span style='{QUIET}'>({escape(_('unsure'))})</span> "
    return elements.notice(f"{unsure}{start}{shown} {elements.with_code(fix, is_fix=True)}")


def _time(report: Report) -> str:
    """Return the lines of code with their time, or nothing if the main thread was not sampled."""
    lines = card_details.time_lines(report)
    return elements.code_lines(lines) if lines else ""


# -- the GPUs and the workers ----------------------------------------------------------------------------


def _gpus(report: Report, level: DetailLevel) -> str:
    """Return a table with a row for each of several GPUs. A single GPU's figures are in the first row."""
    gpus = report.shown[: min(level.gpus, level.gpu_rows)]
    if len(gpus) < 2:
        return ""
    more = len(report.shown) - len(gpus)
    after = f"<div>{_('and {more} more GPUs', more=more)}</div>" if more else ""
    return f"<div style='overflow-x:auto'>{_gpu_table(gpus)}</div>{after}"


def _gpu_table(gpus: Sequence[GpuReport]) -> str:
    """Return the table of GPUs. It omits HTML's optional end tags, which saves a third of the size."""
    columns = card_gpus.table_columns(gpus)
    left = "" if card_gpus.is_compact(gpus) else f" style='{styles.LEFT}'"
    header = "".join(f"<th scope='col'>{column.title}<br>{column.unit}" for column in columns)
    rows = []
    for row, name in enumerate(map(" · ".join, card_gpus.row_names(gpus))):
        cells = "".join(f"<td>{styles.unbroken(column.cells[row])}" for column in columns)
        rows.append(f"<tr><th scope='row'{left}>{styles.unbroken(name)}{cells}")
    return (
        f"<table cellpadding='3' style='{styles.AUTO_TABLE}font-size:12px'><thead><tr style='{QUIET}'>"
        f"<th scope='col'{left}>GPU{header}<tbody>{''.join(rows)}</table>"
    )


def _workers(report: Report, level: DetailLevel) -> str:
    """Return the table of the workers as HTML, or nothing if there are none."""
    return elements.small_table(card_workers.table(report, level.workers))


# -- the details -----------------------------------------------------------------------------------------


def _folds(report: Report, level: DetailLevel, last: LastRun | None) -> str:
    unknown = card_details.unknown_values(report)
    marks = report.timeline.marks if report.timeline is not None else ()
    time, evidence = card_details.time_facts(report), card_details.evidence(report)
    run = card_details.run_facts(report)
    notes = report.notes[summary.notes_begin(report) :]
    if report.advice:  # the lines of code are above
        evidence, time = [*evidence, *time], []
    more = summary.advice(report)[1:]
    return elements.folds(
        (
            elements.fold(_("More advice ({number})", number=len(more)), "".join(map(_notice, more))),
            elements.fold(_("Where the time went"), ("" if report.advice else _time(report)) + _facts(time)),
            elements.fold(_("Memory"), _memory(report, level)),
            elements.fold(_("Hardware"), _hardware(report, level)),
            elements.fold(_("Evidence"), _facts(evidence)),
            elements.fold(_("Why n/a ({number})", number=len(unknown)), _facts(unknown)),
            elements.fold(_("Notes ({number})", number=len(notes)), _paragraphs(map(_, notes))),
            elements.fold(_("Marks ({number})", number=len(marks)), _marks(marks)),
            elements.fold(_("Run"), _facts(run if level.tables else run[:1])),
            _since(last),
        )
    )


def _since(last: LastRun | None) -> str:
    """Return what changed since the last run. The labextension adds *Compare* and *Show in dashboard*."""
    numbers = None if last is None else last.numbers
    runs = "" if numbers is None else f" data-runs='{numbers[0]} {numbers[1]}'"
    return f"<span class='gpuwidget-since'{runs}>{escape(_(last.changes)) if last is not None else ''}</span>"


def _hardware(report: Report, level: DetailLevel) -> str:
    rows = card_gpus.hardware_table(report, per_gpu=level.per_gpu) if level.tables else []
    return elements.small_table(rows)


def _memory(report: Report, level: DetailLevel) -> str:
    left = card_details.left_behind(report)
    return (
        ("".join(map(elements.small_table, _memory_kinds(report, level))) if level.tables else "")
        + (elements.small_table([[_("left behind"), _("memory")], *left]) if left else "")
        + elements.small_table(card_details.memory_rows(report))
        + _paragraphs(card_gpus.fragmentation(report, per_gpu=level.per_gpu))
    )


def _memory_kinds(report: Report, level: DetailLevel) -> list[list[list[str]]]:
    """Return the table of memory. The host's memory is in a second table if the GPUs have columns."""
    memory, header = report.host_memory, ["", _("start → end"), _("peak")]
    change, peak = units.memory_change(memory.start, memory.end), units.memory(memory.peak)
    host = [_("host memory of this process"), change, peak]
    table = card_gpus.memory_table(report, per_gpu=level.per_gpu) or [header]
    return [[*table, host]] if len(table[0]) == len(header) else [table, [header, host]]


def _facts(rows: Iterable[Sequence[str]]) -> str:
    return elements.facts([clean_line(cell, summary.NOTE_LENGTH) for cell in row] for row in rows)


def _paragraphs(texts: Iterable[str]) -> str:
    return "".join(f"<div>{escape(clean_line(text, summary.NOTE_LENGTH))}</div>" for text in texts)


def _marks(marks: Sequence[Mark]) -> str:
    if not marks:
        return ""
    times, own = [units.duration(mark.t) for mark in marks], _("mark")
    width = max(map(len, times))
    lines = [
        f"{time:>{width}}  {f'{own}  ' if mark.kind == 'mark' else ''}{escape(mark.label)}"
        for time, mark in zip(times, marks, strict=True)
    ]
    text = "\n".join(lines)
    return f"<pre style='margin:0;font-size:12px'>{text}</pre>"
