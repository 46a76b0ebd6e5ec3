"""Tests of finding the cell that allocated each memory block that is still in use. If it is uncertain which
cell did, the cell is unknown."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_allocator import StandInGpu

from gpuwidget.heap.find_holders import find_holders
from gpuwidget.heap.heap_walk import Root
from gpuwidget.measure.cell_allocations import BEFORE_LOAD, UNKNOWN_CELL, CellBlocks
from gpuwidget.pytorch import allocator

torch: Any = pytest.importorskip("torch")


class Notebook:
    """A fake notebook, which records the cell of each memory block."""

    def __init__(self) -> None:
        self.blocks = CellBlocks()
        self.variables: dict[str, Any] = {}

    def after(self, cell: int, *, watched: bool = True) -> bool:
        """Record all new blocks as allocated by ``cell``. Return whether any block is new.

        If ``watched``, also track the storages of the variables' tensors.
        """
        found = allocator.memory_blocks()
        new = self.blocks.update(cell, found, allocator.allocation_counts())
        if watched:
            roots = [Root(name, value, "variable") for name, value in self.variables.items()]
            find_holders(roots, found, on_storage=self.blocks.track_storage)
        return new

    def origin(self, tensor: Any) -> int:
        """Return the cell that is recorded as having allocated a tensor's block."""
        return self.blocks.origin(0, tensor.data_ptr())


def test_new_blocks_belong_to_the_latest_cell(gpu: StandInGpu) -> None:
    """Blocks at new addresses are recorded as allocated by the cell that has just run."""
    notebook, early = Notebook(), gpu.empty(1)
    notebook.after(BEFORE_LOAD)
    first = gpu.empty(100)
    assert notebook.after(3) is True
    second = gpu.empty(100)
    assert notebook.after(4) is True
    assert [notebook.origin(x) for x in (early, first, second)] == [BEFORE_LOAD, 3, 4]
    assert [notebook.blocks.cell(0, x.data_ptr()) for x in (early, first)] == [None, 3]
    assert [notebook.blocks.has(cell) for cell in (3, 4, 5)] == [True, True, False]


def test_unchanged_counters_take_no_snapshot(gpu: StandInGpu) -> None:
    """If torch's two allocation counters have not changed since the last update, no new snapshot is
    needed."""
    notebook = Notebook()
    kept = gpu.empty(1)
    assert notebook.blocks.is_current(allocator.allocation_counts()) is False
    notebook.after(1)
    assert notebook.blocks.is_current(allocator.allocation_counts()) is True
    del kept
    assert notebook.blocks.is_current(allocator.allocation_counts()) is False


def test_survivors_beside_temporaries(gpu: StandInGpu) -> None:
    """A tensor in a variable stays attributed to its cell, however many temporary tensors later cells
    create."""
    notebook = Notebook()
    notebook.variables["model"] = gpu.empty(100)
    notebook.after(1)
    for cell in (2, 3):
        for _ in range(10):
            gpu.empty(100)
        assert notebook.after(cell) is False
    assert notebook.origin(notebook.variables["model"]) == 1


def test_a_reused_address(gpu: StandInGpu) -> None:
    """A tensor of the same size at a reused address is recorded as allocated by the later cell."""
    notebook = Notebook()
    notebook.variables["x"] = gpu.empty(100)
    notebook.after(1)
    before = notebook.variables.pop("x").data_ptr()
    notebook.variables["x"] = gpu.empty(100)
    assert notebook.variables["x"].data_ptr() == before
    assert notebook.after(2) is True
    assert notebook.origin(notebook.variables["x"]) == 2


def test_a_storage_that_outlives_its_memory(gpu: StandInGpu) -> None:
    """If a storage was resized to zero, as FSDP does, a new storage at the same address is not mistaken for
    the old one."""
    notebook = Notebook()
    notebook.variables["shard"] = shard = gpu.empty(100)
    notebook.after(1)
    before, storage = shard.data_ptr(), shard.untyped_storage()
    gone = torch.UntypedStorage(0)
    storage._swap_data_ptr_(gone)  # has the effect of resize_(0), which this device lacks
    del gone
    assert (gpu.allocated, shard.data_ptr()) == (0, 0)
    notebook.variables["x"] = x = gpu.empty(100)
    assert x.data_ptr() == before
    assert notebook.after(2) is True
    assert notebook.origin(x) == 2


def test_another_size_at_a_reused_address(gpu: StandInGpu) -> None:
    """A block at a reused address counts as new if its size differs, even if no storage was tracked."""
    notebook = Notebook()
    x = gpu.empty(100)
    notebook.after(1, watched=False)
    del x
    x = gpu.empty(101)
    notebook.after(2, watched=False)
    assert notebook.origin(x) == 2


def test_a_block_without_variable_has_its_cell_while_addresses_are_new(gpu: StandInGpu) -> None:
    """If no variable holds a block, its cell is known as long as the block's address was surely not reused.

    After an allocation that may have reused the address, the cell is unknown.
    """
    notebook = Notebook()
    hidden = gpu.empty(100)
    notebook.after(1, watched=False)
    other = gpu.empty(100)
    notebook.after(2, watched=False)
    assert [notebook.origin(x) for x in (hidden, other)] == [1, 2]
    gpu.empty(5)  # This tensor is freed immediately, so its address is unknown.
    notebook.after(3, watched=False)
    assert [notebook.origin(x) for x in (hidden, other)] == [UNKNOWN_CELL, UNKNOWN_CELL]
    assert notebook.blocks.cell(0, hidden.data_ptr()) is None
