"""What a report says in words beside its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from gpuwidget.measure.gpu_totals import Track
from gpuwidget.model import units
from gpuwidget.model.report import GpuReport
from gpuwidget.model.samples import Origin
from gpuwidget.pytorch.cuda_state import Account

_MOST_COMMANDS = 4


def gpu_name(gpu: GpuReport) -> str:
    """``GPU 0``, or ``GPU 0 MIG 1``."""
    return f"GPU {gpu.index}" if gpu.mig_index is None else f"GPU {gpu.index} MIG {gpu.mig_index}"


def of_gpus(found: Sequence[tuple[GpuReport, Track]], begun: Collection[str]) -> list[str]:
    """What became of each GPU; on the devices ``begun`` (``cuda:N``) this process had no context before."""
    said: list[str] = []
    for gpu, track in found:
        if gpu.torch_device in begun or (track.own_at_start is False and track.own):
            said.append(_first_context(gpu))
        if gpu.lost_since is not None:
            said.append(_lost(gpu))
        elif track.came_back:
            said.append(_came_back(gpu))
    return said + _children([(gpu, track.children, track.own) for gpu, track in found])


def _first_context(gpu: GpuReport) -> str:
    """This run opened this process's first context on ``gpu``."""
    sentence = f"CUDA started on {gpu_name(gpu)} in this run"
    # What children hold is in the driver's figure, and not in torch's.
    held = gpu.process_memory.end if gpu.process_memory is not None and not gpu.children else None
    reserved = gpu.torch.reserved.end if gpu.torch is not None else None
    if held is not None and reserved is not None and held > reserved:
        sentence += f": its context and libraries hold {units.memory(held - reserved)}"
    return f"{sentence}, which stays until the process ends and is no leak."


def commands(children: Iterable[str]) -> tuple[str, ...]:
    """The programs of child processes, at most four, each once with its number."""
    counted = Counter(children)
    named = [
        command if count == 1 else f"{count} x {command}"
        for command, count in counted.most_common(_MOST_COMMANDS)
    ]
    more = sum(counted.values()) - sum(count for _, count in counted.most_common(_MOST_COMMANDS))
    return (*named, *([f"{more} more"] if more else []))


def _children(used: Sequence[tuple[GpuReport, Mapping[int, str], bool]]) -> list[str]:
    """Child processes held memory: for each GPU who, by process id, and whether this process did itself."""
    alike: dict[tuple[tuple[str, ...], bool], list[tuple[GpuReport, Mapping[int, str]]]] = {}
    for gpu, who, own in used:
        if who:
            alike.setdefault((tuple(sorted(set(who.values()))), own), []).append((gpu, who))
    found = []
    for (_, own), group in alike.items():
        everyone = {pid: command for _, who in group for pid, command in who.items()}
        number = f"{len(everyone)} child process{'es' if len(everyone) > 1 else ''}"
        named = f"{number} ({', '.join(commands(everyone.values()))})"
        names = ", ".join(gpu_name(gpu) for gpu, _ in group)
        if own:
            found.append(f"{names}: the memory of this process includes that of {named}.")
        else:
            found.append(f"{names}: the memory of this process is that of {named} alone.")
    return found


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


def _lost(gpu: GpuReport) -> str:
    """``gpu`` was lost during the run."""
    assert gpu.lost_since is not None
    at = datetime.fromtimestamp(gpu.lost_since).strftime("%H:%M:%S")
    return f"{gpu_name(gpu)} was lost at {at}: the driver no longer reaches it, it may need a reset."


def _came_back(gpu: GpuReport) -> str:
    """``gpu`` was lost during the run, for a while."""
    return f"{gpu_name(gpu)} was lost for a part of the run, and came back: what it did meanwhile is unknown."


def unattributed(gpus: Sequence[GpuReport], origin: Origin) -> str | None:
    """Nobody can say which GPUs this process uses."""
    if not gpus or origin.recorded:
        return None
    return (
        "Which GPUs this process uses can't be told here (the driver's process ids are not this "
        "container's, and CUDA is not up in torch), so all are shown."
    )
