"""What objects lead to, through others that refer to each other in any way: chains, shared parts, rings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

NOBODY = -1
_STEPS_PER_OBJECT = 4
"""On average; what takes more is done in another way, which never takes more than a few."""


def behind(own: Mapping[int, int], first: Sequence[int], more: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """By number of an object: the bits of all objects in ``own`` that it leads to, itself included.

    ``first`` has for each object one that refers to it, or :data:`NOBODY`, and ``more`` the others. Takes as
    long as there are references, however they run.
    """
    found = dict(own)
    waiting = list(own)
    steps = 0
    while waiting:
        number = waiting.pop()
        bits = found[number]
        steps += 1
        for parent in (first[number], *more.get(number, ())):
            before = found.get(parent, 0)
            if bits | before != before and parent != NOBODY:
                found[parent] = bits | before
                waiting.append(parent)
        if steps > _STEPS_PER_OBJECT * len(found):
            return _collected(own, _children(own, first, more))
    return found


def _children(
    own: Mapping[int, int], first: Sequence[int], more: Mapping[int, Sequence[int]]
) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {number: [] for number in own}
    waiting = list(own)
    while waiting:
        number = waiting.pop()
        for parent in (first[number], *more.get(number, ())):
            if parent == NOBODY:
                continue
            if parent not in children:
                children[parent] = []
                waiting.append(parent)
            children[parent].append(number)
    return children


def _collected(own: Mapping[int, int], children: Mapping[int, Iterable[int]]) -> dict[int, int]:
    """All in a ring lead to the same: they are collected ring by ring, the innermost first (Tarjan)."""
    found: dict[int, int] = {}
    depth: dict[int, int] = {}
    lowest: dict[int, int] = {}
    """The least depth that is reached; of an object whose ring is complete, beyond all."""
    complete = len(children) + 1
    ring: list[int] = []
    for start in children:
        if start in depth:
            continue
        path = [(start, iter(children[start]))]
        depth[start] = lowest[start] = len(depth)
        found[start] = own.get(start, 0)
        ring.append(start)
        while path:
            number, left = path[-1]
            for child in left:
                if child not in depth:
                    path.append((child, iter(children[child])))
                    depth[child] = lowest[child] = len(depth)
                    found[child] = own.get(child, 0)
                    ring.append(child)
                    break
                found[number] |= found[child]
                lowest[number] = min(lowest[number], lowest[child])
            else:
                path.pop()
                if lowest[number] == depth[number]:
                    bits = found[number]
                    member = -1
                    while member != number:
                        member = ring.pop()
                        found[member] = bits
                        lowest[member] = complete
                if path:
                    above = path[-1][0]
                    found[above] |= found[number]
                    lowest[above] = min(lowest[above], lowest[number])
    return found
