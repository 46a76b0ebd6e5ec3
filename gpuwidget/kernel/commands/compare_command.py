"""``%gpu compare`` and ``gpuwidget.compare()``: find two reports and compare them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from numbers import Integral

from gpuwidget.kernel.cells import watch_api
from gpuwidget.kernel.commands.subcommands import Invocation
from gpuwidget.model import units
from gpuwidget.model.errors import OptionError
from gpuwidget.model.report import Report
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.translation import Text, joined, translatable
from gpuwidget.views.comparison import Comparison, compare_reports, run_name

_USAGE = translatable(
    "%gpu compare A B compares two runs. Each is a cell number, a label (in quotes if it contains spaces) or "
    "a variable with a report."
)
_FIRST, _SECOND = translatable("first"), translatable("second")
_MAX_LISTED = 8


def compare(first: object, second: object) -> Comparison:
    """Compare two runs: time, peak memory, energy, activity, and differences between their environments.

    Each argument is a report, a watch, a watched function, a cell number (for the cell's last run) or the
    label of a report in :func:`gpuwidget.reports`. Raises OptionError, which lists the existing runs, for
    anything else.
    """
    return _compare(
        *((_find(report, {}), report if isinstance(report, str) else "") for report in (first, second))
    )


def command(invocation: Invocation) -> None:
    """Run ``%gpu compare A B``."""
    try:
        names = shlex.split(" ".join(invocation.arguments))
    except ValueError as error:
        raise OptionError(translatable("%gpu compare: {error}. {usage}", error=error, usage=_USAGE)) from None
    if len(names) != 2:
        raise OptionError(translatable("%gpu compare needs two runs. {usage}", usage=_USAGE))
    comparison = _compare(*((_find(name, invocation.shell.user_ns), name) for name in names))
    invocation.display(comparison.bundle())


def _compare(first: tuple[Report, str], second: tuple[Report, str]) -> Comparison:
    reports = (first[0], second[0])
    names = [run_name(first[0], first[1] or _FIRST), run_name(second[0], second[1] or _SECOND)]
    if names[0] == names[1]:
        # The runs have the same name, so add their start times to distinguish them.
        names = [
            f"{name}, {units.clock_time(report.cell.started)}"
            for name, report in zip(names, reports, strict=True)
        ]
    return compare_reports(*reports, (names[0], names[1]))


def _find(what: object, variables: Mapping[str, object]) -> Report:
    """Return the report of ``what``. Raise OptionError if there is none.

    ``what`` is a report, a watch or a watched function, or a report's cell number, label or variable name.
    """
    report = _report_of(what, translatable("This object"))
    if report is not None:
        return report
    reports = list(reversed(watch_api.reports()))
    name = str(what).strip() if isinstance(what, (str, Integral)) and not isinstance(what, bool) else None
    if name is None:
        raise OptionError(
            translatable(
                "A {type} is not a report, cell number or label. {available}",
                type=type(what).__name__,
                available=_available(reports),
            )
        )
    number = name.removeprefix("In[").removeprefix("In [").removesuffix("]")
    if number.isdecimal():
        for report in reports:
            if report.cell.execution_count == int(number):
                return report
    for report in reports:
        if report.cell.label is not None and report.cell.label.split() == name.split():
            return report
    variable = _report_of(variables.get(name), repr(clean_line(name, 60)))
    if variable is not None:
        return variable
    raise OptionError(
        translatable(
            "{name!r}: no watched cell, label or report has that name. {available}",
            name=clean_line(name, 60),
            available=_available(reports),
        )
    )


def _report_of(value: object, name: str) -> Report | None:
    """Return ``value`` if it is a report, or its report if it is a watch; None for any other object.

    Raises OptionError, whose message refers to the value as ``name``, if no run of the watch has finished.
    """
    if isinstance(value, Report):
        return value
    if not isinstance(value, (watch_api.Watch, watch_api.WatchedFunction)):
        return None
    if value.report is not None:
        return value.report
    if isinstance(value, watch_api.Watch):
        raise OptionError(
            translatable("{name} has no report yet: a watch gets its report when its block ends.", name=name)
        )
    raise OptionError(
        translatable(
            "{name} has no report yet: a watched function gets its report when a call ends.", name=name
        )
    )


def _available(reports: Sequence[Report]) -> Text:
    """Return a sentence that lists the cell numbers and labels of past runs, the newest first."""
    names: dict[str, None] = {}
    for report in reports:
        cell = report.cell
        if cell.execution_count is not None:
            names[str(cell.execution_count)] = None
        if cell.label is not None:
            names[repr(clean_line(cell.label, 40))] = None
    if not names:
        return translatable("No cell has been watched yet: start a cell with %%gpuwatch.")
    listed = list(names)[:_MAX_LISTED]
    older = [translatable("older ones")] if len(names) > len(listed) else []
    return joined([translatable("The watched cells and labels:"), *listed, *older], "\n  ")
