"""Measure how much memory a command frees, from the used memory that the driver reports before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuwidget import pytorch
from gpuwidget.kernel.devices import default_device
from gpuwidget.model import units
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.translation import Text, joined, translatable

_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class UsedMemory:
    """The memory in use on one GPU, as reported by the driver."""

    gpu: str
    """Name of the GPU, such as ``GPU 0``."""
    bytes: int
    own: bool
    """Whether ``bytes`` is the memory of this process only. Otherwise, it is the memory of all processes."""


class FreedMemory:
    """Measures how much memory a command frees.

    Create the object before the command, and call :meth:`describe` after it.
    """

    def __init__(self) -> None:
        self._used = read_used_memory()
        self._reserved = reserved_by_torch()

    def describe(self) -> Text:
        """Return a sentence that states how much memory was freed for other programs."""
        freed_by_torch = max(0, self._reserved - reserved_by_torch())
        return describe_freed(self._used, read_used_memory(), freed_by_torch)


def reserved_by_torch() -> int:
    """Return the bytes that torch's allocator has reserved on all GPUs."""
    return sum(counters.reserved for counters in pytorch.allocator_counters().values())


def read_used_memory(clock: Clock = SYSTEM_CLOCK) -> dict[str, UsedMemory] | None:
    """Return the memory in use on the GPUs on which this process has a CUDA context, keyed by GPU UUID.

    Return None if there is no such GPU or the driver provides no current reading.
    """
    monitor = default_device.monitor()
    began, now = clock.monotonic(), clock.time()
    sample = monitor.read(_TIMEOUT_S)
    # After a timeout, the sample may be older than this call, so it is not used.
    if sample is None or not sample.origin.local_processes or clock.monotonic() - began >= _TIMEOUT_S:
        return None
    found: dict[str, UsedMemory] = {}
    for gpu, reading in zip(sample.gpus, sample.readings, strict=True):
        if not pytorch.has_context(gpu.uuid):
            continue
        if reading.measured is None or reading.measured < now or reading.memory_used is None:
            return None
        own = monitor.memory_shares(sample, gpu, reading).own
        used = reading.memory_used if own is None else own
        found[gpu.uuid] = UsedMemory(f"GPU {gpu.index}", used, own is not None)
    return found or None


def describe_freed(
    before: Mapping[str, UsedMemory] | None, after: Mapping[str, UsedMemory] | None, freed_by_torch: int
) -> Text:
    """Return a sentence that states the freed memory according to the driver, or else according to torch."""
    by_torch = translatable("Freed on the GPU according to torch: {size}.", size=units.memory(freed_by_torch))
    unknown = joined([by_torch, translatable("The driver's value is unknown.")], " ")
    if before is None or after is None or before.keys() != after.keys():
        return unknown
    if all(used.own for used in (*before.values(), *after.values())):
        freed = [(after[uuid].gpu, used.bytes - after[uuid].bytes) for uuid, used in before.items()]
        changes = [
            translatable("{size} on {gpu}", size=units.memory(size), gpu=gpu)
            for gpu, size in freed
            if size > 0
        ]
        return translatable(
            "Freed according to the driver: {changes}.",
            changes=joined(changes) if changes else translatable("nothing"),
        )
    used = [
        translatable(
            "the memory in use on {gpu} went from {before} to {after}",
            gpu=used.gpu,
            before=units.memory(used.bytes),
            after=units.memory(after[uuid].bytes),
        )
        for uuid, used in before.items()
        if not used.own and not after[uuid].own
    ]
    if not used:
        return unknown
    by_driver = translatable(
        "According to the driver, which counts all processes together, {changes}.", changes=joined(used)
    )
    return joined([by_torch, by_driver], " ")
