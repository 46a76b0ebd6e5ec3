"""Find the GPUs that a user selects by NVML index, UUID, UUID prefix or ``cuda:N``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from gpuwidget.measure.device_order import find_order
from gpuwidget.model.errors import OptionError
from gpuwidget.model.samples import Gpu
from gpuwidget.model.translation import joined, translatable


def select_gpus(
    selection: Sequence[str], gpus: Sequence[Gpu], environment: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that ``selection`` names, without duplicates, in the order of ``gpus``.

    A number is an index in NVML's order (as in nvidia-smi), ``0:1`` is MIG slice 1 of GPU 0, ``cuda:N`` is a
    torch device, and anything else is a UUID or an unambiguous prefix of one. Raise OptionError for an item
    that matches no GPU, that is an ambiguous prefix, or whose GPU can't be determined before CUDA is
    initialized.
    """
    environment = os.environ if environment is None else environment
    selected: set[str] = set()
    for item in selection:
        selected.update(_uuids(item.strip(), gpus, environment))
    return tuple(gpu.uuid for gpu in gpus if gpu.uuid in selected)


def _uuids(item: str, gpus: Sequence[Gpu], environment: Mapping[str, str]) -> list[str]:
    if not gpus:
        raise OptionError(translatable("--gpu {item}: no GPU is visible here.", item=item))
    if item.isdigit():
        found = [gpu.uuid for gpu in gpus if gpu.index == int(item) and gpu.mig_parent is None]
    elif re.fullmatch(r"\d+:\d+", item):
        parent, _, mig_index = item.partition(":")
        found = [gpu.uuid for gpu in gpus if (gpu.index, gpu.mig_index) == (int(parent), int(mig_index))]
    elif re.fullmatch(r"cuda:\d+", item):
        number = int(item.partition(":")[2])
        found = _cuda_device(number, gpus, environment)
    else:
        found = [gpu.uuid for gpu in gpus if item and gpu.uuid.lower().startswith(item.lower())]
        if len(found) > 1:
            raise OptionError(
                translatable(
                    "--gpu {item}: {number} GPUs match this prefix; give more of the UUID.",
                    item=item,
                    number=len(found),
                )
            )
    if not found:
        existing = ", ".join(
            f"{gpu.index if gpu.mig_index is None else f'{gpu.index}:{gpu.mig_index}'} ({gpu.uuid})"
            for gpu in gpus
        )
        raise OptionError(
            translatable("--gpu {item}: no such GPU. There are: {existing}.", item=item, existing=existing)
        )
    return found


def _cuda_device(number: int, gpus: Sequence[Gpu], environment: Mapping[str, str]) -> list[str]:
    order = find_order(gpus, environment)
    if order.source is None:
        why = joined(order.notes, " ")
        raise OptionError(
            translatable(
                "--gpu cuda:{number}: {why} The GPU's index or UUID always works here.",
                number=number,
                why=why,
            )
        )
    uuid = order.uuids[number] if order.uuids is not None and number < len(order.uuids) else None
    return [] if uuid is None else [uuid]
