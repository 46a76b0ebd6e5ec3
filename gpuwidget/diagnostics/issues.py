"""Build a check from its issues. Its reason and fix are those of the worst issue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuwidget.model.diagnosis import Check, Issue
from gpuwidget.model.translation import translatable

WORST_FIRST = ("broken", "warning", "unknown")
"""The statuses of issues."""


def build_check(
    id_and_title: tuple[str, str],
    found: str,
    issues: Sequence[Issue] = (),
    evidence: Mapping[str, str | None] | None = None,
) -> Check:
    """Return the check with this id and title; it is ``ok`` without issues.

    The sentences of the other issues are in the evidence. ``problems`` decides which fixes are shown.
    """
    known = {name: value for name, value in (evidence or {}).items() if value}
    if not issues:
        return Check(*id_and_title, "ok", found, None, None, None, known, ())
    ordered = tuple(sorted(issues, key=lambda issue: WORST_FIRST.index(issue.status)))
    known |= {finding_name(number): issue.reason for number, issue in enumerate(ordered) if number > 0}
    worst = ordered[0]
    remedy, command = (None, None) if worst.fix is None else (worst.fix.text, worst.fix.command)
    return Check(*id_and_title, worst.status, found, worst.reason, remedy, command, known, ordered)


def add_issues(check: Check, issues: Sequence[Issue]) -> Check:
    """Return the check with more issues. Its reason and fix are those of the worst of all issues."""
    if not issues:
        return check
    found = translatable("not checked") if check.status == "skipped" else check.found
    return build_check((check.id, check.title), found, (*check.issues, *issues), _own_evidence(check))


def without_issues(check: Check, found: str) -> Check:
    """Return the check as one that does not apply here, with its evidence but without its issues."""
    return skipped_check((check.id, check.title), found, _own_evidence(check))


def _own_evidence(check: Check) -> dict[str, str]:
    """Return the check's evidence without the sentences of its issues."""
    findings = {finding_name(number) for number in range(len(check.issues))}
    return {name: value for name, value in check.evidence.items() if name not in findings}


def finding_name(number: int) -> str:
    """Return the name of the entry in a check's evidence for ``issues[number]``."""
    return f"finding {number + 1}"


def skipped_check(
    id_and_title: tuple[str, str], found: str, evidence: Mapping[str, str | None] | None = None
) -> Check:
    """Return a check that does not apply here, which is not a problem."""
    known = {name: value for name, value in (evidence or {}).items() if value}
    return Check(*id_and_title, "skipped", found, None, None, None, known, ())
