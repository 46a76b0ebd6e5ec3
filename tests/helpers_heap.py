"""Find the holders of a stand-in GPU's memory, starting from variables that a test defines."""

from __future__ import annotations

from typing import Any

from helpers_allocator import StandInGpu

from gpuwidget.heap.find_holders import find_holders
from gpuwidget.heap.heap_walk import Root
from gpuwidget.measure.holder_ranking import rank_holders
from gpuwidget.model.report import Holder
from gpuwidget.pytorch import allocator


def holders_of(
    gpu: StandInGpu, variables: dict[str, object], notebook: dict[str, object] | None = None, **options: Any
) -> list[Holder]:
    """Return the holders of the GPU's memory, and assert that their bytes add up to the allocated bytes."""
    roots = [Root(name, value, "variable") for name, value in variables.items()]
    roots += [Root(name, value, "notebook") for name, value in (notebook or {}).items()]
    blocks = allocator.memory_blocks()
    reached = find_holders(roots, blocks, excluded=[variables], **options)
    holders = rank_holders(roots, reached, blocks)
    assert sum(holder.bytes for holder in holders) == gpu.allocated
    return holders


def names_and_bytes(holders: list[Holder]) -> list[tuple[tuple[str, ...], int]]:
    """Return the names and bytes of each holder."""
    return [(holder.names, holder.bytes) for holder in holders]
