"""List the devices that can be torch's default device, and set and describe the default device."""

from __future__ import annotations

import os

from gpuwidget import pytorch
from gpuwidget.kernel.devices.device_choices import GpuMonitor, check_device
from gpuwidget.kernel.devices.switch_requests import SWITCHES
from gpuwidget.model import units
from gpuwidget.model.errors import OptionError
from gpuwidget.model.kernel_state import KERNEL_SCHEMA, CandidateGpu, DeviceChoice, DeviceState, KernelState
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.model.translation import _, in_view_language, joined, translatable
from gpuwidget.pytorch import DEVICE_SWITCH, device_context_note
from gpuwidget.sampler import process_sampler
from gpuwidget.version import __version__

FULL_MODE_COST = translatable("1\N{EN DASH}3 µs per torch call")
"""The measured cost of the full mode (docs/using/device.md).

In full mode, new tensors are created on the chosen device by default.
"""

_TIMEOUT_S = 1.0

_monitor: GpuMonitor | None = None


def monitor() -> GpuMonitor:
    """Return the GPU monitor of this process, which uses the sampler of this process."""
    global _monitor
    if _monitor is None:
        _monitor = GpuMonitor(process_sampler())
    return _monitor


def devices() -> tuple[DeviceChoice, ...]:
    """Return the devices that torch code can use: the CPU, and every CUDA device in CUDA_VISIBLE_DEVICES.

    Each CUDA device has its GPU, the free memory in bytes and the holders of its memory. Does not initialize
    CUDA. Returns only the CPU while the CUDA devices are unknown.
    """
    return monitor().device_choices(monitor().read(_TIMEOUT_S)).devices


def set_device(device: object, *, new_tensors: bool = True) -> None:
    """Set torch's default device to ``device``: a name such as ``"cpu"`` or ``"cuda:1"``, or a torch.device.

    None restores the previous default device.

    In a notebook, this takes effect from the next cell; elsewhere, immediately on the calling thread. New
    tensors are created on the device (torch.set_default_device), which costs 1 to 3 µs on every call into
    torch. With ``new_tensors=False``, only the current CUDA device changes, which costs nothing. The current
    CUDA device is used by ``"cuda"`` without a number, ``.cuda()``, CuPy and Numba. This function does not
    create a CUDA context.

    Raises OptionError, which lists the devices, for a device that does not exist.
    """
    DEVICE_SWITCH.choose(validate_device(device, new_tensors=new_tensors), new_tensors=new_tensors)


def validate_device(device: object, *, new_tensors: bool = True, timeout_s: float = _TIMEOUT_S) -> str | None:
    """Return torch's name for ``device``; None if ``device`` is None or ``"none"``.

    Raise OptionError, which lists the devices, if ``device`` can't be torch's default device.
    """
    name = "none" if device is None else str(device).strip().lower()
    if name == "none":
        return None
    sample = monitor().read(timeout_s)
    check_device(name, monitor().device_choices(sample))
    if name == "cpu" and not new_tensors:
        raise OptionError(
            translatable(
                "cpu: the light mode changes only the current CUDA device. Choose a CUDA device, or none."
            )
        )
    return name


def check_for_cell(device: str) -> None:
    """Raise OptionError, with the reason, if ``device`` can't be the default device of a single cell."""
    if validate_device(device) is None:
        raise OptionError(translatable("--device none: omit the option to leave the device unchanged."))
    if not pytorch.is_loaded():
        raise OptionError(
            translatable(
                "--device {device}: torch is not imported yet. Import it in a cell before this one.",
                device=device,
            )
        )
    reason = device_context_note()
    if reason is not None:
        raise OptionError(translatable("--device {device}: {reason}", device=device, reason=reason))


def kernel_state(*, watching: bool) -> KernelState:
    """Return this kernel's state for the panel. This takes at most a tenth of a second."""
    sample = monitor().read()
    choices = monitor().device_choices(sample, live=True)
    return KernelState(
        schema=KERNEL_SCHEMA,
        version=__version__,
        pid=os.getpid(),
        torch=pytorch.torch_version(),
        cuda_initialized=pytorch.cuda_initialized(),
        watching=watching,
        device=DEVICE_SWITCH.state,
        choices=choices.devices,
        order=choices.order,
        unavailable=choices.unavailable,
        gpus=monitor().kernel_gpus(sample),
        switches=SWITCHES.state,
    )


@in_view_language
def describe_devices() -> str:
    """Return a text with the default device, followed by all devices, one per line."""
    choices = monitor().device_choices(monitor().read(_TIMEOUT_S))
    first = describe(DEVICE_SWITCH.state)
    if not pytorch.is_loaded() and choices.devices:
        first = f"{first} {_('When torch is imported, it will have these devices:')}"
    lines = [first, *(f"  {label(choice)}" for choice in choices.devices)]
    if choices.unavailable is not None:
        lines.append(f"  {_(choices.unavailable)}")
    elif not choices.complete and not choices.order.notes:
        lines.append(f"  {_('cuda:N: the devices are known once your code has started CUDA')}")
    candidates = next((choice.candidates for choice in choices.devices if choice.candidates), ())
    if candidates:
        lines += [
            _("GPUs of this machine, with nvidia-smi's numbers:"),
            *(f"  {_gpu(gpu)}" for gpu in candidates),
        ]
    return printable_lines("\n".join([*lines, *map(_, choices.order.notes)]))


@in_view_language
def label(choice: DeviceChoice) -> str:
    """Describe a device in one line: ``cuda:1 · GPU 3 H200 (compute capability 9.0) · 120.1 GiB free``."""
    if choice.index is not None:
        free = _free(units.memory(choice.memory_free), choice)
        model = _model(choice.index, choice.name or "", choice.compute_capability)
        return " · ".join(
            [choice.device, model, free, *([_(joined(choice.holders))] if choice.holders else [])]
        )
    if choice.device == "cpu" or pytorch.cuda_initialized():
        return choice.device
    models = list(dict.fromkeys(gpu.name.removeprefix("NVIDIA ") for gpu in choice.candidates))
    known = _("known once your code has started CUDA")
    return " · ".join([choice.device, *([" / ".join(models)] if models else []), known])


def _gpu(gpu: CandidateGpu) -> str:
    """Describe a GPU in one line: ``GPU 1 RTX 4090 (compute capability 8.9) · 23.1 of 24.0 GiB free``."""
    free = _free(units.memory_of(gpu.memory_free, gpu.memory_total), gpu)
    return f"{_model(gpu.index, gpu.name, gpu.compute_capability)} · {free}"


def _free(size: str, gpu: DeviceChoice | CandidateGpu) -> str:
    free = _("{size} free", size=size)
    return _("{size} (unified memory)", size=free) if gpu.unified_memory else free


def _model(index: int, name: str, compute_capability: str | None) -> str:
    model = f"GPU {index} {name.removeprefix('NVIDIA ')}".strip()
    if compute_capability is None:
        return model
    return _("{gpu} (compute capability {version})", gpu=model, version=compute_capability)


@in_view_language
def default_label(state: DeviceState) -> str:
    """Return the label of the choice of no device: ``PyTorch default (cpu)``."""
    if (device := _present(state)) is None:
        return _("PyTorch default")
    return _("PyTorch default ({device})", device=device)


@in_view_language
def describe(state: DeviceState) -> str:
    """Return a description of the chosen and the current default device, in one or two sentences."""
    sentences = []
    if state.chosen is None:
        device = _present(state)
        sentences.append(
            _("Using PyTorch's default.")
            if device is None
            else _("Using PyTorch's default ({device}).", device=device)
        )
    else:
        sentences.append(
            _(
                "Default device: {device} (also for new tensors, +{cost}).",
                device=state.chosen,
                cost=FULL_MODE_COST,
            )
            if state.new_tensors
            else _(
                "Default device: {device} (current CUDA device only, no cost per call).", device=state.chosen
            )
        )
        if state.new_tensors and not state.pending and state.present not in (None, state.chosen):
            sentences.append(_("PyTorch uses {device}.", device=state.present))
    if state.note is not None:  # the note has the time at which it takes effect
        sentences.append(_(state.note))
    elif state.pending:
        sentences.append(_("Takes effect in the next cell."))
    return " ".join(sentences)


def _present(state: DeviceState) -> str | None:
    """Return PyTorch's own default device; None while it is unknown."""
    return state.present if state.chosen is None and not state.pending else None
