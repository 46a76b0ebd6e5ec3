"""All names of what a root owns: its own, and those of the other roots that lead there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpuwidget.heap.owners import Owners
from gpuwidget.heap.paths import Paths
from gpuwidget.heap.reachability import NOBODY, behind
from gpuwidget.heap.roots import Root
from gpuwidget.heap.visited import Trail

_MOST_PATHS = 50
"""Names of one holder that are written in full."""


def names(
    roots: Sequence[Root], trail: Trail, owners: Owners, paths: Paths
) -> tuple[dict[int, tuple[str, ...]], dict[int, tuple[int, ...]]]:
    """By number of a root that owns something: all names that lead to what it owns, and the numbers of
    the roots that they begin with; its own first.
    """
    owning = list(
        dict.fromkeys(one for found in owners.by_device.values() for one in found if one is not None)
    )
    bit_of = {owner: 1 << place for place, owner in enumerate(owning)}
    steps: dict[int, dict[int, tuple[int, int]]] = {owner: {} for owner in owning}
    """By owner and by root: from where, and what, the first time."""
    several: dict[int, int] = {}
    """By root: the bits of the owners that it leads to in several ways."""
    known: dict[int, int] = {}
    done: set[tuple[int, int]] = set()
    for root, parent, number, bits in _steps(trail, owners, bit_of):
        if (root, number) in done:
            continue
        done.add((root, number))
        before = known.get(root, 0)
        several[root] = several.get(root, 0) | (bits & before)
        known[root] = before | bits
        new = bits & ~before
        while new:
            lowest = new & -new
            new ^= lowest
            steps[owning[lowest.bit_length() - 1]][root] = parent, number
    named = {}
    for owner, by_root in steps.items():
        found = [roots[owner].name]
        for root, step in sorted(by_root.items()):
            # One way in has a name of its own; of many, their common beginning is named.
            alone = not several[root] & bit_of[owner] and roots[root].parts
            short = not alone or len(found) >= _MOST_PATHS
            found.append(roots[root].name if short else paths.name(root, *step))
        named[owner] = tuple(dict.fromkeys(found))
    return named, {owner: (owner, *by_root) for owner, by_root in steps.items()}


def _steps(trail: Trail, owners: Owners, bit_of: Mapping[int, int]) -> Iterator[tuple[int, int, int, int]]:
    """A root, from where it leads on to what, and the bits of other roots that own something there."""
    own: dict[int, int] = {}
    for number, device, place in owners.in_block:
        owner, root = owners.by_device[device][place], trail.roots[number]
        assert owner is not None
        own[number] = bit_of[owner]  # a tensor lies in one block
        if owner != root:
            yield root, trail.parents[number], number, bit_of[owner]
    more: dict[int, list[int]] = {}
    for number, parent in zip(trail.again, trail.again_from, strict=True):
        if parent >= 0:
            more.setdefault(number, []).append(parent)
    leading = behind(own, trail.parents, more)
    for number, parent in zip(trail.again, trail.again_from, strict=True):
        bits = leading.get(number)
        if bits is not None:
            root, start = (trail.roots[parent], parent) if parent >= 0 else (~parent, NOBODY)
            bits &= ~bit_of.get(root, 0)
            if bits:
                yield root, start, number, bits
