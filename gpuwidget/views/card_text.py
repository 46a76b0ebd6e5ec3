"""Format a report as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from gpuwidget.measure.notes import NOT_MEASURED
from gpuwidget.model import units
from gpuwidget.model.report import Report
from gpuwidget.model.terminal_text import clean_line, printable_lines
from gpuwidget.model.translation import _
from gpuwidget.views import card_details, card_gpus, card_workers
from gpuwidget.views import card_summary as summary
from gpuwidget.views.comparison import LastRun
from gpuwidget.views.detail_levels import DetailLevel
from gpuwidget.views.styles import text_table

_INDENT = "  "
_LABEL_LENGTH = 24
_MAX_LINES = 12
_MAX_ROWS = 8
_COMPACT_COLUMNS = 3
"""Number of columns in the table of many GPUs, which shows only memory and utilization."""


def card(report: Report, level: DetailLevel, last: LastRun | None = None) -> str:
    """Return the full card as text: at most twelve lines, if it has no table of several GPUs or workers."""
    label = report.cell.label
    name = f"{clean_line(label, 80)}: " if label is not None else ""
    lines = [
        name + " · ".join(summary.headline(report)),
        " · ".join([*summary.second_line(report), *([_(last.changes)] if last is not None else [])]),
        *summary.warnings(report),
    ]
    lines += [f"{_lower(label)}: {text} {fix}" for label, text, fix in _advice(report)]
    recording = summary.recording_label(report)
    lines += [recording] if recording is not None else []
    lines += summary.explanations(report)
    details = _details(report)
    room = max(1, _MAX_LINES - len(lines))
    lines += details if len(details) <= room else details[: room - 1]
    if len(details) > room:
        lines.append(_("and {number} more lines in the HTML form", number=len(details) - room + 1))
    first, *rest = lines
    workers = card_workers.table(report, level.workers)
    tables = [
        *_gpu_table(report, min(level.gpus, level.gpu_rows, _MAX_ROWS)),
        *(text_table(workers) if workers else []),
    ]
    return printable_lines("\n".join([first, *(_INDENT + line for line in rest), *tables]))


def short_line(report: Report) -> str:
    return printable_lines(" · ".join(summary.short_line(report)))


def table(reports: Iterable[Report]) -> str:
    """Return a text table with one line per report."""
    return printable_lines("\n".join(text_table(table_rows(reports), left=2)))


def table_rows(reports: Iterable[Report]) -> list[list[str]]:
    """Return the headers and one row per report."""
    reports = list(reports)
    several = any(len(report.counted) > 1 for report in reports)
    header = [
        _("cell"),
        _("label"),
        _("time"),
        _("memory {delta}", delta=summary.DELTA),
        _("peak"),
        _("mean util") if several else _("util"),
        _("energy"),
        _("status"),
    ]
    return [header, *(_row(report) for report in reports)]


def _gpu_table(report: Report, rows: int) -> list[str]:
    """Return a table with a row for each of several GPUs. A single GPU's figures are in the first line."""
    gpus = report.shown[:rows]
    if len(gpus) < 2:
        return []
    columns = card_gpus.table_columns(gpus)[: _COMPACT_COLUMNS if card_gpus.is_compact(gpus) else None]
    lines = text_table(
        [
            ["GPU", *(column.title for column in columns)],
            ["", *(column.unit for column in columns)],
            *(
                [name, *(column.cells[row] for column in columns)]
                for row, name in enumerate(map(" · ".join, card_gpus.row_names(gpus)))
            ),
        ]
    )
    more = len(report.shown) - len(gpus)
    return [*lines, _INDENT + _("and {more} more GPUs", more=more)] if more else lines


def _advice(report: Report) -> list[tuple[str, str, str]]:
    """Return the label, text and fix of the most important piece of advice, if there is one."""
    return [
        (_("Advice") if sure else _("Advice (unsure)"), text, fix)
        for sure, text, fix in summary.advice(report)[:1]
    ]


def _details(report: Report) -> list[str]:
    """Return the details that the text form shows, because a terminal can't expand a section.

    What was not measured comes first, so that it is not left out, and the lines of code come last.
    """
    ids = [note.id for note in report.note_ids][: len(report.notes)]
    named = list(zip_longest(report.notes, ids))[summary.notes_begin(report) :]
    found = [_(note) for note, note_id in named if note_id == NOT_MEASURED.id]
    unknown = [f"{values} ({reason})" for values, reason in card_details.unknown_values(report)]
    if unknown:
        found.append(_("n/a: {values}", values="; ".join(unknown)))
    found += [
        _("left behind: {holder}: {size}", holder=holder, size=size)
        for holder, size in card_details.left_behind(report)
    ]
    found += [_(note) for note, note_id in named if note_id != NOT_MEASURED.id]
    for line in card_details.time_lines(report):
        text = " · ".join(filter(None, (line.text, line.place)))
        source = line.source.strip()
        found.append(
            _("line {line} `{source}`: {text}", line=line.number, source=source, text=text)
            if line.number
            else f"{source}: {text}"
        )
    by_line = card_details.memory_rows(report)
    if by_line:
        found += [_("torch's memory by line:"), *text_table(by_line)]
    found += card_gpus.fragmentation(report, per_gpu=False, only_large=True)
    return [clean_line(line, summary.NOTE_LENGTH) if line.strip() else line for line in found]


def _lower(name: str) -> str:
    """Return ``name`` with a lower-case first letter, unless it begins with an acronym (``GPU 0``)."""
    return name if name[:2].isupper() else f"{name[0].lower()}{name[1:]}"


def _row(report: Report) -> list[str]:
    cell, gpus = report.cell, report.shown
    number = f"In [{cell.execution_count}]" if cell.execution_count is not None else ""
    label = clean_line(cell.label, _LABEL_LENGTH) if cell.label is not None else ""
    start = [number, label, units.duration(cell.duration_s)]
    if not gpus:
        return [*start, summary.no_gpu(report), "", "", "", cell.status]
    memory = summary.headline_memory(report)
    change = units.memory_delta(memory.start, memory.end)
    counted = report.counted
    busy, energy = summary.mean_utilization(counted), summary.total_energy(counted)
    peak = summary.sampled(units.memory(memory.peak), exact=memory.kind == "torch")
    return [*start, change, peak, busy, energy, cell.status]
