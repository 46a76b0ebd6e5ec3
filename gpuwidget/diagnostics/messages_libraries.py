"""Issues of the checks of the CUDA runtime, cuDNN and NCCL."""

from __future__ import annotations

from typing import Literal

from gpuwidget.diagnostics.messages import FixTemplate, IssueTemplate
from gpuwidget.model.translation import translatable

Library = Literal["cudnn", "nccl"]

NAMES: dict[Library, str] = {"cudnn": "cuDNN", "nccl": "NCCL"}
NCCL_SWITCHES = {
    "NCCL_P2P_DISABLE": translatable("direct access between GPUs"),
    "NCCL_SHM_DISABLE": translatable("shared memory"),
}
"""Environment variables that make NCCL slower, and the feature that each of them disables."""

# -- libraries -------------------------------------------------------------------------------------------

MISSING = IssueTemplate(
    "library-missing", "broken", "{library}, which PyTorch needs, is missing or incompatible."
)
OVERRIDDEN = IssueTemplate(
    "library-overridden",
    "warning",
    (
        "{file} was loaded from {folder}, which is in LD_LIBRARY_PATH as {spelling}.",
        "{file} was loaded from {folder}, which is in LD_LIBRARY_PATH.",
    ),
)
SECOND_CUDNN = IssueTemplate(
    "second-cudnn",
    "warning",
    "{folder} in LD_LIBRARY_PATH has another cuDNN ({file}), which may be mixed with PyTorch's.",
)
MIXED = IssueTemplate(
    "library-mixed", "broken", "{library} was loaded from {number} folders at once: {folders:and}."
)
COPIES = IssueTemplate("library-copies", "warning", "{library} is installed {number} times: {packages:list}.")
SHARED_FILES = IssueTemplate(
    "packages-share-files",
    "warning",
    "{packages:and} own the same files, and this PyTorch requires {required}.",
)
CUDNN_FAILS = IssueTemplate("cudnn-fails", "broken", "cuDNN fails: {error}")
TORCH_WITHOUT_CUDNN = IssueTemplate(
    "torch-without-cudnn",
    "warning",
    "This build of PyTorch has no cuDNN: convolutions are slow or fail.",
)
CUDNN_OFF = IssueTemplate(
    "cudnn-off",
    "warning",
    "cuDNN is switched off (torch.backends.cudnn.enabled is False): convolutions are slow.",
    FixTemplate("switch-cudnn-on", "Switch it on: torch.backends.cudnn.enabled = True."),
)
NCCL_SWITCH = IssueTemplate(
    "nccl-switch",
    "warning",
    "{variable} is set, so NCCL does not use {feature} and is slower.",
    FixTemplate("unset-nccl-switch", "Unset {variable}, unless it was set for a reason."),
)
KEEP_REQUIRED_COPY = FixTemplate(
    "uninstall-other-copy",
    "This PyTorch uses {package}. Uninstall the other copy if nothing else needs it.",
)
KEEP_ORIGINAL_COPY = FixTemplate(
    "keep-original-copy",
    "Keep the copy of {library} that this PyTorch was installed with, and uninstall the other one.",
)

# -- environment variables -------------------------------------------------------------------------------

LAUNCH_BLOCKING = IssueTemplate(
    "cuda-launch-blocking",
    "warning",
    "CUDA_LAUNCH_BLOCKING is set: Python waits until each GPU kernel has ended, which makes most programs "
    "slower.",
    FixTemplate(
        "unset-launch-blocking",
        "Unset CUDA_LAUNCH_BLOCKING and restart the kernel, unless you need it to find the line of a CUDA "
        "error.",
    ),
)
UNSET_TF32_OVERRIDE = FixTemplate(
    "unset-tensor-float-override",
    "Unset NVIDIA_TF32_OVERRIDE and restart the kernel. Then PyTorch's settings apply (%gpu switches).",
)
TF32_OFF = IssueTemplate(
    "tensor-float-override",
    "warning",
    "NVIDIA_TF32_OVERRIDE is 0: NVIDIA's libraries never use TF32, whatever PyTorch's settings are. Matrix "
    "products and convolutions of float32 can be slower.",
    UNSET_TF32_OVERRIDE,
)
TF32_OVERRIDE = IssueTemplate(
    "tensor-float-override",
    "warning",
    "NVIDIA_TF32_OVERRIDE is {value!r}: it can override PyTorch's TF32 settings in NVIDIA's libraries.",
    UNSET_TF32_OVERRIDE,
)
