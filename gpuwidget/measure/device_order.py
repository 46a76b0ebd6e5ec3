"""Find which GPU each ``cuda:N`` is, and state how certain that is.

NVML and nvidia-smi number the GPUs by PCI bus id. CUDA numbers the devices that CUDA_VISIBLE_DEVICES lists.
Unless CUDA_DEVICE_ORDER is PCI_BUS_ID, it puts the fastest GPU first, by a heuristic that NVIDIA does not
document:
https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpuwidget import pytorch
from gpuwidget.model.messages import Message, Template, message
from gpuwidget.model.samples import Gpu, is_unopened
from gpuwidget.model.torch_state import same_gpu
from gpuwidget.model.translation import joined, listed, translatable

_VISIBLE, _ORDER, _BY_BUS = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
_MAX_VALUE = 80
"""Maximum number of characters of an environment variable that is quoted in a sentence."""

ORDER_UNKNOWN = message(
    "device-order-unknown",
    "Couldn't tell which GPU is cuda:0, because the GPUs differ and CUDA has not started. CUDA puts the "
    "fastest GPU first, by a measure that NVIDIA does not document. To get nvidia-smi's order, set "
    "CUDA_DEVICE_ORDER=PCI_BUS_ID before CUDA starts.",
)
SLICE_UNKNOWN = message(
    "device-slice-unknown",
    "Couldn't tell which CUDA devices there are, because a GPU is in MIG mode and CUDA picks one of its "
    "slices when it starts. To choose the slice, set CUDA_VISIBLE_DEVICES to its UUID.",
)
UUIDS_UNKNOWN = message(
    "device-uuids-unknown",
    "Couldn't tell which GPU each cuda:N is, because neither this PyTorch nor the CUDA driver reports UUIDs.",
)
UNLIKE_EXPECTED = Template(
    "device-order-unlike-expected",
    "{device} is {now}. Before CUDA started, the environment variables suggested {expected}.",
)


@dataclass(frozen=True, slots=True)
class CudaOrder:
    """The GPUs in the order in which CUDA numbers them."""

    uuids: tuple[str | None, ...] | None
    """The UUID of each CUDA device, as NVML writes it. None for a device if it is unknown which GPU it is, or
    if the source does not list the GPU. None instead of the tuple if the number of devices is unknown."""
    source: Literal["cuda", "environment"] | None
    """How the order is known: reported by CUDA, which this process has initialized, or derived from the
    environment variables and the GPUs' models. None if it is unknown."""
    notes: tuple[Message, ...] = ()
    """Why the order is unknown, and where it differs from nvidia-smi's."""


NO_ORDER = CudaOrder(None, None)
"""The order if nothing is known about the devices."""


def find_order(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> CudaOrder:
    """Return the order of this process's CUDA devices. ``gpus`` are all GPUs of this machine, from NVML.

    Does not initialize CUDA.
    """
    reported = pytorch.cuda_uuids()
    if reported is not None:
        return _with_notes(_reported_order(gpus, reported), gpus, environment)
    order = environment_order(gpus, environment)
    if order is None:
        return CudaOrder(None, None, (SLICE_UNKNOWN,))
    if None in order:
        return CudaOrder(order, None, (ORDER_UNKNOWN,))
    return _with_notes(CudaOrder(order, "environment"), gpus, environment)


def environment_order(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[str | None, ...] | None:
    """Return the order that CUDA will use if it is initialized with this environment.

    A device whose GPU can't be determined is None. Return None if the number of devices is unknown.
    """
    gpus = [gpu for gpu in gpus if not is_unopened(gpu)]  # CUDA can't open these GPUs either
    whole = _by_pci_bus(gpus)
    visible = environment.get(_VISIBLE)
    entries = None if visible is None else [entry.strip() for entry in visible.split(",")]
    if len(whole) < len(gpus) and not (entries and all(entry.startswith("MIG-") for entry in entries)):
        return None  # CUDA uses only one slice of a GPU in MIG mode, and which one is unknown
    in_bus_order = environment.get(_ORDER, "") == _BY_BUS or _are_alike(whole)
    if entries is None:
        return tuple(gpu.uuid if in_bus_order else None for gpu in whole)
    order: list[str] = []
    for entry in entries:
        # CUDA ignores the first invalid item of CUDA_VISIBLE_DEVICES and everything after it.
        found = _visible_device(entry, whole, gpus)
        if found is None:
            break
        if found in order:
            return ()  # CUDA shows no device if an entry is repeated
        order.append(found)
    named_by_uuid = not any(entry.isdigit() for entry in entries[: len(order)])
    return tuple(uuid if in_bus_order or named_by_uuid else None for uuid in order)


def unlike_expected(order: CudaOrder, expected: CudaOrder | None, gpus: Sequence[Gpu]) -> CudaOrder:
    """Return ``order`` with a note if CUDA reports another order than ``expected`` from the environment."""
    if order.source != "cuda" or expected is None or not order.uuids or not expected.uuids:
        return order
    for number, (now, before) in enumerate(zip(order.uuids, expected.uuids, strict=False)):
        if now is not None and before is not None and now != before:
            note = _unlike_expected(number, _gpu(gpus, now), _gpu(gpus, before))
            return replace(order, notes=(note, *order.notes))
    return order


def _reported_order(gpus: Sequence[Gpu], reported: Sequence[str | None]) -> CudaOrder:
    found = tuple(
        next((gpu.uuid for gpu in gpus if gpu.uuid == uuid or same_gpu(gpu.uuid, uuid)), None)
        for uuid in reported
    )
    if reported and all(uuid is None for uuid in reported):
        return CudaOrder(found, None, (UUIDS_UNKNOWN,))
    return CudaOrder(found, "cuda")


def _with_notes(order: CudaOrder, gpus: Sequence[Gpu], environment: Mapping[str, str]) -> CudaOrder:
    """Return ``order`` with a note if the numbers of CUDA are not those of nvidia-smi."""
    for number, uuid in enumerate(order.uuids or ()):
        gpu = next((gpu for gpu in gpus if gpu.uuid == uuid), None)
        # A MIG slice has no number in nvidia-smi's list of GPUs.
        if gpu is not None and gpu.mig_parent is None and gpu.index != number:
            note = _other_numbers(number, gpu, environment, alike=_are_alike(_by_pci_bus(gpus)))
            return replace(order, notes=(*order.notes, note))
    return order


def _other_numbers(number: int, gpu: Gpu, environment: Mapping[str, str], *, alike: bool) -> Message:
    """Return the note for a device whose number is not the GPU's index in nvidia-smi."""
    visible = environment.get(_VISIBLE)
    by_speed = not alike and environment.get(_ORDER, "") != _BY_BUS
    causes, conditions = [], []
    if visible is not None:
        causes.append(
            translatable(
                "CUDA_VISIBLE_DEVICES={value} selects the GPUs and their order", value=visible[:_MAX_VALUE]
            )
        )
        conditions.append(translatable("without CUDA_VISIBLE_DEVICES"))
    if by_speed:
        causes.append(translatable("CUDA puts the fastest GPU first"))
        conditions.append(translatable("with CUDA_DEVICE_ORDER=PCI_BUS_ID in the environment"))
    device = f"cuda:{number}"
    text = translatable(
        "{device} is GPU {index} in nvidia-smi, not GPU {number}, because {causes}.",
        device=device,
        index=gpu.index,
        number=number,
        causes=listed(
            causes or [translatable("the environment or the GPUs were different when CUDA started")]
        ),
    )
    if conditions:
        agree = translatable(
            "The numbers agree if the kernel starts {conditions}.", conditions=listed(conditions)
        )
        text = joined([text, agree], " ")
    return message(
        "device-numbers-differ",
        text,
        device=device,
        gpu=gpu.index,
        visible=visible,
        by_speed=by_speed,
    )


def _unlike_expected(number: int, now: Gpu, before: Gpu) -> Message:
    return UNLIKE_EXPECTED(
        device=f"cuda:{number}",
        gpu=now.index,
        expected=before.index,
        shown={"now": _name(now), "expected": _name(before)},
    )


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.name.removeprefix('NVIDIA ')})"


def _gpu(gpus: Sequence[Gpu], uuid: str) -> Gpu:
    return next(gpu for gpu in gpus if gpu.uuid == uuid)


def _by_pci_bus(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return the whole GPUs by PCI bus id or, if a bus id is unknown, in NVML's order."""
    whole = [gpu for gpu in gpus if gpu.mig_parent is None]
    if any(gpu.pci_bus_id is None for gpu in whole):
        return whole
    return sorted(whole, key=lambda gpu: (gpu.pci_bus_id or "").upper())


def _are_alike(gpus: Sequence[Gpu]) -> bool:
    """Return whether all GPUs are the same model. Some models exist with different sizes of memory."""
    return len({(gpu.name, gpu.memory_total) for gpu in gpus}) <= 1


def _visible_device(entry: str, whole: Sequence[Gpu], gpus: Sequence[Gpu]) -> str | None:
    if entry.isdigit():
        return whole[int(entry)].uuid if int(entry) < len(whole) else None
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    found = [gpu.uuid for gpu in gpus if gpu.uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None
