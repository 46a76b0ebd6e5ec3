"""How much GPU memory the driver reports as used before and after a command that frees some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuwidget.kernel.devices import default_device
from gpuwidget.model import units
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.pytorch import cuda_state

_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class UsedMemory:
    """The memory in use on one GPU."""

    gpu: str
    """``GPU 0``."""
    bytes: int
    own: bool
    """Whether it is this process's memory; else that of all processes."""


class FreedMemory:
    """Measures what a command frees: construct it before, call :meth:`describe` afterwards."""

    def __init__(self) -> None:
        self._used = read_used_memory()
        self._reserved = reserved_by_torch()

    def describe(self) -> str:
        """Return a sentence on the memory that other programs can allocate now."""
        freed_by_torch = max(0, self._reserved - reserved_by_torch())
        return describe_freed(self._used, read_used_memory(), freed_by_torch)


def reserved_by_torch() -> int:
    """Return the bytes that torch's allocator has reserved on all GPUs."""
    return sum(counters.reserved for counters in cuda_state.counters().values())


def read_used_memory(clock: Clock = SYSTEM_CLOCK) -> dict[str, UsedMemory] | None:
    """Return the memory in use by UUID, for GPUs on which this process has a context.

    None if the driver provides no current reading.
    """
    monitor = default_device.monitor()
    began, now = clock.monotonic(), clock.time()
    sample = monitor.read(_TIMEOUT_S)
    # A reading that takes longer may be older than this call.
    if sample is None or not sample.origin.local_processes or clock.monotonic() - began >= _TIMEOUT_S:
        return None
    monitor.kernel_gpus(sample)  # may confirm that the driver's process ids are valid here
    in_use = cuda_state.devices_with_context()
    uuids = [device.uuid for device in cuda_state.devices() if device.index in in_use]
    found: dict[str, UsedMemory] = {}
    for gpu, reading in zip(sample.gpus, sample.readings, strict=True):
        if not any(cuda_state.same_gpu(gpu.uuid, uuid) for uuid in uuids):
            continue
        if reading.measured is None or reading.measured < now or reading.memory_used is None:
            return None
        own = monitor.memory_shares(gpu, reading).own
        used = reading.memory_used if own is None else own
        found[gpu.uuid] = UsedMemory(f"GPU {gpu.index}", used, own is not None)
    return found or None


def describe_freed(
    before: Mapping[str, UsedMemory] | None, after: Mapping[str, UsedMemory] | None, freed_by_torch: int
) -> str:
    """Return how much was freed: by the driver's figure for this process, else by torch's."""
    by_torch = f"Given back to the GPU: {units.memory(freed_by_torch)} by torch's count"
    if before is None or after is None or before.keys() != after.keys():
        return f"{by_torch}; the driver's is not known."
    if all(one.own for one in (*before.values(), *after.values())):
        freed = [(after[uuid].gpu, one.bytes - after[uuid].bytes) for uuid, one in before.items()]
        changes = [f"{units.memory(size)} on {gpu}" for gpu, size in freed if size > 0]
        return f"Given back: {', '.join(changes) or 'nothing'}, as the driver sees it."
    used = [
        f"{one.gpu} went from {units.memory(one.bytes)} to {units.memory(after[uuid].bytes)}"
        for uuid, one in before.items()
        if not one.own and not after[uuid].own
    ]
    if not used:
        return f"{by_torch}; the driver's is not known."
    return f"{by_torch}; by the driver's, with all other processes, {', '.join(used)}."
