"""Attribute GPU memory outside torch's allocator to CUDA contexts, other libraries and other processes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwidget import pytorch
from gpuwidget.kernel.devices import default_device
from gpuwidget.kernel.devices.device_choices import MemoryShares
from gpuwidget.measure.holder_ranking import DeviceMemory
from gpuwidget.measure.jax_pool import jax_pools
from gpuwidget.model.boundary import Boundary, foreign_attribute
from gpuwidget.model.messages import Sentences
from gpuwidget.model.readings import Reading
from gpuwidget.model.report import Holder
from gpuwidget.model.samples import Gpu
from gpuwidget.model.torch_state import TorchDevice, same_gpu
from gpuwidget.model.translation import translatable
from gpuwidget.sampler import NO_THREAD

_LOG = logging.getLogger(__name__)

CONTEXT = translatable("CUDA context and other libraries")
WITH_NCCL = translatable("CUDA context, NCCL's buffers and other libraries")
CUPY = translatable("CuPy's memory pool")
JAX = translatable("JAX's memory pool")
REMAINING = translatable("CUDA context, other libraries and other processes")
_UNKNOWN = Sentences("Couldn't read the memory outside torch. {reason}")
"""Why the memory outside torch is unknown; ``reason`` is one or more sentences."""
_TIMEOUT_S = 0.25


@dataclass(frozen=True, slots=True)
class NonTorchMemory:
    """The holders of memory outside torch's allocator on one device."""

    gpu: str
    """Name of the GPU, such as ``GPU 0 H200``."""
    holders: tuple[Holder, ...]
    notes: tuple[str, ...]
    """Sentences that state what is unknown, and why."""


def by_device(torch_memory: Sequence[DeviceMemory]) -> tuple[dict[str, NonTorchMemory], str | None]:
    """Return the memory outside torch for each ``cuda:N`` on which this process has a CUDA context.

    The second value is the reason if nothing is known, and otherwise None. The call takes at most a quarter
    of a second.
    """
    monitor = default_device.monitor()
    sample = monitor.read(_TIMEOUT_S)
    if sample is None:
        if monitor.has_no_thread:
            return {}, _UNKNOWN(reason=NO_THREAD)
        return {}, _UNKNOWN(reason=translatable("The driver did not answer in time."))
    if not sample.origin.local_processes:
        recorded = translatable("The recorded processes are not this machine's.")
        return {}, _UNKNOWN(reason=sample.origin.reason or recorded)
    reserved = {device.device: device.reserved for device in torch_memory}
    in_use = pytorch.devices_with_context()
    found = {}
    for device in pytorch.devices():
        for gpu, reading in zip(sample.gpus, sample.readings, strict=True):
            if device.index in in_use and same_gpu(gpu.uuid, device.uuid):
                shares = monitor.memory_shares(sample, gpu, reading)
                found[device.name] = _of_device(shares, device, gpu, reading, reserved.get(device.name, 0))
    return found, None


def cupy_pool(index: int) -> int | None:
    """Return the bytes in CuPy's memory pool on a device; None if CuPy is not loaded or raises an error."""
    pool = foreign_attribute("cupy", "get_default_memory_pool")
    if pool is None or not pytorch.is_loaded():
        return None
    # The pool returns the bytes on the current device.
    with Boundary(_LOG, "CuPy's pool could not be read", foreign=True), pytorch.on_device(index):
        return int(pool().total_bytes())
    return None


def _of_device(
    shares: MemoryShares, device: TorchDevice, gpu: Gpu, reading: Reading, reserved: int
) -> NonTorchMemory:
    name = f"GPU {gpu.index} {gpu.name.removeprefix('NVIDIA ')}"
    pool, jax = cupy_pool(device.index), jax_pools().get(device.index)
    held: list[tuple[str, int]] = [(CUPY, pool)] if pool else []
    held += [(JAX, jax.reserved)] if jax is not None else []
    notes: list[str] = []
    known = reserved + sum(size for _, size in held)
    if shares.reason is not None:
        notes.append(
            translatable("Couldn't tell how much each process holds, because {reason}.", reason=shares.reason)
        )
        if reading.memory_used is not None and not gpu.unified_memory:
            held.append((REMAINING, reading.memory_used - known))
    else:
        if shares.own is not None:
            held.append((WITH_NCCL if pytorch.uses_nccl() else CONTEXT, shares.own - known))
        held += shares.others
    if any(size < 0 for _, size in held):
        notes.append(translatable("The driver's values are older than torch's: run the command again."))
    return NonTorchMemory(
        gpu=name,
        holders=tuple(
            Holder("outside torch", (who,), None, device.name, size, None) for who, size in held if size > 0
        ),
        notes=tuple(notes),
    )
