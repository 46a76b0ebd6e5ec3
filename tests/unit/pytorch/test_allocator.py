"""Tests of torch's memory blocks and of the returnable part of its cache, computed from snapshots in torch's
format.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import pytest
from helpers_allocator import StandInGpu

from gpuwidget.kernel.attribution.memory_holders import Holders
from gpuwidget.measure.holder_ranking import DeviceMemory
from gpuwidget.model.torch_state import DeviceBlocks
from gpuwidget.model.units import MIB
from gpuwidget.pytorch import allocator, cuda_state
from gpuwidget.pytorch.allocator import device_blocks
from gpuwidget.views import holders_view


def block(size: int, state: str, **more: Any) -> dict[str, Any]:
    """Return a block of memory in the format of torch's snapshots."""
    return {"size": size, "state": state, "requested_size": size - 12, **more}


def used(size: int) -> dict[str, Any]:
    return block(size, "active_allocated")


def free(size: int) -> dict[str, Any]:
    return block(size, "inactive")


def pending(size: int) -> dict[str, Any]:
    """Return a freed block that another stream still uses, as torch's snapshots represent it."""
    return block(size, "active_pending_free")


def segment(address: int, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a segment in the format of torch's snapshots."""
    size = sum(block["size"] for block in blocks)
    return {"device": 1, "address": address, "total_size": size, "blocks": list(blocks), **more}


def memory(blocks: DeviceBlocks) -> DeviceMemory:
    return DeviceMemory(
        device=blocks.name,
        allocated=blocks.allocated,
        reserved=blocks.reserved,
        returnable=blocks.returnable,
        alloc_retries=0,
        pending_free=blocks.pending_free,
        private_pools=blocks.private_pools,
    )


def sums(*segments: dict[str, Any]) -> tuple[int, int, int, int]:
    """Return how many MiB of torch's cache are returnable, still used by another stream, in private pools,
    and fragmented.
    """
    found = memory(device_blocks(1, segments))
    assert found.returnable + found.pending_free + found.private_pools + found.fragmented == found.cached
    return (
        found.returnable // MIB,
        found.pending_free // MIB,
        found.private_pools // MIB,
        found.fragmented // MIB,
    )


def test_blocks_and_their_sums() -> None:
    """If torch's snapshot has no addresses of blocks, they are computed from the segment's address."""
    half_used = segment(0x1000, used(512), free(1024))
    grown = segment(0xC000, free(8192), block(512, "active_allocated", address=0xE000), is_expandable=True)
    found = device_blocks(1, [grown, half_used])
    assert (found.allocated, found.reserved) == (1024, 10240)
    assert (found.addresses, found.sizes, found.requested) == ((0x1000, 0xE000), (512, 512), (500, 500))


def test_whole_segments_are_returnable() -> None:
    """A segment is returnable if none of its blocks is in use. In other segments, free blocks count as
    fragmented.
    """
    assert sums(segment(0, used(1 * MIB), free(19 * MIB))) == (0, 0, 0, 19)
    assert sums(segment(0, free(20 * MIB))) == (20, 0, 0, 0)
    assert sums(segment(0, free(8 * MIB), free(12 * MIB))) == (20, 0, 0, 0)


def test_expandable_segments_return_whole_pages() -> None:
    """In expandable segments, pages that are entirely free are returnable. A page has 20 MiB, or 2 MiB in
    segments for small tensors.
    """
    gaps = chain(*repeat((used(4 * MIB), free(4 * MIB)), 500))
    assert sums(segment(0, *gaps, is_expandable=True, segment_type="large")) == (0, 0, 0, 2000)
    row = (used(4 * MIB), free(30 * MIB), free(20 * MIB), used(6 * MIB), free(20 * MIB))
    assert sums(segment(0, *row, is_expandable=True, segment_type="large")) == (20 + 20, 0, 0, 30)
    small = (used(1 * MIB), free(4 * MIB), used(1 * MIB))
    assert sums(segment(0, *small, is_expandable=True, segment_type="small")) == (2, 0, 0, 2)


def test_blocks_that_another_stream_still_uses() -> None:
    """If all blocks of a segment have been freed, but another stream still uses some of them, the whole
    segment counts as memory that will be returnable once that stream has finished.
    """
    assert sums(segment(0, pending(8 * MIB), free(12 * MIB))) == (0, 20, 0, 0)
    assert sums(segment(0, pending(8 * MIB), used(12 * MIB))) == (0, 0, 0, 8)
    row = (free(20 * MIB), pending(30 * MIB), used(10 * MIB))
    assert sums(segment(0, *row, is_expandable=True)) == (20, 20, 0, 10)


def test_private_pools_are_distinguished() -> None:
    """Free memory in the private pool of a CUDA graph is counted separately, not as fragmented."""
    pool = {"segment_pool_id": (0, 1)}
    whole, part = segment(0, free(20 * MIB), **pool), segment(0, used(8 * MIB), free(12 * MIB), **pool)
    assert sums(whole, part) == (0, 0, 32, 0)


def test_description_of_the_cache() -> None:
    """The memory view describes each kind of cached memory, and omits the kinds that are empty."""
    device = memory(
        device_blocks(
            1,
            [
                segment(0, free(20 * MIB)),
                segment(0, pending(8 * MIB), free(12 * MIB)),
                segment(0, used(1 * MIB), free(1 * MIB)),
                segment(0, free(6 * MIB), segment_pool_id=(0, 1)),
            ],
        )
    )
    holders = Holders()
    holders.devices = (device,)
    (section,) = holders_view.of(holders).sections
    (remark,) = section.remarks
    total, *kinds = remark.split(", ")
    assert total.startswith("Cache: 47 MiB ")
    assert [kind.removeprefix("of which ").partition("MiB")[0] for kind in kinds[:4]] == [
        *("20 ", "20 ", "6.0 ", "1.0 "),
    ]
    holders.devices = (
        replace(device, reserved=device.allocated + 20 * MIB, private_pools=0, pending_free=0),
    )
    (section,) = holders_view.of(holders).sections
    (remark,) = section.remarks
    assert remark.startswith("Cache: 20 MiB ")
    assert remark.endswith("of which 20 MiB can be freed (%gpu free --yes).")


def test_addresses_within_blocks() -> None:
    """An address is assigned to a block only if it lies within that block."""
    found = device_blocks(0, [segment(1000, used(512), free(512))])
    assert [found.find(address) for address in (999, 1000, 1511, 1512)] == [None, 0, 0, None]


def test_without_cuda_there_is_nothing() -> None:
    """If CUDA is not initialized, there are no blocks and no allocation counts, and the reason is given."""
    pytest.importorskip("torch")
    assert (allocator.memory_blocks(), allocator.allocation_counts()) == ({}, {})
    reason = cuda_state.no_counters_reason()
    assert reason is not None
    assert reason.id == "cuda-not-initialized"


def test_snapshots_leave_the_history_out(gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch supports it, snapshots are requested without the allocation history, which would make them
    slow.
    """
    torch = pytest.importorskip("torch")
    x = gpu.empty(MIB)
    asked: list[bool] = []

    def new(mempool_id: object = None, include_traces: bool = True) -> list[dict[str, Any]]:
        asked.append(include_traces)
        return gpu.snapshot()

    monkeypatch.setattr(torch.cuda, "memory_snapshot", new)
    assert allocator.memory_blocks()[0].allocated == x.nbytes
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: gpu.snapshot())
    assert allocator.memory_blocks()[0].allocated == x.nbytes
    assert asked == [False]
