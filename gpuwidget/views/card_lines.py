"""What a card says of the lines that allocated torch's memory (``--lines``)."""

from __future__ import annotations

import re

from gpuwidget.model import units
from gpuwidget.model.report import LineMemory, Report

_CELL = re.compile(r"^In\[(\d+)\]")
_TITLE = "Where the memory went"
_MOST_DETAILS = 8
_MOST_ROWS = 12


def details(report: Report) -> list[tuple[str, str]]:
    """The largest lines for the folded part: which line, and what it allocated."""
    rows = [
        f"{_name(line, report)}{_source(line)}: {_figures(line)}" for line in report.lines[:_MOST_DETAILS]
    ]
    rows += _more(report, _MOST_DETAILS)
    return [(_TITLE if not place else "", row) for place, row in enumerate(rows)]


def table(report: Report) -> list[list[str]]:
    """The largest lines as rows under their heads; empty without any."""
    if not report.lines:
        return []
    rows = [
        [
            f"{_name(line, report)}: {line.source}"[:90],
            units.memory(line.at_peak),
            units.memory(line.held),
            units.memory(line.allocated),
        ]
        for line in report.lines[:_MOST_ROWS]
    ]
    rows += [[text, "", "", ""] for text in _more(report, _MOST_ROWS)]
    return [["", "at the peak", "at the end", "in all"], *rows]


def _name(line: LineMemory, report: Report) -> str:
    where = "torch" if line.file is None else f"{_as_shown(line.file)} line {line.line}"
    if line.function is not None:
        where += f" in {line.function}"
    if len({one.device for one in report.lines}) > 1:
        where += f", {line.device}"
    return where


def _as_shown(place: str) -> str:
    """A cell as Jupyter names it, and as everything else on the card does: ``In [5]``."""
    return _CELL.sub(r"In [\1]", place)


def _source(line: LineMemory) -> str:
    return f", {line.source}" if line.file is None else f" `{line.source}`"


def _figures(line: LineMemory) -> str:
    through = "" if line.called_from is None else f", called from {_as_shown(line.called_from)}"
    return (
        f"{units.memory(line.at_peak)} at the peak, {units.memory(line.held)} at the end, "
        f"{units.memory(line.allocated)} in all{through}"
    )


def _more(report: Report, most: int) -> list[str]:
    left = len(report.lines) - most
    return [f"{left} further lines that held less at the peak"] if left > 0 else []
