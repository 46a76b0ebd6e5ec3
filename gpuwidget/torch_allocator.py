"""What torch's caching allocator holds, block by block: the ground that every sum of holders stands on.

The allocator rounds what it is asked for: a block is larger than the tensor in it. Its counters count whole
blocks, and so does everything here, which is why sums agree to the byte.
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuwidget import torch_state

_ALLOCATED = "active_allocated"
_SHARED_POOL = (0, 0)


@dataclass(frozen=True, slots=True)
class DeviceBlocks:
    """One device's blocks that are allocated, and what it has reserved beside them."""

    index: int
    """The N of ``cuda:N``."""
    addresses: tuple[int, ...]
    """Where each block begins, rising."""
    sizes: tuple[int, ...]
    """Bytes of each; their sum is torch's allocated memory."""
    requested: tuple[int, ...]
    """Bytes that were asked for, of each."""
    reserved: int
    """Bytes taken from the driver."""
    returnable: int
    """Bytes of it that emptying the cache would give back."""

    @property
    def name(self) -> str:
        """``cuda:N``."""
        return f"cuda:{self.index}"

    @property
    def allocated(self) -> int:
        """Bytes allocated, as torch.cuda.memory_allocated() counts them."""
        return sum(self.sizes)

    def find(self, address: int) -> int | None:
        """Number of the block that ``address`` lies in."""
        place = bisect_right(self.addresses, address) - 1
        if place < 0 or address >= self.addresses[place] + self.sizes[place]:
            return None
        return place


@dataclass(frozen=True, slots=True)
class Churn:
    """How often one device's allocator was used since the process began."""

    allocations: int
    frees: int


def why_none() -> str | None:
    """Why there are no blocks to be seen, or None where there are."""
    return torch_state.missing_reason()


def snapshot() -> dict[int, DeviceBlocks]:
    """The blocks of each device that torch has reserved memory on, by index; empty without CUDA.

    Host-side, without a wait for the GPU; without the user's allocation history, which makes it slow.
    """
    devices: dict[int, list[Mapping[str, Any]]] = {}
    for segment in segments():
        devices.setdefault(segment["device"], []).append(segment)
    return {index: blocks_of(index, found) for index, found in sorted(devices.items())}


def segments() -> list[Mapping[str, Any]]:
    """The allocator's segments of all devices, as torch gives them; empty without CUDA."""
    torch = torch_state.loaded()
    if torch is None or why_none() is not None:
        return []
    found: list[Mapping[str, Any]]
    if "include_traces" in inspect.signature(torch.cuda.memory_snapshot).parameters:
        found = torch.cuda.memory_snapshot(include_traces=False)
    else:
        found = torch.cuda.memory_snapshot()
    return found


def churn() -> dict[int, Churn]:
    """Allocations and frees so far, by device index, of the devices in use; empty without CUDA. 8 µs each."""
    torch = torch_state.loaded()
    if torch is None or why_none() is not None:
        return {}
    found = {}
    for index in torch_state.devices_with_context():
        counts = torch.cuda.memory_stats_as_nested_dict(index).get("allocation", {}).get("all", {})
        found[index] = Churn(counts.get("allocated", 0), counts.get("freed", 0))
    return found


def blocks_of(index: int, segments: Iterable[Mapping[str, Any]]) -> DeviceBlocks:
    """One device's blocks, from its segments in a snapshot of torch's."""
    blocks: list[tuple[int, int, int]] = []
    reserved = returnable = 0
    for segment in segments:
        reserved += segment["total_size"]
        returnable += _returnable(segment)
        address = segment["address"]
        for block in segment["blocks"]:
            size = block["size"]
            if block["state"] == _ALLOCATED:
                # Older torch gives no address: the blocks of a segment follow each other.
                blocks.append((block.get("address", address), size, block.get("requested_size", size)))
            address += size
    blocks.sort()
    return DeviceBlocks(
        index=index,
        addresses=tuple(block[0] for block in blocks),
        sizes=tuple(block[1] for block in blocks),
        requested=tuple(block[2] for block in blocks),
        reserved=reserved,
        returnable=returnable,
    )


def _returnable(segment: Mapping[str, Any]) -> int:
    """Bytes that empty_cache gives back: whole segments that are free, and free pages of expandable ones.

    Those of a CUDA graph's own pool stay, and so does what is free beside an allocated block.
    """
    if tuple(segment.get("segment_pool_id", _SHARED_POOL)) != _SHARED_POOL:
        return 0
    free = [block["size"] for block in segment["blocks"] if block["state"] == "inactive"]
    if segment.get("is_expandable"):
        return sum(free)
    total: int = segment["total_size"]
    return total if sum(free) == total else 0
