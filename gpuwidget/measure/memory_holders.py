"""Who holds torch's memory: every allocated byte of a device belongs to one holder, or to nobody known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuwidget.heap.find_holders import FoundHolders
from gpuwidget.heap.heap_walk import Root
from gpuwidget.model.report import Holder
from gpuwidget.pytorch.allocator import DeviceBlocks

CellOf = Callable[[int, int], int | None]
"""The cell that allocated the block of a device (its index) that begins at an address; None for unknown."""

LAST_ERROR = "the last error's traceback"
"""Name of all that keeps the frames of the last failed cell."""
DEBUGGER = "%debug"
"""Name of what the last post-mortem debugger looked at."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What torch's allocator has on one device."""

    device: str
    """``cuda:N``."""
    allocated: int
    """Bytes in tensors, each rounded up to the block it lies in (torch.cuda.memory_allocated)."""
    reserved: int
    """Bytes taken from the driver (torch.cuda.memory_reserved)."""
    returnable: int
    """Bytes of it that torch.cuda.empty_cache() would give back at once."""
    flushes: int | None
    """How often the cache was flushed to find memory, since the process began (num_alloc_retries)."""
    waiting: int = 0
    """Bytes of it that empty_cache() would give back too, once another stream is done with them."""
    private: int = 0
    """Bytes of it in private pools, as CUDA graphs have."""

    @property
    def cached(self) -> int:
        """Bytes reserved and not allocated."""
        return self.reserved - self.allocated

    @property
    def stuck(self) -> int:
        """Bytes of the cache that can't be given back: free parts of segments that are in use."""
        return self.cached - self.returnable - self.waiting - self.private


@dataclass(frozen=True, slots=True)
class CellMemory:
    """What one cell allocated on one device and is still there."""

    cell: int | None
    """The N of In[N]; None for what no cell is known for."""
    source: str
    """First line of the cell, or in words where it comes from."""
    device: str
    bytes: int


def rank_holders(
    roots: Sequence[Root],
    reached: FoundHolders,
    blocks: Mapping[int, DeviceBlocks],
    cell_of: CellOf | None = None,
    *,
    only: int | None = None,
) -> list[Holder]:
    """The holders of all devices, the largest first; for each device they add up to what is allocated.

    ``only`` counts what that cell has allocated, and nothing else.
    """
    found: list[Holder] = []
    for index, device in blocks.items():
        sums: dict[int | None, int] = {}
        cells: dict[int | None, dict[int | None, int]] = {}
        for owner, address, size in zip(reached.owners[index], device.addresses, device.sizes, strict=True):
            cell = cell_of(index, address) if cell_of is not None else None
            if only is not None and cell != only:
                continue
            sums[owner] = sums.get(owner, 0) + size
            by_cell = cells.setdefault(owner, {})
            by_cell[cell] = by_cell.get(cell, 0) + size
        for owner, size in sums.items():
            found.append(
                Holder(
                    kind="unknown" if owner is None else roots[owner].kind,
                    names=() if owner is None else tuple(reached.names[owner]),
                    type=None if owner is None else reached.types[owner],
                    device=device.name,
                    bytes=size,
                    cell=_most(cells[owner]),
                )
            )
    return sorted(found, key=lambda holder: (-holder.bytes, holder.device, holder.names))


def _most(by_cell: Mapping[int | None, int]) -> int | None:
    """The cell with the most bytes; None where that much or more is of unknown origin."""
    return max(by_cell, key=lambda cell: (by_cell[cell], cell is None))
