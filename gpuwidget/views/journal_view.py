"""Show runs of the journal: their cards, and a table for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from gpuwidget.journal.messages import LIKELY
from gpuwidget.journal.records import Death, JournaledRun
from gpuwidget.journal.store import JournalRow, death_of
from gpuwidget.model import units
from gpuwidget.model.messages import Message
from gpuwidget.model.report import Report
from gpuwidget.model.terminal_text import TableColumn, format_table, printable
from gpuwidget.model.translation import _, joined, translatable
from gpuwidget.views import card
from gpuwidget.views.size_budget import Bundle

NONE = "\N{EN DASH}"


def report_of(row: JournalRow, run: JournaledRun) -> Report:
    """Return a run's report. The notes of a run that died begin with the reason."""
    why, report = death_of(row), run.report
    # A run of another machine that writes no samples has died only according to its row.
    cell = replace(report.cell, status=row.status)
    texts = () if why is None else _texts(why)
    return replace(report, cell=cell, notes=(*texts, *report.notes))


def bundle(row: JournalRow, run: JournaledRun, last: Report | None = None) -> Bundle:
    """Return the card of a run. ``last`` is the report of the last run of the same cell."""
    return card.bundle(report_of(row, run), run.oom, last)


def reason(why: Death) -> str:
    """Return why a run died, in the view's language, with what was checked unless that is certain."""
    return " ".join(map(_, _texts(why)))


def _texts(why: Death) -> list[Message]:
    return [why.text, *([LIKELY()] if why.certainty == "likely" else []), *why.checked]


def table(rows: Sequence[JournalRow], width: int) -> list[str]:
    """Return a table with one row per run for a terminal."""
    columns = [
        TableColumn(_("Run"), right=False),
        TableColumn(_("Began"), right=False),
        TableColumn(_("Notebook"), right=False, shrinks_to=12),
        TableColumn(_("Cell"), right=False, shrinks_to=8),
        TableColumn(_("time")),
        TableColumn(_("peak")),
        TableColumn(_("Ended"), right=False, shrinks_to=20),
    ]
    return format_table(columns, [_table_row(row) for row in rows], width)


def _table_row(row: JournalRow) -> tuple[str, ...]:
    name = PurePath(row.notebook).name if row.notebook is not None else NONE
    count = "" if row.execution_count is None else f"[{row.execution_count}]"
    return (
        row.id,
        units.date_and_time(row.started),
        printable(name),
        printable(" ".join(part for part in (count, row.label) if part) or NONE),
        units.duration(row.duration_s),
        units.memory(row.peak),
        printable(outcome(row)),
    )


_OUTCOMES = {
    "ok": translatable("finished"),
    "error": translatable("stopped by an error"),
    "interrupted": translatable("interrupted"),
    "died": translatable("died"),
}


def outcome(row: JournalRow) -> str:
    """Return how a run ended, with the reason if it died or was interrupted."""
    if row.state == "running":
        return _("running")
    why = death_of(row)
    return _(joined([_OUTCOMES[row.status], *([why.text] if why is not None else [])], ": "))
