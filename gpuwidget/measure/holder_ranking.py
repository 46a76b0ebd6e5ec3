"""Add up torch's allocated blocks per holder. Each byte counts for exactly one known or unknown holder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuwidget.heap.find_holders import FoundHolders
from gpuwidget.heap.heap_walk import Root
from gpuwidget.model.report import Holder
from gpuwidget.model.torch_state import DeviceBlocks
from gpuwidget.model.translation import translatable

CellOf = Callable[[int, int], int | None]
"""Given a device index and a block's address, returns the cell that allocated the block, or None if
unknown."""

LAST_ERROR = translatable("the last error's traceback")
"""Name of the holder that keeps the last failed cell's frames, and the memory they refer to, alive."""
DEBUGGER = "%debug"
"""Name of the holder for everything that the last post-mortem debugger refers to."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The state of torch's allocator on one device."""

    device: str
    """Name of the device, ``cuda:N``."""
    allocated: int
    """Bytes allocated for tensors, including the rounding up to whole blocks
    (torch.cuda.memory_allocated)."""
    reserved: int
    """Bytes taken from the driver (torch.cuda.memory_reserved)."""
    returnable: int
    """Cached bytes that torch.cuda.empty_cache() would release now."""
    alloc_retries: int | None
    """How often torch has released its cache to find memory since the process started (num_alloc_retries)."""
    pending_free: int = 0
    """Further bytes that empty_cache() would release once another stream no longer uses them."""
    private_pools: int = 0
    """Cached bytes in private pools, such as those of CUDA graphs."""

    @property
    def cached(self) -> int:
        """Bytes that are reserved but not allocated."""
        return self.reserved - self.allocated

    @property
    def fragmented(self) -> int:
        """Cached bytes that can't be released: the free parts of segments that are partly in use."""
        return self.cached - self.returnable - self.pending_free - self.private_pools


@dataclass(frozen=True, slots=True)
class CellAllocation:
    """Memory on one device that one cell allocated and that has not been freed."""

    cell: int | None
    """The N of In[N], or None if the cell is unknown."""
    source: str
    """First line of the cell, or a description of the memory's origin if the cell is unknown."""
    device: str
    bytes: int


def rank_holders(
    roots: Sequence[Root],
    found: FoundHolders,
    blocks: Mapping[int, DeviceBlocks],
    cell_of: CellOf | None = None,
    *,
    only_cell: int | None = None,
) -> list[Holder]:
    """Return the holders of all devices, the largest first.

    For each device, the holders' bytes add up to the bytes of all allocated blocks. With ``only_cell``, only
    the blocks that the cell with this number allocated are included.
    """
    holders: list[Holder] = []
    for index, device in blocks.items():
        sums: dict[int | None, int] = {}
        cells: dict[int | None, dict[int | None, int]] = {}
        for owner, address, size in zip(found.owners[index], device.addresses, device.sizes, strict=True):
            cell = cell_of(index, address) if cell_of is not None else None
            if only_cell is not None and cell != only_cell:
                continue
            sums[owner] = sums.get(owner, 0) + size
            by_cell = cells.setdefault(owner, {})
            by_cell[cell] = by_cell.get(cell, 0) + size
        for owner, size in sums.items():
            holders.append(
                Holder(
                    kind="unknown" if owner is None else roots[owner].kind,
                    names=() if owner is None else tuple(found.names[owner]),
                    type=None if owner is None else found.types[owner],
                    device=device.name,
                    bytes=size,
                    cell=_main_cell(cells[owner]),
                )
            )
    return sorted(holders, key=lambda holder: (-holder.bytes, holder.device, holder.names))


def _main_cell(by_cell: Mapping[int | None, int]) -> int | None:
    """Return the cell with the most bytes, or None if at least as many bytes are of unknown origin."""
    return max(by_cell, key=lambda cell: (by_cell[cell], cell is None))
