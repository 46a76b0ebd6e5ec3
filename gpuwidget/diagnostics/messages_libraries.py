"""Texts of the checks of the CUDA runtime, cuDNN and NCCL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gpuwidget.diagnostics.messages import text_fix
from gpuwidget.model.diagnosis import Fix, Issue
from gpuwidget.model.translation import listed, translatable

Library = Literal["cudnn", "nccl"]

_NAMES = {"cudnn": "cuDNN", "nccl": "NCCL"}
NCCL_SWITCHES = {
    "NCCL_P2P_DISABLE": translatable("direct access between GPUs"),
    "NCCL_SHM_DISABLE": translatable("shared memory"),
}
"""Environment variables that make NCCL slower, and the feature that each of them disables."""


def missing(library: str, fix: Fix) -> Issue:
    """Return the issue of a missing or incompatible shared library that made the import of torch fail."""
    reason = translatable("{library}, which PyTorch needs, is missing or incompatible.", library=library)
    return Issue("library-missing", "broken", {"library": library}, reason, fix)


def overridden(file: str, folder: str, entry: str, fix: Fix) -> Issue:
    """Return the issue reporting that LD_LIBRARY_PATH overrides a library that comes with torch.

    ``entry`` is the spelling of ``folder`` in the variable.
    """
    where = (
        translatable("in LD_LIBRARY_PATH")
        if entry.rstrip("/") == folder
        else translatable("in LD_LIBRARY_PATH as {entry}", entry=entry)
    )
    params = {"file": file, "folder": folder, "entry": entry}
    reason = translatable(
        "{file} was loaded from {folder}, which is {where}.", file=file, folder=folder, where=where
    )
    return Issue("library-overridden", "warning", params, reason, fix)


def second_cudnn(folder: str, file: str, fix: Fix) -> Issue:
    """Return the issue reporting that a folder in LD_LIBRARY_PATH contains a second cuDNN."""
    reason = translatable(
        "{folder} in LD_LIBRARY_PATH has another cuDNN ({file}), which may be mixed with PyTorch's.",
        folder=folder,
        file=file,
    )
    return Issue("second-cudnn", "warning", {"folder": folder, "file": file}, reason, fix)


def mixed(library: Library, folders: Sequence[str], fix: Fix) -> Issue:
    """Return the issue reporting that parts of one library were loaded from several folders."""
    reason = translatable(
        "{library} was loaded from {number} folders at once: {folders}.",
        library=_NAMES[library],
        number=len(folders),
        folders=listed(folders),
    )
    params = {"library": library, "folders": tuple(folders)}
    return Issue("library-mixed", "broken", params, reason, fix)


def copies(library: Library, packages: Sequence[str], fix: Fix) -> Issue:
    """Return the issue reporting that a library is installed several times."""
    reason = translatable(
        "{library} is installed {number} times: {packages}.",
        library=_NAMES[library],
        number=len(packages),
        packages=", ".join(packages),
    )
    params = {"library": library, "packages": tuple(packages)}
    return Issue("library-copies", "warning", params, reason, fix)


def shared_files(packages: Sequence[str], required: str, fix: Fix) -> Issue:
    """Return the issue reporting that several packages own the same files."""
    reason = translatable(
        "{packages} own the same files, and this PyTorch requires {required}.",
        packages=listed(packages),
        required=required,
    )
    params = {"packages": tuple(packages), "required": required}
    return Issue("packages-share-files", "warning", params, reason, fix)


def cudnn_fails(error: str, fix: Fix) -> Issue:
    """Return the issue reporting that cuDNN fails. ``error`` is the first line of cuDNN's error."""
    return Issue(
        "cudnn-fails", "broken", {"error": error}, translatable("cuDNN fails: {error}", error=error), fix
    )


def torch_without_cudnn(fix: Fix) -> Issue:
    """Return the issue reporting that this build of torch has no cuDNN."""
    reason = translatable("This build of PyTorch has no cuDNN: convolutions are slow or fail.")
    return Issue("torch-without-cudnn", "warning", {}, reason, fix)


def cudnn_off() -> Issue:
    """Return the issue reporting that cuDNN is switched off."""
    return Issue(
        "cudnn-off",
        "warning",
        {},
        translatable("cuDNN is switched off (torch.backends.cudnn.enabled is False): convolutions are slow."),
        text_fix("switch-cudnn-on", "Switch it on: torch.backends.cudnn.enabled = True."),
    )


def nccl_switch(variable: str) -> Issue:
    """Return the issue reporting that an environment variable makes NCCL slower."""
    return Issue(
        "nccl-switch",
        "warning",
        {"variable": variable},
        translatable(
            "{variable} is set, so NCCL does not use {feature} and is slower.",
            variable=variable,
            feature=NCCL_SWITCHES[variable],
        ),
        text_fix("unset-nccl-switch", "Unset {variable}, unless it was set for a reason.", variable=variable),
    )


def keep_required_copy(package: str) -> Fix:
    """Return the fix for a second copy of a library that pip did not install."""
    return text_fix(
        "uninstall-other-copy",
        "This PyTorch uses {package}. Uninstall the other copy if nothing else needs it.",
        package=package,
    )


def keep_original_copy(library: Library) -> Fix:
    """Return the fix for a second copy of a library if it is unknown which one torch requires."""
    return text_fix(
        "keep-original-copy",
        translatable(
            "Keep the copy of {library} that this PyTorch was installed with, and uninstall the other one.",
            library=_NAMES[library],
        ),
        library=library,
    )


# -- environment variables -------------------------------------------------------------------------------


def launch_blocking() -> Issue:
    """Return the issue reporting that CUDA_LAUNCH_BLOCKING is set."""
    return Issue(
        "cuda-launch-blocking",
        "warning",
        {},
        translatable(
            "CUDA_LAUNCH_BLOCKING is set: Python waits until each GPU kernel has ended, which makes most "
            "programs slower."
        ),
        text_fix(
            "unset-launch-blocking",
            "Unset CUDA_LAUNCH_BLOCKING and restart the kernel, unless you need it to find the line of a "
            "CUDA error.",
        ),
    )


def tf32_override(value: str) -> Issue:
    """Return the issue reporting that NVIDIA_TF32_OVERRIDE is set."""
    reason = (
        translatable(
            "NVIDIA_TF32_OVERRIDE is 0: NVIDIA's libraries never use TF32, whatever PyTorch's settings are. "
            "Matrix products and convolutions of float32 can be slower."
        )
        if value.strip() == "0"
        else translatable(
            "NVIDIA_TF32_OVERRIDE is {value!r}: it can override PyTorch's TF32 settings in NVIDIA's "
            "libraries.",
            value=value,
        )
    )
    return Issue(
        "tensor-float-override",
        "warning",
        {"value": value},
        reason,
        text_fix(
            "unset-tensor-float-override",
            "Unset NVIDIA_TF32_OVERRIDE and restart the kernel. Then PyTorch's settings apply "
            "(%gpu switches).",
        ),
    )
