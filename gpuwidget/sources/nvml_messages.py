"""Messages that explain NVML's errors to users and state what to do.

The error numbers are copied instead of imported, because pynvml may be missing.
"""

from __future__ import annotations

from typing import NamedTuple

from gpuwidget.model.messages import Message, Sentences, Template, message
from gpuwidget.model.translation import joined, translatable

UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
OPERATING_SYSTEM = 17
LIB_RM_VERSION_MISMATCH = 18
NO_DATA = 21
GPU_NOT_FOUND = 28
UNKNOWN = 999

PERMANENT = {
    NOT_SUPPORTED: message("not-supported", "not supported by this GPU"),
    FUNCTION_NOT_FOUND: message("driver-too-old", "this driver is too old to report this value"),
}
"""Errors that never go away for a value of a GPU, and the reason that is given for the missing value."""

TRANSIENT = {
    NO_PERMISSION: message("no-permission", "this user or container has no permission to read this value"),
    NOT_FOUND: message("no-data-yet", "the driver has no data for this value yet"),
    TIMEOUT: message("driver-timeout", "the driver did not answer in time"),
    NO_DATA: message("no-data-yet", "the driver has no data for this value yet"),
    UNKNOWN: message("driver-unknown-error", "the driver reports an unknown error"),
}
"""Errors that may be gone at the next poll, and the reason that is given for the missing value."""


_OTHER_ERROR = Template("driver-error", "the driver reports: {error}")
"""The reason for an error that is neither permanent nor transient, with NVML's text."""


def value_error(code: int, nvml_text: str) -> Message:
    """Return the reason for a value that can't be read, given the code and the text of NVML's error."""
    return PERMANENT.get(code) or TRANSIENT.get(code) or _OTHER_ERROR(code=code, error=nvml_text)


GPU_LOST = {
    GPU_IS_LOST: translatable(
        "fell off the bus or lost its power; a reboot of the machine usually brings it back"
    ),
    RESET_REQUIRED: translatable(
        "needs a reset: stop the programs that use it and run 'nvidia-smi --gpu-reset' as root, or reboot"
    ),
}

SOURCE_LOST = {UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH, GPU_NOT_FOUND}

NO_SLICE = {NOT_FOUND, INVALID_ARGUMENT}
"""Errors of a MIG slice that does not exist. The indices of slices may have gaps."""

PYNVML_MISSING = translatable(
    "The Python package nvidia-ml-py is not installed in this environment, so gpuwidget can't read the GPUs."
)
PYNVML_FOREIGN = translatable("The module pynvml of this environment is an old fork, not NVIDIA's module.")
NO_PYNVML = translatable(
    "{pynvml_missing} Install it: pip install nvidia-ml-py.", pynvml_missing=PYNVML_MISSING
)
FOREIGN_PYNVML = translatable(
    "{pynvml_foreign} Replace it: pip uninstall -y pynvml, then pip install --force-reinstall nvidia-ml-py.",
    pynvml_foreign=PYNVML_FOREIGN,
)
NO_GPU = translatable(
    "The NVIDIA driver is loaded but shows no GPU. If this is a container, start the "
    "container with access to the GPUs (docker run --gpus all). Otherwise, check "
    "whether nvidia-smi lists a GPU."
)


class StartError(NamedTuple):
    """The reason why NVML did not start, and what to do about it. Each is one or more sentences."""

    reason: str
    fix: str


_START = {
    LIBRARY_NOT_FOUND: StartError(
        translatable("No NVIDIA driver was found (libnvidia-ml.so.1 is missing)."),
        translatable(
            "If this machine has an NVIDIA GPU, install its driver. If this is a container, "
            "start the container with access to the GPUs (docker run --gpus all)."
        ),
    ),
    DRIVER_NOT_LOADED: StartError(
        translatable("The NVIDIA driver is installed but not loaded."),
        translatable("Load it with 'sudo modprobe nvidia', or reboot. Then check that nvidia-smi works."),
    ),
    LIB_RM_VERSION_MISMATCH: StartError(
        translatable("The NVIDIA driver was updated, but the old version is still loaded."),
        translatable("Reboot, or reload the driver's modules. Restart containers afterwards."),
    ),
    NO_PERMISSION: StartError(
        translatable("This user has no permission to use the NVIDIA driver."),
        translatable(
            "Ask for read and write access to /dev/nvidia* (often, the group 'video' or 'render' has access)."
        ),
    ),
    OPERATING_SYSTEM: StartError(
        translatable("The operating system blocked access to the NVIDIA driver."),
        translatable(
            "Check that /dev/nvidiactl and /dev/nvidia0 exist and that this process or "
            "container may use them."
        ),
    ),
    UNKNOWN: StartError(
        translatable("The NVIDIA driver reports an unknown error."),
        translatable(
            "A container that has lost cgroup access to its GPUs gets this error, often after "
            "a 'systemctl daemon-reload' on the host: restart the container. Otherwise see the "
            "output of nvidia-smi."
        ),
    ),
    FUNCTION_NOT_FOUND: StartError(
        translatable("The NVIDIA driver is too old for gpuwidget."),
        translatable("Update it to 450 or newer."),
    ),
    **dict.fromkeys(
        GPU_LOST,
        StartError(
            translatable("A GPU is lost or needs a reset."),
            translatable("See the output of nvidia-smi, then reboot."),
        ),
    ),
}


_NOT_STARTED = Sentences("The NVIDIA driver could not be started (NVML error {code}: {nvml_text}).")
_OUTPUT_OF_NVIDIA_SMI = translatable("See the output of nvidia-smi.")


def explain_start_error(code: int, nvml_text: str) -> StartError:
    """Return the reason and the fix, given the code and the text of the error with which NVML failed to
    start."""
    return _START.get(code) or StartError(_NOT_STARTED(code=code, nvml_text=nvml_text), _OUTPUT_OF_NVIDIA_SMI)


def start_error(code: int, nvml_text: str) -> str:
    """Return :func:`explain_start_error` as one text: why there is no GPU, and what to do."""
    return joined(explain_start_error(code, nvml_text), " ")


def lost_gpu(code: int, nvml_text: str) -> str:
    """Return what is wrong with a GPU that can't be opened, given the code and the text of NVML's error."""
    return GPU_LOST.get(code, translatable("can't be opened ({nvml_text})", nvml_text=nvml_text))


LOST = Template("gpu-lost", "the GPU {problem}")
"""The reason for the values of a lost GPU; ``problem`` is a result of :func:`lost_gpu`."""


def scrambles_process_lists(driver: str | None) -> bool:
    """Return whether this version of the driver returns process lists that can't be parsed (nvitop#75)."""
    if driver is None:
        return False
    try:
        branch, release = (int(part) for part in driver.split(".")[:2])
    except ValueError:
        return False
    return branch == 535 and 43 <= release < 86


SCRAMBLED_PROCESS_LISTS = message(
    "scrambled-process-lists", "drivers 535.43 to 535.85 list processes wrongly; update the driver"
)
NOT_PER_MIG_SLICE = message("not-per-mig-slice", "not available for a MIG slice; see the whole GPU")
MIG_ON = message("mig-on", "MIG is on, so the driver does not report this value")
IMPOSSIBLE = message("impossible-value", "the driver returned an impossible value")
REOPENING = message("driver-reopening", "the driver is being opened again")
NO_GPM = message(
    "no-gpm", "the driver provides no performance counters for this GPU (only for Hopper and later)"
)
GPM_NOT_PROVIDED = message(
    "gpm-not-provided",
    "the driver does not provide this GPU's performance counters (for example in some virtual machines)",
)
