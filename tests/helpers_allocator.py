"""A fake CUDA device for the real torch, with a caching allocator that uses host memory.

Its tensors are ordinary CPU tensors of torch. Block sizes and the reuse of addresses follow the rules of
torch's caching allocator. Kernels in tests import this module too.
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
"""Block sizes are multiples of this number of bytes."""
SEGMENT = 2 * MIB
"""Segment sizes are multiples of this number of bytes."""


@dataclass
class Block:
    """A part of a segment, either allocated or free."""

    address: int
    size: int
    requested: int = 0
    allocated: bool = False


@dataclass
class Segment:
    """Memory that the allocator has reserved with one call."""

    memory: mmap.mmap
    address: int
    blocks: list[Block] = field(default_factory=list)


class StandInGpu:
    """A fake ``cuda:0``. Call :meth:`install` before use and :meth:`remove` afterwards."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.segments: list[Segment] = []
        self.allocations = 0
        self.frees = 0
        self._patched: list[tuple[Any, str, Any]] = []

    # -- torch.cuda ----------------------------------------------------------------------------------

    def install(self) -> None:
        """Make torch.cuda report this device as initialized."""
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
        """Restore torch's original functions."""
        for owner, name, value in reversed(self._patched):
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        self._patched.clear()

    def stats(self, index: int) -> dict[str, Any]:
        """Implement torch.cuda.memory_stats_as_nested_dict."""
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
        """Implement torch.cuda.memory_snapshot."""
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
        """Implement torch.cuda.empty_cache: release the segments without allocated blocks."""
        self.segments = [s for s in self.segments if any(block.allocated for block in s.blocks)]

    @property
    def allocated(self) -> int:
        """The number of bytes in allocated blocks."""
        return sum(block.size for s in self.segments for block in s.blocks if block.allocated)

    @property
    def reserved(self) -> int:
        """The number of bytes in all segments."""
        return sum(len(segment.memory) for segment in self.segments)

    # -- allocation ----------------------------------------------------------------------------------

    def empty(self, *shape: int, dtype: Any = None) -> Any:
        """Return a tensor on this device; its memory is zeroed unless it reuses a block."""
        dtype = dtype if dtype is not None else self.torch.float32
        size = prod(shape) * dtype.itemsize
        segment, block = self._take(size)
        buffer = (ctypes.c_char * size).from_buffer(segment.memory, block.address - segment.address)
        weakref.finalize(buffer, self._give, segment, block).atexit = False
        return self.torch.frombuffer(buffer, dtype=dtype).view(shape)

    def like(self, tensor: Any) -> Any:
        """Return a tensor on this device with the shape and dtype of ``tensor``."""
        return self.empty(*tensor.shape, dtype=tensor.dtype)

    def move(self, module: Any) -> Any:
        """Move the parameters and buffers of ``module`` to this device. Return the module."""
        for part in itertools.chain(module.parameters(), module.buffers()):
            part.data = self.like(part)
        return module

    def _take(self, size: int) -> tuple[Segment, Block]:
        rounded = max(ROUND, -(-size // ROUND) * ROUND)
        self.allocations += 1
        for segment in self.segments:
            for index, block in enumerate(segment.blocks):
                if not block.allocated and block.size >= rounded:
                    rest = Block(block.address + rounded, block.size - rounded)
                    block.size, block.requested, block.allocated = rounded, size, True
                    if rest.size:
                        segment.blocks.insert(index + 1, rest)
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
        for candidate in segment.blocks:
            if merged and not candidate.allocated and not merged[-1].allocated:
                # No tensor uses the later block any more, so it can be merged into the block before it.
                merged[-1].size += candidate.size
            else:
                merged.append(candidate)
        segment.blocks = merged

    def _patch(self, owner: Any, name: str, value: object) -> None:
        self._patched.append((owner, name, getattr(owner, name, None)))
        setattr(owner, name, value)
