"""Changes of torch's memory on one device during a run, from the allocator's counters and segments."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from gpuwidget import pytorch
from gpuwidget.model.boundary import Boundary
from gpuwidget.model.report import Span, TorchMemory
from gpuwidget.model.torch_state import DevicePeaks
from gpuwidget.model.worker_update import WorkerGpuUpdate

_LOG = logging.getLogger(__name__)


def returnable(peaks: Mapping[int, DevicePeaks]) -> dict[int, int | None]:
    """Return the bytes that ``empty_cache()`` would release, for each device whose memory the run changed.

    The value is None if it is unknown. This makes no calls to the GPU. Devices whose memory the run did not
    change are left out, because listing the segments takes milliseconds if there are thousands of tensors.
    """
    changed = {index: device.after for index, device in peaks.items() if _changed(device)}
    if not changed:
        return {}
    found: dict[int, int | None] = dict.fromkeys(changed)
    with Boundary(_LOG, "torch's segments could not be read", foreign=True):
        blocks = pytorch.memory_blocks()
        for index, after in changed.items():
            # Another thread may have allocated memory since the counters were read. The figure is used only
            # if the reserved memory is still the same.
            if index in blocks and blocks[index].reserved == after.reserved:
                found[index] = blocks[index].returnable
            elif after.reserved == 0:
                found[index] = 0
    return found


def torch_memory(peaks: DevicePeaks, returnable: int | None) -> TorchMemory:
    """Return the report's figures about torch's memory on one device."""
    before, after = peaks.before, peaks.after
    allocated, reserved = _spans(peaks)
    return TorchMemory(
        allocated=allocated,
        reserved=reserved,
        alloc_retries=_increase(before.alloc_retries if before else 0, after.alloc_retries),
        ooms=_increase(before.ooms if before else 0, after.ooms),
        inactive_split=after.inactive_split,
        returnable=returnable,
    )


def torch_updates(peaks: Mapping[int, DevicePeaks]) -> list[WorkerGpuUpdate]:
    """Return torch's memory on each GPU on which it has held memory, without the driver's values."""
    found = []
    for device in pytorch.devices():
        of_device = peaks.get(device.index)
        if of_device is not None and device.uuid is not None and of_device.reserved_peak:
            found.append(WorkerGpuUpdate(device.uuid, *_spans(of_device)))
    return found


def _spans(peaks: DevicePeaks) -> tuple[Span, Span]:
    """Return torch's allocated and its reserved memory on one device."""
    before, after = peaks.before, peaks.after
    return (
        Span(before.allocated if before else 0, after.allocated, peaks.allocated_peak),
        Span(before.reserved if before else 0, after.reserved, peaks.reserved_peak),
    )


def has_allocated(peaks: DevicePeaks) -> bool | None:
    """Return whether torch has allocated or released memory on the device during the run.

    Nearly all operations on a GPU allocate memory for their result, which comes from torch's cache without
    changing any size.
    """
    before, after = peaks.before, peaks.after
    count = 0 if before is None else before.allocations
    if _changed(peaks) or (None not in (count, after.allocations) and count != after.allocations):
        return True
    return None if None in (count, after.allocations) else False


def _changed(peaks: DevicePeaks) -> bool:
    before, after = peaks.before, peaks.after
    if before is None:
        return after.reserved > 0
    then, now = (
        (counters.allocated, counters.reserved, counters.inactive_split, counters.alloc_retries)
        for counters in (before, after)
    )
    return then != now or peaks.allocated_peak > before.allocated


def _increase(before: int, after: int) -> int | None:
    """Return the increase of a counter, or None if the counter was reset."""
    return after - before if after >= before else None
