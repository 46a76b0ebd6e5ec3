"""Checks of what CUDA requires: the driver and its device files."""

from __future__ import annotations

import re
from dataclasses import replace

from gpuwidget.diagnostics import cuda_versions
from gpuwidget.diagnostics import messages_driver as messages
from gpuwidget.diagnostics.cuda_versions import format_cuda_version, version_tuple
from gpuwidget.diagnostics.fixes import build_command, install_nvml_binding
from gpuwidget.diagnostics.issues import build_check, skipped_check
from gpuwidget.diagnostics.messages_probes import PYTHON_START
from gpuwidget.diagnostics.probe_process import ProbeResult
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.model.diagnosis import Check, Fix, Issue
from gpuwidget.model.translation import translatable
from gpuwidget.sources import nvml_diagnostics, nvml_messages

DRIVER = ("driver", translatable("Driver"))
FILES = ("device_files", translatable("Device files"))

_STUB, _NOT_READY, _MISMATCH, _NO_COMPAT = 34, 802, 803, 804
"""Values of CUresult in cuda.h."""


def check_driver(results: ProbeResults) -> Check:
    """Check that NVIDIA's driver is loaded, works, and is new enough for torch's CUDA."""
    nvml, machine, driver = results.nvml, results.machine, results.driver
    newest = nvml.cuda_driver if nvml is not None else None
    if newest is None and isinstance(results.libcuda.get("cuda_driver"), int):
        newest = format_cuda_version(results.libcuda["cuda_driver"])
    evidence = {
        "driver": driver,
        "newest CUDA supported": newest,
        "kernel module": machine.module,
        "libcuda": ", ".join(results.mapped("libcuda")) or results.libcuda.get("libcuda_error"),
        "container": machine.container,
        "Python binding": ", ".join(
            f"{package.name} {package.version}" for package in results.packages.binding
        ),
    }
    issues = [
        *_downgrade_if_cuda_works(results, _nvml_issues(results)),
        *_version_issues(results),
        *_libcuda_issues(results),
    ]
    found = driver or translatable("not found")
    if driver and newest:
        found = translatable("{driver}, for CUDA up to {newest}", driver=driver, newest=newest)
    return build_check(DRIVER, found, issues, evidence)


def _downgrade_if_cuda_works(results: ProbeResults, issues: list[Issue]) -> list[Issue]:
    """Return the issues. If CUDA works, change the status ``broken`` to ``warning``, because only NVML's
    readings may be missing."""
    if not results.cuda_works:
        return issues
    return [replace(issue, status="warning") if issue.status == "broken" else issue for issue in issues]


def _nvml_issues(results: ProbeResults) -> list[Issue]:
    nvml, result = results.nvml, results.nvml_result
    if results.missing_gpus_in_container and (nvml is None or nvml.error is not None):
        return [messages.CONTAINER_WITHOUT_GPUS(fix=_container_gpus_fix(results))]
    if nvml is None and result.ending == "hung":
        return [messages.TIMEOUT(timeout_s=results.timeout_s, step=_unfinished_step(result))]
    if nvml is None:
        step, detail = _unfinished_step(result), result.detail
        return [messages.NO_RESULT(step=step, error=detail, shown={"error": detail or None})]
    match nvml.error:
        case None:
            return []
        case nvml_diagnostics.NO_BINDING:
            return [messages.BINDING_MISSING(fix=install_nvml_binding(results))]
        case nvml_diagnostics.FOREIGN_BINDING:
            return [messages.BINDING_FOREIGN(fix=install_nvml_binding(results))]
        case nvml_messages.LIBRARY_NOT_FOUND if _lacks_driver(results):
            return [messages.NOT_INSTALLED()]
        case nvml_messages.LIB_RM_VERSION_MISMATCH:
            return [messages.VERSION_MISMATCH(module=results.machine.module)]
        case nvml_messages.DRIVER_NOT_LOADED:
            return [messages.NOT_LOADED(error=nvml.error_text or "")]
        case code:
            return [_start_issue(code, nvml.error_text or "")]


def _start_issue(code: int, nvml_text: str) -> Issue:
    """Return the issue reporting that NVML can't be initialized, with NVML's error number and text."""
    error = nvml_messages.explain_start_error(code, nvml_text)
    fix = messages.FIX_DRIVER_START(code=code, shown={"fix": error.fix})
    return messages.START_FAILED(code=code, error=nvml_text, fix=fix, shown={"reason": error.reason})


def _lacks_driver(results: ProbeResults) -> bool:
    """Return whether the machine has an NVIDIA GPU, but no driver."""
    machine = results.machine
    return bool(machine.nvidia_gpu_on_pci) and machine.module is None and machine.container is None


def _unfinished_step(result: ProbeResult) -> str:
    return result.unfinished or PYTHON_START


def _container_gpus_fix(results: ProbeResults) -> Fix:
    wanted = results.variables.get("NVIDIA_VISIBLE_DEVICES")
    if wanted in ("void", "none", ""):
        return messages.SET_NVIDIA_VISIBLE_DEVICES(value=wanted)
    if results.variables.get("KUBERNETES_SERVICE_HOST"):
        return messages.REQUEST_KUBERNETES_GPU()
    return messages.START_CONTAINER_WITH_GPUS()


def _version_issues(results: ProbeResults) -> list[Issue]:
    """Return an issue if the driver is too old for the CUDA that torch was built with."""
    cuda, driver = results.cuda, results.driver
    if cuda is None or driver is None or not cuda_versions.driver_too_old(driver, cuda):
        return []
    if results.torch.get("available") and not results.variables.get("PYTORCH_NVML_BASED_CUDA_CHECK"):
        # CUDA works despite the old driver, as with NVIDIA's forward-compatibility package, which contains a
        # newer libcuda.
        return []
    minimum = cuda_versions.minimum_driver(cuda)
    wheel = cuda_versions.torch_wheel(driver, results.capabilities, arm=results.arm)
    command = None if wheel is None else build_command(results, wheel)
    if wheel is None or command is None:
        fix = messages.UPDATE_DRIVER(minimum=minimum)
    else:
        fix = _install_build_fix(results, cuda, wheel, command)
    return [messages.TOO_OLD(driver=driver, cuda=cuda, minimum=minimum, fix=fix)]


def _install_build_fix(results: ProbeResults, cuda: str, wheel: str, command: str) -> Fix:
    """Return the fix for a driver that is too old for torch's CUDA version ``cuda``: install torch's build
    ``wheel`` or, if that helps, update the driver."""
    built_with, last_torch = cuda_versions.wheel_cuda(wheel), cuda_versions.wheel_last_torch(wheel)
    newest = cuda_versions.torch_wheel(None, results.capabilities, arm=results.arm)
    if newest is not None and version_tuple(cuda_versions.wheel_cuda(newest))[0] < version_tuple(cuda)[0]:
        # A newer driver does not help, because this CUDA version has dropped support for these GPUs.
        return messages.INSTALL_BUILD(cuda=built_with, last_torch=last_torch, command=command)
    minimum = cuda_versions.minimum_driver(cuda)
    return messages.UPDATE_DRIVER_OR_INSTALL_BUILD(
        minimum=minimum, cuda=built_with, last_torch=last_torch, command=command
    )


def _libcuda_issues(results: ProbeResults) -> list[Issue]:
    nvml_works = results.nvml is not None and results.nvml.error is None
    error = results.libcuda.get("libcuda_error")
    if error and nvml_works:
        capabilities = results.variables.get("NVIDIA_DRIVER_CAPABILITIES")
        if (
            results.machine.container
            and capabilities is not None
            and not re.search("all|compute", capabilities)
        ):
            return [messages.CONTAINER_WITHOUT_COMPUTE(capabilities=capabilities)]
        return [messages.LIBCUDA_MISSING(error=str(error).splitlines()[0])]
    return _cu_init_issues(results, results.libcuda.get("cu_init"))


def _cu_init_issues(results: ProbeResults, code: int | None) -> list[Issue]:
    library = ", ".join(results.mapped("libcuda")) or "libcuda.so.1"
    if code == _STUB:
        return [messages.LIBCUDA_STUB(library=library)]
    if code == _NOT_READY:
        return [messages.FABRIC_MANAGER_MISSING()]
    if code in (_MISMATCH, _NO_COMPAT):
        return [messages.LIBCUDA_MISMATCH(library=library, code=code)]
    return []


# -- device files ----------------------------------------------------------------------------------------


def check_device_files(results: ProbeResults) -> Check:
    """Check the files under /dev through which programs access the driver."""
    machine = results.machine
    files = machine.devices
    evidence = {file.path: file.mode for file in files}
    if machine.system not in ("linux", "wsl"):
        return skipped_check(FILES, translatable("this system uses different device files"))
    if machine.system == "wsl":
        if any(file.path == "/dev/dxg" for file in files):
            return build_check(FILES, "/dev/dxg (WSL)", [], evidence)
        return build_check(FILES, translatable("none"), [messages.WSL_WITHOUT_GPU()], evidence)
    gpus = [file.path for file in files if re.fullmatch(r"/dev/nvidia\d+", file.path)]
    if not gpus and not files:
        return build_check(
            FILES,
            translatable("none"),
            _downgrade_if_cuda_works(results, [_missing_files_issue(results)]),
            evidence,
        )
    issues = []
    forbidden = [file for file in files if not file.usable and not file.path.startswith("/dev/nvidia-caps/")]
    if forbidden:
        paths = tuple(file.path for file in forbidden)
        issues.append(messages.DEVICE_FILES_FORBIDDEN(files=paths, mode=forbidden[0].mode))
    if not gpus:
        issues.append(messages.GPU_FILES_MISSING(fix=_device_files_fix(results)))
    if machine.expected:
        fix = _device_files_fix(results)
        issues.append(messages.CONTROL_FILES_MISSING(files=tuple(machine.expected), fix=fix))
    if not forbidden:
        issues += _mig_file_issues(results)
    return build_check(
        FILES,
        translatable("{number:gpus} under /dev", number=len(gpus)),
        _downgrade_if_cuda_works(results, issues),
        evidence,
    )


def _device_files_fix(results: ProbeResults) -> Fix:
    if results.machine.container:
        return messages.START_CONTAINER_WITH_GPUS()
    return messages.CREATE_DEVICE_FILES()


def _missing_files_issue(results: ProbeResults) -> Issue:
    if results.gpus or results.nvml_hangs:
        # Since there is a driver, device files must exist somewhere, but this process can't see them.
        return messages.DEVICE_FILES_INVISIBLE()
    module = results.machine.module
    if results.machine.container is not None:
        return messages.CONTAINER_WITHOUT_DEVICE_FILES(driver=module, fix=_container_gpus_fix(results))
    return messages.NO_DRIVER_OR_GPU() if module is None else messages.DEVICE_FILES_MISSING()


def _mig_file_issues(results: ProbeResults) -> list[Issue]:
    """Return the issues of the device files of MIG slices, which are in /dev/nvidia-caps."""
    forbidden = tuple(
        file.path
        for file in results.machine.devices
        if file.path.startswith("/dev/nvidia-caps/") and not file.usable
    )
    # One of these files manages the slices and is for root only, so a file that can't be used is no issue in
    # itself.
    if not any(gpu.mig for gpu in results.gpus) or results.libcuda.get("cu_init") in (0, None):
        return []
    if forbidden:
        return [messages.MIG_FILES_FORBIDDEN(files=forbidden)]
    if not any(file.path.startswith("/dev/nvidia-caps/") for file in results.machine.devices):
        return [messages.MIG_FILES_MISSING()]
    return []
