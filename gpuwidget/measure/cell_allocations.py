"""Find which cell allocated each block by comparing the allocator's blocks after each cell.

A block at an address that was not in use before was allocated by the cell that has just run. A block at an
address that was already in use may be the same block, or a new block that reuses the address. It is the same
block if all allocations since the last comparison are at new addresses, or if the tensor storage that was
previously found at the address is still alive. If that storage has been freed, the block is new. If no
storage was found at the address, it is unknown from then on which cell allocated the block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gpuwidget.model.torch_state import AllocationCounts, DeviceBlocks

BEFORE_LOAD = 0
"""Used instead of a cell number for a block that was allocated before gpuwidget was loaded."""
OUTSIDE_CELLS = -1
"""Used instead of a cell number for a block that was allocated while no cell ran (by a thread or a callback),
or by a cell that has no number."""
UNKNOWN_CELL = -2
"""Used instead of a cell number for a block whose address a later cell may have reused."""


class StorageRef(Protocol):
    """Weak reference to a tensor's storage."""

    def expired(self) -> bool:
        """Return whether the storage has been freed."""
        ...


@dataclass(slots=True)
class _Block:
    size: int
    requested: int
    cell: int
    storage: StorageRef | None = None


class CellBlocks:
    """Tracks which cell allocated each block that is currently in use."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[int, _Block]] = {}
        """Blocks in use, by device index and address."""
        self._counts: dict[int, AllocationCounts] = {}

    def is_current(self, counts: Mapping[int, AllocationCounts]) -> bool:
        """Return whether no memory was allocated or freed since the last update."""
        return all(self._counts.get(index) == now for index, now in counts.items())

    def update(
        self, cell: int, blocks: Mapping[int, DeviceBlocks], counts: Mapping[int, AllocationCounts]
    ) -> bool:
        """Assign the blocks allocated since the last update to ``cell``. Return whether any block is new."""
        any_new = False
        for index, device in blocks.items():
            before = self._blocks.get(index, {})
            now: dict[int, _Block] = {}
            same: list[_Block] = []
            for address, size, requested in zip(
                device.addresses, device.sizes, device.requested, strict=True
            ):
                known = before.get(address)
                if known is None or (known.size, known.requested) != (size, requested):
                    now[address] = _Block(size, requested, cell)
                else:
                    now[address] = known
                    same.append(known)
            new = len(now) - len(same)
            if self._allocations_since(index, counts) != new:
                for block in same:
                    any_new |= _check_reuse(block, cell)
            any_new |= new > 0
            self._blocks[index] = now
        for index in set(self._blocks) - set(blocks):
            del self._blocks[index]
        self._counts = dict(counts)
        return any_new

    def track_storage(self, index: int, address: int, reference: Callable[[], StorageRef]) -> None:
        """Store ``reference()`` for the storage at ``address``, unless a reference is already stored."""
        block = self._blocks.get(index, {}).get(address)
        if block is not None and block.storage is None:
            block.storage = reference()

    def origin(self, index: int, address: int) -> int:
        """Return the number of the cell that allocated a block, or the constant used instead of a number."""
        block = self._blocks.get(index, {}).get(address)
        return UNKNOWN_CELL if block is None else block.cell

    def cell(self, index: int, address: int) -> int | None:
        """Return the number of the block's cell, or None if the cell is unknown or has no number."""
        origin = self.origin(index, address)
        return origin if origin > 0 else None

    def has(self, cell: int) -> bool:
        """Return whether any block that ``cell`` allocated is still in use."""
        return any(block.cell == cell for device in self._blocks.values() for block in device.values())

    def _allocations_since(self, index: int, counts: Mapping[int, AllocationCounts]) -> int | None:
        now = counts.get(index)
        if now is None:
            return None
        before = self._counts.get(index)
        return now.allocations - (before.allocations if before is not None else 0)


def _check_reuse(block: _Block, cell: int) -> bool:
    """Update the cell of a block whose address may have been reused. Return whether the block is new.

    The block is new if the storage seen at its address has been freed. If no storage was seen there, the
    block's cell becomes unknown unless it is ``cell``.
    """
    if block.storage is None:
        # If the block's cell is ``cell``, that cell allocated the block whether or not the address was
        # reused.
        block.cell = cell if block.cell == cell else UNKNOWN_CELL
        return False
    if not block.storage.expired():
        return False
    block.cell, block.storage = cell, None
    return True
