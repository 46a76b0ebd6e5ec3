"""Find the GPUs that a user selects by NVML index, UUID, UUID prefix or ``cuda:N``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from gpuwidget.model.errors import OptionError
from gpuwidget.model.samples import Gpu
from gpuwidget.pytorch import cuda_state


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
        raise OptionError(f"--gpu {item}: no GPU is visible here.")
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
            raise OptionError(f"--gpu {item}: the prefix fits {len(found)} GPUs; give more of the UUID.")
    if not found:
        existing = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus if gpu.mig_parent is None)
        raise OptionError(f"--gpu {item}: no such GPU. There are: {existing}.")
    return found


def _cuda_device(number: int, gpus: Sequence[Gpu], environment: Mapping[str, str]) -> list[str]:
    devices = cuda_state.devices()
    if devices:
        torch_uuid = next((device.uuid for device in devices if device.index == number), None)
        return [gpu.uuid for gpu in gpus if cuda_state.same_gpu(gpu.uuid, torch_uuid)]
    order = cuda_order(gpus, environment)
    if order is None:
        raise OptionError(
            f"--gpu cuda:{number}: which GPU that is will be known once CUDA is up, since this machine's "
            "GPUs differ or are cut into MIG slices. Give its index or UUID."
        )
    return [order[number]] if number < len(order) else []


def cuda_order(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the UUIDs in the order in which CUDA numbers its devices, or None if the order is unknown.

    CUDA gives the fastest GPU the number 0, unless CUDA_DEVICE_ORDER is PCI_BUS_ID. It orders GPUs of the
    same model by PCI bus id, as NVML does.
    """
    whole = [gpu for gpu in gpus if gpu.mig_parent is None]
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if len(whole) < len(gpus) and not _only_mig_slices(visible):
        return None  # CUDA uses only one slice of a GPU in MIG mode, and which one is unknown
    by_pci_bus = environment.get("CUDA_DEVICE_ORDER", "") == "PCI_BUS_ID"
    if not by_pci_bus and len({gpu.name for gpu in whole}) > 1:
        return None
    ordered = [gpu.uuid for gpu in whole]
    if visible is None:
        return tuple(ordered)
    order: list[str] = []
    for item in visible.split(","):
        # CUDA ignores the first invalid item of CUDA_VISIBLE_DEVICES and everything after it.
        found = _visible_device(item.strip(), ordered, gpus)
        if found is None:
            break
        if found in order:
            return ()  # CUDA shows no device if an entry is repeated
        order.append(found)
    return tuple(order)


def _only_mig_slices(visible: str | None) -> bool:
    return visible is not None and all(item.strip().startswith("MIG-") for item in visible.split(","))


def _visible_device(item: str, ordered: Sequence[str], gpus: Sequence[Gpu]) -> str | None:
    if item.isdigit():
        return ordered[int(item)] if int(item) < len(ordered) else None
    if not item.startswith(("GPU-", "MIG-")):
        return None
    found = [gpu.uuid for gpu in gpus if gpu.uuid.startswith(item)]
    return found[0] if len(found) == 1 else None
