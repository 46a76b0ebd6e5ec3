"""Who holds what of a stand-in device, by names that a test hands in."""

from __future__ import annotations

from typing import Any

from helpers_allocator import StandInGpu

from gpuwidget.heap.find_holders import reach
from gpuwidget.heap.roots import Root
from gpuwidget.measure.memory_holders import rank
from gpuwidget.model.report import Holder
from gpuwidget.pytorch import allocator


def found(
    gpu: StandInGpu, variables: dict[str, object], notebook: dict[str, object] | None = None, **options: Any
) -> list[Holder]:
    """The holders, of which the sum is checked in every test."""
    roots = [Root(name, value, "variable") for name, value in variables.items()]
    roots += [Root(name, value, "notebook") for name, value in (notebook or {}).items()]
    blocks = allocator.snapshot()
    reached = reach(roots, blocks, barred=[variables], **options)
    holders = rank(roots, reached, blocks)
    assert sum(holder.bytes for holder in holders) == gpu.allocated
    return holders


def briefly(holders: list[Holder]) -> list[tuple[tuple[str, ...], int]]:
    """Names and bytes."""
    return [(holder.names, holder.bytes) for holder in holders]
