"""How much memory of the GPUs the driver counts as used, read anew: what a command has given back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuwidget.kernel.devices import default_device
from gpuwidget.model import units
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.pytorch import cuda_state

_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class InUse:
    """One GPU's memory in use."""

    gpu: str
    """``GPU 0``."""
    bytes: int
    own: bool
    """Whether it is this process's alone; else everybody's."""


def look(clock: Clock = SYSTEM_CLOCK) -> dict[str, InUse] | None:
    """By UUID, for GPUs on which this process has a context; None where the driver does not say it now."""
    observer = default_device.observer()
    began, now = clock.monotonic(), clock.time()
    sample = observer.look(_PATIENCE_S)
    # One that takes longer may tell of the time before it was asked.
    if sample is None or not sample.origin.local_processes or clock.monotonic() - began >= _PATIENCE_S:
        return None
    observer.gpus(sample)  # may prove that process ids are this machine's
    in_use = cuda_state.devices_with_context()
    uuids = [device.uuid for device in cuda_state.devices() if device.index in in_use]
    found: dict[str, InUse] = {}
    for gpu, reading in zip(sample.gpus, sample.readings, strict=True):
        if not any(cuda_state.same_gpu(gpu.uuid, uuid) for uuid in uuids):
            continue
        if reading.measured is None or reading.measured < now or reading.memory_used is None:
            return None
        own = observer.shares(gpu, reading).own
        used = reading.memory_used if own is None else own
        found[gpu.uuid] = InUse(f"GPU {gpu.index}", used, own is not None)
    return found or None


def given_back(before: Mapping[str, InUse] | None, after: Mapping[str, InUse] | None, by_torch: int) -> str:
    """What other programs can have now: by the driver's count for this process, else by torch's."""
    torch_says = f"Given back to the GPU: {units.memory(by_torch)} by torch's count"
    if before is None or after is None or before.keys() != after.keys():
        return f"{torch_says}; the driver's is not known."
    if all(one.own for one in (*before.values(), *after.values())):
        less = [(after[uuid].gpu, one.bytes - after[uuid].bytes) for uuid, one in before.items()]
        changes = [f"{units.memory(size)} on {gpu}" for gpu, size in less if size > 0]
        return f"Given back: {', '.join(changes) or 'nothing'}, as the driver sees it."
    used = [
        f"{one.gpu} went from {units.memory(one.bytes)} to {units.memory(after[uuid].bytes)}"
        for uuid, one in before.items()
        if not one.own and not after[uuid].own
    ]
    if not used:
        return f"{torch_says}; the driver's is not known."
    return f"{torch_says}; by the driver's, with all other processes, {', '.join(used)}."
