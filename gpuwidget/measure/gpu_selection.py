"""Which GPUs a user's words name: NVML indices, UUIDs or their prefixes, ``cuda:N``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from gpuwidget.model.errors import OptionError
from gpuwidget.model.samples import Gpu
from gpuwidget.pytorch import cuda_state


def choose(
    words: Sequence[str], gpus: Sequence[Gpu], environment: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """UUIDs of the GPUs that ``words`` name, each once, in the order of ``gpus``.

    A number is NVML's index (nvidia-smi's), ``0:1`` MIG slice 1 of GPU 0, ``cuda:N`` is torch's, anything
    else a UUID or an unambiguous prefix of one. Raises OptionError, saying what is there, for a word that
    names none.
    """
    environment = os.environ if environment is None else environment
    chosen: set[str] = set()
    for word in words:
        chosen.update(_named(word.strip(), gpus, environment))
    return tuple(gpu.uuid for gpu in gpus if gpu.uuid in chosen)


def _named(word: str, gpus: Sequence[Gpu], environment: Mapping[str, str]) -> list[str]:
    if not gpus:
        raise OptionError(f"--gpu {word}: no GPU is visible here.")
    if word.isdigit():
        found = [gpu.uuid for gpu in gpus if gpu.index == int(word) and gpu.mig_parent is None]
    elif re.fullmatch(r"\d+:\d+", word):
        parent, _, number_in = word.partition(":")
        found = [gpu.uuid for gpu in gpus if (gpu.index, gpu.mig_index) == (int(parent), int(number_in))]
    elif re.fullmatch(r"cuda:\d+", word):
        number = int(word.partition(":")[2])
        found = _cuda_device(number, gpus, environment)
    else:
        found = [gpu.uuid for gpu in gpus if word and gpu.uuid.lower().startswith(word.lower())]
        if len(found) > 1:
            raise OptionError(f"--gpu {word}: the prefix fits {len(found)} GPUs; give more of the UUID.")
    if not found:
        there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus if gpu.mig_parent is None)
        raise OptionError(f"--gpu {word}: no such GPU. There are: {there}.")
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
    """UUIDs in the order of CUDA's devices, as the environment will have it; None where nobody can tell.

    CUDA numbers the fastest first, which among GPUs of one model is the order of their PCI ids, NVML's.
    """
    whole = [gpu for gpu in gpus if gpu.mig_parent is None]
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if len(whole) < len(gpus) and not _names_slices(visible):
        return None  # of a GPU that is cut into slices CUDA takes one, and does not say which
    by_bus = environment.get("CUDA_DEVICE_ORDER", "") == "PCI_BUS_ID"
    if not by_bus and len({gpu.name for gpu in whole}) > 1:
        return None
    ordered = [gpu.uuid for gpu in whole]
    if visible is None:
        return tuple(ordered)
    chosen: list[str] = []
    for item in visible.split(","):
        # CUDA stops at the first item that it can't make out.
        found = _visible(item.strip(), ordered, gpus)
        if found is None or found in chosen:
            break
        chosen.append(found)
    return tuple(chosen)


def _names_slices(visible: str | None) -> bool:
    return visible is not None and all(item.strip().startswith("MIG-") for item in visible.split(","))


def _visible(item: str, ordered: Sequence[str], gpus: Sequence[Gpu]) -> str | None:
    if item.isdigit():
        return ordered[int(item)] if int(item) < len(ordered) else None
    if not item.startswith(("GPU-", "MIG-")):
        return None
    found = [gpu.uuid for gpu in gpus if gpu.uuid.startswith(item)]
    return found[0] if len(found) == 1 else None
