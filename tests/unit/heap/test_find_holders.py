"""Tests that a search for the holders of GPU memory has no side effects and respects its limits."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest
from helpers_allocator import StandInGpu
from helpers_heap import holders_of

from gpuwidget.heap.find_holders import FoundHolders, find_holders, find_storages
from gpuwidget.heap.heap_walk import Root
from gpuwidget.model.torch_state import DeviceBlocks
from gpuwidget.pytorch import allocator

torch: Any = pytest.importorskip("torch")


def test_a_search_keeps_nothing_alive(gpu: StandInGpu) -> None:
    """A tensor that is deleted after a search is freed immediately, without a garbage collection."""
    x = gpu.empty(1000)
    reference = weakref.ref(x)
    holders_of(gpu, {"x": x, "also": [x]})
    gc.disable()
    try:
        del x
        assert reference() is None
        assert gpu.allocated == 0
    finally:
        gc.enable()


def test_a_search_triggers_no_garbage_collection(gpu: StandInGpu) -> None:
    """A search triggers no garbage collection, even if unreachable objects hold memory."""
    ring: list[object] = [gpu.empty(1000)]
    ring.append(ring)
    del ring
    many = {f"v{n}": [[n, [n]], {"n": [n]}] for n in range(5000)}
    roots = [Root(name, value, "variable") for name, value in many.items()]
    blocks = allocator.memory_blocks()
    kept: list[object] = []
    while gc.get_count()[0] > 100:  # so that the next collection is not already due
        kept.append([])
    before = [generation["collections"] for generation in gc.get_stats()]
    find_holders(roots, blocks)
    after = [generation["collections"] for generation in gc.get_stats()]
    assert before == after
    assert gc.isenabled()
    gc.collect()


def test_the_time_limit(gpu: StandInGpu) -> None:
    """A search that reaches its time limit finds only the memory of variables that are themselves tensors.

    All other memory has no owner in the result.
    """
    x, kept = gpu.empty(1000), [gpu.empty(1)]
    roots = [Root("x", x, "variable"), Root("kept", kept, "variable"), Root("Out[1]", x[1:], "notebook")]
    reached = find_holders(roots, allocator.memory_blocks(), time_limit_s=0)
    assert (reached.complete, reached.names) == (False, {0: ("x", "Out[1]")})
    assert sorted(reached.owners[0], key=str) == [0, None]


def test_find_storages(gpu: StandInGpu) -> None:
    """``find_storages`` calls its callback once for each memory block, with a weak reference to the block's
    storage."""
    x = gpu.empty(1)
    roots = [Root("x", x, "variable"), Root("views", [x[:], gpu.empty(1)], "variable")]
    received: list[tuple[int, int, bool]] = []

    def on_storage(index: int, address: int, storage: Any) -> None:
        received.append((index, address, storage().expired()))

    blocks = allocator.memory_blocks()
    limits: dict[str, Any] = {"excluded": (), "max_objects": 100, "time_limit_s": 100}
    find_storages(roots, blocks, on_storage, **limits)
    assert sorted(received) == [(0, address, False) for address in blocks[0].addresses]


def test_without_torch_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch is not imported, no block has an owner and the search counts as complete."""
    monkeypatch.delitem(sys.modules, "torch")
    blocks = {0: DeviceBlocks(0, (1000,), (512,), (512,), 512, 0, 0, 0)}
    assert find_holders([Root("x", 1, "variable")], blocks) == FoundHolders(
        {0: (None,)}, {}, {}, {}, {}, (), True
    )
