"""Read torch's caching allocator block by block. All sums over memory holders are computed from these blocks.

The allocator rounds each request up, so a block may be larger than its tensor. torch's counters and this
module both count whole blocks, so the sums of this module match torch's counters to the byte.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from gpuwidget.model.torch_state import AllocationCounts, DeviceBlocks, Segment
from gpuwidget.pytorch import cuda_state

_SHARED_POOL = (0, 0)
_FREE = "inactive"
_ALLOCATED = "active_allocated"


def memory_blocks() -> dict[int, DeviceBlocks]:
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
