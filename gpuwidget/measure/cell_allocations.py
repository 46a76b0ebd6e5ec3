"""Find out which cell allocated a block, by comparing the allocator's blocks after each cell.

A block at a new address belongs to the cell that ran. A block at a known address may have survived, or may
have been freed and its address reused. It has survived if every allocation since is accounted for by a new
address, or if the storage that was seen there is still alive at that address. Otherwise its cell is unknown
from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gpuwidget.pytorch.allocator import AllocationCounts, DeviceBlocks

BEFORE_LOAD = 0
"""In place of a cell number: allocated before gpuwidget was loaded."""
OUTSIDE_CELLS = -1
"""Allocated while no cell ran, by a thread or a callback, or in a cell without a number."""
UNKNOWN_CELL = -2
"""Its address may have been reused by any cell since."""


class StorageRef(Protocol):
    """Weak reference to a storage."""

    def expired(self) -> bool:
        """Return whether the storage's memory is gone."""
        ...


@dataclass(slots=True)
class _Block:
    size: int
    requested: int
    cell: int
    storage: StorageRef | None = None


class CellBlocks:
    """The origin of every block that is allocated now."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[int, _Block]] = {}
        """By device index and address."""
        self._counts: dict[int, AllocationCounts] = {}

    def is_current(self, counts: Mapping[int, AllocationCounts]) -> bool:
        """Return whether no memory was allocated or freed since the last update."""
        return all(self._counts.get(index) == now for index, now in counts.items())

    def update(
        self, cell: int, blocks: Mapping[int, DeviceBlocks], counts: Mapping[int, AllocationCounts]
    ) -> bool:
        """Assign blocks that are new since the last update to ``cell``. Returns whether there are any."""
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
        """Track the storage at ``address`` by ``reference()``, unless one is tracked there."""
        block = self._blocks.get(index, {}).get(address)
        if block is not None and block.storage is None:
            block.storage = reference()

    def origin(self, index: int, address: int) -> int:
        """Return the number of the cell that allocated a block, or one of the constants above."""
        block = self._blocks.get(index, {}).get(address)
        return UNKNOWN_CELL if block is None else block.cell

    def cell(self, index: int, address: int) -> int | None:
        """Return the number of the cell that allocated a block, or None where it is unknown."""
        origin = self.origin(index, address)
        return origin if origin > 0 else None

    def has(self, cell: int) -> bool:
        """Return whether any block that ``cell`` allocated is still there."""
        return any(block.cell == cell for device in self._blocks.values() for block in device.values())

    def _allocations_since(self, index: int, counts: Mapping[int, AllocationCounts]) -> int | None:
        now = counts.get(index)
        if now is None:
            return None
        before = self._counts.get(index)
        return now.allocations - (before.allocations if before is not None else 0)


def _check_reuse(block: _Block, cell: int) -> bool:
    """Update the origin of a block whose address may have been reused. Returns whether it is a new block.

    It is new where its storage is gone. Without a reference to its storage its cell becomes unknown.
    """
    if block.storage is None:
        block.cell = cell if block.cell == cell else UNKNOWN_CELL  # reused by the same cell, or not at all
        return False
    if not block.storage.expired():
        return False
    block.cell, block.storage = cell, None
    return True
