"""A report as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuwidget.model import units
from gpuwidget.model.report import Report
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.views import card_gpus, card_lines
from gpuwidget.views import card_summary as facts
from gpuwidget.views.card_details import evidence, left_behind, unknowns
from gpuwidget.views.card_table import columns, is_compact, row_names
from gpuwidget.views.card_time import time_details

_INDENT = "  "
_MOST_LABEL = 24
_FEW_ROWS = 8
_FEW_COLUMNS = 3
"""Of a table of many rows: memory and utilization."""


def card(report: Report, rows: int, *, each: bool = True, brief: bool = False) -> str:
    """The card, with at most ``rows`` GPUs.

    Without ``each``, what is said of GPUs beside the table is said of all at once. What is ``brief`` is
    without the evidence, the time, the notes and reasons.
    """
    name = report.cell.label
    lines = [f"{facts.clean(name, 80)}:"] if name is not None else []
    lines.append(" · ".join(facts.headline(report)))
    second = facts.second_line(report)
    if second:
        lines.append(_INDENT + " · ".join(second))
    lines += [_INDENT + text for text in facts.warnings(report)]
    lines += [f"{_INDENT}{_within(word)}: {seen} {fix}" for word, seen, fix in facts.advice(report)]
    label = facts.recording(report)
    lines += [_INDENT + label] if label is not None else []
    lines += [_INDENT + text for text in facts.explanations(report)]
    gpus = report.shown[: min(rows, _FEW_ROWS) if brief else rows]
    if gpus:
        shown = columns(gpus)[: _FEW_COLUMNS if is_compact(gpus) else None]
        table = [
            ["GPU", *(column.title for column in shown)],
            ["", *(column.unit for column in shown)],
            *(
                [name, *(column.cells[place] for column in shown)]
                for place, name in enumerate(row_names(gpus))
            ),
        ]
        lines += aligned(table)
        if len(report.shown) > len(gpus):
            lines.append(f"{_INDENT}and {len(report.shown) - len(gpus)} more GPUs")
    by_line = card_lines.table(report)
    if by_line:
        lines.append(f"{_INDENT}torch's memory by line:")
        lines += [_INDENT + row for row in aligned(by_line)]
    lines += [
        _INDENT + (f"{_within(name)}: " if name else _INDENT) + facts.clean(text, facts.MOST_NOTE)
        for name, text in _details(report, each, brief)
    ]
    return printable_lines("\n".join(lines))


def _details(report: Report, each: bool, brief: bool) -> list[tuple[str, str]]:
    """Of what HTML folds away: what utilization hides, what is left, and why."""
    found = card_gpus.beside_utilization(report, each=each)
    found += [("Left behind", text) for text in left_behind(report)]
    lost = card_gpus.fragmentation(report, each=each, only_much=True)
    found += [("Fragmentation", text) for text in lost]
    if not brief:
        found += [*evidence(report), *time_details(report)]
        found += [("Not known", text) for text in unknowns(report)]
        found += [("Note", text) for text in report.notes]
    return found


def _within(name: str) -> str:
    """A name as it begins a line of text."""
    return name if name[:2].isupper() else f"{name[0].lower()}{name[1:]}"


def line(report: Report) -> str:
    """The one-line form."""
    return printable_lines(" · ".join(facts.one_line(report)))


def table(reports: Iterable[Report]) -> str:
    """A line a report."""
    return printable_lines("\n".join(aligned(table_rows(reports), left=2)))


def table_rows(reports: Iterable[Report]) -> list[list[str]]:
    """The heads of the columns, then a row a report."""
    head = ["cell", "label", "time", f"memory {facts.DELTA}", "peak", "busy", "energy", "status"]
    return [head, *(_row(report) for report in reports)]


def _row(report: Report) -> list[str]:
    cell, gpus = report.cell, report.shown
    number = f"In [{cell.execution_count}]" if cell.execution_count is not None else ""
    label = facts.clean(cell.label, _MOST_LABEL) if cell.label is not None else ""
    start = [number, label, units.duration(cell.duration_s)]
    if not gpus:
        return [*start, "no GPU used" if report.gpus else "no GPU", "", "", "", cell.status]
    memory = facts.memory_shown(report)
    change = units.memory_delta(memory.start, memory.end)
    busy, energy = facts.mean_utilization(gpus), facts.energy_sum(gpus)
    return [*start, change, units.memory(memory.peak), busy, energy, cell.status]


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Rows as lines, the first ``left`` columns flush left, figures flush right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        (
            _INDENT
            + "  ".join(
                cell.ljust(width) if place < left else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        ).rstrip()
        for row in rows
    ]
