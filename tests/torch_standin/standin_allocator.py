"""A stand-in for torch's caching allocator, with its counters, allocation history and out-of-memory error.

``install(torch)`` adds it to the stand-in torch. ``torch.allocate(bytes)`` returns a tensor whose memory is
freed with the tensor; as in torch, the history contains the Python frames of each allocation.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any

ROUNDED_TO = 512


class OutOfMemoryError(RuntimeError):
    __module__ = "torch"


class Block:
    """An allocated block of memory, which lives as long as the stand-in's tensor that refers to it."""

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size


class Allocator:
    """The allocator of all devices."""

    def __init__(self, torch: Any, capacity: int) -> None:
        self._torch = torch
        self.capacity = capacity
        self.enabled = False
        self.calls: list[tuple[Any, ...]] = []
        """The arguments of every call that turned the allocation history on or off."""
        self.most = sys.maxsize
        self.traces: list[list[dict[str, Any]]] = [[] for _ in range(torch.GPUS)]
        self.blocks: dict[int, dict[str, Any]] = {}
        self.counts = [SimpleNamespace(ever=0, now=0, peak=0) for _ in range(torch.GPUS)]
        self.peaks = [0] * torch.GPUS
        """The highest number of allocated bytes of each device since its peak counters were reset."""
        self._next = 0x7F0000000000

    def allocate(self, size: int, index: int = 0, *, on_a_thread_of_torchs: bool = False) -> Block:
        self._torch.cuda._lazy_init()
        self._torch.cuda._open(index)
        rounded = -(-size // ROUNDED_TO) * ROUNDED_TO
        if self.allocated(index) + rounded > self.capacity:
            raise OutOfMemoryError(self.message(size, index))
        frames = [] if on_a_thread_of_torchs else stack(sys._getframe(1))
        block = Block(self._next, size)
        self._next += rounded
        self.blocks[block.address] = {
            "device": index,
            "address": block.address,
            "size": rounded,
            "requested_size": size,
            "state": "active_allocated",
            "frames": frames if self.enabled else [],
        }
        self.peaks[index] = max(self.peaks[index], self.allocated(index))
        count = self.counts[index]
        count.ever += size
        count.now += size
        count.peak = max(count.peak, count.now)
        self._record(index, "alloc", block.address, size, frames)
        weakref.finalize(block, self._free, block.address)
        return block

    def _free(self, address: int) -> None:
        block = self.blocks.pop(address)
        self.counts[block["device"]].now -= block["requested_size"]
        self._record(block["device"], "free_requested", address, block["requested_size"], block["frames"])

    def allocated(self, index: int) -> int:
        return sum(block["size"] for block in self.blocks.values() if block["device"] == index)

    def message(self, size: int, index: int) -> str:
        gib = 1024**3
        free = self.capacity - self.allocated(index)
        return (
            f"CUDA out of memory. Tried to allocate {size / gib:.2f} GiB. GPU {index} has a total capacity "
            f"of {self.capacity / gib:.2f} GiB of which {free / gib:.2f} GiB is free. Of the allocated "
            f"memory {self.allocated(index) / gib:.2f} GiB is allocated by PyTorch, and 0 bytes is reserved "
            "by PyTorch but unallocated."
        )

    def _record(self, index: int, action: str, address: int, size: int, frames: list[Any]) -> None:
        if self.enabled:
            entry = {"action": action, "addr": address, "size": size, "stream": 0, "frames": frames}
            self.traces[index].append({**entry, "time_us": time.time_ns() // 1000})
            del self.traces[index][: -self.most]

    # -- replacements of torch's functions -----------------------------------------------------------

    def record_memory_history(
        self, enabled: Any = "all", *, max_entries: int = sys.maxsize, **options: Any
    ) -> None:
        self._torch._C._cuda_record_memory_history(enabled, max_entries, options)

    def switch(self, enabled: Any, max_entries: int, options: dict[str, Any]) -> None:
        self.calls.append((enabled, options))
        self.enabled = enabled is not None
        self.most = max_entries
        if not self.enabled:
            self.traces = [[] for _ in self.traces]

    def reset_peaks(self, index: int) -> None:
        self.peaks[index] = self.allocated(index)

    def snapshot(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {
            "segments": self.segments(),
            "device_traces": [list(trace) for trace in self.traces],
        }

    def segments(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return [
            {
                "device": block["device"],
                "address": address,
                "total_size": block["size"],
                "allocated_size": block["size"],
                "segment_pool_id": (0, 0),
                "segment_type": "large",
                "blocks": [block],
            }
            for address, block in self.blocks.items()
        ]

    def stats(self, index: int) -> dict[str, Any]:
        count = self.counts[index]
        sizes = {"current": self.allocated(index), "peak": self.peaks[index]}
        return {
            "allocated_bytes": {"all": sizes},
            "reserved_bytes": {"all": sizes},
            "requested_bytes": {"all": {"allocated": count.ever, "current": count.now, "peak": count.peak}},
            "num_alloc_retries": 0,
            "num_ooms": 0,
        }


def stack(frame: Any) -> list[dict[str, Any]]:
    """Return the Python frames, innermost first, without those of this module."""
    frames = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename != __file__:
            frames.append({"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name})
        frame = frame.f_back
    return frames


def install(torch: Any, capacity: int = 8 * 1024**3) -> Allocator:
    """Give the stand-in torch an allocator with ``capacity`` bytes on each GPU, and return the allocator."""
    allocator = Allocator(torch, capacity)

    def allocate(size: int, device: object = "cuda:0") -> Any:
        tensor = torch.Tensor(torch.device(device))
        tensor.block = allocator.allocate(size, torch.device(device).index or 0)
        return tensor

    def backward(size: int) -> list[Any]:
        made: list[Any] = []
        work = threading.Thread(
            target=lambda: made.append(allocator.allocate(size, on_a_thread_of_torchs=True))
        )
        work.start()
        work.join()
        return made

    torch.allocate = allocate
    torch.backward = backward
    torch.OutOfMemoryError = torch.cuda.OutOfMemoryError = OutOfMemoryError
    torch._C._cuda_record_memory_history = allocator.switch
    torch._C._cuda_isHistoryEnabled = lambda: allocator.enabled
    torch._C._cuda_resetPeakMemoryStats = allocator.reset_peaks
    torch.cuda.memory = SimpleNamespace(
        _record_memory_history=allocator.record_memory_history, _snapshot=allocator.snapshot
    )
    torch.cuda.memory_snapshot = allocator.segments
    torch.cuda.memory_stats_as_nested_dict = allocator.stats
    torch.cuda.get_allocator_backend = lambda: "native"
    return allocator
