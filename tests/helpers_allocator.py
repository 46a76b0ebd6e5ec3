"""A stand-in for one CUDA device under the real torch: a caching allocator that uses the host's memory.

Its tensors are torch's own, on the CPU as far as torch can tell; their contents, the sizes of blocks and the
reuse of addresses follow the rules of torch's caching allocator. Usable in a kernel too.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import weakref
from dataclasses import dataclass, field
from math import prod
from types import SimpleNamespace
from typing import Any

MIB = 1024**2
ROUND = 512
"""Every block is a multiple of this, in bytes."""
SEGMENT = 2 * MIB
"""Smallest size to reserve, in bytes."""


@dataclass
class Block:
    """A part of a segment, allocated or free."""

    address: int
    size: int
    requested: int = 0
    allocated: bool = False


@dataclass
class Segment:
    """Memory reserved from the driver by one call."""

    memory: mmap.mmap
    address: int
    blocks: list[Block] = field(default_factory=list)


class StandInGpu:
    """``cuda:0`` of a torch without one; :meth:`install` before use, :meth:`remove` after it."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.segments: list[Segment] = []
        self.allocations = 0
        self.frees = 0
        self._patched: list[tuple[Any, str, Any]] = []

    # -- what torch says of it -----------------------------------------------------------------------

    def install(self) -> None:
        """Make torch.cuda report this device."""
        torch = self.torch
        cuda = {
            "is_initialized": lambda: True,
            "device_count": lambda: 1,
            "get_allocator_backend": lambda: "native",
            "get_device_properties": lambda index: SimpleNamespace(
                uuid="00000000-aaaa-bbbb-cccc-dddddddddddd"
            ),
            "is_current_stream_capturing": lambda: False,
            "synchronize": lambda index=None: None,
            "memory_stats_as_nested_dict": self.stats,
            "memory_snapshot": self.snapshot,
            "empty_cache": self.empty_cache,
        }
        for name, value in cuda.items():
            self._patch(torch.cuda, name, value)
        self._patch(torch._C, "_cuda_hasPrimaryContext", lambda index: index == 0)
        self._patch(torch._C, "_cuda_resetPeakMemoryStats", lambda index: None)

    def remove(self) -> None:
        """Restore torch."""
        for place, name, value in reversed(self._patched):
            if value is None:
                delattr(place, name)
            else:
                setattr(place, name, value)
        self._patched.clear()

    def stats(self, index: int) -> dict[str, Any]:
        """Return the same as torch.cuda.memory_stats_as_nested_dict."""
        allocated = {"all": {"current": self.allocated, "peak": self.allocated}}
        reserved = {"all": {"current": self.reserved, "peak": self.reserved}}
        counts = {"allocated": self.allocations, "freed": self.frees}
        return {
            "allocated_bytes": allocated,
            "reserved_bytes": reserved,
            "allocation": {"all": counts},
            "num_alloc_retries": 0,
            "num_ooms": 0,
        }

    def snapshot(self, mempool_id: object = None, include_traces: bool = True) -> list[dict[str, Any]]:
        """Return the same as torch.cuda.memory_snapshot."""
        return [
            {
                "device": 0,
                "address": segment.address,
                "total_size": len(segment.memory),
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "blocks": [
                    {
                        "address": block.address,
                        "size": block.size,
                        "requested_size": block.requested,
                        "state": "active_allocated" if block.allocated else "inactive",
                        "frames": [],
                    }
                    for block in segment.blocks
                ],
            }
            for segment in self.segments
        ]

    def empty_cache(self) -> None:
        """Release every free segment."""
        self.segments = [s for s in self.segments if any(block.allocated for block in s.blocks)]

    @property
    def allocated(self) -> int:
        """Bytes in allocated blocks."""
        return sum(block.size for s in self.segments for block in s.blocks if block.allocated)

    @property
    def reserved(self) -> int:
        """Bytes of all segments."""
        return sum(len(segment.memory) for segment in self.segments)

    # -- allocating ----------------------------------------------------------------------------------

    def empty(self, *shape: int, dtype: Any = None) -> Any:
        """Return a tensor on this device."""
        dtype = dtype if dtype is not None else self.torch.float32
        size = prod(shape) * dtype.itemsize
        segment, block = self._take(size)
        buffer = (ctypes.c_char * size).from_buffer(segment.memory, block.address - segment.address)
        weakref.finalize(buffer, self._give, segment, block).atexit = False
        return self.torch.frombuffer(buffer, dtype=dtype).view(shape)

    def like(self, tensor: Any) -> Any:
        """Return a tensor of that shape on this device."""
        return self.empty(*tensor.shape, dtype=tensor.dtype)

    def move(self, module: Any) -> Any:
        """Return the module, with its parameters and buffers on this device."""
        for part in itertools.chain(module.parameters(), module.buffers()):
            part.data = self.like(part)
        return module

    def _take(self, size: int) -> tuple[Segment, Block]:
        rounded = max(ROUND, -(-size // ROUND) * ROUND)
        self.allocations += 1
        for segment in self.segments:
            for place, block in enumerate(segment.blocks):
                if not block.allocated and block.size >= rounded:
                    rest = Block(block.address + rounded, block.size - rounded)
                    block.size, block.requested, block.allocated = rounded, size, True
                    if rest.size:
                        segment.blocks.insert(place + 1, rest)
                    return segment, block
        memory = mmap.mmap(-1, max(SEGMENT, -(-rounded // SEGMENT) * SEGMENT))
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.segments.append(Segment(memory, address, [Block(address, len(memory))]))
        self.allocations -= 1
        return self._take(size)

    def _give(self, segment: Segment, block: Block) -> None:
        self.frees += 1
        block.allocated, block.requested = False, 0
        merged: list[Block] = []
        for one in segment.blocks:
            if merged and not one.allocated and not merged[-1].allocated:
                # The later of the two is freed; a freed one is never returned again.
                merged[-1].size += one.size
            else:
                merged.append(one)
        segment.blocks = merged

    def _patch(self, place: Any, name: str, value: object) -> None:
        self._patched.append((place, name, getattr(place, name, None)))
        setattr(place, name, value)
