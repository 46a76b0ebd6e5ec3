"""Checks of what CUDA requires: the driver and its device files."""

from __future__ import annotations

import re
from dataclasses import replace

from gpuwidget.diagnostics import cuda_versions
from gpuwidget.diagnostics import messages_driver as messages
from gpuwidget.diagnostics.cuda_versions import format_cuda_version, version_tuple
from gpuwidget.diagnostics.fixes import build_command, install_nvml_binding
from gpuwidget.diagnostics.issues import build_check, skipped_check
from gpuwidget.diagnostics.messages import gpu_count
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
    """Return the issues that NVML reports about the driver."""
    nvml, result = results.nvml, results.nvml_result
    if results.missing_gpus_in_container and (nvml is None or nvml.error is not None):
        return [messages.container_without_gpus(_container_gpus_fix(results))]
    if nvml is None and result.ending == "hung":
        return [messages.timeout(results.timeout_s, _unfinished_step(result))]
    if nvml is None:
        return [messages.no_result(_unfinished_step(result), result.detail)]
    match nvml.error:
        case None:
            return []
        case nvml_diagnostics.NO_BINDING:
            return [messages.binding_missing(install_nvml_binding(results))]
        case nvml_diagnostics.FOREIGN_BINDING:
            return [messages.binding_foreign(install_nvml_binding(results))]
        case nvml_messages.LIBRARY_NOT_FOUND if _lacks_driver(results):
            return [messages.not_installed()]
        case nvml_messages.LIB_RM_VERSION_MISMATCH:
            return [messages.version_mismatch(results.machine.module)]
        case nvml_messages.DRIVER_NOT_LOADED:
            return [messages.not_loaded(nvml.error_text or "")]
        case code:
            return [messages.start_failed(code, nvml.error_text or "")]


def _lacks_driver(results: ProbeResults) -> bool:
    """Return whether the machine has an NVIDIA GPU, but no driver."""
    machine = results.machine
    return bool(machine.nvidia_gpu_on_pci) and machine.module is None and machine.container is None


def _unfinished_step(result: ProbeResult) -> str:
    return result.unfinished or PYTHON_START


def _container_gpus_fix(results: ProbeResults) -> Fix:
    wanted = results.variables.get("NVIDIA_VISIBLE_DEVICES")
    if wanted in ("void", "none", ""):
        return messages.set_visible_devices(wanted)
    if results.variables.get("KUBERNETES_SERVICE_HOST"):
        return messages.request_kubernetes_gpu()
    return messages.start_container_with_gpus()


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
        fix = messages.update_driver(minimum)
    else:
        fix = _install_build_fix(results, cuda, wheel, command)
    return [messages.too_old(driver, cuda, minimum, fix)]


def _install_build_fix(results: ProbeResults, cuda: str, wheel: str, command: str) -> Fix:
    """Return the fix for a driver that is too old for torch's CUDA version ``cuda``: install torch's build
    ``wheel`` or, if that helps, update the driver."""
    built_with, last_torch = cuda_versions.wheel_cuda(wheel), cuda_versions.wheel_last_torch(wheel)
    newest = cuda_versions.torch_wheel(None, results.capabilities, arm=results.arm)
    if newest is not None and version_tuple(cuda_versions.wheel_cuda(newest))[0] < version_tuple(cuda)[0]:
        # A newer driver does not help, because this CUDA version has dropped support for these GPUs.
        return messages.install_build(built_with, command, last_torch)
    minimum = cuda_versions.minimum_driver(cuda)
    return messages.update_driver_or_install_build(minimum, built_with, command, last_torch)


def _libcuda_issues(results: ProbeResults) -> list[Issue]:
    """Return the issues of libcuda, CUDA's driver library."""
    nvml_works = results.nvml is not None and results.nvml.error is None
    error = results.libcuda.get("libcuda_error")
    if error and nvml_works:
        capabilities = results.variables.get("NVIDIA_DRIVER_CAPABILITIES")
        if (
            results.machine.container
            and capabilities is not None
            and not re.search("all|compute", capabilities)
        ):
            return [messages.container_without_compute(capabilities)]
        return [messages.libcuda_missing(str(error).splitlines()[0])]
    return _cu_init_issues(results, results.libcuda.get("cu_init"))


def _cu_init_issues(results: ProbeResults, code: int | None) -> list[Issue]:
    library = ", ".join(results.mapped("libcuda")) or "libcuda.so.1"
    if code == _STUB:
        return [messages.libcuda_stub(library)]
    if code == _NOT_READY:
        return [messages.fabric_manager_missing()]
    if code in (_MISMATCH, _NO_COMPAT):
        return [messages.libcuda_mismatch(library, code)]
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
        return build_check(FILES, translatable("none"), [messages.wsl_without_gpu()], evidence)
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
        issues.append(messages.device_files_forbidden([file.path for file in forbidden], forbidden[0].mode))
    if not gpus:
        issues.append(messages.gpu_files_missing(_device_files_fix(results)))
    if machine.expected:
        issues.append(messages.control_files_missing(machine.expected, _device_files_fix(results)))
    if not forbidden:
        issues += _mig_file_issues(results)
    return build_check(
        FILES,
        translatable("{gpus} under /dev", gpus=gpu_count(len(gpus))),
        _downgrade_if_cuda_works(results, issues),
        evidence,
    )


def _device_files_fix(results: ProbeResults) -> Fix:
    if results.machine.container:
        return messages.start_container_with_gpus()
    return messages.create_device_files()


def _missing_files_issue(results: ProbeResults) -> Issue:
    if results.gpus or results.nvml_hangs:
        # Since there is a driver, device files must exist somewhere, but this process can't see them.
        return messages.device_files_invisible()
    module = results.machine.module
    if results.machine.container is not None:
        return messages.container_without_device_files(module, _container_gpus_fix(results))
    return messages.no_driver_and_no_device_files() if module is None else messages.device_files_missing()


def _mig_file_issues(results: ProbeResults) -> list[Issue]:
    """Return the issues of the device files of MIG slices, which are in /dev/nvidia-caps."""
    forbidden = [
        file.path
        for file in results.machine.devices
        if file.path.startswith("/dev/nvidia-caps/") and not file.usable
    ]
    # One of these files manages the slices and is for root only, so a file that can't be used is no issue in
    # itself.
    if not any(gpu.mig for gpu in results.gpus) or results.libcuda.get("cu_init") in (0, None):
        return []
    if forbidden:
        return [messages.mig_files_forbidden(forbidden)]
    if not any(file.path.startswith("/dev/nvidia-caps/") for file in results.machine.devices):
        return [messages.mig_files_missing()]
    return []
