"""Issues of the checks of the driver and its device files."""

from __future__ import annotations

from gpuwidget.diagnostics.messages import LAST_TORCH, FixTemplate, IssueTemplate
from gpuwidget.sources import nvml_messages

# -- the driver ------------------------------------------------------------------------------------------

NOT_INSTALLED = IssueTemplate(
    "driver-not-installed",
    "broken",
    "This machine has an NVIDIA GPU, but NVIDIA's driver is not installed.",
    FixTemplate(
        "install-gpu-driver",
        "Install NVIDIA's driver for this GPU, and restart the machine. Then check that nvidia-smi works.",
    ),
)
CONTAINER_WITHOUT_GPUS = IssueTemplate(
    "container-without-gpus", "broken", "This container was started without the machine's GPUs."
)
TIMEOUT = IssueTemplate(
    "driver-timeout",
    "broken",
    "The driver did not answer within {timeout_s:.0f} s: {step} did not return.",
    FixTemplate(
        "see-whether-driver-hangs",
        "See whether nvidia-smi hangs too; the kernel log (dmesg) names the GPU that is stuck. A restart of "
        "the machine usually helps.",
    ),
)
NO_RESULT = IssueTemplate(
    "driver-no-result",
    "unknown",
    (
        "The driver could not be queried ({step}: {error}).",
        "The driver could not be queried ({step}: no answer).",
    ),
    FixTemplate("see-nvidia-smi", "See the output of nvidia-smi."),
)
BINDING_MISSING = IssueTemplate("nvml-binding-missing", "unknown", nvml_messages.PYNVML_MISSING)
BINDING_FOREIGN = IssueTemplate("nvml-binding-foreign", "unknown", nvml_messages.PYNVML_FOREIGN)
VERSION_MISMATCH = IssueTemplate(
    "driver-version-mismatch",
    "broken",
    (
        "The driver's libraries were updated, but the old kernel module {module} is still loaded.",
        "The driver's libraries were updated, but the old kernel module is still loaded.",
    ),
    FixTemplate(
        "restart-machine",
        "Restart the machine, or reload the driver's modules. Restart containers afterwards.",
    ),
)
NOT_LOADED = IssueTemplate(
    "driver-not-loaded",
    "broken",
    nvml_messages.explain_start_error(nvml_messages.DRIVER_NOT_LOADED, "").reason,
    FixTemplate(
        "load-driver", "Load it, or reboot:", "sudo modprobe nvidia", "Then check that nvidia-smi works."
    ),
)
START_FAILED = IssueTemplate("driver-start-failed", "broken", "{reason}")
FIX_DRIVER_START = FixTemplate("fix-driver-start", "{fix}")
TOO_OLD = IssueTemplate(
    "driver-too-old",
    "broken",
    "Driver {driver} is too old: a PyTorch built with CUDA {cuda} needs driver {minimum} or newer.",
)
UPDATE_DRIVER = FixTemplate("update-driver", "Update the driver to {minimum} or newer.")
INSTALL_BUILD = FixTemplate(
    "install-torch-for-driver", "Install a PyTorch built with CUDA {cuda}:", "{command}", LAST_TORCH
)
UPDATE_DRIVER_OR_INSTALL_BUILD = FixTemplate(
    "update-driver-or-install-torch",
    "Update the driver to {minimum} or newer, or install a PyTorch built with CUDA {cuda}:",
    "{command}",
    LAST_TORCH,
)

# -- CUDA's driver library -------------------------------------------------------------------------------

CONTAINER_WITHOUT_COMPUTE = IssueTemplate(
    "container-without-compute",
    "broken",
    "CUDA's driver library is not in this container, because NVIDIA_DRIVER_CAPABILITIES is {capabilities!r}.",
    FixTemplate(
        "add-compute-capability", "Start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility."
    ),
)
LIBCUDA_MISSING = IssueTemplate(
    "libcuda-missing",
    "broken",
    "The driver runs, but the driver's CUDA library can't be loaded: {error}.",
    FixTemplate(
        "install-libcuda",
        "Install the driver's CUDA library, libcuda.so.1, in the driver's version (Debian: libcuda1; Ubuntu: "
        "libnvidia-compute-…).",
    ),
)
LIBCUDA_STUB = IssueTemplate(
    "libcuda-stub",
    "broken",
    "{library} is a stub for linking, not the driver.",
    FixTemplate("remove-stubs", "Remove CUDA's folder 'stubs' from LD_LIBRARY_PATH."),
)
LIBCUDA_MISMATCH = IssueTemplate(
    "libcuda-mismatch",
    "broken",
    "{library} does not match the loaded driver (error {code}).",
    FixTemplate("remove-compat", "Remove CUDA's folder 'compat' from LD_LIBRARY_PATH, or update the driver."),
)
FABRIC_MANAGER_MISSING = IssueTemplate(
    "fabric-manager-missing",
    "broken",
    "The driver is not ready: GPUs connected by NVSwitch are waiting for the fabric manager (error 802).",
    FixTemplate(
        "start-fabric-manager",
        "Start the fabric manager:",
        "sudo systemctl start nvidia-fabricmanager",
        "Its version must be exactly the driver's version.",
    ),
)

# -- device files ----------------------------------------------------------------------------------------

CREATE_DEVICE_FILES = FixTemplate(
    "create-device-files", "Create the device files:", "sudo nvidia-modprobe -c 0 -u"
)
WSL_WITHOUT_GPU = IssueTemplate(
    "wsl-without-gpu",
    "broken",
    "WSL has no /dev/dxg: Windows gives no GPU to WSL.",
    FixTemplate(
        "install-windows-driver",
        "Install NVIDIA's driver in Windows. Then run 'wsl --update' and 'wsl --shutdown' in Windows.",
    ),
)
DEVICE_FILES_FORBIDDEN = IssueTemplate(
    "device-files-forbidden",
    "broken",
    "This user has no permission to use {files:list} ({mode}).",
    FixTemplate(
        "allow-device-files",
        "Add this user to the group of these files (often 'video'), and log in again:",
        "sudo usermod -aG video $USER",
        "If the group is root, run 'sudo chmod a+rw /dev/nvidia*' instead.",
    ),
)
GPU_FILES_MISSING = IssueTemplate(
    "gpu-files-missing",
    "broken",
    "The driver's control files exist, but no GPU has a device file, such as /dev/nvidia0.",
)
CONTROL_FILES_MISSING = IssueTemplate(
    "control-files-missing", "broken", "{files:and} {files:is|are} missing, so CUDA does not start."
)
DEVICE_FILES_INVISIBLE = IssueTemplate(
    "device-files-invisible",
    "unknown",
    "No /dev/nvidia* device files were found, although there is a driver.",
)
CONTAINER_WITHOUT_DEVICE_FILES = IssueTemplate(
    "container-without-device-files",
    "broken",
    (
        "This container has no /dev/nvidia*, although the host has driver {driver}.",
        "This container has no /dev/nvidia*.",
    ),
)
DEVICE_FILES_MISSING = IssueTemplate(
    "device-files-missing",
    "broken",
    "The driver is loaded, but its device files, /dev/nvidia*, are missing.",
    CREATE_DEVICE_FILES,
)
NO_DRIVER_OR_GPU = IssueTemplate(
    "no-driver-or-gpu",
    "broken",
    "There is no /dev/nvidia*: no NVIDIA driver is loaded, or there is no NVIDIA GPU.",
    FixTemplate("install-driver", "If lspci lists an NVIDIA GPU, install its driver."),
)
MIG_FILES_FORBIDDEN = IssueTemplate(
    "mig-files-forbidden",
    "broken",
    "This user has no permission to use the device files of the MIG slices: {files:list}.",
    FixTemplate("allow-mig-files", "Give this user read access to the device files of the slices."),
)
MIG_FILES_MISSING = IssueTemplate(
    "mig-files-missing",
    "broken",
    "MIG is on, but the slices have no device files in /dev/nvidia-caps, so CUDA can't use them.",
    FixTemplate(
        "create-mig-files",
        "Create the files of each slice, for example: sudo nvidia-modprobe -f "
        "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access && sudo nvidia-modprobe -f "
        "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access",
    ),
)

# -- access of a container to the GPUs -------------------------------------------------------------------

START_CONTAINER_WITH_GPUS = FixTemplate(
    "start-container-with-gpus", "Start the container with the machine's GPUs: docker run --gpus all …"
)
SET_NVIDIA_VISIBLE_DEVICES = FixTemplate(
    "set-nvidia-visible-devices",
    "NVIDIA_VISIBLE_DEVICES is {value!r}. Set it to all, or start the container with docker run --gpus all …",
)
REQUEST_KUBERNETES_GPU = FixTemplate(
    "request-kubernetes-gpu", "Request a GPU in the pod's resources: limits: nvidia.com/gpu: 1."
)
