"""The links of the GPUs themselves: which there are, and who may share them."""

from __future__ import annotations

import re

from gpuwidget.diagnostics import cuda_versions
from gpuwidget.diagnostics.checks_visible_devices import hides_all
from gpuwidget.diagnostics.fixes import build, fix_libraries, install, last
from gpuwidget.diagnostics.issues import Finding, counted, link, skipped
from gpuwidget.diagnostics.probe_results import Facts
from gpuwidget.diagnostics.versions import numbers
from gpuwidget.model.diagnosis import Link
from gpuwidget.sources.nvml_diagnostics import GpuHealth

GPU = ("gpu", "GPU")
SHARING = ("sharing", "MIG and sharing")

_RELOAD_UVM = "sudo rmmod nvidia_uvm; sudo modprobe nvidia_uvm"
_ONE_SLICE = "sudo nvidia-smi mig -cgi 0 -C"
_RESET = "sudo nvidia-smi --gpu-reset"
_NO_DEVICE, _UNAVAILABLE, _UNKNOWN = 100, 46, 999
"""Of CUresult, cuda.h."""


def gpu_link(facts: Facts) -> Link:
    """What GPUs there are, and whether torch's code runs on them."""
    nvml, told = facts.nvml, facts.torch
    evidence = {
        f"GPU {gpu.index}": f"{gpu.name}, {gpu.compute_capability or 'n/a'}, {gpu.uuid}" for gpu in facts.gpus
    }
    archs = told.get("archs") or []
    evidence |= {"PyTorch is built for": " ".join(archs)} if archs else {}
    findings = [
        Finding("warning", sentence, "Look into the kernel log (dmesg).") for sentence in _lost(facts)
    ]
    for name, capability in _capabilities(facts):
        findings += _architecture(name, capability, archs, facts)
    findings += _start(facts)
    if facts.gpus:
        return link(GPU, _names(facts.gpus), findings, evidence)
    if nvml is not None and nvml.error is None:
        reason = nvml.lost[0] if nvml.lost else "The driver runs but shows no GPU."
        remedy = (
            "Start the container with the machine's GPUs: docker run --gpus all …"
            if facts.machine.container and not nvml.lost
            else "Look into the kernel log (dmesg) and restart the machine; see what nvidia-smi lists then."
        )
        return link(GPU, "none", [Finding("broken", reason, remedy)], evidence)
    devices = facts.libcuda.get("cu_devices")
    if devices:
        return link(GPU, ", ".join(one["name"] for one in devices), findings, evidence)
    reason = "Without a driver that answers, no GPU can be seen."
    return link(GPU, "not to be seen", [Finding("unknown", reason, "Mend the driver first.")], evidence)


def _names(gpus: tuple[GpuHealth, ...]) -> str:
    names = dict.fromkeys(gpu.name for gpu in gpus)
    times = "\N{MULTIPLICATION SIGN}"
    return ", ".join(f"{sum(gpu.name == name for gpu in gpus)} {times} {name}" for name in names)


def _lost(facts: Facts) -> tuple[str, ...]:
    return facts.nvml.lost if facts.nvml is not None else ()


def _capabilities(facts: Facts) -> list[tuple[str, str]]:
    """Each kind of GPU with its compute capability, by NVML or else by CUDA."""
    known = [(gpu.name, gpu.compute_capability) for gpu in facts.gpus if gpu.compute_capability is not None]
    devices = facts.libcuda.get("cu_devices") or []
    return list(dict.fromkeys(known or [(one["name"], one["capability"]) for one in devices]))


def _architecture(gpu: str, capability: str, archs: list[str], facts: Facts) -> list[Finding]:
    """Whether torch has code for this GPU: made for it, for an older one of its family, or to be compiled."""
    if not archs:
        return []
    here = numbers(capability)
    made = [arch for one in archs if (arch := _of(one, "sm")) is not None]
    if any(arch[0] == here[0] and arch <= here for arch in made):
        return []
    name = f"{gpu} (compute capability {capability})"
    if any(arch <= here for one in archs if (arch := _of(one, "compute")) is not None):
        reason = (
            f"This PyTorch has no code made for {name}: it is compiled at its first use, and may be slow."
        )
        remedy = "Install a newer PyTorch."
        return [Finding("warning", reason, remedy)]
    reason = f"This PyTorch has no code for {name}: it was built for {' '.join(archs)}."
    if made and here < min(made):
        older = f"Install an older PyTorch, which still knows {gpu}"
        wheel = cuda_versions.torch_wheel(facts.driver, [capability], arm=facts.arm)
        command = None if wheel is None else build(facts, wheel)
        if wheel is None or command is None:
            return [Finding("broken", reason, f"{older}.")]
        built = f"or a build with CUDA {cuda_versions.wheel_cuda(wheel)}: {command}"
        return [Finding("broken", reason, f"{older}, {built}.{last(wheel)}", command)]
    what = "Install a newer PyTorch"
    fix = install(facts, what, capabilities=[capability], always_index=True)
    return [Finding("broken", reason, *fix)]


def _of(arch: str, kind: str) -> tuple[int, ...] | None:
    """``sm_90`` as (9, 0); None for another kind, and for one that runs on its own GPU only (``sm_90a``)."""
    found = re.fullmatch(rf"{kind}_(\d+)(\d)", arch)
    return (int(found[1]), int(found[2])) if found is not None else None


def _start(facts: Facts) -> list[Finding]:
    """What CUDA says of the GPUs when it starts."""
    code, told = facts.libcuda.get("cu_init"), facts.torch
    if code == _UNAVAILABLE:
        return [
            Finding(
                "broken", "The GPU is taken by another process that has it alone.", "See who: nvidia-smi."
            )
        ]
    if code == _UNKNOWN:
        reason = "CUDA does not start (error 999): the driver's module for memory may be out of order."
        remedy = f"Load it again: {_RELOAD_UVM}. In a container, restart it."
        return [Finding("broken", reason, remedy, _RELOAD_UVM)]
    none = code == _NO_DEVICE or (code == 0 and facts.libcuda.get("cu_count") == 0)
    if none and facts.gpus and not hides_all(facts) and not _no_use(facts):
        reason = "The driver lists GPUs, but CUDA finds none that it may use."
        return [Finding("broken", reason, "See what the kernel log (dmesg) says of them.")]
    if code not in (0, None, _NO_DEVICE) and not _told_by_driver(code):
        reason = f"CUDA does not start: {facts.libcuda.get('cu_text') or 'unknown error'} ({code})."
        return [Finding("broken", reason, "See what the kernel log (dmesg) and nvidia-smi say.")]
    cuda, driver = facts.cuda, facts.driver
    if cuda is None or (driver is not None and cuda_versions.too_old(driver, cuda)):
        return []
    if facts.cuda_works and told.get("available") is False:
        warnings = told.get("warnings") or []
        why = f": {str(warnings[0]).splitlines()[0]}" if warnings else ""
        reason = f"CUDA starts, but PyTorch can't use it{why}".rstrip(".") + "."
        return [Finding("broken", reason, *fix_libraries(facts))]
    return []


def _told_by_driver(code: object) -> bool:
    return code in (34, 802, 803, 804)


def _no_use(facts: Facts) -> bool:
    """Whether each is of no use by itself, which the link of sharing says."""
    return all(gpu.compute_mode == "prohibited" or (gpu.mig and not gpu.slices) for gpu in facts.gpus)


# -- MIG, compute mode, MPS ------------------------------------------------------------------------------


def sharing_link(facts: Facts) -> Link:
    """Whether others may use a GPU at the same time, and whether there is something to use."""
    gpus, mps = facts.gpus, facts.machine.mps
    if not gpus:
        return skipped(SHARING, "no GPU to be seen")
    evidence: dict[str, str | None] = {
        f"GPU {gpu.index}": ", ".join(
            [
                f"MIG with {counted(len(gpu.slices), 'slice')}" if gpu.mig else "whole",
                f"compute mode {gpu.compute_mode or 'n/a'}",
            ]
        )
        for gpu in gpus
    }
    evidence["MPS"] = mps
    findings = []
    empty = [gpu for gpu in gpus if gpu.mig and not gpu.slices]
    if empty:
        usable = len(empty) < len(gpus)
        reason = f"MIG is on without a slice on {_numbers(empty)}: CUDA can't use {_them(empty)}."
        remedy = f"Cut it: {_ONE_SLICE} (profiles: nvidia-smi mig -lgip), or switch MIG off (-mig 0)."
        findings.append(Finding("warning" if usable else "broken", reason, remedy, _ONE_SLICE))
    forbidden = [gpu for gpu in gpus if gpu.compute_mode == "prohibited"]
    if forbidden:
        reason = (
            f"The compute mode of {_numbers(forbidden)} is 'prohibited': CUDA can't use {_them(forbidden)}."
        )
        share = _share(forbidden[0])
        remedy = f"Allow it: {share}."
        findings.append(Finding("warning" if len(forbidden) < len(gpus) else "broken", reason, remedy, share))
    alone = [gpu for gpu in gpus if (gpu.compute_mode or "").startswith("exclusive")]
    if alone and mps is None:
        reason = f"{_numbers(alone)} takes one process at a time (compute mode '{alone[0].compute_mode}')."
        share = _share(alone[0])
        remedy = f"Where several notebooks are to share it: {share}, or MPS."
        findings.append(Finding("warning", reason, remedy, share))
    pending = [gpu for gpu in gpus if gpu.mig is not None and gpu.mig != gpu.mig_pending]
    if pending:
        reason = f"MIG of {_numbers(pending)} is to be switched, which waits for a reset."
        findings.append(Finding("warning", reason, f"Stop what uses it, then {_RESET}.", _RESET))
    slices = sum(len(gpu.slices) for gpu in gpus)
    found = f"MIG: {counted(slices, 'slice')}" if any(gpu.mig for gpu in gpus) else "whole GPUs"
    if mps is not None:
        found += ", MPS runs"
    return link(SHARING, found, findings, evidence)


def _share(gpu: GpuHealth) -> str:
    return f"sudo nvidia-smi -i {gpu.index} -c DEFAULT"


def _numbers(gpus: list[GpuHealth]) -> str:
    return f"GPU {', '.join(str(gpu.index) for gpu in gpus)}"


def _them(gpus: list[GpuHealth]) -> str:
    return "it" if len(gpus) == 1 else "them"
