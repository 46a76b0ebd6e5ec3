"""Compare two diagnoses, to find what changed since everything worked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuwidget.diagnostics.issues import finding_name
from gpuwidget.model.diagnosis import Check, Diagnosis
from gpuwidget.model.units import ARROW

_NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two diagnoses."""

    what: str
    before: str | None
    """The earlier value; None if the item was added."""
    after: str | None

    def __str__(self) -> str:
        before, after = (_NOTHING if value is None else value or "''" for value in (self.before, self.after))
        return f"{self.what}: {before} {ARROW} {after}"


def compare(before: Diagnosis, after: Diagnosis) -> tuple[Change, ...]:
    """Return all differences: first the checks in their order, then variables and environment."""
    old = {check.id: check for check in before.links}
    found: list[Change] = []
    for check in after.links:
        found += _compare_checks(old.pop(check.id, None), check)
    found += (Change(check.title, _describe(check), None) for check in old.values())
    found += _compare_mappings("variable {}", before.variables, after.variables)
    for what, old_value, new_value in (
        ("interpreter", before.python, after.python),
        ("gpuwidget", before.version, after.version),
        ("checked for", before.place, after.place),
    ):
        found += [Change(what, old_value, new_value)] if old_value != new_value else []
    return tuple(found)


def _compare_checks(before: Check | None, after: Check) -> Iterator[Change]:
    if before is None:
        yield Change(after.title, None, _describe(after))
        return
    if (before.status, before.found) != (after.status, after.found):
        yield Change(after.title, _describe(before), _describe(after))
    # Another version of gpuwidget may word the same issue differently, so ignore the texts of issues with
    # equal ids and parameters.
    same = {
        finding_name(number)
        for number, (old, new) in enumerate(zip(before.issues, after.issues, strict=False))
        if (old.id, old.params) == (new.id, new.params)
    }
    old_evidence, new_evidence = (
        {name: value for name, value in check.evidence.items() if name not in same}
        for check in (before, after)
    )
    yield from _compare_mappings(f"{after.title}, {{}}", old_evidence, new_evidence)


def _compare_mappings(what: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *after)):
        old_value, new_value = before.get(name), after.get(name)
        if old_value != new_value:
            yield Change(what.format(name), old_value, new_value)


def _describe(check: Check) -> str:
    return check.found if check.status in ("ok", "skipped") else f"{check.found} ({check.status})"
