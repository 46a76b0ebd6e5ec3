"""Issues of the checks of the GPUs, of CUDA_VISIBLE_DEVICES and of sharing."""

from __future__ import annotations

from typing import Literal

from gpuwidget.diagnostics.messages import LAST_TORCH, FixTemplate, IssueTemplate
from gpuwidget.model.messages import Template, by_id

# -- the GPUs --------------------------------------------------------------------------------------------

SEE_KERNEL_LOG = FixTemplate("see-kernel-log", "See the kernel log (dmesg).")
SEE_KERNEL_LOG_AND_RESTART = FixTemplate(
    "see-kernel-log-and-restart",
    "See the kernel log (dmesg). Then restart the machine, and check whether nvidia-smi lists the GPUs.",
)
LOST = IssueTemplate("gpu-lost", "broken", "GPU {gpu} {problem}.", SEE_KERNEL_LOG_AND_RESTART)
NO_GPU = IssueTemplate("no-gpu", "broken", "The driver runs but shows no GPU.", SEE_KERNEL_LOG_AND_RESTART)
UNKNOWN_WITHOUT_DRIVER = IssueTemplate(
    "gpu-unknown-without-driver",
    "unknown",
    "The GPUs are unknown, because the driver could not be queried.",
    FixTemplate("fix-driver", "First fix what the driver's check reports."),
)

# -- code for the GPUs' architectures --------------------------------------------------------------------

COMPILED_AT_FIRST_USE = IssueTemplate(
    "gpu-code-compiled-at-first-use",
    "warning",
    "This PyTorch has no precompiled code for {gpu} (compute capability {capability}). CUDA compiles the "
    "code when it is first used. This takes time, and the code may be slower.",
    FixTemplate("install-newer-torch", "Install a newer PyTorch."),
)
NO_CODE = IssueTemplate(
    "gpu-without-code",
    "broken",
    "This PyTorch has no code for {gpu} (compute capability {capability}): it was built for {archs}.",
)
INSTALL_OLDER_TORCH = FixTemplate(
    "install-older-torch", "Install an older PyTorch, which still supports {gpu}."
)
INSTALL_OLDER_TORCH_OR_BUILD = FixTemplate(
    "install-older-torch-or-build",
    "Install an older PyTorch, which still supports {gpu}, or a build with CUDA {cuda}:",
    "{command}",
    LAST_TORCH,
)

# -- the start of CUDA -----------------------------------------------------------------------------------

IN_EXCLUSIVE_USE = IssueTemplate(
    "gpu-in-exclusive-use",
    "broken",
    "Another process has exclusive use of the GPU.",
    FixTemplate("see-processes", "nvidia-smi shows which process it is."),
)
UNKNOWN_ERROR = IssueTemplate(
    "cuda-unknown-error",
    "broken",
    "CUDA does not start (error 999): the driver's memory module nvidia_uvm may be in a bad state.",
    FixTemplate(
        "reload-uvm",
        "Stop the programs that use the GPUs, and reload the module:",
        "sudo rmmod nvidia_uvm; sudo modprobe nvidia_uvm",
        "If this is a container, restart the container.",
    ),
)
NONE_FOR_CUDA = IssueTemplate(
    "no-gpu-for-cuda",
    "broken",
    "The driver lists GPUs, but CUDA finds no usable GPU.",
    FixTemplate("see-kernel-log-of-gpus", "See the kernel log (dmesg) for messages about the GPUs."),
)
CUDA_START_FAILED = IssueTemplate(
    "cuda-start-failed",
    "broken",
    ("CUDA does not start: {error} ({code}).", "CUDA does not start: unknown error ({code})."),
    FixTemplate("see-kernel-log-and-nvidia-smi", "See the kernel log (dmesg) and the output of nvidia-smi."),
)
UNUSABLE_BY_TORCH = IssueTemplate(
    "cuda-unusable-by-torch",
    "broken",
    ("CUDA starts, but PyTorch can't use it: {warning}.", "CUDA starts, but PyTorch can't use it."),
)
SEE_CUDA_ERROR = FixTemplate(
    "see-cuda-error",
    "Run python -c 'import torch; torch.cuda.init()' in a terminal: the error shows why PyTorch can't use "
    "CUDA.",
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
REJECTIONS = by_id(
    Template("empty", "the entry is empty"),
    Template("negative", "a negative number ends the list"),
    Template(
        "out-of-range",
        "there {number:is only|are} {number:gpus}, {number:with the number 0|numbered from 0}",
    ),
    Template("duplicate", "the same GPU is listed twice"),
    Template("no-gpu-matches", "no GPU of this machine has a UUID that begins with this text"),
    Template("no-slice-matches", "no MIG slice of this machine has a UUID that begins with this text"),
    Template("several-gpus-match", "the UUIDs of {number} GPUs begin with this text"),
    Template("several-slices-match", "the UUIDs of {number} MIG slices begin with this text"),
    Template("slurm", "Slurm sets this value for a job that requested no GPU"),
    Template("unknown-format", "the entry is neither a number nor a UUID that begins with GPU- or MIG-"),
)

SET_VISIBLE_DEVICES = FixTemplate(
    "set-visible-devices",
    "Unset CUDA_VISIBLE_DEVICES, or set it to numbers or UUIDs that nvidia-smi -L lists, and restart the "
    "kernel.",
)
RESTART_AND_SET_VISIBLE_DEVICES = FixTemplate(
    "restart-and-set-visible-devices", "Restart the kernel, and make this change before anything uses CUDA."
)
VISIBLE_DEVICES_CHANGED = IssueTemplate(
    "visible-devices-changed-after-start",
    "warning",
    (
        "CUDA_VISIBLE_DEVICES was set to {value!r} after CUDA was started. The change has no effect in this "
        "notebook until the kernel is restarted.",
        "CUDA_VISIBLE_DEVICES was unset after CUDA was started. The change has no effect in this notebook "
        "until the kernel is restarted.",
    ),
    RESTART_AND_SET_VISIBLE_DEVICES,
)
DEVICES_REORDERED = IssueTemplate(
    "visible-devices-changed-after-start",
    "warning",
    "CUDA_VISIBLE_DEVICES or CUDA_DEVICE_ORDER was changed after CUDA was started. The change has no effect "
    "in this notebook until the kernel is restarted.",
    RESTART_AND_SET_VISIBLE_DEVICES,
)
VISIBLE_DEVICES_EMPTY = IssueTemplate(
    "visible-devices-empty",
    "broken",
    "CUDA_VISIBLE_DEVICES is set to an empty value, which hides every GPU.",
    SET_VISIBLE_DEVICES,
)
VISIBLE_DEVICES_UNKNOWN = IssueTemplate(
    "visible-devices-unknown",
    "unknown",
    "CUDA_VISIBLE_DEVICES can't be checked, because no GPU was found.",
)
ALL_ENTRIES_REJECTED = IssueTemplate(
    "visible-devices-entry-rejected",
    "broken",
    "CUDA_VISIBLE_DEVICES is {value!r}, but CUDA rejects the entry {entry!r}: {why}. This hides every GPU.",
    SET_VISIBLE_DEVICES,
)
ENTRY_REJECTED = IssueTemplate(
    "visible-devices-entry-rejected",
    "warning",
    "CUDA_VISIBLE_DEVICES is {value!r}, but CUDA rejects the entry {entry!r}: {why}. CUDA ignores this entry "
    "and all entries after it.",
    SET_VISIBLE_DEVICES,
)

# -- MIG and compute mode --------------------------------------------------------------------------------

MIG_WITHOUT_SLICE = IssueTemplate(
    "mig-without-slice",
    "broken",
    "MIG is on for GPU {gpus:list}, but there is no slice: CUDA can't use {gpus:it|them}.",
    FixTemplate(
        "create-mig-slice",
        "Turn MIG off (sudo nvidia-smi -mig 0), or create slices:",
        "sudo nvidia-smi mig -cgi 0 -C",
        "nvidia-smi mig -lgip lists the profiles.",
    ),
)
COMPUTE_MODE_PROHIBITED = IssueTemplate(
    "compute-mode-prohibited",
    "broken",
    "The compute mode of GPU {gpus:list} is 'prohibited': CUDA can't use {gpus:it|them}.",
)
ALLOW_CUDA = FixTemplate("allow-cuda", "Allow compute work:", "sudo nvidia-smi -i {gpu} -c DEFAULT")
COMPUTE_MODE_EXCLUSIVE = IssueTemplate(
    "compute-mode-exclusive",
    "warning",
    "Only one process at a time can use GPU {gpus:list} (compute mode '{mode}').",
)
ALLOW_SHARING = FixTemplate(
    "allow-sharing",
    "To let several notebooks use the GPU, use MPS, or run:",
    "sudo nvidia-smi -i {gpu} -c DEFAULT",
)
MIG_PENDING = IssueTemplate(
    "mig-pending",
    "warning",
    "A change of the MIG mode of GPU {gpus:list} takes effect only after a reset.",
    FixTemplate(
        "reset-gpu",
        "Stop the programs that use the GPUs, then reset the GPUs:",
        "sudo nvidia-smi --gpu-reset",
    ),
)
