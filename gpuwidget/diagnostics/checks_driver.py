"""Checks of what CUDA requires: the driver and its device files."""

from __future__ import annotations

import re
from dataclasses import replace

from gpuwidget.diagnostics import cuda_versions
from gpuwidget.diagnostics.cuda_versions import format_cuda_version, version_tuple
from gpuwidget.diagnostics.fixes import build_command, install_nvml_binding, last_release_note
from gpuwidget.diagnostics.issues import Issue, build_check, pluralize, skipped_check
from gpuwidget.diagnostics.probe_process import ProbeResult
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.model.diagnosis import Check
from gpuwidget.sources import nvml_diagnostics, nvml_messages

DRIVER = ("driver", "Driver")
FILES = ("device_files", "Device files")

_START_WITH_GPUS = "Start the container with the machine's GPUs: docker run --gpus all …"
_LOAD = "sudo modprobe nvidia"
_START_FABRIC = "sudo systemctl start nvidia-fabricmanager"
_CREATE_DEVICE_FILES = "sudo nvidia-modprobe -c 0 -u"
_JOIN_GROUP = "sudo usermod -aG video $USER"
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
        "newest CUDA it runs": newest,
        "kernel module": machine.module,
        "libcuda": ", ".join(results.mapped("libcuda")) or results.libcuda.get("libcuda_error"),
        "container": machine.container,
        "Python binding": ", ".join(f"{one.name} {one.version}" for one in results.packages.binding),
    }
    if machine.system == "darwin":
        reason = "macOS has no NVIDIA driver."
        return build_check(
            DRIVER, "none", [Issue("broken", reason, "Use a machine with an NVIDIA GPU.")], evidence
        )
    issues = [
        *_downgrade_if_cuda_works(results, _nvml_issues(results)),
        *_version_issues(results),
        *_libcuda_issues(results),
    ]
    found = driver or "not found"
    if driver and newest:
        found = f"{driver}, for CUDA up to {newest}"
    return build_check(DRIVER, found, issues, evidence)


def _downgrade_if_cuda_works(results: ProbeResults, issues: list[Issue]) -> list[Issue]:
    """If CUDA works anyway, turn broken issues into warnings, since only readings may be missing."""
    if not results.cuda_works:
        return issues
    return [replace(one, status="warning") if one.status == "broken" else one for one in issues]


def _nvml_issues(results: ProbeResults) -> list[Issue]:
    """Return the issues that NVML reports about the driver."""
    nvml, result = results.nvml, results.nvml_result
    if results.missing_gpus_in_container and (nvml is None or nvml.error is not None):
        return [
            Issue(
                "broken",
                "This container was started without the machine's GPUs.",
                _container_gpus_fix(results),
            )
        ]
    if nvml is None and result.ending == "hung":
        return [
            Issue(
                "broken",
                f"The driver did not answer within {results.timeout_s:.0f} s: "
                f"{_unfinished_step(result)} did not return.",
                "See whether nvidia-smi hangs too; the kernel log (dmesg) names the GPU that "
                "is stuck. A restart "
                "of the machine usually helps.",
            )
        ]
    if nvml is None:
        what = f"{_unfinished_step(result)}: {result.how or 'no answer'}"
        return [Issue("unknown", f"The driver could not be asked ({what}).", "See what nvidia-smi says.")]
    if nvml.error == nvml_diagnostics.NO_BINDING:
        reason = str(nvml.reason).partition(". ")[0]
        return [Issue("unknown", f"{reason}.", *install_nvml_binding(results))]
    if nvml.error is None:
        return []
    if nvml.error == nvml_messages.LIB_RM_VERSION_MISMATCH:
        module = results.machine.module
        loaded = f" ({module} is still loaded)" if module else ""
        return [
            Issue(
                "broken",
                f"The driver's libraries were updated while the old kernel module runs{loaded}.",
                "Restart the machine, or reload the driver's modules; a container must be "
                "started anew after that.",
            )
        ]
    reason, _, fix = str(nvml.reason).partition(". ")
    command = _LOAD if nvml.error == nvml_messages.DRIVER_NOT_LOADED else None
    return [Issue("broken", f"{reason}.", fix or "See what nvidia-smi says.", command)]


def _unfinished_step(result: ProbeResult) -> str:
    return result.unfinished or "starting Python"


def _container_gpus_fix(results: ProbeResults) -> str:
    wanted = results.variables.get("NVIDIA_VISIBLE_DEVICES")
    if wanted in ("void", "none", ""):
        return f"NVIDIA_VISIBLE_DEVICES is {wanted!r} here: set it to all, or docker run --gpus all …"
    if results.variables.get("KUBERNETES_SERVICE_HOST") or results.machine.container == "Kubernetes":
        return "Ask for a GPU in the pod's resources: limits: nvidia.com/gpu: 1."
    return _START_WITH_GPUS


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
    reason = (
        f"Driver {driver} is too old for a PyTorch built with CUDA {cuda}, which needs {minimum} or newer."
    )
    fix = f"Update the driver to {minimum} or newer"
    command = None if wheel is None else build_command(results, wheel)
    if wheel is None or command is None:
        return [Issue("broken", reason, f"{fix}.")]
    other = (
        f"a PyTorch built with CUDA {cuda_versions.wheel_cuda(wheel)}: {command}.{last_release_note(wheel)}"
    )
    newest = cuda_versions.torch_wheel(None, results.capabilities, arm=results.arm)
    if newest is not None and version_tuple(cuda_versions.wheel_cuda(newest))[0] < version_tuple(cuda)[0]:
        # A newer driver does not help, because this CUDA version has dropped support for these GPUs.
        return [Issue("broken", reason, f"Install {other}", command)]
    return [Issue("broken", reason, f"{fix}, or install {other}", command)]


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
            reason = f"CUDA's driver library is not in this container: its capabilities are {capabilities!r}."
            fix = "Start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility."
            return [Issue("broken", reason, fix)]
        reason = f"The driver runs, but its library for CUDA can't be loaded: {str(error).splitlines()[0]}."
        return [Issue("broken", reason, "Install the driver's compute part (Debian, Ubuntu: libcuda1).")]
    return _cu_init_issues(results, results.libcuda.get("cu_init"))


def _cu_init_issues(results: ProbeResults, code: object) -> list[Issue]:
    library = ", ".join(results.mapped("libcuda")) or "libcuda.so.1"
    if code == _STUB:
        reason = f"{library} is a stub to link with, not the driver."
        return [Issue("broken", reason, "Take CUDA's folder 'stubs' out of LD_LIBRARY_PATH.")]
    if code == _NOT_READY:
        return [
            Issue(
                "broken",
                "The driver is not ready: GPUs that are joined by NVSwitch wait for the fabric "
                "manager (error 802).",
                f"Start it: {_START_FABRIC}, of the driver's very version.",
                _START_FABRIC,
            )
        ]
    if code in (_MISMATCH, _NO_COMPAT):
        reason = f"{library} does not fit the driver that is loaded (error {code})."
        fix = "Take CUDA's folder 'compat' out of LD_LIBRARY_PATH, or update the driver."
        return [Issue("broken", reason, fix)]
    return []


# -- device files ----------------------------------------------------------------------------------------


def check_device_files(results: ProbeResults) -> Check:
    """Check the files under /dev through which programs access the driver."""
    machine = results.machine
    files = machine.devices
    evidence = {one.path: one.mode for one in files}
    if machine.system not in ("linux", "wsl"):
        return skipped_check(
            FILES, "this system has others" if machine.system == "jetson" else "this system has none"
        )
    if machine.system == "wsl":
        if any(one.path == "/dev/dxg" for one in files):
            return build_check(FILES, "/dev/dxg (WSL)", [], evidence)
        reason = "WSL has no /dev/dxg: its Windows gives it no GPU."
        fix = "Install NVIDIA's driver in Windows, then 'wsl --update' and 'wsl --shutdown' there."
        return build_check(FILES, "none", [Issue("broken", reason, fix)], evidence)
    gpus = [one.path for one in files if re.fullmatch(r"/dev/nvidia\d+", one.path)]
    if not gpus and not files:
        return build_check(
            FILES, "none", _downgrade_if_cuda_works(results, [_missing_files_issue(results)]), evidence
        )
    issues = []
    forbidden = [one for one in files if not one.usable and not one.path.startswith("/dev/nvidia-caps/")]
    if forbidden:
        reason = f"This user may not use {', '.join(one.path for one in forbidden)} ({forbidden[0].mode})."
        fix = (
            f"Let this user read and write them: {_JOIN_GROUP} and log in again, or 'sudo chmod a+rw "
            "/dev/nvidia*' where no group is used."
        )
        issues.append(Issue("broken", reason, fix, _JOIN_GROUP))
    if not gpus:
        reason = "There are the driver's files, but none of a GPU (/dev/nvidia0)."
        issues.append(Issue("broken", reason, *_device_files_fix(results)))
    if machine.expected:
        reason = f"{' and '.join(machine.expected)} missing: CUDA does not start without."
        issues.append(Issue("broken", reason, *_device_files_fix(results)))
    if not forbidden:
        issues += _mig_file_issues(results)
    return build_check(
        FILES,
        f"{pluralize(len(gpus), 'GPU')} under /dev",
        _downgrade_if_cuda_works(results, issues),
        evidence,
    )


def _device_files_fix(results: ProbeResults) -> tuple[str, str | None]:
    """Return the fix for missing device files and its command."""
    return (
        (_START_WITH_GPUS, None)
        if results.machine.container
        else (f"Make them: {_CREATE_DEVICE_FILES}.", _CREATE_DEVICE_FILES)
    )


def _missing_files_issue(results: ProbeResults) -> Issue:
    if results.gpus:
        # Since the driver works, device files must exist, but in a place that this process can't see.
        return Issue("unknown", "No /dev/nvidia* is to be seen, though the driver answers.", None)
    if results.machine.container is not None:
        host = f" (the host's driver is {results.machine.module})" if results.machine.module else ""
        return Issue("broken", f"This container has no /dev/nvidia*{host}.", _container_gpus_fix(results))
    if results.machine.module is not None:
        reason = "The driver is loaded, but there is no /dev/nvidia*."
        return Issue("broken", reason, f"Make them: {_CREATE_DEVICE_FILES}.", _CREATE_DEVICE_FILES)
    reason = "There is no /dev/nvidia*: no NVIDIA driver is loaded, or there is no NVIDIA GPU."
    return Issue("broken", reason, "See whether lspci lists an NVIDIA GPU, and install its driver.")


def _mig_file_issues(results: ProbeResults) -> list[Issue]:
    """Return the issues of the device files of MIG slices; each slice has one."""
    forbidden = [
        one.path
        for one in results.machine.devices
        if one.path.startswith("/dev/nvidia-caps/") and not one.usable
    ]
    # One of the files manages the slices and is for root only, so an unusable file alone is not an issue.
    if not any(gpu.mig for gpu in results.gpus) or results.libcuda.get("cu_init") in (0, None):
        return []
    if forbidden:
        reason = f"A MIG slice is used through files that this user may not use: {', '.join(forbidden)}."
        return [Issue("broken", reason, "Let this user read those of its slices.")]
    if not any(one.path.startswith("/dev/nvidia-caps/") for one in results.machine.devices):
        reason = "MIG is on, but there is no /dev/nvidia-caps: a slice can't be used."
        return [
            Issue("broken", reason, "Make them: sudo nvidia-modprobe -f /proc/driver/nvidia/capabilities/…")
        ]
    return []
