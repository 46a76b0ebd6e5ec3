"""Tests of how much memory torch's cache can return to the driver at the end of a run.

Reading torch's list of segments can take long. Some tests check that it is read only if necessary.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuwidget import pytorch
from gpuwidget.measure.torch_memory import has_allocated, returnable, torch_memory
from gpuwidget.model.torch_state import AllocatorCounters, DeviceBlocks, DevicePeaks
from gpuwidget.model.units import MIB
from gpuwidget.pytorch import allocator

BEFORE = AllocatorCounters(
    allocated=100 * MIB,
    allocated_peak=120 * MIB,
    reserved=140 * MIB,
    reserved_peak=140 * MIB,
    alloc_retries=1,
    ooms=0,
    inactive_split=0,
)


def account(before: AllocatorCounters | None = BEFORE, peak: int = 100 * MIB, **after: Any) -> DevicePeaks:
    return DevicePeaks(before, replace(BEFORE, **after), peak, 140 * MIB)


def test_an_allocation_from_the_cache_is_seen() -> None:
    """Torch counts each allocation, also one that changes no size because it comes from torch's cache."""
    counted = replace(BEFORE, allocations=7)
    assert has_allocated(account(counted, allocations=7)) is False
    assert has_allocated(account(counted, allocations=8)) is True
    assert has_allocated(account(counted, allocations=7, allocated=1 * MIB)) is True
    assert has_allocated(account()) is None
    assert has_allocated(DevicePeaks(None, AllocatorCounters(0, 0, 0, 0, 0, 0, 0, 0), 0, 0)) is False


def segment(size: int, *blocks: tuple[int, str]) -> dict[str, Any]:
    return {
        "device": 0,
        "address": 0,
        "total_size": size * MIB,
        "blocks": [{"size": bytes_ * MIB, "state": state} for bytes_, state in blocks],
    }


@pytest.fixture
def snapshots(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replace torch's snapshot; return a list with one item per snapshot that is taken.

    torch has reserved 140 MiB: 100 MiB in tensors, and free blocks of 30 and 10 MiB.
    """
    asked: list[int] = []
    segments = (
        segment(110, (100, "active_allocated"), (10, "inactive")),
        segment(30, (30, "inactive")),
    )

    def memory_blocks() -> dict[int, DeviceBlocks]:
        asked.append(1)
        return {0: allocator.device_blocks(0, segments)}

    monkeypatch.setattr(pytorch, "memory_blocks", memory_blocks)
    return asked


def test_returnable_memory(snapshots: list[int]) -> None:
    """A segment that is completely free is returnable. A free block in a segment with a tensor is not."""
    accounts = {0: account(alloc_retries=3)}
    assert returnable(accounts) == {0: 30 * MIB}
    made = torch_memory(accounts[0], 30 * MIB)
    assert (made.returnable, made.alloc_retries, made.reserved.end) == (30 * MIB, 2, 140 * MIB)


def test_a_run_that_changed_nothing_does_not_wait_for_torch(snapshots: list[int]) -> None:
    """If a run left torch's memory counters unchanged, the list of segments is not read, because it may be
    long."""
    assert returnable({0: account()}) == {}
    assert returnable({0: account(None, 0, allocated=0, reserved=0)}) == {}
    assert snapshots == []
    # Allocating and freeing memory raised the peak, so the segments are read.
    assert returnable({0: account(peak=130 * MIB)}) == {0: 30 * MIB}


def test_a_list_that_disagrees_with_the_counters_is_not_used(
    snapshots: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the snapshot disagrees with torch's counters or fails, the returnable memory is None."""
    assert returnable({0: account(reserved=150 * MIB)}) == {0: None}
    assert returnable({1: account(peak=130 * MIB)}) == {1: None}

    def broken() -> dict[int, DeviceBlocks]:
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(pytorch, "memory_blocks", broken)
    assert returnable({0: account(peak=130 * MIB)}) == {0: None}


def test_an_empty_cache_has_no_returnable_memory(snapshots: list[int]) -> None:
    """If torch no longer has any memory reserved, the returnable memory is 0, not unknown."""
    assert returnable({1: account(allocated=0, reserved=0)}) == {1: 0}
