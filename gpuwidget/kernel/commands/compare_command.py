"""``%gpu compare`` and ``gpuwidget.compare()``: which two reports are meant, and how they are shown."""

from __future__ import annotations

import html
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from gpuwidget.kernel.cells import watch_api
from gpuwidget.model.errors import OptionError
from gpuwidget.model.report import Report
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.views import card_html, card_text
from gpuwidget.views.card_summary import clean, clock_time
from gpuwidget.views.comparison import Comparison, called, comparison

_USAGE = (
    "%gpu compare A B: each a cell's number, a label (in quotes where it has blanks) or a report's variable"
)
_MOST_LISTED = 8


@dataclass(frozen=True, slots=True, repr=False)
class CardComparison(Comparison):
    """A comparison that displays as a table."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/plain": str(self), "text/html": _html(self)}

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = card_text.aligned(_table(self))
        if self.differences:
            lines += ["  what differed around them:", *card_text.aligned(_differences(self), left=3)]
        return printable_lines("\n".join([*lines, *(f"  note: {note}" for note in self.notes)]))


def compare(first: object, second: object) -> CardComparison:
    """Two runs side by side: time, peak, energy, activity, and what differed in the environment.

    Each is a report, a watch or a watched function, the number of a cell (its last run) or a label of
    :func:`gpuwidget.reports`. Raises OptionError, saying what there is, for anything else.
    """
    return _compared(*((_found(one, {}), one if isinstance(one, str) else "") for one in (first, second)))


def command(shell: Any, words: Sequence[str]) -> None:
    """``%gpu compare 5 9``."""
    try:
        wanted = shlex.split(" ".join(words))
    except ValueError as error:
        raise OptionError(f"%gpu compare: {error}. {_USAGE}.") from None
    if len(wanted) != 2:
        raise OptionError(f"%gpu compare takes two. {_USAGE}.")
    made = _compared(*((_found(word, shell.user_ns), word) for word in wanted))
    shell.display_pub.publish(data=made._repr_mimebundle_(), metadata={})


def _compared(first: tuple[Report, str], second: tuple[Report, str]) -> CardComparison:
    reports = (first[0], second[0])
    names = [called(first[0], first[1] or "first"), called(second[0], second[1] or "second")]
    if names[0] == names[1]:
        # Two runs of one label.
        names = [
            f"{name}, {clock_time(report.cell.started)}" for name, report in zip(names, reports, strict=True)
        ]
    made = comparison(*reports, (names[0], names[1]))
    return CardComparison(made.names, made.rows, made.differences, made.notes)


def _found(what: object, variables: Mapping[str, object]) -> Report:
    report = _as_report(what, "This")
    if report is not None:
        return report
    past = list(reversed(watch_api.reports()))
    word = str(what).strip() if isinstance(what, (str, Integral)) and not isinstance(what, bool) else None
    if word is None:
        raise OptionError(f"A {type(what).__name__} is no report, cell number or label. {_there(past)}")
    number = word.removeprefix("In[").removeprefix("In [").removesuffix("]")
    if number.isdecimal():
        for report in past:
            if report.cell.execution_count == int(number):
                return report
    for report in past:
        if report.cell.label is not None and report.cell.label.split() == word.split():
            return report
    named = _as_report(variables.get(word), repr(clean(word, 60)))
    if named is not None:
        return named
    raise OptionError(f"{clean(word, 60)!r}: no watched cell, label or report of that name. {_there(past)}")


def _as_report(value: object, called_so: str) -> Report | None:
    """The report that ``value`` is or holds; None for what holds none."""
    if isinstance(value, Report):
        return value
    if not isinstance(value, (watch_api.Watch, watch_api.WatchedFunction)):
        return None
    if value.report is not None:
        return value.report
    if isinstance(value, watch_api.Watch):
        raise OptionError(
            f"{called_so} is a watch that has no report yet: it has one when its body has ended."
        )
    raise OptionError(
        f"{called_so} is a watched function that has no report yet: it has one when a call has ended."
    )


def _there(past: Sequence[Report]) -> str:
    """What could be named, the newest first."""
    names: dict[str, None] = {}
    for report in past:
        cell = report.cell
        if cell.execution_count is not None:
            names[str(cell.execution_count)] = None
        if cell.label is not None:
            names[repr(clean(cell.label, 40))] = None
    if not names:
        return "No cell has been watched yet: put %%gpuwatch on its first line."
    listed = list(names)[:_MOST_LISTED]
    return f"There are: {', '.join(listed)}{' and older ones' if len(names) > len(listed) else ''}."


# -- how it is shown -------------------------------------------------------------------------------------


def _table(made: Comparison) -> list[list[str]]:
    return [["", *made.names, "ratio"], *([row.name, *row.values, row.ratio] for row in made.rows)]


def _differences(made: Comparison) -> list[list[str]]:
    return [["", *made.names], *([row.name, *row.values] for row in made.differences)]


def _html(made: Comparison) -> str:
    parts = [card_html.rows_table(_table(made))]
    if made.differences:
        parts.append("<div><b>What differed around them</b></div>")
        parts.append(card_html.rows_table(_differences(made), left=3))
    parts += [f"<div><em>{html.escape(note)}</em></div>" for note in made.notes]
    return card_html.framed("".join(parts))
