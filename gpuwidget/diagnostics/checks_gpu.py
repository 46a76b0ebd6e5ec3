"""Checks of the GPUs: whether they exist, whether torch supports them, and whether processes can share
them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuwidget.diagnostics import cuda_versions, messages_driver
from gpuwidget.diagnostics import messages_gpu as messages
from gpuwidget.diagnostics.checks_visible_devices import hides_all
from gpuwidget.diagnostics.cuda_versions import version_tuple
from gpuwidget.diagnostics.fixes import build_command, install_torch, reinstall_libraries, setting_in
from gpuwidget.diagnostics.issues import build_check, skipped_check
from gpuwidget.diagnostics.messages_torch import CORRECT_VARIABLE
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.model.diagnosis import Check, Fix, Issue, IssueStatus
from gpuwidget.model.translation import counted, joined, translatable
from gpuwidget.sources import nvml_messages
from gpuwidget.sources.nvml_diagnostics import GpuDiagnostics, LostGpu

GPU = ("gpu", "GPU")
SHARING = ("sharing", translatable("MIG and sharing"))

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
    issues = [_lost_issue(gpu, others=True) for gpu in _lost_gpus(results)]
    for name, capability in _capabilities(results):
        issues += _architecture_issues(name, capability, archs, results)
    issues += _cuda_start_issues(results)
    if results.gpus:
        return build_check(GPU, _count_by_name(results.gpus), issues, evidence)
    if nvml is not None and nvml.error is None:
        if nvml.lost:
            issue = _lost_issue(nvml.lost[0], others=False)
        else:
            in_container = results.machine.container is not None
            issue = messages.NO_GPU(fix=messages_driver.START_CONTAINER_WITH_GPUS() if in_container else None)
        return build_check(GPU, translatable("none"), [issue], evidence)
    devices = results.libcuda.get("cu_devices")
    if devices:
        return build_check(GPU, ", ".join(device["name"] for device in devices), issues, evidence)
    return build_check(GPU, translatable("not visible"), [messages.UNKNOWN_WITHOUT_DRIVER()], evidence)


def _count_by_name(gpus: tuple[GpuDiagnostics, ...]) -> str:
    names = dict.fromkeys(gpu.name for gpu in gpus)
    times = "\N{MULTIPLICATION SIGN}"
    return ", ".join(f"{sum(gpu.name == name for gpu in gpus)} {times} {name}" for name in names)


def _lost_issue(gpu: LostGpu, *, others: bool) -> Issue:
    """Return the issue of a GPU that can't be opened; ``others`` is whether other GPUs work."""
    return messages.LOST(
        gpu=gpu.index,
        code=gpu.error,
        error=gpu.error_text,
        status="warning" if others else "broken",
        fix=messages.SEE_KERNEL_LOG() if others else None,
        shown={"problem": nvml_messages.lost_gpu(gpu.error, gpu.error_text)},
    )


def _lost_gpus(results: ProbeResults) -> tuple[LostGpu, ...]:
    return results.nvml.lost if results.nvml is not None else ()


def _capabilities(results: ProbeResults) -> list[tuple[str, str]]:
    """Return each GPU model with its compute capability, as reported by NVML, or else by CUDA."""
    known = [(gpu.name, gpu.compute_capability) for gpu in results.gpus if gpu.compute_capability is not None]
    devices = results.libcuda.get("cu_devices") or []
    return list(dict.fromkeys(known or [(device["name"], device["capability"]) for device in devices]))


def _architecture_issues(gpu: str, capability: str, archs: list[str], results: ProbeResults) -> list[Issue]:
    """Return an issue unless torch has binary code that runs on this GPU.

    Binary code runs on GPUs with the same major compute capability and the same or a higher minor one.
    """
    if not archs:
        return []
    target = version_tuple(capability)
    compiled = [arch for name in archs if (arch := _parse_arch(name, "sm")) is not None]
    if any(arch[0] == target[0] and arch <= target for arch in compiled):
        return []
    if any(arch <= target for name in archs if (arch := _parse_arch(name, "compute")) is not None):
        return [messages.COMPILED_AT_FIRST_USE(gpu=gpu, capability=capability)]
    if not compiled or target >= min(compiled):
        fix = install_torch(results, "too-old", capabilities=[capability], always_index=True)
        return [_no_code_issue(gpu, capability, archs, fix)]
    wheel = cuda_versions.torch_wheel(results.driver, [capability], arm=results.arm)
    command = None if wheel is None else build_command(results, wheel)
    if wheel is None or command is None:
        fix = messages.INSTALL_OLDER_TORCH(gpu=gpu)
    else:
        cuda, last_torch = cuda_versions.wheel_cuda(wheel), cuda_versions.wheel_last_torch(wheel)
        fix = messages.INSTALL_OLDER_TORCH_OR_BUILD(
            gpu=gpu, cuda=cuda, last_torch=last_torch, command=command
        )
    return [_no_code_issue(gpu, capability, archs, fix)]


def _no_code_issue(gpu: str, capability: str, archs: Sequence[str], fix: Fix) -> Issue:
    return messages.NO_CODE(
        gpu=gpu, capability=capability, archs=tuple(archs), fix=fix, shown={"archs": " ".join(archs)}
    )


def _parse_arch(arch: str, kind: str) -> tuple[int, ...] | None:
    """Return the version of an architecture, such as (9, 0) for ``sm_90`` if ``kind`` is ``sm``.

    Return None for another kind, and for architecture-specific code, such as ``sm_90a``.
    """
    found = re.fullmatch(rf"{kind}_(\d+)(\d)", arch)
    return (int(found[1]), int(found[2])) if found is not None else None


def _cuda_start_issues(results: ProbeResults) -> list[Issue]:
    code, torch = results.libcuda.get("cu_init"), results.torch
    if code == _UNAVAILABLE:
        return [messages.IN_EXCLUSIVE_USE()]
    if code == _UNKNOWN_ERROR:
        return [messages.UNKNOWN_ERROR()]
    none = code == _NO_DEVICE or (code == 0 and results.libcuda.get("cu_count") == 0)
    if none and results.gpus and not hides_all(results) and not _none_usable(results):
        return [messages.NONE_FOR_CUDA()]
    if code not in (0, None, _NO_DEVICE) and not _reported_by_driver_check(code):
        return [messages.CUDA_START_FAILED(code=code, error=results.libcuda.get("cu_text"))]
    cuda, driver = results.cuda, results.driver
    if cuda is None or (driver is not None and cuda_versions.driver_too_old(driver, cuda)):
        return []
    if results.cuda_works and torch.get("available") is False:
        warnings = torch.get("warnings") or []
        warning = str(warnings[0]).splitlines()[0] if warnings else None
        variable = setting_in(warning or "", results)
        fix = (
            reinstall_libraries(results, otherwise=messages.SEE_CUDA_ERROR())
            if variable is None
            else CORRECT_VARIABLE(variable=variable)
        )
        return [
            messages.UNUSABLE_BY_TORCH(
                warning=warning, fix=fix, shown={"warning": warning and warning.rstrip(".")}
            )
        ]
    return []


def _reported_by_driver_check(code: object) -> bool:
    return code in (34, 802, 803, 804)


def _none_usable(results: ProbeResults) -> bool:
    """Return whether all GPUs are unusable for reasons that the sharing check reports."""
    return all(gpu.compute_mode == "prohibited" or (gpu.mig and not gpu.slices) for gpu in results.gpus)


# -- MIG, compute mode, MPS ------------------------------------------------------------------------------


def check_sharing(results: ProbeResults) -> Check:
    """Check whether several processes may share a GPU, and whether any GPU or MIG slice is usable."""
    gpus, mps = results.gpus, results.machine.mps
    if not gpus:
        return skipped_check(SHARING, translatable("no GPU found"))
    evidence: dict[str, str | None] = {
        f"GPU {gpu.index}": ", ".join(
            [
                counted(len(gpu.slices), "MIG with {number} slice", "MIG with {number} slices")
                if gpu.mig
                else "whole",
                f"compute mode {gpu.compute_mode or 'n/a'}",
            ]
        )
        for gpu in gpus
    }
    evidence["MPS"] = mps
    issues = []
    empty = [gpu.index for gpu in gpus if gpu.mig and not gpu.slices]
    if empty:
        status = _unusable_status(empty, gpus)
        issues.append(messages.MIG_WITHOUT_SLICE(gpus=tuple(empty), status=status))
    forbidden = [gpu.index for gpu in gpus if gpu.compute_mode == "prohibited"]
    if forbidden:
        status, fix = _unusable_status(forbidden, gpus), messages.ALLOW_CUDA(gpu=forbidden[0])
        issues.append(messages.COMPUTE_MODE_PROHIBITED(gpus=tuple(forbidden), status=status, fix=fix))
    alone = [gpu for gpu in gpus if (gpu.compute_mode or "").startswith("exclusive")]
    if alone and mps is None:
        fix = messages.ALLOW_SHARING(gpu=alone[0].index)
        indices = tuple(gpu.index for gpu in alone)
        issues.append(messages.COMPUTE_MODE_EXCLUSIVE(gpus=indices, mode=alone[0].compute_mode, fix=fix))
    pending = [gpu.index for gpu in gpus if gpu.mig is not None and gpu.mig != gpu.mig_pending]
    if pending:
        issues.append(messages.MIG_PENDING(gpus=tuple(pending)))
    slices = sum(len(gpu.slices) for gpu in gpus)
    found = translatable("whole GPUs")
    if any(gpu.mig for gpu in gpus):
        found = counted(slices, "MIG: {number} slice", "MIG: {number} slices")
    if mps is not None:
        found = joined([found, translatable("MPS runs")])
    return build_check(SHARING, found, issues, evidence)


def _unusable_status(unusable: Sequence[int], gpus: Sequence[GpuDiagnostics]) -> IssueStatus:
    """Return the status of an issue that makes some or all GPUs unusable."""
    return "warning" if len(unusable) < len(gpus) else "broken"
