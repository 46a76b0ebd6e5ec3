"""A search leaves everything as it was, and keeps within its time."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest
from helpers_allocator import StandInGpu
from helpers_search import found

from gpuwidget.heap.find_holders import Reached, reach, remember_storages
from gpuwidget.heap.roots import Root
from gpuwidget.pytorch import allocator
from gpuwidget.pytorch.allocator import DeviceBlocks

torch: Any = pytest.importorskip("torch")


def test_looking_keeps_nothing_alive(gpu: StandInGpu) -> None:
    """A tensor dropped after a look is gone at once, without a garbage collection."""
    x = gpu.empty(1000)
    seen = weakref.ref(x)
    found(gpu, {"x": x, "also": [x]})
    gc.disable()
    try:
        del x
        assert seen() is None
        assert gpu.allocated == 0
    finally:
        gc.enable()


def test_looking_sets_off_no_garbage_collection(gpu: StandInGpu) -> None:
    """Garbage that holds memory stays as it is while we look, and is unknown."""
    ring: list[object] = [gpu.empty(1000)]
    ring.append(ring)
    del ring
    many = {f"v{n}": [[n, [n]], {"n": [n]}] for n in range(5000)}
    roots = [Root(name, value, "variable") for name, value in many.items()]
    blocks = allocator.snapshot()
    before = [generation["collections"] for generation in gc.get_stats()]
    reach(roots, blocks)
    after = [generation["collections"] for generation in gc.get_stats()]
    assert before == after
    assert gc.isenabled()
    gc.collect()


def test_what_lies_in_time(gpu: StandInGpu) -> None:
    """Where the time is over, variables that are tensors are known still, and the rest is unknown."""
    x, kept = gpu.empty(1000), [gpu.empty(1)]
    roots = [Root("x", x, "variable"), Root("kept", kept, "variable"), Root("Out[1]", x[1:], "notebook")]
    reached = reach(roots, allocator.snapshot(), within_s=0)
    assert (reached.complete, reached.names) == (False, {0: ("x", "Out[1]")})
    assert sorted(reached.owners[0], key=str) == [0, None]


def test_storages_alone(gpu: StandInGpu) -> None:
    """What remembers storages is told of each block's once, without a name being looked for."""
    x = gpu.empty(1)
    roots = [Root("x", x, "variable"), Root("views", [x[:], gpu.empty(1)], "variable")]
    told: list[tuple[int, int, bool]] = []

    def remember(index: int, address: int, storage: Any) -> None:
        told.append((index, address, storage().expired()))

    blocks = allocator.snapshot()
    bounds: dict[str, Any] = {"barred": (), "most_objects": 100, "within_s": 100}
    remember_storages(roots, blocks, remember, **bounds)
    assert sorted(told) == [(0, address, False) for address in blocks[0].addresses]


def test_without_torch_nothing_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch is not loaded nothing is owned, and nothing was left out."""
    monkeypatch.delitem(sys.modules, "torch")
    blocks = {0: DeviceBlocks(0, (1000,), (512,), (512,), 512, 0, 0, 0)}
    assert reach([Root("x", 1, "variable")], blocks) == Reached({0: (None,)}, {}, {}, {}, {}, (), True)
