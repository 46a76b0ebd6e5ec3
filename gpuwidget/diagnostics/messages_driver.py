"""Texts of the checks of the driver and its device files."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwidget.diagnostics.messages import command_fix, text_fix
from gpuwidget.diagnostics.messages_packages import last_version
from gpuwidget.model.diagnosis import Fix, Issue
from gpuwidget.model.translation import listed, translatable
from gpuwidget.sources import nvml_messages

_CREATE_DEVICE_FILES = "sudo nvidia-modprobe -c 0 -u"
_JOIN_GROUP = "sudo usermod -aG video $USER"
_LOAD_DRIVER = "sudo modprobe nvidia"
_START_FABRIC_MANAGER = "sudo systemctl start nvidia-fabricmanager"

# -- the driver ------------------------------------------------------------------------------------------


def not_installed() -> Issue:
    """Return the issue reporting that the machine has an NVIDIA GPU, but no driver."""
    return Issue(
        "driver-not-installed",
        "broken",
        {},
        translatable("This machine has an NVIDIA GPU, but NVIDIA's driver is not installed."),
        text_fix(
            "install-gpu-driver",
            "Install NVIDIA's driver for this GPU, and restart the machine. Then check that nvidia-smi "
            "works.",
        ),
    )


def container_without_gpus(fix: Fix) -> Issue:
    """Return the issue reporting that the container was started without the machine's GPUs."""
    reason = translatable("This container was started without the machine's GPUs.")
    return Issue("container-without-gpus", "broken", {}, reason, fix)


def timeout(timeout_s: float, step: str) -> Issue:
    """Return the issue reporting that the driver did not answer in time."""
    return Issue(
        "driver-timeout",
        "broken",
        {"timeout_s": timeout_s, "step": step},
        translatable(
            "The driver did not answer within {timeout_s:.0f} s: {step} did not return.",
            timeout_s=timeout_s,
            step=step,
        ),
        text_fix(
            "see-whether-driver-hangs",
            "See whether nvidia-smi hangs too; the kernel log (dmesg) names the GPU that is stuck. A restart "
            "of the machine usually helps.",
        ),
    )


def no_result(step: str, detail: str) -> Issue:
    """Return the issue reporting that NVML's probe ended without a result.

    ``detail`` is the error, or empty.
    """
    return Issue(
        "driver-no-result",
        "unknown",
        {"step": step, "error": detail},
        translatable(
            "The driver could not be queried ({step}: {detail}).",
            step=step,
            detail=detail or translatable("no answer"),
        ),
        _see_nvidia_smi(),
    )


def binding_missing(fix: Fix) -> Issue:
    """Return the issue reporting that NVML's Python binding is missing."""
    return Issue("nvml-binding-missing", "unknown", {}, nvml_messages.PYNVML_MISSING, fix)


def binding_foreign(fix: Fix) -> Issue:
    """Return the issue reporting that the module pynvml is a fork of NVML's Python binding."""
    return Issue("nvml-binding-foreign", "unknown", {}, nvml_messages.PYNVML_FOREIGN, fix)


def version_mismatch(module: str | None) -> Issue:
    """Return the issue reporting that the driver's libraries and its kernel module have different versions.

    ``module`` is the version of the kernel module, if it is known.
    """
    return Issue(
        "driver-version-mismatch",
        "broken",
        {"module": module},
        translatable(
            "The driver's libraries were updated, but the old kernel module {module} is still loaded.",
            module=module,
        )
        if module
        else translatable("The driver's libraries were updated, but the old kernel module is still loaded."),
        text_fix(
            "restart-machine",
            "Restart the machine, or reload the driver's modules. Restart containers afterwards.",
        ),
    )


def not_loaded(nvml_text: str) -> Issue:
    """Return the issue reporting that the driver is not loaded. ``nvml_text`` is NVML's text of the error."""
    return Issue(
        "driver-not-loaded",
        "broken",
        {"error": nvml_text},
        nvml_messages.explain_start_error(nvml_messages.DRIVER_NOT_LOADED, nvml_text).reason,
        command_fix("load-driver", "Load it, or reboot:", _LOAD_DRIVER, "Then check that nvidia-smi works."),
    )


def start_failed(code: int, nvml_text: str) -> Issue:
    """Return the issue reporting that NVML can't be initialized, with NVML's error number and text."""
    error = nvml_messages.explain_start_error(code, nvml_text)
    return Issue(
        "driver-start-failed",
        "broken",
        {"code": code, "error": nvml_text},
        error.reason,
        text_fix("fix-driver-start", error.fix, code=code),
    )


def too_old(driver: str, cuda: str, minimum: str | None, fix: Fix) -> Issue:
    """Return the issue reporting that the driver is too old for the CUDA that torch was built with."""
    params = {"driver": driver, "cuda": cuda, "minimum": minimum}
    reason = translatable(
        "Driver {driver} is too old: a PyTorch built with CUDA {cuda} needs driver {minimum} or newer.",
        driver=driver,
        cuda=cuda,
        minimum=minimum,
    )
    return Issue("driver-too-old", "broken", params, reason, fix)


def update_driver(minimum: str | None) -> Fix:
    """Return the fix that updates the driver."""
    return text_fix("update-driver", "Update the driver to {minimum} or newer.", minimum=minimum)


def install_build(cuda: str, command: str, last_torch: str | None) -> Fix:
    """Return the fix that installs a build of torch for an older CUDA.

    ``last_torch`` is described in ``install_torch`` of ``messages_packages``.
    """
    return command_fix(
        "install-torch-for-driver",
        "Install a PyTorch built with CUDA {cuda}:",
        command,
        last_version(last_torch),
        cuda=cuda,
        last_torch=last_torch,
    )


def update_driver_or_install_build(
    minimum: str | None, cuda: str, command: str, last_torch: str | None
) -> Fix:
    """Return the fix that updates the driver or installs a build of torch for an older CUDA."""
    return command_fix(
        "update-driver-or-install-torch",
        "Update the driver to {minimum} or newer, or install a PyTorch built with CUDA {cuda}:",
        command,
        last_version(last_torch),
        minimum=minimum,
        cuda=cuda,
        last_torch=last_torch,
    )


# -- CUDA's driver library -------------------------------------------------------------------------------


def container_without_compute(capabilities: str) -> Issue:
    """Return the issue reporting that the container was started without the driver capability ``compute``."""
    return Issue(
        "container-without-compute",
        "broken",
        {"capabilities": capabilities},
        translatable(
            "CUDA's driver library is not in this container, because "
            "NVIDIA_DRIVER_CAPABILITIES is {capabilities!r}.",
            capabilities=capabilities,
        ),
        text_fix(
            "add-compute-capability", "Start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        ),
    )


def libcuda_missing(error: str) -> Issue:
    """Return the issue reporting that CUDA's driver library can't be loaded, with the loader's error."""
    return Issue(
        "libcuda-missing",
        "broken",
        {"error": error},
        translatable("The driver runs, but the driver's CUDA library can't be loaded: {error}.", error=error),
        text_fix(
            "install-libcuda",
            "Install the driver's CUDA library, libcuda.so.1, in the driver's version (Debian: "
            "libcuda1; Ubuntu: libnvidia-compute-…).",
        ),
    )


def libcuda_stub(library: str) -> Issue:
    """Return the issue reporting that a stub was loaded instead of CUDA's driver library."""
    return Issue(
        "libcuda-stub",
        "broken",
        {"library": library},
        translatable("{library} is a stub for linking, not the driver.", library=library),
        text_fix("remove-stubs", "Remove CUDA's folder 'stubs' from LD_LIBRARY_PATH."),
    )


def libcuda_mismatch(library: str, code: int) -> Issue:
    """Return the issue reporting that CUDA's driver library is incompatible with the loaded driver."""
    return Issue(
        "libcuda-mismatch",
        "broken",
        {"library": library, "code": code},
        translatable(
            "{library} does not match the loaded driver (error {code}).", library=library, code=code
        ),
        text_fix(
            "remove-compat", "Remove CUDA's folder 'compat' from LD_LIBRARY_PATH, or update the driver."
        ),
    )


def fabric_manager_missing() -> Issue:
    """Return the issue reporting that GPUs with NVSwitch wait for the fabric manager."""
    return Issue(
        "fabric-manager-missing",
        "broken",
        {},
        translatable(
            "The driver is not ready: GPUs connected by NVSwitch are waiting for the fabric "
            "manager (error 802)."
        ),
        command_fix(
            "start-fabric-manager",
            "Start the fabric manager:",
            _START_FABRIC_MANAGER,
            "Its version must be exactly the driver's version.",
        ),
    )


# -- device files ----------------------------------------------------------------------------------------


def wsl_without_gpu() -> Issue:
    """Return the issue reporting that WSL has no device file."""
    return Issue(
        "wsl-without-gpu",
        "broken",
        {},
        translatable("WSL has no /dev/dxg: Windows gives no GPU to WSL."),
        text_fix(
            "install-windows-driver",
            "Install NVIDIA's driver in Windows. Then run 'wsl --update' and 'wsl --shutdown' in Windows.",
        ),
    )


def device_files_forbidden(files: Sequence[str], mode: str) -> Issue:
    """Return the issue reporting that this user may not use the device files.

    ``mode`` is the mode of the first file, as ``ls -l`` shows it.
    """
    return Issue(
        "device-files-forbidden",
        "broken",
        {"files": tuple(files), "mode": mode},
        translatable(
            "This user has no permission to use {files} ({mode}).", files=", ".join(files), mode=mode
        ),
        command_fix(
            "allow-device-files",
            "Add this user to the group of these files (often 'video'), and log in again:",
            _JOIN_GROUP,
            "If the group is root, run 'sudo chmod a+rw /dev/nvidia*' instead.",
        ),
    )


def gpu_files_missing(fix: Fix) -> Issue:
    """Return the issue reporting that the control files exist, but no device file of a GPU."""
    reason = translatable(
        "The driver's control files exist, but no GPU has a device file, such as /dev/nvidia0."
    )
    return Issue("gpu-files-missing", "broken", {}, reason, fix)


def control_files_missing(files: Sequence[str], fix: Fix) -> Issue:
    """Return the issue reporting that device files of GPUs exist, but not all control files."""
    names = listed(files)
    reason = (
        translatable("{files} is missing, so CUDA does not start.", files=names)
        if len(files) == 1
        else translatable("{files} are missing, so CUDA does not start.", files=names)
    )
    return Issue("control-files-missing", "broken", {"files": tuple(files)}, reason, fix)


def device_files_invisible() -> Issue:
    """Return the issue reporting that no device files are visible to this process, although there is a
    driver."""
    reason = translatable("No /dev/nvidia* device files were found, although there is a driver.")
    return Issue("device-files-invisible", "unknown", {}, reason, None)


def container_without_device_files(driver: str | None, fix: Fix) -> Issue:
    """Return the issue reporting that the container has no device files.

    ``driver`` is the version of the host's driver, if it is known.
    """
    reason = (
        translatable(
            "This container has no /dev/nvidia*, although the host has driver {driver}.", driver=driver
        )
        if driver
        else translatable("This container has no /dev/nvidia*.")
    )
    return Issue("container-without-device-files", "broken", {"driver": driver}, reason, fix)


def device_files_missing() -> Issue:
    """Return the issue reporting that there are no device files, although the driver is loaded."""
    reason = translatable("The driver is loaded, but its device files, /dev/nvidia*, are missing.")
    return Issue("device-files-missing", "broken", {}, reason, create_device_files())


def no_driver_and_no_device_files() -> Issue:
    """Return the issue reporting that neither a driver nor device files were found."""
    return Issue(
        "no-driver-or-gpu",
        "broken",
        {},
        translatable("There is no /dev/nvidia*: no NVIDIA driver is loaded, or there is no NVIDIA GPU."),
        text_fix("install-driver", "If lspci lists an NVIDIA GPU, install its driver."),
    )


def mig_files_forbidden(files: Sequence[str]) -> Issue:
    """Return the issue reporting that this user has no permission to use the device files of MIG slices."""
    return Issue(
        "mig-files-forbidden",
        "broken",
        {"files": tuple(files)},
        translatable(
            "This user has no permission to use the device files of the MIG slices: {files}.",
            files=", ".join(files),
        ),
        text_fix("allow-mig-files", "Give this user read access to the device files of the slices."),
    )


def mig_files_missing() -> Issue:
    """Return the issue reporting that there are no device files of MIG slices."""
    return Issue(
        "mig-files-missing",
        "broken",
        {},
        translatable(
            "MIG is on, but the slices have no device files in /dev/nvidia-caps, so CUDA can't use them."
        ),
        text_fix(
            "create-mig-files",
            "Create the files of each slice, for example: sudo nvidia-modprobe -f "
            "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access && sudo nvidia-modprobe -f "
            "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access",
        ),
    )


# -- fixes of the driver and its device files ------------------------------------------------------------


def _see_nvidia_smi() -> Fix:
    return text_fix("see-nvidia-smi", "See the output of nvidia-smi.")


def create_device_files() -> Fix:
    """Return the fix that creates device files."""
    return command_fix("create-device-files", "Create the device files:", _CREATE_DEVICE_FILES)


def start_container_with_gpus() -> Fix:
    """Return the fix that starts the container with the machine's GPUs."""
    return text_fix(
        "start-container-with-gpus",
        "Start the container with the machine's GPUs: docker run --gpus all …",
    )


def set_visible_devices(value: str) -> Fix:
    """Return the fix for a container from which NVIDIA_VISIBLE_DEVICES hides the machine's GPUs."""
    return text_fix(
        "set-nvidia-visible-devices",
        "NVIDIA_VISIBLE_DEVICES is {value!r}. Set it to all, or start the container with "
        "docker run --gpus all …",
        value=value,
    )


def request_kubernetes_gpu() -> Fix:
    """Return the fix that requests a GPU for a Kubernetes pod."""
    return text_fix(
        "request-kubernetes-gpu", "Request a GPU in the pod's resources: limits: nvidia.com/gpu: 1."
    )
