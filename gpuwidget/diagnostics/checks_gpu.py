"""Checks of the GPUs: whether they exist, whether torch supports them, and which processes may share them."""

from __future__ import annotations

import re

from gpuwidget.diagnostics import cuda_versions
from gpuwidget.diagnostics.checks_visible_devices import hides_all
from gpuwidget.diagnostics.cuda_versions import version_tuple
from gpuwidget.diagnostics.fixes import build_command, install_torch, last_release_note, reinstall_libraries
from gpuwidget.diagnostics.issues import Issue, build_check, pluralize, skipped_check
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.model.diagnosis import Check
from gpuwidget.sources.nvml_diagnostics import GpuHealth

GPU = ("gpu", "GPU")
SHARING = ("sharing", "MIG and sharing")

_RELOAD_UVM = "sudo rmmod nvidia_uvm; sudo modprobe nvidia_uvm"
_ONE_SLICE = "sudo nvidia-smi mig -cgi 0 -C"
_RESET = "sudo nvidia-smi --gpu-reset"
_NO_DEVICE, _UNAVAILABLE, _UNKNOWN_ERROR = 100, 46, 999
"""Values of CUresult in cuda.h."""


def check_gpu(results: ProbeResults) -> Check:
    """Check that there are GPUs and that torch contains code for them."""
    nvml, torch = results.nvml, results.torch
    evidence = {
        f"GPU {gpu.index}": f"{gpu.name}, {gpu.compute_capability or 'n/a'}, {gpu.uuid}"
        for gpu in results.gpus
    }
    archs = torch.get("archs") or []
    evidence |= {"PyTorch is built for": " ".join(archs)} if archs else {}
    issues = [
        Issue("warning", sentence, "Look into the kernel log (dmesg).") for sentence in _lost_gpus(results)
    ]
    for name, capability in _capabilities(results):
        issues += _architecture_issues(name, capability, archs, results)
    issues += _cuda_start_issues(results)
    if results.gpus:
        return build_check(GPU, _count_by_name(results.gpus), issues, evidence)
    if nvml is not None and nvml.error is None:
        reason = nvml.lost[0] if nvml.lost else "The driver runs but shows no GPU."
        fix = (
            "Start the container with the machine's GPUs: docker run --gpus all …"
            if results.machine.container and not nvml.lost
            else "Look into the kernel log (dmesg) and restart the machine; see what nvidia-smi lists then."
        )
        return build_check(GPU, "none", [Issue("broken", reason, fix)], evidence)
    devices = results.libcuda.get("cu_devices")
    if devices:
        return build_check(GPU, ", ".join(one["name"] for one in devices), issues, evidence)
    reason = "Without a driver that answers, no GPU can be seen."
    return build_check(GPU, "not to be seen", [Issue("unknown", reason, "Mend the driver first.")], evidence)


def _count_by_name(gpus: tuple[GpuHealth, ...]) -> str:
    names = dict.fromkeys(gpu.name for gpu in gpus)
    times = "\N{MULTIPLICATION SIGN}"
    return ", ".join(f"{sum(gpu.name == name for gpu in gpus)} {times} {name}" for name in names)


def _lost_gpus(results: ProbeResults) -> tuple[str, ...]:
    return results.nvml.lost if results.nvml is not None else ()


def _capabilities(results: ProbeResults) -> list[tuple[str, str]]:
    """Return each GPU model with its compute capability, from NVML or else from CUDA."""
    known = [(gpu.name, gpu.compute_capability) for gpu in results.gpus if gpu.compute_capability is not None]
    devices = results.libcuda.get("cu_devices") or []
    return list(dict.fromkeys(known or [(one["name"], one["capability"]) for one in devices]))


def _architecture_issues(gpu: str, capability: str, archs: list[str], results: ProbeResults) -> list[Issue]:
    """Return an issue unless torch has binary code for this GPU or for an older one of the same major
    version."""
    if not archs:
        return []
    target = version_tuple(capability)
    compiled = [arch for one in archs if (arch := _parse_arch(one, "sm")) is not None]
    if any(arch[0] == target[0] and arch <= target for arch in compiled):
        return []
    name = f"{gpu} (compute capability {capability})"
    if any(arch <= target for one in archs if (arch := _parse_arch(one, "compute")) is not None):
        reason = (
            f"This PyTorch has no code made for {name}: it is compiled at its first use, and may be slow."
        )
        return [Issue("warning", reason, "Install a newer PyTorch.")]
    reason = f"This PyTorch has no code for {name}: it was built for {' '.join(archs)}."
    if compiled and target < min(compiled):
        older = f"Install an older PyTorch, which still knows {gpu}"
        wheel = cuda_versions.torch_wheel(results.driver, [capability], arm=results.arm)
        command = None if wheel is None else build_command(results, wheel)
        if wheel is None or command is None:
            return [Issue("broken", reason, f"{older}.")]
        built = f"or a build with CUDA {cuda_versions.wheel_cuda(wheel)}: {command}"
        return [Issue("broken", reason, f"{older}, {built}.{last_release_note(wheel)}", command)]
    fix = install_torch(results, "Install a newer PyTorch", capabilities=[capability], always_index=True)
    return [Issue("broken", reason, *fix)]


def _parse_arch(arch: str, kind: str) -> tuple[int, ...] | None:
    """Return ``sm_90`` as (9, 0); None for another kind or an architecture-specific one (``sm_90a``)."""
    found = re.fullmatch(rf"{kind}_(\d+)(\d)", arch)
    return (int(found[1]), int(found[2])) if found is not None else None


def _cuda_start_issues(results: ProbeResults) -> list[Issue]:
    """Return the issues that CUDA reports when it is initialized."""
    code, torch = results.libcuda.get("cu_init"), results.torch
    if code == _UNAVAILABLE:
        return [
            Issue("broken", "The GPU is taken by another process that has it alone.", "See who: nvidia-smi.")
        ]
    if code == _UNKNOWN_ERROR:
        reason = "CUDA does not start (error 999): the driver's module for memory may be out of order."
        fix = f"Load it again: {_RELOAD_UVM}. In a container, restart it."
        return [Issue("broken", reason, fix, _RELOAD_UVM)]
    none = code == _NO_DEVICE or (code == 0 and results.libcuda.get("cu_count") == 0)
    if none and results.gpus and not hides_all(results) and not _none_usable(results):
        reason = "The driver lists GPUs, but CUDA finds none that it may use."
        return [Issue("broken", reason, "See what the kernel log (dmesg) says of them.")]
    if code not in (0, None, _NO_DEVICE) and not _reported_by_driver_check(code):
        reason = f"CUDA does not start: {results.libcuda.get('cu_text') or 'unknown error'} ({code})."
        return [Issue("broken", reason, "See what the kernel log (dmesg) and nvidia-smi say.")]
    cuda, driver = results.cuda, results.driver
    if cuda is None or (driver is not None and cuda_versions.driver_too_old(driver, cuda)):
        return []
    if results.cuda_works and torch.get("available") is False:
        warnings = torch.get("warnings") or []
        why = f": {str(warnings[0]).splitlines()[0]}" if warnings else ""
        reason = f"CUDA starts, but PyTorch can't use it{why}".rstrip(".") + "."
        return [Issue("broken", reason, *reinstall_libraries(results))]
    return []


def _reported_by_driver_check(code: object) -> bool:
    return code in (34, 802, 803, 804)


def _none_usable(results: ProbeResults) -> bool:
    """Return whether every GPU is unusable for a reason that the sharing check reports."""
    return all(gpu.compute_mode == "prohibited" or (gpu.mig and not gpu.slices) for gpu in results.gpus)


# -- MIG, compute mode, MPS ------------------------------------------------------------------------------


def check_sharing(results: ProbeResults) -> Check:
    """Check whether several processes may share a GPU, and whether any GPU or MIG slice is usable."""
    gpus, mps = results.gpus, results.machine.mps
    if not gpus:
        return skipped_check(SHARING, "no GPU to be seen")
    evidence: dict[str, str | None] = {
        f"GPU {gpu.index}": ", ".join(
            [
                f"MIG with {pluralize(len(gpu.slices), 'slice')}" if gpu.mig else "whole",
                f"compute mode {gpu.compute_mode or 'n/a'}",
            ]
        )
        for gpu in gpus
    }
    evidence["MPS"] = mps
    issues = []
    empty = [gpu for gpu in gpus if gpu.mig and not gpu.slices]
    if empty:
        usable = len(empty) < len(gpus)
        reason = f"MIG is on without a slice on {_gpu_list(empty)}: CUDA can't use {_pronoun(empty)}."
        fix = f"Cut it: {_ONE_SLICE} (profiles: nvidia-smi mig -lgip), or switch MIG off (-mig 0)."
        issues.append(Issue("warning" if usable else "broken", reason, fix, _ONE_SLICE))
    forbidden = [gpu for gpu in gpus if gpu.compute_mode == "prohibited"]
    if forbidden:
        gpu_list, pronoun = _gpu_list(forbidden), _pronoun(forbidden)
        reason = f"The compute mode of {gpu_list} is 'prohibited': CUDA can't use {pronoun}."
        allow_sharing = _allow_sharing_command(forbidden[0])
        fix = f"Allow it: {allow_sharing}."
        issues.append(
            Issue("warning" if len(forbidden) < len(gpus) else "broken", reason, fix, allow_sharing)
        )
    alone = [gpu for gpu in gpus if (gpu.compute_mode or "").startswith("exclusive")]
    if alone and mps is None:
        reason = f"{_gpu_list(alone)} takes one process at a time (compute mode '{alone[0].compute_mode}')."
        allow_sharing = _allow_sharing_command(alone[0])
        fix = f"Where several notebooks are to share it: {allow_sharing}, or MPS."
        issues.append(Issue("warning", reason, fix, allow_sharing))
    pending = [gpu for gpu in gpus if gpu.mig is not None and gpu.mig != gpu.mig_pending]
    if pending:
        reason = f"MIG of {_gpu_list(pending)} is to be switched, which waits for a reset."
        issues.append(Issue("warning", reason, f"Stop what uses it, then {_RESET}.", _RESET))
    slices = sum(len(gpu.slices) for gpu in gpus)
    found = f"MIG: {pluralize(slices, 'slice')}" if any(gpu.mig for gpu in gpus) else "whole GPUs"
    if mps is not None:
        found += ", MPS runs"
    return build_check(SHARING, found, issues, evidence)


def _allow_sharing_command(gpu: GpuHealth) -> str:
    return f"sudo nvidia-smi -i {gpu.index} -c DEFAULT"


def _gpu_list(gpus: list[GpuHealth]) -> str:
    return f"GPU {', '.join(str(gpu.index) for gpu in gpus)}"


def _pronoun(gpus: list[GpuHealth]) -> str:
    return "it" if len(gpus) == 1 else "them"
