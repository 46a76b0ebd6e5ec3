"""Read torch's caching allocator block by block. All sums over memory holders are computed from these blocks.

The allocator rounds each request up, so a block may be larger than its tensor. torch's counters and this
module both count whole blocks, so the sums of this module match torch's counters to the byte.
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuwidget.model import units
from gpuwidget.pytorch import cuda_state

LARGE_PAGE = 20 * units.MIB
"""Page size of expandable segments for large tensors (torch's kLargeBuffer)."""
_SMALL_PAGE = 2 * units.MIB
"""Page size of expandable segments for tensors of at most 1 MiB (torch's kSmallBuffer)."""
_SHARED_POOL = (0, 0)
_FREE = "inactive"
_ALLOCATED = "active_allocated"


@dataclass(frozen=True, slots=True)
class Segment:
    """A contiguous range of memory that torch has reserved from the driver."""

    size: int
    expandable: bool
    """Whether torch can release single pages of the segment."""
    shared: bool
    """Whether all allocations can use the segment. False if it is in a private pool, such as a CUDA
    graph's."""
    blocks: tuple[tuple[int, int, bool], ...]
    """Address, size in bytes and use of each block; the last value is True while the block is in use."""
    small: bool = False
    """Whether the segment is for tensors of at most 1 MiB."""

    def free_ranges(self, freed: Collection[int] = ()) -> list[tuple[int, int]]:
        """Return the offset and size in bytes of each contiguous range of free blocks.

        Blocks whose address is in ``freed`` count as free.
        """
        ranges: list[tuple[int, int]] = []
        offset, previous_free = 0, False
        for address, size, in_use in self.blocks:
            free = not in_use or address in freed
            if free and previous_free:
                start, length = ranges.pop()
                ranges.append((start, length + size))
            elif free:
                ranges.append((offset, size))
            offset, previous_free = offset + size, free
        return ranges

    def returnable(self, freed: Collection[int] = ()) -> int:
        """Return the bytes that torch could release if the blocks at ``freed`` were free.

        If no block is in use, torch could release the whole segment. Otherwise, it could release only the
        free pages of an expandable segment. The result is 0 for a segment in a private pool.
        """
        if not self.shared:
            return 0
        ranges = self.free_ranges(freed)
        if sum(size for _, size in ranges) == self.size:
            return self.size
        if not self.expandable:
            return 0
        page = _SMALL_PAGE if self.small else LARGE_PAGE
        return sum(max(0, (start + size) // page - -(-start // page)) * page for start, size in ranges)


@dataclass(frozen=True, slots=True)
class DeviceBlocks:
    """One device's allocated blocks, and the sums of the memory that torch has reserved on it."""

    index: int
    """The N of ``cuda:N``."""
    addresses: tuple[int, ...]
    """Start address of each block, ascending."""
    sizes: tuple[int, ...]
    """Bytes of each block. Their sum is torch's allocated memory."""
    requested: tuple[int, ...]
    """Requested bytes of each block."""
    reserved: int
    """Bytes that torch has taken from the driver."""
    returnable: int
    """Bytes that ``empty_cache()`` would release now."""
    pending_free: int
    """Further bytes that ``empty_cache()`` can release once other streams have finished using them."""
    private_pools: int
    """Free bytes in private pools, such as those of CUDA graphs. Other allocations can't use them."""

    @property
    def name(self) -> str:
        """``cuda:N``."""
        return f"cuda:{self.index}"

    @property
    def allocated(self) -> int:
        """Allocated bytes, equal to torch.cuda.memory_allocated()."""
        return sum(self.sizes)

    def find(self, address: int) -> int | None:
        """Return the position in ``addresses`` of the block that contains ``address``, or None."""
        position = bisect_right(self.addresses, address) - 1
        if position < 0 or address >= self.addresses[position] + self.sizes[position]:
            return None
        return position


@dataclass(frozen=True, slots=True)
class AllocationCounts:
    """Number of allocations and frees on one device since the process began."""

    allocations: int
    frees: int


def snapshot() -> dict[int, DeviceBlocks]:
    """Return, by device index, the blocks of each device on which torch has reserved memory.

    The result is empty without CUDA. This does not wait for the GPU. If the version of torch allows it, the
    snapshot leaves out the allocation history that the user may have recorded, because reading it is slow.
    """
    by_device: dict[int, list[Mapping[str, Any]]] = {}
    for segment in raw_segments():
        by_device.setdefault(segment["device"], []).append(segment)
    return {index: device_blocks(index, segments) for index, segments in sorted(by_device.items())}


def raw_segments() -> list[Mapping[str, Any]]:
    """Return the segments of all devices in the format of torch.cuda.memory_snapshot(). Empty without
    CUDA."""
    torch: Any = cuda_state.loaded_torch()
    if torch is None or cuda_state.no_counters_reason() is not None:
        return []
    found: list[Mapping[str, Any]]
    if "include_traces" in inspect.signature(torch.cuda.memory_snapshot).parameters:
        found = torch.cuda.memory_snapshot(include_traces=False)
    else:
        found = torch.cuda.memory_snapshot()
    return found


def allocation_counts() -> dict[int, AllocationCounts]:
    """Return, by device index, the counts of each device on which this process has a context.

    The result is empty without CUDA. The call takes 8 µs per device.
    """
    torch: Any = cuda_state.loaded_torch()
    if torch is None or cuda_state.no_counters_reason() is not None:
        return {}
    found = {}
    for index in cuda_state.devices_with_context():
        counts = torch.cuda.memory_stats_as_nested_dict(index).get("allocation", {}).get("all", {})
        found[index] = AllocationCounts(counts.get("allocated", 0), counts.get("freed", 0))
    return found


def parse_segment(raw: Mapping[str, Any]) -> Segment:
    """Convert a segment of torch's memory snapshot to a :class:`Segment`."""
    address = int(raw.get("address", 0))
    blocks = []
    for block in raw.get("blocks", ()):
        size = int(block["size"])
        # Older versions of torch omit the address. It can be computed, because a segment's blocks are
        # contiguous.
        address = int(block.get("address", address))
        blocks.append((address, size, block.get("state") != _FREE))
        address += size
    return Segment(
        size=int(raw.get("total_size", sum(size for _, size, _ in blocks))),
        expandable=bool(raw.get("is_expandable")),
        shared=tuple(raw.get("segment_pool_id", _SHARED_POOL)) == _SHARED_POOL,
        blocks=tuple(blocks),
        small=raw.get("segment_type") == "small",
    )


def device_blocks(index: int, segments: Iterable[Mapping[str, Any]]) -> DeviceBlocks:
    """Return the blocks of one device. ``segments`` are the device's segments in torch's memory snapshot."""
    blocks: list[tuple[int, int, int]] = []
    reserved = returnable = pending_free = private_pools = 0
    for raw in segments:
        segment = parse_segment(raw)
        allocated = [
            (address, size, block.get("requested_size", size))
            for block, (address, size, _) in zip(raw["blocks"], segment.blocks, strict=True)
            if block["state"] == _ALLOCATED
        ]
        blocks += allocated
        reserved += segment.size
        if not segment.shared:
            private_pools += segment.size - sum(size for _, size, _ in allocated)
            continue
        returnable_now = segment.returnable()
        returnable += returnable_now
        addresses = {address for address, _, _ in allocated}
        pending = {address for address, _, in_use in segment.blocks if in_use and address not in addresses}
        if pending:
            pending_free += segment.returnable(pending) - returnable_now
    blocks.sort()
    return DeviceBlocks(
        index=index,
        addresses=tuple(block[0] for block in blocks),
        sizes=tuple(block[1] for block in blocks),
        requested=tuple(block[2] for block in blocks),
        reserved=reserved,
        returnable=returnable,
        pending_free=pending_free,
        private_pools=private_pools,
    )
