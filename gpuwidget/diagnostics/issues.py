"""Build a check from its issues: the worst issue is shown with its fix, the others are in the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuwidget.model.diagnosis import Check

_WORST_FIRST = ("broken", "warning", "unknown")


@dataclass(frozen=True, slots=True)
class Issue:
    """One problem that a check has found."""

    status: Literal["broken", "warning", "unknown"]
    reason: str
    fix: str | None
    command: str | None = None
    """The command in the fix's text, which can be run unchanged; None if there is no command."""


def build_check(
    which: tuple[str, str],
    found: str,
    issues: Sequence[Issue] = (),
    evidence: Mapping[str, str | None] | None = None,
) -> Check:
    """Return the check with this id and title; it is ``ok`` without issues.

    Of several issues, only the worst is shown with its fix, which usually solves the others too; the others
    are in the evidence.
    """
    known = {name: value for name, value in (evidence or {}).items() if value}
    if not issues:
        return Check(*which, "ok", found, None, None, None, known)
    first, *others = sorted(issues, key=lambda one: _WORST_FIRST.index(one.status))
    for number, other in enumerate(others, 2):
        known[f"finding {number}"] = other.reason
    return Check(*which, first.status, found, first.reason, first.fix, first.command, known)


def add_issues(check: Check, issues: Sequence[Issue]) -> Check:
    """Return the check with more issues: the worst of all issues is shown, the others are in the evidence."""
    if not issues:
        return check
    worst = min(issues, key=lambda one: _WORST_FIRST.index(one.status))
    others = [one.reason for one in issues if one is not worst]
    known = dict(check.evidence)
    number = 2 + sum(name.startswith("finding ") for name in known)
    found = "not checked" if check.status == "skipped" else check.found
    if check.status in _WORST_FIRST and _WORST_FIRST.index(check.status) <= _WORST_FIRST.index(worst.status):
        others = [worst.reason, *others]
        fields = (check.status, found, check.reason, check.remedy, check.command)
    else:
        others = [*([check.reason] if check.reason else []), *others]
        fields = (worst.status, found, worst.reason, worst.fix, worst.command)
    known |= {f"finding {number + place}": reason for place, reason in enumerate(others)}
    return Check(check.id, check.title, *fields, known)


def skipped_check(
    which: tuple[str, str], found: str, evidence: Mapping[str, str | None] | None = None
) -> Check:
    """Return a check that does not apply here, which is not a problem."""
    known = {name: value for name, value in (evidence or {}).items() if value}
    return Check(*which, "skipped", found, None, None, None, known)


def pluralize(number: int, what: str) -> str:
    """Return the number with its noun in singular or plural, such as ``1 GPU`` or ``4 GPUs``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
