"""What a report says in words beside its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from gpuwidget import units
from gpuwidget.measure.report import GpuReport
from gpuwidget.samples import Origin
from gpuwidget.torch_state import Account


def gpu_name(gpu: GpuReport) -> str:
    """``GPU 0``, or ``GPU 0 MIG 1``."""
    return f"GPU {gpu.index}" if gpu.mig_index is None else f"GPU {gpu.index} MIG {gpu.mig_index}"


def first_context(gpu: GpuReport) -> str:
    """This run opened this process's first context on ``gpu``."""
    sentence = f"CUDA started on {gpu_name(gpu)} in this run"
    held = gpu.process_memory.end if gpu.process_memory is not None else None
    reserved = gpu.torch.reserved.end if gpu.torch is not None else None
    if held is not None and reserved is not None and held > reserved:
        sentence += f": its context and libraries hold {units.memory(held - reserved)}"
    return f"{sentence}, which stays until the process ends and is no leak."


def peak_resets(account: Account, names: Mapping[int, str]) -> list[str]:
    """What became of torch's one peak counter a device."""
    notes = [
        f"torch's peak counter of {names.get(index, f'cuda:{index}')} was reset at the start, because an "
        f"older peak of {units.memory(peak)} would have hidden this run's: "
        "torch.cuda.max_memory_allocated() counts from here."
        for index, peak in sorted(account.hidden_peaks.items())
    ]
    if account.user_resets:
        notes.append(
            "Code in this run reset torch's peak counter: the peak shown is the highest seen before each "
            "reset and at the end, so it is at least that much."
        )
    return notes


def lost(gpu: GpuReport) -> str:
    """``gpu`` was lost during the run."""
    assert gpu.lost_since is not None
    at = datetime.fromtimestamp(gpu.lost_since).strftime("%H:%M:%S")
    return f"{gpu_name(gpu)} was lost at {at}: the driver no longer reaches it, it may need a reset."


def came_back(gpu: GpuReport) -> str:
    """``gpu`` was lost during the run, for a while."""
    return f"{gpu_name(gpu)} was lost for a part of the run, and came back: what it did meanwhile is unknown."


def unattributed(gpus: Sequence[GpuReport], origin: Origin) -> str | None:
    """Nobody can say which GPUs this process uses."""
    if not gpus or origin.kind == "replay":
        return None
    return (
        "Which GPUs this process uses can't be told here (the driver's process ids are not this "
        "container's, and CUDA is not up in torch), so all are shown."
    )
