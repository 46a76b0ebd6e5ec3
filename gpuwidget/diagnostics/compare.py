"""What is another than in an earlier diagnosis: 'it ran yesterday'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuwidget.model.diagnosis import Doctor, Link
from gpuwidget.model.units import ARROW

_NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that changed."""

    what: str
    before: str | None
    """None for what was not there."""
    after: str | None

    def __str__(self) -> str:
        before, after = (_NOTHING if value is None else value or "''" for value in (self.before, self.after))
        return f"{self.what}: {before} {ARROW} {after}"


def changes(before: Doctor, after: Doctor) -> tuple[Change, ...]:
    """All that differs, the links in their order, then what they were read from."""
    old = {link.id: link for link in before.links}
    found: list[Change] = []
    for link in after.links:
        found += _link(old.pop(link.id, None), link)
    found += (Change(link.title, _told(link), None) for link in old.values())
    found += _mappings("variable {}", before.variables, after.variables)
    for what, one, other in (
        ("interpreter", before.python, after.python),
        ("gpuwidget", before.version, after.version),
        ("examined for", before.place, after.place),
    ):
        found += [Change(what, one, other)] if one != other else []
    return tuple(found)


def _link(before: Link | None, after: Link) -> Iterator[Change]:
    if before is None:
        yield Change(after.title, None, _told(after))
        return
    if (before.status, before.found) != (after.status, after.found):
        yield Change(after.title, _told(before), _told(after))
    yield from _mappings(f"{after.title}, {{}}", before.evidence, after.evidence)


def _mappings(what: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        if one != other:
            yield Change(what.format(name), one, other)


def _told(link: Link) -> str:
    return link.found if link.status in ("ok", "skipped") else f"{link.found} ({link.status})"
