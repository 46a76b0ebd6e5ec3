"""What objects lead to: all of it, however they refer to each other."""

from __future__ import annotations

import random

import pytest

from gpuwidget.heap import reachability
from gpuwidget.heap.reachability import NOBODY, behind


def found(references: list[tuple[int, int]], own: dict[int, int]) -> dict[int, int]:
    """``references`` are pairs of who refers to whom."""
    size = 1 + max((*own, *(number for pair in references for number in pair)), default=0)
    first = [NOBODY] * size
    more: dict[int, list[int]] = {}
    for parent, child in references:
        if first[child] == NOBODY:
            first[child] = parent
        else:
            more.setdefault(child, []).append(parent)
    return behind(own, first, more)


def test_shared_parts_and_rings() -> None:
    """What leads nowhere is left out; the members of a ring lead to the same."""
    ring = [(1, 2), (2, 3), (3, 1)]
    assert found([(0, 1), *ring, (2, 4), (3, 5), (6, 5), (7, 8)], {4: 1, 5: 2}) == {
        **dict.fromkeys((0, 1, 2, 3), 3),
        4: 1,
        5: 2,
        6: 2,
    }
    assert found([(0, 1), (2, 1), (2, 0)], {1: 4}) == {0: 4, 1: 4, 2: 4}
    assert found([], {}) == {}


def test_chains_of_any_length() -> None:
    """A chain with many owners along it, linked both ways or one, is no deeper than Python can go."""
    length = 20_000
    back = [(number, number - 1) for number in range(1, length)]
    forth = [(number - 1, number) for number in range(1, length)]
    own = {number: 1 << number for number in range(0, length, 1000)}
    assert found(back, own) == {n: (1 << (n + 1)) - 1 & sum(own.values()) for n in range(length)}
    assert found(back + forth, own) == dict.fromkeys(range(length), sum(own.values()))


@pytest.mark.parametrize("steps", [4, 0])
def test_the_same_as_by_following_each(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Whatever refers to whatever, however few steps are allowed: as if each object were followed alone."""
    monkeypatch.setattr(reachability, "_STEPS_PER_OBJECT", steps)
    chance = random.Random(7)
    for _ in range(200):
        size = chance.randint(2, 12)
        references = [(chance.randrange(size), chance.randrange(size)) for _ in range(chance.randint(0, 25))]
        own = {number: 1 << number for number in chance.sample(range(size), chance.randint(1, size))}
        expected = {}
        for start in range(size):
            reached, waiting = {start}, [start]
            while waiting:
                number = waiting.pop()
                new = {child for parent, child in references if parent == number} - reached
                reached |= new
                waiting += new
            bits = sum(own.get(number, 0) for number in reached)
            if bits:
                expected[start] = bits
        assert found(references, own) == expected
