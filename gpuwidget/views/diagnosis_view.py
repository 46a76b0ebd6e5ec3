"""Format a diagnosis as text for a terminal, and as static HTML that is readable without styles."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gpuwidget.diagnostics.compare import Change
from gpuwidget.model.diagnosis import Check, Diagnosis, Fix, Problem
from gpuwidget.model.terminal_text import clean_line, display_width, pad, printable, wrap
from gpuwidget.model.translation import _, in_view_language, translatable
from gpuwidget.views import elements, styles

_STATUS_WORDS = {
    "ok": translatable("OK"),
    "broken": translatable("BROKEN"),
    "warning": translatable("warning"),
    "unknown": translatable("unknown"),
    "skipped": translatable("skipped"),
}
"""The word for each status, so that the status is readable without colors and icons."""
_STATUS_COLORS = {"broken": styles.ERROR, "warning": styles.WARNING}
_CELL = "text-align:left;vertical-align:top"
_MIN_WIDTH = 60
_TEXT_LENGTH = 600
_FULL_STOP = ".。 "
"""Ends the sentence with the command. The terminal's text form shows the sentences after the command on a
separate line, so it removes this full stop from their start."""


class _Problems:
    """The problems of a diagnosis by check."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self._problems = diagnosis.problems
        self._checks = {check.id: check for check in diagnosis.links}

    def checks_in_order(self) -> list[Check]:
        """Return the checks with problems in the order of fixing, then the others that were made."""
        order = dict.fromkeys((*(problem.check for problem in self._problems), *self._checks))
        return [check for id_ in order if (check := self._checks[id_]).status != "skipped"]

    def skipped(self) -> str:
        """Return the titles of the skipped checks, with their reasons; empty if no check was skipped."""
        titles: dict[str, list[str]] = {}
        for check in self._checks.values():
            if check.status == "skipped":
                titles.setdefault(_(check.found), []).append(_(check.title))
        return ", ".join(f"{', '.join(checks)} ({reason})" for reason, checks in titles.items())

    def of(self, check: Check) -> list[Problem]:
        """Return the problems whose cause this check has found."""
        return [problem for problem in self._problems if problem.check == check.id]

    def affected(self, problem: Problem) -> str:
        return _("Also affected: {titles}.", titles=self._titles(problem.affects))

    def causes(self, check: Check) -> str:
        """Return which checks have found the causes of this check's issues; empty if there are none."""
        causes = dict.fromkeys(problem.check for problem in self._problems if check.id in problem.affects)
        return _("See: {titles}.", titles=self._titles(tuple(causes))) if causes else ""

    def _titles(self, checks: Sequence[str]) -> str:
        return ", ".join(_(self._checks[check].title) for check in checks)


# -- text ------------------------------------------------------------------------------------------------


@in_view_language
def text(diagnosis: Diagnosis, width: int = 100, changes: Sequence[Change] | None = None) -> str:
    """Return the diagnosis as text. Lines have at most ``width`` columns, except for long words and commands.

    If ``changes``, the differences from an earlier diagnosis, are given, the text ends with them.
    """
    width = max(width, _MIN_WIDTH)
    problems = _Problems(diagnosis)
    checks = problems.checks_in_order()
    title_width = max((display_width(_(check.title)) for check in checks), default=0)
    status_width = max(display_width(_(word)) for word in _STATUS_WORDS.values())
    lines = wrap(printable(_(diagnosis.summary)), width)
    lines.append("")
    for check in checks:
        lines += _text_lines(check, problems, title_width, status_width, width)
    if skipped := problems.skipped():
        status = pad(_(_STATUS_WORDS["skipped"]), status_width)
        lines += wrap(printable(skipped), width, f"{status}  ", " " * (status_width + 4))
    if changes is not None:
        lines += ["", _("Changed since then:") if changes else _("Nothing has changed since then.")]
        for change in changes:
            lines += wrap(printable(str(change)), width, "  ", "    ")
    return "\n".join(lines)


def _text_lines(
    check: Check, problems: _Problems, title_width: int, status_width: int, width: int
) -> list[str]:
    indent = " " * (status_width + title_width + 4)
    status, title = pad(_(_STATUS_WORDS[check.status]), status_width), pad(_(check.title), title_width)
    lines = wrap(printable(_(check.found)), width, f"{status}  {title}  ", indent)
    # Sentences and commands start further left than the column above: they would be hard to read and to copy
    # if they were as narrow as that column.
    indent = " " * (status_width + 4)
    for problem in problems.of(check):
        for reason in problem.reasons:
            lines += wrap(printable(_(reason)), width, indent, indent)
        lines += _fix_lines(problem.fix, width, indent)
        if problem.affects:
            lines += wrap(printable(problems.affected(problem)), width, indent, indent)
    return [*lines, *wrap(printable(problems.causes(check)), width, indent, indent)]


def _fix_lines(fix: Fix | None, width: int, indent: str) -> list[str]:
    if fix is None:
        return []
    lines = wrap(printable(_("Fix: {text}", text=fix.before)), width, indent, indent)
    if fix.command is not None:
        # The command stays on one line, however long that is, so that users copy all of it.
        lines.append(f"{indent}  {printable(fix.command)}")
    return [*lines, *wrap(printable(_(fix.after).lstrip(_FULL_STOP)), width, indent, indent)]


# -- HTML ------------------------------------------------------------------------------------------------


@in_view_language
def html(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as HTML: the summary, one row per problem, one line for all skipped checks, and
    the collapsed other checks and evidence."""
    problems = _Problems(diagnosis)
    shown: list[str] = []
    passed: list[str] = []
    for check in problems.checks_in_order():
        (passed if check.status == "ok" else shown).append(_html_row(check, problems))
    skipped = problems.skipped()
    if skipped:
        word = escape(_(_STATUS_WORDS["skipped"]))
        skipped = f"<div style='{styles.QUIET};padding:4px'>{word}: {_cleaned(skipped)}</div>"
    edge = _STATUS_COLORS.get(diagnosis.status, styles.NEUTRAL if diagnosis.without_gpu else styles.SUCCESS)
    return styles.frame(
        f"<div><b>{_cleaned(_(diagnosis.summary))}</b></div>{_html_table(shown)}{skipped}"
        f"{elements.fold(_('Checks passed: {number}', number=len(passed)), _html_table(passed))}"
        f"{_evidence(diagnosis)}",
        edge,
    )


def _html_table(rows: Sequence[str]) -> str:
    if not rows:
        return ""
    return (
        "<div style='overflow-x:auto'><table cellpadding='4' style='margin:4px 0 0;text-align:left;"
        f"border-collapse:collapse;font-size:13px'><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _html_row(check: Check, problems: _Problems) -> str:
    color = _STATUS_COLORS.get(check.status)
    status = escape(_(_STATUS_WORDS[check.status]))
    if color is not None:
        status = f"<b style='color:{color}'>{status}</b>"
    result = _cleaned(_(check.found))
    for problem in problems.of(check):
        result += "".join(f"<div>{_cleaned(_(reason))}</div>" for reason in problem.reasons)
        if problem.fix is not None:
            result += f"<div><b>{escape(_('Fix:'))}</b> {_fix_html(problem.fix)}</div>"
        if problem.affects:
            result += f"<div>{_cleaned(problems.affected(problem))}</div>"
    if causes := problems.causes(check):
        result += f"<div>{_cleaned(causes)}</div>"
    return (
        f"<tr style='background:none'><td style='{_CELL};white-space:nowrap'>{status}</td>"
        f"<th scope='row' style='{_CELL};font-weight:600'>{escape(_(check.title))}</th>"
        f"<td style='{_CELL};overflow-wrap:anywhere'>{result}</td></tr>"
    )


def _fix_html(fix: Fix) -> str:
    if fix.command is None:
        return _cleaned(_(fix.before))
    # The command is never shortened, because users copy it.
    code = escape(clean_line(fix.command, len(fix.command)))
    before, after = _(fix.before), _(fix.after)
    space = " " if after.startswith(" ") else ""
    return f"{_cleaned(before)} <code>{code}</code>{space}{_cleaned(after)}"


def _evidence(diagnosis: Diagnosis) -> str:
    lines = [(_("interpreter"), diagnosis.python), *diagnosis.variables.items()]
    lines += [
        # The other values are raw data, which may be the same string as a text.
        (f"{_(check.title)}, {name}", _(value) if name.startswith("finding ") else str(value))
        for check in diagnosis.links
        for name, value in check.evidence.items()
    ]
    items = "".join(f"<div><b>{_cleaned(name)}:</b> {_cleaned(value)}</div>" for name, value in lines)
    return (
        f"<details style='{styles.QUIET};margin-top:4px'><summary>{escape(_('Raw data'))}</summary>"
        f"<div style='overflow-wrap:anywhere'>{items}</div></details>"
    )


def _cleaned(value: str) -> str:
    return escape(clean_line(value, _TEXT_LENGTH))
