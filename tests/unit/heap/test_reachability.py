"""Tests of finding all names that lead to a tensor, for any structure of references between objects."""

from __future__ import annotations

import gc
import random
import sys
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from helpers_allocator import ROUND, StandInGpu
from helpers_heap import holders_of, names_and_bytes

from gpuwidget.heap import reachability
from gpuwidget.heap.heap_walk import NO_PARENT
from gpuwidget.heap.reachability import reachable

torch: Any = pytest.importorskip("torch")


def test_names_of_parts(gpu: StandInGpu) -> None:
    """If several variables lead to a tensor, the tensor's holder has one name per variable. Each name is the
    path from the variable to the tensor, such as ``slots.part[1]``."""
    x = gpu.empty(1)
    layer = torch.nn.Linear(2, 2, bias=False)
    layer.weight.data = x

    class Slots:
        __slots__ = ("part",)
        part: object

    slots = Slots()
    slots.part = (0, x)
    inside = SimpleNamespace(model=torch.nn.Sequential(layer))
    grad = gpu.empty(2, 2).requires_grad_()
    grad.grad = gpu.empty(2, 2)
    hidden = gpu.empty(1)
    names = {
        "x": x,
        "slots": slots,
        "inside": inside,
        "by_number": {3: x},
        "odd": {(1, 2): x},
        "g": grad.grad,
        "grad": grad,
    }
    holders = {holder.names[0]: holder.names for holder in holders_of(gpu, names) if holder.names}
    assert holders["x"] == ("x", "slots.part[1]", "inside.model.0.weight", "by_number[3]", "odd[…]")
    assert holders["g"] == ("g", "grad.grad")
    del hidden


def test_no_dict_is_created(gpu: StandInGpu) -> None:
    """If Python stores an object's attributes without a ``__dict__``, a search does not create one.

    The exception is an object through which a holder's name leads: Python creates a ``__dict__`` for it.
    """

    class Plain:
        def __init__(self) -> None:
            self.kept = 1.5
            self.list = [1]

    one = Plain()
    before = sys.getsizeof(one), gc.get_referents(one)
    holders_of(gpu, {"one": one, "x": gpu.empty(1)})
    assert (sys.getsizeof(one), gc.get_referents(one)) == before


def test_a_long_chain(gpu: StandInGpu) -> None:
    """A search follows a chain of 20,000 objects to its end, even if each object refers both to the next and
    to the previous one."""
    nodes = [SimpleNamespace() for _ in range(20_000)]
    for before, after in pairwise(nodes):
        after.before = before
    nodes[0].kept = gpu.empty(1)
    last = nodes[-1]
    assert names_and_bytes(holders_of(gpu, {"nodes": nodes, "last": last})) == [
        (("nodes", "last.before"), ROUND)
    ]
    for before, after in pairwise(nodes):
        before.after = after
    last.kept = x = gpu.empty(1)
    assert sorted(names_and_bytes(holders_of(gpu, {"nodes": nodes, "last": last, "x": x}))) == [
        (("nodes", "last.before"), ROUND),
        (("x", "nodes", "last"), ROUND),
    ]


def reachable_from(references: list[tuple[int, int]], own: dict[int, int]) -> dict[int, int]:
    """Return the result of ``reachable`` for references given as pairs of parent and child."""
    size = 1 + max((*own, *(number for pair in references for number in pair)), default=0)
    first = [NO_PARENT] * size
    more: dict[int, list[int]] = {}
    for parent, child in references:
        if first[child] == NO_PARENT:
            first[child] = parent
        else:
            more.setdefault(child, []).append(parent)
    return reachable(own, first, more)


def test_shared_parts_and_cycles() -> None:
    """Objects that lead to no object in ``own`` are omitted. All members of a cycle have the same result."""
    cycle = [(1, 2), (2, 3), (3, 1)]
    assert reachable_from([(0, 1), *cycle, (2, 4), (3, 5), (6, 5), (7, 8)], {4: 1, 5: 2}) == {
        **dict.fromkeys((0, 1, 2, 3), 3),
        4: 1,
        5: 2,
        6: 2,
    }
    assert reachable_from([(0, 1), (2, 1), (2, 0)], {1: 4}) == {0: 4, 1: 4, 2: 4}
    assert reachable_from([], {}) == {}


def test_chains_of_any_length() -> None:
    """A chain of 20,000 objects, linked in one or both directions, does not exceed the recursion limit."""
    length = 20_000
    back = [(number, number - 1) for number in range(1, length)]
    forth = [(number - 1, number) for number in range(1, length)]
    own = {number: 1 << number for number in range(0, length, 1000)}
    assert reachable_from(back, own) == {n: (1 << (n + 1)) - 1 & sum(own.values()) for n in range(length)}
    assert reachable_from(back + forth, own) == dict.fromkeys(range(length), sum(own.values()))


@pytest.mark.parametrize("steps", [4, 0])
def test_both_algorithms_agree_with_a_simple_search(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """In random graphs, both algorithms of ``reachable`` find the same as a simple search from each
    object."""
    monkeypatch.setattr(reachability, "_STEPS_PER_OBJECT", steps)
    chance = random.Random(7)
    for _ in range(200):
        size = chance.randint(2, 12)
        references = [(chance.randrange(size), chance.randrange(size)) for _ in range(chance.randint(0, 25))]
        own = {number: 1 << number for number in chance.sample(range(size), chance.randint(1, size))}
        expected = {}
        for start in range(size):
            reached, pending = {start}, [start]
            while pending:
                number = pending.pop()
                new = {child for parent, child in references if parent == number} - reached
                reached |= new
                pending += new
            bits = sum(own.get(number, 0) for number in reached)
            if bits:
                expected[start] = bits
        assert reachable_from(references, own) == expected
