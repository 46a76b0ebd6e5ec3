"""The pieces in which torch has memory from the driver, and what of each could go back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from gpuwidget.model import units

LARGE_PAGE = 20 * units.MIB
"""What torch's expandable segments for large tensors are made of (kLargeBuffer)."""
_SMALL_PAGE = 2 * units.MIB
"""And those for tensors of at most 1 MiB (kSmallBuffer)."""
_SHARED_POOL = (0, 0)
_FREE = "inactive"


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of memory that torch has from the driver."""

    size: int
    expandable: bool
    """Whether each of its pages can be given back by itself."""
    shared: bool
    """False for one of a private pool, as a CUDA graph has, which nobody else may use."""
    blocks: tuple[tuple[int, int, bool], ...]
    """Address, bytes, and whether it is in use."""
    small: bool = False
    """Whether tensors of at most 1 MiB lie in it, and no others."""

    def free_pieces(self, freed: Collection[int] = ()) -> list[tuple[int, int]]:
        """Where each stretch of free blocks begins, and its bytes; with the blocks at ``freed`` freed."""
        pieces: list[tuple[int, int]] = []
        at, free_before = 0, False
        for address, size, in_use in self.blocks:
            free = not in_use or address in freed
            if free and free_before:
                start, length = pieces.pop()
                pieces.append((start, length + size))
            elif free:
                pieces.append((at, size))
            at, free_before = at + size, free
        return pieces

    def returnable(self, freed: Collection[int] = ()) -> int:
        """Bytes that could go back to the driver: all of it where nothing is in use, else whole pages."""
        if not self.shared:
            return 0
        pieces = self.free_pieces(freed)
        if sum(size for _, size in pieces) == self.size:
            return self.size
        if not self.expandable:
            return 0
        page = _SMALL_PAGE if self.small else LARGE_PAGE
        return sum(max(0, (at + size) // page - -(-at // page)) * page for at, size in pieces)


def segment_of(segment: Mapping[str, Any]) -> Segment:
    """A segment of torch's snapshot."""
    address = int(segment.get("address", 0))
    blocks = []
    for block in segment.get("blocks", ()):
        size = int(block["size"])
        # Older torch gives no address: the blocks of a segment follow each other.
        address = int(block.get("address", address))
        blocks.append((address, size, block.get("state") != _FREE))
        address += size
    return Segment(
        size=int(segment.get("total_size", sum(size for _, size, _ in blocks))),
        expandable=bool(segment.get("is_expandable")),
        shared=tuple(segment.get("segment_pool_id", _SHARED_POOL)) == _SHARED_POOL,
        blocks=tuple(blocks),
        small=segment.get("segment_type") == "small",
    )
