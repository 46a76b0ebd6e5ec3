"""A link, put together from what was found to be wrong with it: the worst first, and its remedy the one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuwidget.model.diagnosis import Link

_WORST_FIRST = ("broken", "warning", "unknown")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    status: Literal["broken", "warning", "unknown"]
    reason: str
    remedy: str | None
    command: str | None = None
    """The command line in the remedy's text that can be run as it is; None where it has none."""


def link(
    which: tuple[str, str],
    found: str,
    findings: Sequence[Finding] = (),
    evidence: Mapping[str, str | None] | None = None,
) -> Link:
    """The link ``which``, id and title; ``ok`` where nothing was found to be wrong.

    Of several things the worst is told with its remedy, the others stand in the evidence: most often they
    are gone with it.
    """
    known = {name: value for name, value in (evidence or {}).items() if value}
    if not findings:
        return Link(*which, "ok", found, None, None, None, known)
    first, *others = sorted(findings, key=lambda one: _WORST_FIRST.index(one.status))
    for number, other in enumerate(others, 2):
        known[f"finding {number}"] = other.reason
    return Link(*which, first.status, found, first.reason, first.remedy, first.command, known)


def with_findings(link: Link, findings: Sequence[Finding]) -> Link:
    """Return the link with more findings: the worst of all is told, the others stand in the evidence."""
    if not findings:
        return link
    worst = min(findings, key=lambda one: _WORST_FIRST.index(one.status))
    others = [one.reason for one in findings if one is not worst]
    known = dict(link.evidence)
    number = 2 + sum(name.startswith("finding ") for name in known)
    found = "not checked" if link.status == "skipped" else link.found
    if link.status in _WORST_FIRST and _WORST_FIRST.index(link.status) <= _WORST_FIRST.index(worst.status):
        others = [worst.reason, *others]
        told = (link.status, found, link.reason, link.remedy, link.command)
    else:
        others = [*([link.reason] if link.reason else []), *others]
        told = (worst.status, found, worst.reason, worst.remedy, worst.command)
    known |= {f"finding {number + place}": reason for place, reason in enumerate(others)}
    return Link(link.id, link.title, *told, known)


def skipped(which: tuple[str, str], found: str, evidence: Mapping[str, str | None] | None = None) -> Link:
    """There is nothing to look at, and that is no fault."""
    known = {name: value for name, value in (evidence or {}).items() if value}
    return Link(*which, "skipped", found, None, None, None, known)


def counted(number: int, what: str) -> str:
    """``1 GPU``, ``4 GPUs``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
