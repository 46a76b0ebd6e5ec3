"""What a run did to torch's memory on one device, from the allocator's counters and its list of segments."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from gpuwidget.model.report import Span, TorchMemory
from gpuwidget.pytorch import allocator
from gpuwidget.pytorch.peak_tracker import DevicePeaks

UNCHANGED = "not looked for, as the run changed nothing of torch's memory"
NO_LIST = "torch gave no list of its segments that agrees with its counters"


def returnable(accounts: Mapping[int, DevicePeaks]) -> dict[int, int | None]:
    """Of each device on which the run changed torch's memory: bytes that emptying the cache would give back.

    None where torch does not say. Host-side. The list takes milliseconds where there are thousands of
    tensors, too long after a cell that did nothing to them.
    """
    changed = {index: account.after for index, account in accounts.items() if _changed(account)}
    if not changed:
        return {}
    found: dict[int, int | None] = dict.fromkeys(changed)
    with suppress(Exception):
        blocks = allocator.snapshot()
        for index, after in changed.items():
            # Another thread may have allocated since the counters were read.
            if index in blocks and blocks[index].reserved == after.reserved:
                found[index] = blocks[index].returnable
            elif after.reserved == 0:
                found[index] = 0
    return found


def torch_memory(account: DevicePeaks, returnable: int | None) -> TorchMemory:
    """The report's part of it."""
    before, after = account.before, account.after
    return TorchMemory(
        allocated=Span(before.allocated if before else 0, after.allocated, account.allocated_peak),
        reserved=Span(before.reserved if before else 0, after.reserved, account.reserved_peak),
        alloc_retries=_risen(before.alloc_retries if before else 0, after.alloc_retries),
        ooms=_risen(before.ooms if before else 0, after.ooms),
        inactive_split=after.inactive_split,
        returnable=returnable,
    )


def _changed(account: DevicePeaks) -> bool:
    before, after = account.before, account.after
    if before is None:
        return after.reserved > 0
    then, now = (
        (one.allocated, one.reserved, one.inactive_split, one.alloc_retries) for one in (before, after)
    )
    return then != now or account.allocated_peak > before.allocated


def _risen(before: int, after: int) -> int | None:
    return after - before if after >= before else None
