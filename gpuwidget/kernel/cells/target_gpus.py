"""Find the GPUs that a cell is about to use: the GPUs that its options name, or else torch's device."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwidget import pytorch
from gpuwidget.kernel.cells.options import WatchOptions
from gpuwidget.measure.device_order import environment_order, find_order
from gpuwidget.measure.gpu_selection import select_gpus
from gpuwidget.model.errors import OptionError
from gpuwidget.model.samples import Gpu, Sample
from gpuwidget.model.torch_state import cuda_index
from gpuwidget.model.translation import translatable
from gpuwidget.pytorch import DEVICE_SWITCH


@dataclass(frozen=True, slots=True)
class TargetGpu:
    """One GPU that a cell is about to use."""

    gpu: Gpu
    cuda_index: int | None
    """The N of ``cuda:N`` in this process; None if unknown."""


def find_target_gpus(options: WatchOptions, sample: Sample | None) -> tuple[list[TargetGpu], str]:
    """Return the GPUs that a cell is about to use, and a phrase that describes how they were chosen.

    The first of these that is known determines the GPUs: the cell's ``--device``, the cell's ``--gpu``,
    torch's default device if it is a CUDA device, the current CUDA device, the device that will be current
    once CUDA is initialized, the first device that CUDA lists. Raise OptionError if none of them is known, or
    if the GPU does not exist.
    """
    if sample is None:
        raise OptionError(translatable("The NVIDIA driver has not answered, so the GPUs are unknown."))
    if not sample.gpus:
        reason = sample.origin.reason or translatable("No GPU is visible here.")
        raise OptionError(translatable("The cell needs a GPU. {reason}", reason=reason))
    order = _order(sample)
    if options.device is not None:
        return [_of_device(options.device, order, sample.gpus)], f"--device {options.device}"
    if options.run.gpus:
        uuids = select_gpus(options.run.gpus, sample.gpus)
        return [_target(uuid, order, sample.gpus) for uuid in uuids], "--gpu"
    default = pytorch.default_device()
    if cuda_index(default) is not None:
        return [_of_device(str(default), order, sample.gpus)], translatable(
            "torch's default device, {device}", device=default
        )
    current = pytorch.current_cuda_device()
    if current is not None and order is not None:
        name = f"cuda:{current}"
        return [_of_device(name, order, sample.gpus)], translatable(
            "the current CUDA device, {device}", device=name
        )
    pending = DEVICE_SWITCH.pending_cuda_device if current is None else None
    if pending is not None:
        return [_of_device(pending, order, sample.gpus)], translatable(
            "chosen as the current CUDA device, {device}", device=pending
        )
    if order and order[0] is not None:
        selected_by = (
            translatable("the only GPU") if len(order) == 1 else translatable("the first that CUDA sees")
        )
        return [_target(order[0], order, sample.gpus)], selected_by
    if order is not None and not order:
        raise OptionError(translatable("CUDA_VISIBLE_DEVICES hides every GPU: name one with --gpu."))
    raise OptionError(translatable("Couldn't tell which GPU is cuda:0, so name the GPU with --gpu."))


def _order(sample: Sample) -> Sequence[str | None] | None:
    """Return the GPUs' UUIDs in the order of CUDA's devices, with None for an unknown GPU.

    Return None if the number of devices is unknown.
    """
    if sample.origin.live:
        return find_order(sample.gpus, os.environ).uuids
    return environment_order(sample.gpus, os.environ)


def _of_device(device: str, order: Sequence[str | None] | None, gpus: Sequence[Gpu]) -> TargetGpu:
    index = cuda_index(device)
    if index is None:
        raise OptionError(
            translatable("--device {device} is not a GPU: omit --need, or name a GPU.", device=device)
        )
    uuid = order[index] if order is not None and index < len(order) else None
    if uuid is None:
        raise OptionError(
            translatable(
                "Couldn't tell which GPU {device} is, so start CUDA in an earlier cell, or omit --need.",
                device=device,
            )
        )
    return _target(uuid, order, gpus)


def _target(uuid: str, order: Sequence[str | None] | None, gpus: Sequence[Gpu]) -> TargetGpu:
    gpu = next(gpu for gpu in gpus if gpu.uuid == uuid)
    return TargetGpu(gpu, order.index(uuid) if order is not None and uuid in order else None)
