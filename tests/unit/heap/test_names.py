"""All names of what a variable owns, however entangled the objects are."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from helpers_allocator import ROUND, StandInGpu
from helpers_search import briefly, found

torch: Any = pytest.importorskip("torch")


def test_a_long_chain(gpu: StandInGpu) -> None:
    """Objects that refer to each other in a row, one way or both ways, are told as quickly as any."""
    nodes = [SimpleNamespace() for _ in range(20_000)]
    for before, after in pairwise(nodes):
        after.before = before
    nodes[0].kept = gpu.empty(1)
    last = nodes[-1]
    assert briefly(found(gpu, {"nodes": nodes, "last": last})) == [(("nodes", "last.before"), ROUND)]
    for before, after in pairwise(nodes):
        before.after = after
    last.kept = x = gpu.empty(1)
    assert sorted(briefly(found(gpu, {"nodes": nodes, "last": last, "x": x}))) == [
        (("nodes", "last.before"), ROUND),
        (("x", "nodes", "last"), ROUND),
    ]
