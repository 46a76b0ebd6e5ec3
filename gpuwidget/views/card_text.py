"""Format a report as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from gpuwidget.model import units
from gpuwidget.model.report import Report
from gpuwidget.model.terminal_text import clean_line, printable_lines
from gpuwidget.model.translation import _
from gpuwidget.views import card_details, card_gpus, card_workers
from gpuwidget.views import card_summary as summary
from gpuwidget.views.detail_levels import DetailLevel
from gpuwidget.views.styles import text_table

_INDENT = "  "
_LABEL_LENGTH = 24
_BRIEF_ROWS = 8
_COMPACT_COLUMNS = 3
"""Number of columns in the table of many GPUs, which shows only memory and utilization."""


def card(report: Report, level: DetailLevel) -> str:
    """Return the full card as text."""
    name = report.cell.label
    lines = [f"{clean_line(name, 80)}:"] if name is not None else []
    lines.append(" · ".join(summary.headline(report)))
    lines.append(_INDENT + " · ".join(summary.second_line(report)))
    lines += [_INDENT + text for text in summary.warnings(report)]
    lines += [f"{_INDENT}{_lower(label)}: {text} {fix}" for label, text, fix in summary.advice(report)]
    recording = summary.recording_label(report)
    lines += [_INDENT + recording] if recording is not None else []
    lines += [_INDENT + text for text in summary.explanations(report)]
    lines += _gpu_table(report, min(level.gpus, _BRIEF_ROWS) if level.brief_text else level.gpus)
    workers = card_workers.table(report, level.workers)
    if workers:
        lines += text_table(workers)
    by_line = card_details.memory_rows(report)
    if by_line:
        lines.append(_INDENT + _("torch's memory by line:"))
        lines += [_INDENT + row for row in text_table(by_line)]
    lines += [
        _INDENT + (f"{_lower(name)}: " if name else _INDENT) + clean_line(text, summary.NOTE_LENGTH)
        for name, text in _details(report, level)
    ]
    return printable_lines("\n".join(lines))


def short_line(report: Report) -> str:
    """Return the report as one line of text."""
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
    gpus = report.shown[:rows]
    if not gpus:
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


def _details(report: Report, level: DetailLevel) -> list[tuple[str, str]]:
    """Return the details that the text form always shows, because a terminal can't expand a section."""
    found = card_gpus.extra_means(report, per_gpu=level.per_gpu)
    found += [(_("Left behind"), text) for text in card_details.left_behind(report)]
    fragmentation = card_gpus.fragmentation(report, per_gpu=level.per_gpu, only_large=True)
    found += [(_("Fragmentation"), text) for text in fragmentation]
    if not level.brief_text:
        found += [*card_details.evidence(report), *card_details.time_details(report)]
        found += [(_("Not known"), text) for text in card_details.unknown_values(report)]
        found += [(_("Note"), _(text)) for text in report.notes]
    return found


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
    peak = summary.sampled(units.memory(memory.peak), memory.kind)
    return [*start, change, peak, busy, energy, cell.status]
