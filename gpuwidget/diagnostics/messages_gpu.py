"""Texts of the checks of the GPUs, of CUDA_VISIBLE_DEVICES and of sharing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gpuwidget.diagnostics.messages import command_fix, text_fix
from gpuwidget.diagnostics.messages_packages import last_version
from gpuwidget.model.diagnosis import Fix, Issue, IssueStatus
from gpuwidget.model.translation import counted, translatable
from gpuwidget.sources import nvml_messages
from gpuwidget.sources.nvml_diagnostics import LostGpu

_CREATE_SLICE = "sudo nvidia-smi mig -cgi 0 -C"
_RELOAD_UVM = "sudo rmmod nvidia_uvm; sudo modprobe nvidia_uvm"
_RESET = "sudo nvidia-smi --gpu-reset"

# -- the GPUs --------------------------------------------------------------------------------------------


def lost(gpu: LostGpu, *, others: bool) -> Issue:
    """Return the issue of a GPU that can't be opened; ``others`` is whether other GPUs work."""
    fix = text_fix("see-kernel-log", "See the kernel log (dmesg).") if others else _restart_machine()
    return Issue(
        "gpu-lost",
        "warning" if others else "broken",
        {"gpu": gpu.index, "code": gpu.error, "error": gpu.error_text},
        translatable(
            "GPU {index} {error}.", index=gpu.index, error=nvml_messages.lost_gpu(gpu.error, gpu.error_text)
        ),
        fix,
    )


def none_found(fix: Fix | None) -> Issue:
    """Return the issue reporting that the driver shows no GPU.

    Without ``fix``, the fix is to restart the machine.
    """
    reason = translatable("The driver runs but shows no GPU.")
    return Issue("no-gpu", "broken", {}, reason, fix or _restart_machine())


def _restart_machine() -> Fix:
    return text_fix(
        "see-kernel-log-and-restart",
        "See the kernel log (dmesg). Then restart the machine, and check whether nvidia-smi lists the GPUs.",
    )


def unknown_without_driver() -> Issue:
    """Return the issue reporting that GPUs can't be listed because the driver does not answer."""
    return Issue(
        "gpu-unknown-without-driver",
        "unknown",
        {},
        translatable("The GPUs are unknown, because the driver could not be queried."),
        text_fix("fix-driver", "First fix what the driver's check reports."),
    )


# -- code for the GPUs' architectures --------------------------------------------------------------------


def compiled_at_first_use(gpu: str, capability: str) -> Issue:
    """Return the issue reporting that torch has only PTX for this GPU.

    PTX is compiled when the GPU is first used.
    """
    name = _with_capability(gpu, capability)
    return Issue(
        "gpu-code-compiled-at-first-use",
        "warning",
        {"gpu": gpu, "capability": capability},
        translatable(
            "This PyTorch has no precompiled code for {name}. CUDA compiles the code when it "
            "is first used. This takes time, and the code may be slower.",
            name=name,
        ),
        text_fix("install-newer-torch", "Install a newer PyTorch."),
    )


def no_code(gpu: str, capability: str, archs: Sequence[str], fix: Fix) -> Issue:
    """Return the issue reporting that torch has no code for this GPU."""
    name = _with_capability(gpu, capability)
    params = {"gpu": gpu, "capability": capability, "archs": tuple(archs)}
    reason = translatable(
        "This PyTorch has no code for {name}: it was built for {archs}.", name=name, archs=" ".join(archs)
    )
    return Issue("gpu-without-code", "broken", params, reason, fix)


def _with_capability(gpu: str, capability: str) -> str:
    return translatable("{gpu} (compute capability {capability})", gpu=gpu, capability=capability)


def install_older_torch(gpu: str) -> Fix:
    """Return the fix that installs an older torch, which supports the GPU."""
    return text_fix("install-older-torch", "Install an older PyTorch, which still supports {gpu}.", gpu=gpu)


def install_older_torch_or_build(gpu: str, cuda: str, command: str, last_torch: str | None) -> Fix:
    """Return the fix that installs an older torch or a build for an older CUDA.

    ``last_torch`` is described in ``install_torch`` of ``messages_packages``.
    """
    return command_fix(
        "install-older-torch-or-build",
        "Install an older PyTorch, which still supports {gpu}, or a build with CUDA {cuda}:",
        command,
        last_version(last_torch),
        gpu=gpu,
        cuda=cuda,
        last_torch=last_torch,
    )


# -- the start of CUDA -----------------------------------------------------------------------------------


def in_exclusive_use() -> Issue:
    """Return the issue reporting that another process uses the GPU exclusively."""
    return Issue(
        "gpu-in-exclusive-use",
        "broken",
        {},
        translatable("Another process has exclusive use of the GPU."),
        text_fix("see-processes", "nvidia-smi shows which process it is."),
    )


def uvm_fails() -> Issue:
    """Return the issue reporting that CUDA does not start for an unknown reason, often because of the module
    nvidia_uvm."""
    return Issue(
        "cuda-unknown-error",
        "broken",
        {},
        translatable(
            "CUDA does not start (error 999): the driver's memory module nvidia_uvm may be in a bad state."
        ),
        command_fix(
            "reload-uvm",
            "Stop the programs that use the GPUs, and reload the module:",
            _RELOAD_UVM,
            "If this is a container, restart the container.",
        ),
    )


def none_for_cuda() -> Issue:
    """Return the issue reporting that CUDA finds no GPU, although the driver lists some."""
    return Issue(
        "no-gpu-for-cuda",
        "broken",
        {},
        translatable("The driver lists GPUs, but CUDA finds no usable GPU."),
        text_fix("see-kernel-log-of-gpus", "See the kernel log (dmesg) for messages about the GPUs."),
    )


def cuda_start_failed(code: int, text: str | None) -> Issue:
    """Return the issue reporting that CUDA does not start, with CUDA's error number and text."""
    return Issue(
        "cuda-start-failed",
        "broken",
        {"code": code, "error": text},
        translatable(
            "CUDA does not start: {text} ({code}).", text=text or translatable("unknown error"), code=code
        ),
        text_fix("see-kernel-log-and-nvidia-smi", "See the kernel log (dmesg) and the output of nvidia-smi."),
    )


def unusable_by_torch(warning: str | None, fix: Fix) -> Issue:
    """Return the issue reporting that CUDA starts but torch can't use it, with the first line of torch's
    warning."""
    why = "" if warning is None else f": {warning.rstrip('.')}"
    reason = translatable("CUDA starts, but PyTorch can't use it{why}.", why=why)
    return Issue("cuda-unusable-by-torch", "broken", {"warning": warning}, reason, fix)


def see_cuda_error() -> Fix:
    """Return the fix if nothing shows why torch can't use CUDA."""
    return text_fix(
        "see-cuda-error",
        "Run python -c 'import torch; torch.cuda.init()' in a terminal: the error shows why PyTorch can't "
        "use CUDA.",
    )


# -- CUDA_VISIBLE_DEVICES --------------------------------------------------------------------------------

Rejection = Literal[
    "empty",
    "negative",
    "out-of-range",
    "duplicate",
    "no-gpu-matches",
    "no-slice-matches",
    "several-gpus-match",
    "several-slices-match",
    "slurm",
    "unknown-format",
]
"""Why CUDA rejects an entry of CUDA_VISIBLE_DEVICES."""


def changed_after_start(value: str | None, *, reordered: bool) -> Issue:
    """Return the issue reporting that CUDA_VISIBLE_DEVICES was changed after CUDA started in the notebook.

    ``reordered`` is whether the changed variable may be CUDA_DEVICE_ORDER instead.
    """
    if value is None:
        what = translatable("CUDA_VISIBLE_DEVICES was unset")
    else:
        what = translatable("CUDA_VISIBLE_DEVICES was set to {value!r}", value=value)
    if reordered:
        what = translatable("CUDA_VISIBLE_DEVICES or CUDA_DEVICE_ORDER was changed")
    return Issue(
        "visible-devices-changed-after-start",
        "warning",
        {"value": value, "reordered": reordered},
        translatable(
            "{what} after CUDA was started. The change has no effect in this notebook until "
            "the kernel is restarted.",
            what=what,
        ),
        text_fix(
            "restart-and-set-visible-devices",
            "Restart the kernel, and make this change before anything uses CUDA.",
        ),
    )


def hidden_by_empty_value() -> Issue:
    """Return the issue reporting that CUDA_VISIBLE_DEVICES is empty and therefore hides all GPUs."""
    reason = translatable("CUDA_VISIBLE_DEVICES is set to an empty value, which hides every GPU.")
    return Issue("visible-devices-empty", "broken", {}, reason, _set_visible_devices())


def nothing_to_compare() -> Issue:
    """Return the issue reporting that CUDA_VISIBLE_DEVICES can't be checked, because there is no GPU."""
    reason = translatable("CUDA_VISIBLE_DEVICES can't be checked, because no GPU was found.")
    return Issue("visible-devices-unknown", "unknown", {}, reason, None)


def entry_rejected(value: str, entry: str, why: Rejection, number: int, *, hides_all: bool) -> Issue:
    """Return the issue reporting that CUDA rejects an entry of CUDA_VISIBLE_DEVICES and ignores all entries
    after it.

    ``number`` is the number of GPUs or slices in the text for ``why``. ``hides_all`` is whether CUDA then
    shows no GPU.
    """
    end = (
        translatable("This hides every GPU.")
        if hides_all
        else translatable("CUDA ignores this entry and all entries after it.")
    )
    return Issue(
        "visible-devices-entry-rejected",
        "broken" if hides_all else "warning",
        {"value": value, "entry": entry, "why": why, "number": number},
        translatable(
            "CUDA_VISIBLE_DEVICES is {value!r}, but CUDA rejects the entry {entry!r}: {why}. {end}",
            value=value,
            entry=entry,
            why=_why(why, number),
            end=end,
        ),
        _set_visible_devices(),
    )


def _why(why: Rejection, number: int) -> str:
    match why:
        case "empty":
            return translatable("the entry is empty")
        case "negative":
            return translatable("a negative number ends the list")
        case "out-of-range":
            return counted(
                number,
                "there is only {number} GPU, with the number 0",
                "there are {number} GPUs, numbered from 0",
            )
        case "duplicate":
            return translatable("the same GPU is listed twice")
        case "no-gpu-matches":
            return translatable("no GPU of this machine has a UUID that begins with this text")
        case "no-slice-matches":
            return translatable("no MIG slice of this machine has a UUID that begins with this text")
        case "several-gpus-match":
            return translatable("the UUIDs of {number} GPUs begin with this text", number=number)
        case "several-slices-match":
            return translatable("the UUIDs of {number} MIG slices begin with this text", number=number)
        case "slurm":
            return translatable("Slurm sets this value for a job that requested no GPU")
        case "unknown-format":
            return translatable("the entry is neither a number nor a UUID that begins with GPU- or MIG-")


def _set_visible_devices() -> Fix:
    return text_fix(
        "set-visible-devices",
        "Unset CUDA_VISIBLE_DEVICES, or set it to numbers or UUIDs that nvidia-smi -L lists, "
        "and restart the kernel.",
    )


# -- MIG and compute mode --------------------------------------------------------------------------------


def mig_without_slice(gpus: Sequence[int], status: IssueStatus) -> Issue:
    """Return the issue of GPUs with MIG but without a slice."""
    return Issue(
        "mig-without-slice",
        status,
        {"gpus": tuple(gpus)},
        translatable(
            "MIG is on for {gpus}, but there is no slice: CUDA can't use {them}.",
            gpus=_gpu_list(gpus),
            them=_pronoun(gpus),
        ),
        command_fix(
            "create-mig-slice",
            "Turn MIG off (sudo nvidia-smi -mig 0), or create slices:",
            _CREATE_SLICE,
            "nvidia-smi mig -lgip lists the profiles.",
        ),
    )


def mode_prohibited(gpus: Sequence[int], status: IssueStatus) -> Issue:
    """Return the issue of GPUs whose compute mode prohibits CUDA."""
    return Issue(
        "compute-mode-prohibited",
        status,
        {"gpus": tuple(gpus)},
        translatable(
            "The compute mode of {gpus} is 'prohibited': CUDA can't use {them}.",
            gpus=_gpu_list(gpus),
            them=_pronoun(gpus),
        ),
        command_fix("allow-cuda", "Allow compute work:", _allow_sharing(gpus[0]), gpu=gpus[0]),
    )


def mode_exclusive(gpus: Sequence[int], mode: str | None) -> Issue:
    """Return the issue of GPUs that only one process can use at a time."""
    return Issue(
        "compute-mode-exclusive",
        "warning",
        {"gpus": tuple(gpus), "mode": mode},
        translatable(
            "Only one process at a time can use {gpus} (compute mode '{mode}').",
            gpus=_gpu_list(gpus),
            mode=mode,
        ),
        command_fix(
            "allow-sharing",
            "To let several notebooks use the GPU, use MPS, or run:",
            _allow_sharing(gpus[0]),
            gpu=gpus[0],
        ),
    )


def mig_pending(gpus: Sequence[int]) -> Issue:
    """Return the issue of GPUs whose MIG mode will change at the next reset."""
    return Issue(
        "mig-pending",
        "warning",
        {"gpus": tuple(gpus)},
        translatable(
            "A change of the MIG mode of {gpus} takes effect only after a reset.", gpus=_gpu_list(gpus)
        ),
        command_fix("reset-gpu", "Stop the programs that use the GPUs, then reset the GPUs:", _RESET),
    )


def _allow_sharing(gpu: int) -> str:
    return f"sudo nvidia-smi -i {gpu} -c DEFAULT"


def _gpu_list(gpus: Sequence[int]) -> str:
    return f"GPU {', '.join(map(str, gpus))}"


def _pronoun(gpus: Sequence[int]) -> str:
    return translatable("it") if len(gpus) == 1 else translatable("them")
