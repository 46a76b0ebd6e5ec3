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

from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.segments import segment_of

_ALLOCATED = "active_allocated"


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
    """Bytes of it that emptying the cache would give back at once."""
    waiting: int
    """Bytes that it would give back too, once work on another stream is done with them."""
    private: int
    """Bytes that are free in private pools, as CUDA graphs have: nobody else may use them."""

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
    return cuda_state.missing_reason()


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
    torch = cuda_state.loaded()
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
    torch = cuda_state.loaded()
    if torch is None or why_none() is not None:
        return {}
    found = {}
    for index in cuda_state.devices_with_context():
        counts = torch.cuda.memory_stats_as_nested_dict(index).get("allocation", {}).get("all", {})
        found[index] = Churn(counts.get("allocated", 0), counts.get("freed", 0))
    return found


def blocks_of(index: int, segments: Iterable[Mapping[str, Any]]) -> DeviceBlocks:
    """One device's blocks, from its segments in a snapshot of torch's."""
    blocks: list[tuple[int, int, int]] = []
    reserved = returnable = waiting = private = 0
    for found in segments:
        segment = segment_of(found)
        used = [
            (address, size, block.get("requested_size", size))
            for block, (address, size, _) in zip(found["blocks"], segment.blocks, strict=True)
            if block["state"] == _ALLOCATED
        ]
        blocks += used
        reserved += segment.size
        if not segment.shared:
            private += segment.size - sum(size for _, size, _ in used)
            continue
        at_once = segment.returnable()
        returnable += at_once
        allocated = {address for address, _, _ in used}
        pending = {address for address, _, in_use in segment.blocks if in_use and address not in allocated}
        if pending:
            waiting += segment.returnable(pending) - at_once
    blocks.sort()
    return DeviceBlocks(
        index=index,
        addresses=tuple(block[0] for block in blocks),
        sizes=tuple(block[1] for block in blocks),
        requested=tuple(block[2] for block in blocks),
        reserved=reserved,
        returnable=returnable,
        waiting=waiting,
        private=private,
    )
