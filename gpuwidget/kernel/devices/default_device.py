"""The default torch device as the user meets it: choices, the choice, and both in words."""

from __future__ import annotations

import os

from gpuwidget.kernel.devices.device_choices import Observer, check
from gpuwidget.kernel.devices.switch_requests import SWITCHES
from gpuwidget.model import units
from gpuwidget.model.errors import OptionError
from gpuwidget.model.kernel_state import SCHEMA, DeviceChoice, DeviceState, KernelState
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.device_switch import DEVICE_SWITCH, device_context_note
from gpuwidget.sampler import process_sampler
from gpuwidget.version import __version__

FULL_COST = "1 to 2 µs on every call into torch"
"""What the full mode costs, as measured (docs/device.md)."""

_PATIENCE_S = 1.0

_observer: Observer | None = None


def observer() -> Observer:
    """The process's one, on its one sampler."""
    global _observer
    if _observer is None:
        _observer = Observer(process_sampler())
    return _observer


def devices() -> tuple[DeviceChoice, ...]:
    """The devices that torch code may use here: the CPU, and every CUDA device after CUDA_VISIBLE_DEVICES.

    Each with its GPU, that one's free memory in bytes and who is on it; starts no CUDA. Where CUDA's devices
    can't be told yet, only the CPU.
    """
    looking = observer()
    return looking.choices(looking.look(_PATIENCE_S)).devices


def set_device(device: object, *, new_tensors: bool = True) -> None:
    """Make ``device`` torch's default: ``"cpu"``, ``"cuda:1"`` or a torch.device; None for what was before.

    In a notebook it holds from the next cell, elsewhere at once on the calling thread. New tensors go there
    (torch.set_default_device), at a cost of 1 to 2 µs on every call into torch; with
    ``new_tensors=False`` only the current CUDA device is moved, at no cost: what ``"cuda"`` without a number,
    ``.cuda()``, CuPy and Numba mean. Opens no CUDA context by itself.

    Raises OptionError, saying what is there, for a device that is not.
    """
    DEVICE_SWITCH.choose(checked(device, new_tensors=new_tensors), new_tensors=new_tensors)


def checked(device: object, *, new_tensors: bool = True, patience_s: float = _PATIENCE_S) -> str | None:
    """``device`` as torch names it. Raises OptionError, saying what is there, where it can't be chosen."""
    name = "none" if device is None else str(device).strip().lower()
    if name == "none":
        return None
    looking = observer()
    sample = looking.look(patience_s)
    check(name, looking.choices(sample), sample)
    if name == "cpu" and not new_tensors:
        raise OptionError(
            "cpu: the light mode moves the current CUDA device only. Choose a CUDA device, or none."
        )
    return name


def check_for_cell(device: str) -> None:
    """Raise OptionError where one cell can't have that device, and say why."""
    if checked(device) is None:
        raise OptionError("--device none: leave the option out, and nothing is changed.")
    if cuda_state.loaded_torch() is None:
        raise OptionError(
            f"--device {device}: torch is not imported yet. Import it in a cell before this one."
        )
    hindrance = device_context_note()
    if hindrance is not None:
        raise OptionError(f"--device {device}: {hindrance}")


def kernel_state(*, watching: bool) -> KernelState:
    """All that a view shows of this kernel; takes at most a tenth of a second, whatever the driver does."""
    looking = observer()
    sample = looking.look()
    choices = looking.choices(sample, live=True)
    return KernelState(
        schema=SCHEMA,
        version=__version__,
        pid=os.getpid(),
        torch=cuda_state.versions().torch,
        cuda_initialized=cuda_state.cuda_initialized(),
        watching=watching,
        device=DEVICE_SWITCH.state,
        choices=choices.devices,
        unavailable=choices.unavailable,
        gpus=looking.gpus(sample),
        switches=SWITCHES.state,
    )


def overview() -> str:
    """The choice and all devices, a line each."""
    looking = observer()
    choices = looking.choices(looking.look(_PATIENCE_S))
    lines = [words(DEVICE_SWITCH.state), *(f"  {label(choice)}" for choice in choices.devices)]
    if choices.unavailable is not None:
        lines.append(f"  {choices.unavailable}")
    elif not choices.complete:
        lines.append("  cuda:N: which there are will be known once your code has started CUDA")
    return printable_lines("\n".join(lines))


def label(choice: DeviceChoice) -> str:
    """A choice in one line: ``cuda:1 · GPU 3 H200 · 9.0 · 120.1 GiB free · another process: python a.py``."""
    parts = [choice.device]
    if choice.index is not None:
        parts.append(f"GPU {choice.index} {(choice.name or '').removeprefix('NVIDIA ')}".strip())
        if choice.compute_capability is not None:
            parts.append(choice.compute_capability)
        parts.append(f"{units.memory(choice.memory_free)} free")
        parts += [", ".join(choice.holders)] if choice.holders else []
    elif choice.device != "cpu" and not cuda_state.cuda_initialized():
        parts.append("which GPU will be known once your code has started CUDA")
    return " · ".join(parts)


def words(state: DeviceState) -> str:
    """What was chosen and what holds now, in a sentence or two."""
    if state.chosen is None:
        said = "No default torch device is chosen"
        said += "; what was before holds from the next cell." if state.pending else "."
    else:
        mode = f"full mode, {FULL_COST}" if state.new_tensors else "current CUDA device only, no cost"
        when = " from the next cell" if state.pending else ""
        said = f"Default torch device{when}: {state.chosen} ({mode})."
    if state.present is not None and not state.pending:
        said += f" torch says {state.present}."
    return said if state.note is None else f"{said} {state.note}"
