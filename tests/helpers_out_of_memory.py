"""A stand-in GPU that runs out of memory as torch's allocator does,
with the error messages of several torch versions."""

from __future__ import annotations

from typing import Any

from helpers_allocator import MIB, SEGMENT, StandInGpu

DOCUMENTATION = (
    "If reserved but unallocated memory is large try setting {setting}=expandable_segments:True to avoid "
    "fragmentation.  See documentation for Memory Management  "
    "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
MESSAGES = {
    "1.13": (
        "CUDA out of memory. Tried to allocate {requested} (GPU 0; {total} total capacity; {allocated} "
        "already allocated; {free} free; {reserved} reserved in total by PyTorch) If reserved memory is >> "
        "allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for "
        "Memory Management and PYTORCH_CUDA_ALLOC_CONF"
    ),
    "2.3": (
        "CUDA out of memory. Tried to allocate {requested}. GPU 0 has a total capacity of {total} of which "
        "{free} is free. {limit}Of the allocated memory {allocated} is allocated by PyTorch, and "
        "{unallocated} "
        "is reserved by PyTorch but unallocated. " + DOCUMENTATION.format(setting="PYTORCH_CUDA_ALLOC_CONF")
    ),
    "2.13": (
        "CUDA out of memory. Tried to allocate {requested}. GPU 0 has a total capacity of {total} of which "
        "{free} is free. Including non-PyTorch memory, this process has {reserved} memory in use. {limit}Of "
        "the allocated memory {allocated} is allocated by PyTorch, and {unallocated} is reserved by PyTorch "
        "but unallocated. " + DOCUMENTATION.format(setting="PYTORCH_ALLOC_CONF")
    ),
}


class LimitedGpu(StandInGpu):
    """A stand-in for ``cuda:0`` with ``capacity`` bytes,
    of which other processes hold ``taken_by_others``."""

    def __init__(self, torch: Any, capacity: int, version: str = "2.13") -> None:
        super().__init__(torch)
        self.capacity = capacity
        self.version = version
        self.taken_by_others = 0
        self.limit: int | None = None
        self.retries = 0

    def install(self) -> None:
        super().install()
        self._patch(self.torch.cuda, "mem_get_info", lambda index: (self.free, self.capacity))
        share = lambda index: 1.0 if self.limit is None else self.limit / self.capacity  # noqa: E731
        self._patch(self.torch.cuda, "get_per_process_memory_fraction", share)

    @property
    def free(self) -> int:
        """The bytes of the GPU's memory that no process holds."""
        return self.capacity - self.taken_by_others - self.reserved

    def stats(self, index: int) -> dict[str, Any]:
        """Implement torch.cuda.memory_stats_as_nested_dict, including the inactive split bytes."""
        stuck = sum(
            block.size
            for segment in self.segments
            if any(one.allocated for one in segment.blocks)
            for block in segment.blocks
            if not block.allocated
        )
        return super().stats(index) | {"inactive_split_bytes": {"all": {"current": stuck}}}

    def _take(self, size: int) -> Any:
        rounded = -(-size // 512) * 512
        fits = any(not b.allocated and b.size >= rounded for s in self.segments for b in s.blocks)
        wanted = max(SEGMENT, -(-rounded // SEGMENT) * SEGMENT)
        if not fits and not self._room_for(wanted):
            self.retries += 1
            self.empty_cache()
            if not self._room_for(wanted):
                raise self.torch.OutOfMemoryError(self.message(wanted))
        return super()._take(size)

    def _room_for(self, size: int) -> bool:
        under = self.limit is None or self.reserved + size <= self.limit
        return under and size <= self.free

    def message(self, size: int) -> str:
        """Return torch's out-of-memory message for a request of ``size`` bytes."""
        return MESSAGES[self.version].format(
            requested=format_size(size),
            total=format_size(self.capacity),
            free=format_size(self.free),
            limit="" if self.limit is None else f"{format_size(self.limit)} allowed; ",
            allocated=format_size(self.allocated),
            reserved=format_size(self.reserved),
            unallocated=format_size(self.reserved - self.allocated),
        )


def format_size(size: int) -> str:
    """Return a size as c10 formats it, for example ``2.00 GiB``."""
    for unit, name in ((1024 * MIB, "GiB"), (MIB, "MiB"), (1024, "KiB")):
        if size > unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"
