"""What a search has met, and from where."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Trail:
    """Objects, numbered in the order of meeting; each is met first from one place, and again from others."""

    values: list[object] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    """For each, the number of the one it was met from; of a root's own value, NOBODY."""
    roots: list[int] = field(default_factory=list)
    """For each, the number of the root from which it was met."""
    again: list[int] = field(default_factory=list)
    """Numbers of what was met again."""
    again_from: list[int] = field(default_factory=list)
    """From where, each of those; of a root itself, the complement of the root's number."""
    from_graphs: set[int] = field(default_factory=set)
    """Numbers of what only autograd's graphs lead to."""
