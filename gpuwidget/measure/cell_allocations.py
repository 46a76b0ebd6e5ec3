"""Which cell allocated a block: told by looking at the blocks after each cell, without recording anything.

A block at a new address is the cell's that ran. One at an old address may have survived, or may have been
freed and its address used again. It survived where every allocation since is accounted for by a new
address, or where the storage seen there is still alive and has its memory there; where nobody can tell, its
cell is unknown from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gpuwidget.pytorch.allocator import AllocationCounts, DeviceBlocks

BEFORE = 0
"""Instead of a cell's number: allocated before anybody looked."""
BETWEEN = -1
"""Allocated while no cell ran, by a thread or a callback, or in a cell that has no number."""
UNKNOWN = -2
"""Its address may have been used again by any cell since."""


class Life(Protocol):
    """Whether a storage lives; holds on to none."""

    def expired(self) -> bool:
        """Whether its memory is gone."""
        ...


@dataclass(slots=True)
class _Block:
    size: int
    requested: int
    cell: int
    life: Life | None = None


class CellBlocks:
    """The origin of every block that is allocated now."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[int, _Block]] = {}
        """By device index and address."""
        self._churn: dict[int, AllocationCounts] = {}

    def idle(self, churn: Mapping[int, AllocationCounts]) -> bool:
        """Whether no memory was allocated or freed since the last look."""
        return all(self._churn.get(index) == now for index, now in churn.items())

    def settle(
        self, cell: int, blocks: Mapping[int, DeviceBlocks], churn: Mapping[int, AllocationCounts]
    ) -> bool:
        """What is new since the last look was allocated by ``cell``. Returns whether anything is."""
        new = False
        for index, device in blocks.items():
            before = self._blocks.get(index, {})
            now: dict[int, _Block] = {}
            old: list[_Block] = []
            for address, size, requested in zip(
                device.addresses, device.sizes, device.requested, strict=True
            ):
                known = before.get(address)
                if known is None or (known.size, known.requested) != (size, requested):
                    now[address] = _Block(size, requested, cell)
                else:
                    now[address] = known
                    old.append(known)
            fresh = len(now) - len(old)
            if self._allocations(index, churn) != fresh:
                for block in old:
                    new |= _judge(block, cell)
            new |= fresh > 0
            self._blocks[index] = now
        for index in set(self._blocks) - set(blocks):
            del self._blocks[index]
        self._churn = dict(churn)
        return new

    def watch(self, index: int, address: int, life: Callable[[], Life]) -> None:
        """``life`` gives the storage that lies at ``address`` now; it is asked for where none is known."""
        block = self._blocks.get(index, {}).get(address)
        if block is not None and block.life is None:
            block.life = life()

    def origin(self, index: int, address: int) -> int:
        """The number of the cell that allocated a block, or why there is none."""
        block = self._blocks.get(index, {}).get(address)
        return UNKNOWN if block is None else block.cell

    def cell(self, index: int, address: int) -> int | None:
        """The number of the cell that allocated a block; None where none is known."""
        origin = self.origin(index, address)
        return origin if origin > 0 else None

    def has(self, cell: int) -> bool:
        """Whether anything that ``cell`` allocated is still there."""
        return any(block.cell == cell for device in self._blocks.values() for block in device.values())

    def _allocations(self, index: int, churn: Mapping[int, AllocationCounts]) -> int | None:
        now = churn.get(index)
        if now is None:
            return None
        before = self._churn.get(index)
        return now.allocations - (before.allocations if before is not None else 0)


def _judge(block: _Block, cell: int) -> bool:
    """Take a block at an old address for new where its storage is gone, for unknown where nobody saw one."""
    if block.life is None:
        block.cell = cell if block.cell == cell else UNKNOWN  # the same cell's own is its own
        return False
    if not block.life.expired():
        return False
    block.cell, block.life = cell, None
    return True
