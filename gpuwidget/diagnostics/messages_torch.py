"""Texts of the check of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuwidget.diagnostics.files_probe import CheckedPackage
from gpuwidget.diagnostics.messages import text_fix
from gpuwidget.diagnostics.messages_packages import damage
from gpuwidget.diagnostics.torch_copies import TorchCopy
from gpuwidget.model.diagnosis import Fix, Issue
from gpuwidget.model.translation import Text, joined, translatable

# -- the package -----------------------------------------------------------------------------------------


def not_installed(fix: Fix) -> Issue:
    """Return the issue reporting that torch is not installed."""
    reason = translatable("PyTorch is not installed in this environment.")
    return Issue("torch-not-installed", "broken", {}, reason, fix)


def several_versions(copy: TorchCopy, fix: Fix) -> Issue:
    """Return the issue reporting that a folder has the metadata of several versions of torch."""
    reason = translatable(
        "{folder} contains the metadata of {number} versions of PyTorch ({versions}), which overwrote each "
        "other's files.",
        folder=copy.folder,
        number=len(copy.metadata),
        versions=joined(copy.metadata),
    )
    params = {"folder": copy.folder, "versions": copy.metadata}
    return Issue("torch-copies", "warning", params, reason, fix)


def version_and_folder(copy: TorchCopy) -> Text:
    """Return the version and the folder of a copy of torch, such as ``2.13.0 in /env/site-packages``."""
    return translatable("{version} in {folder}", version=copy.version or "torch", folder=copy.folder)


def shadowed(first: TorchCopy, second: TorchCopy, problem: Text | None, fix: Fix) -> Issue:
    """Return the issue reporting that Python imports another copy of torch than the one it should.

    ``problem`` is a sentence that explains why the first copy can't use the GPU; None if it can.
    """
    reason = translatable(
        "'import torch' finds {first}, not {second}: {source}.",
        first=version_and_folder(first),
        second=version_and_folder(second),
        source=path_source(first),
    )
    params = {
        "first": first.path,
        "second": second.path,
        "source": first.source,
        "set_in": first.set_in,
    }
    text = reason if problem is None else joined([reason, problem], " ")
    return Issue("torch-shadowed", "warning" if problem is None else "broken", params, text, fix)


def path_source(copy: TorchCopy) -> Text:
    """Return what puts the folder of a copy of torch into ``sys.path``, without a full stop."""
    match copy.source:
        case "environment":
            return translatable("its folder comes first in sys.path")
        case "working-directory":
            return translatable("the working directory comes first in sys.path")
        case "pythonpath":
            return translatable("PYTHONPATH contains {entry}", entry=copy.set_in)
        case "user-site":
            return translatable("pip install --user installed it, and this folder comes first in sys.path")
        case "pth-file":
            return translatable("{file} adds this folder to sys.path", file=copy.set_in)
        case "code":
            return translatable(
                "neither PYTHONPATH nor a .pth file contains this folder, so code has added it to sys.path"
            )


def for_cpu_only() -> Text:
    """Return the sentence for a copy of torch that has no CUDA."""
    return translatable("The copy that Python finds is built for the CPU only.")


def fails(error: str) -> Text:
    """Return the sentence for a copy of torch that can't be imported."""
    return translatable("The copy that Python finds can't be imported: {error}.", error=error)


def leftovers(folder: str, fix: Fix) -> Issue:
    """Return the issue reporting that a folder contains only a part of torch's files."""
    reason = translatable(
        "{folder} has no __init__.py: an installation or uninstallation of PyTorch did not finish.",
        folder=folder,
    )
    return Issue("torch-leftovers", "broken", {"folder": folder}, reason, fix)


def changed_since_import(loaded: str, installed: str | None) -> Issue:
    """Return the issue reporting that the notebook has loaded a version of torch other than the installed
    one."""
    return Issue(
        "torch-changed-since-import",
        "warning",
        {"loaded": loaded, "installed": installed},
        translatable(
            "This notebook has loaded PyTorch {loaded}, but {installed} is installed now.",
            loaded=loaded,
            installed=installed,
        ),
        text_fix("restart-kernel", "Restart the kernel."),
    )


def without_cuda(fix: Fix, *, amd: bool) -> Issue:
    """Return the issue reporting that this build of torch has no CUDA.

    ``amd`` is whether the build is for AMD's GPUs.
    """
    what = translatable("is for AMD's GPUs") if amd else translatable("can't use NVIDIA GPUs")
    reason = translatable("This build of PyTorch {what}: it has no CUDA.", what=what)
    return Issue("torch-without-cuda", "broken", {"amd": amd}, reason, fix)


def numpy_fails(error: str, fix: Fix) -> Issue:
    """Return the issue reporting that numpy fails with this torch.

    ``error`` is the first line of numpy's error.
    """
    reason = translatable("numpy fails with this PyTorch: {error}.", error=error)
    return Issue("numpy-fails", "warning", {"error": error}, reason, fix)


def one_thread(loaders: Sequence[str]) -> Issue:
    """Return the issue reporting that these DataLoaders prepare their batches on one thread."""
    return Issue(
        "omp-one-thread",
        "warning",
        {"loaders": tuple(loaders)},
        translatable(
            "OMP_NUM_THREADS is 1, so PyTorch uses one CPU thread in this notebook. DataLoaders without "
            "workers prepare their batches on it: {loaders}.",
            loaders=joined(loaders),
        ),
        text_fix(
            "add-workers-or-threads",
            "Give the DataLoader workers, such as num_workers=4. Or unset OMP_NUM_THREADS where Jupyter is "
            "started, and restart Jupyter.",
        ),
    )


# -- files that hide modules -----------------------------------------------------------------------------


class HidingFile(NamedTuple):
    """A user's file or folder that hides a module that torch uses."""

    file: str
    name: str
    """Name of the file. If a folder hides the module, the name of the folder."""
    folder: str
    module: str
    standard: bool
    """Whether the hidden module is in Python's standard library."""


def hidden_module(hiding: HidingFile) -> Issue:
    """Return the issue reporting that a file hides a module that torch uses."""
    reason = translatable("{hides}.", hides=_hides(hiding))
    return Issue("module-hidden", "warning", hiding._asdict(), reason, rename_file(hiding.file))


def _hides(hiding: HidingFile) -> str:
    if hiding.standard:
        return translatable(
            "{name} in {folder} hides Python's own module {module}",
            name=hiding.name,
            folder=hiding.folder,
            module=hiding.module,
        )
    return translatable(
        "{name} in {folder} hides the package {module}, which PyTorch uses",
        name=hiding.name,
        folder=hiding.folder,
        module=hiding.module,
    )


def rename_file(file: str) -> Fix:
    """Return the fix for a file that hides a module."""
    return text_fix("rename-file", "Rename {file}, and restart the kernel.", file=file)


def in_working_directory(file: str, other: TorchCopy | None) -> Issue:
    """Return the issue reporting that torch is imported from the working directory, whose files the doctor
    does not run. ``other`` is the copy that it hides."""
    reason = (
        translatable(
            "'import torch' finds {file}, in the working directory. The doctor runs no file of "
            "the working directory, so this PyTorch was not checked.",
            file=file,
        )
        if other is None
        else translatable(
            "'import torch' finds {file}, in the working directory, not {other}. The doctor runs no file of "
            "the working directory, so this PyTorch was not checked.",
            file=file,
            other=version_and_folder(other),
        )
    )
    params = {"file": file, "second": None if other is None else other.path}
    return Issue("torch-in-working-directory", "unknown", params, reason, leave_working_directory())


def leave_working_directory() -> Fix:
    """Return the fix for a torch in the working directory."""
    return text_fix(
        "use-another-folder",
        "Start the kernel or the command in another folder, and run the doctor again.",
    )


def hidden_torch(file: str | None, other: TorchCopy | None, found: TorchCopy | None) -> Issue:
    """Return the issue reporting that a file hides the package torch.

    ``file`` is None if the file is unknown. ``other`` is the copy that it hides, and ``found`` is the copy
    that Python finds, if they are known.
    """
    what = file or translatable("a folder")
    where = (
        translatable("the package")
        if other is None
        else translatable("the package in {folder}", folder=other.folder)
    )
    reason = (
        translatable("'import torch' finds {what} instead of {where}.", what=what, where=where)
        if found is None or found.source == "environment"
        else translatable(
            "'import torch' finds {what} instead of {where}: {source}.",
            what=what,
            where=where,
            source=path_source(found),
        )
    )
    params = {
        "file": file,
        "second": None if other is None else other.path,
        "source": None if found is None else found.source,
    }
    return Issue("torch-hidden", "broken", params, reason, rename_file(what))


# -- the import ------------------------------------------------------------------------------------------


def python_not_started(detail: str) -> Issue:
    """Return the issue reporting that the probe's Python did not start."""
    reason = translatable("Python could not be started to check PyTorch ({detail}).", detail=detail)
    return Issue("python-not-started", "unknown", {"error": detail}, reason, None)


def import_timeout(timeout_s: float) -> Issue:
    """Return the issue reporting that ``import torch`` did not finish in time."""
    return Issue(
        "torch-import-timeout",
        "unknown",
        {"timeout_s": timeout_s},
        translatable("'import torch' did not finish within {timeout_s:.0f} s.", timeout_s=timeout_s),
        text_fix(
            "run-doctor-again",
            "Run the doctor again: the first import from a slow or network disk takes long, "
            "and later imports are faster. If the import does not finish again, run python -X "
            "importtime -c 'import torch' in a terminal to see where it stops. Another "
            "possible cause is a driver that hangs (nvidia-smi then hangs too).",
        ),
    )


def import_killed() -> Issue:
    """Return the issue reporting that ``import torch`` was killed with SIGKILL, as happens if memory runs
    out."""
    return Issue(
        "torch-import-killed",
        "broken",
        {"signal": "SIGKILL"},
        translatable("'import torch' was killed (SIGKILL), usually because main memory ran out."),
        text_fix(
            "more-memory",
            "Give this container or machine more main memory (RAM). The system's kernel log (dmesg) shows "
            "whether a lack of memory was the cause.",
        ),
    )


def import_crashed(detail: str, fix: Fix) -> Issue:
    """Return the issue reporting that ``import torch`` crashes Python; ``detail`` is the signal or exit
    status."""
    reason = translatable("'import torch' crashes Python ({detail}).", detail=detail)
    return Issue("torch-import-crashed", "broken", {"signal": detail}, reason, fix)


def import_ended(fix: Fix) -> Issue:
    """Return the issue reporting that ``import torch`` ends Python without an error."""
    return Issue(
        "torch-import-ended",
        "broken",
        {},
        translatable("'import torch' ends Python without an error message."),
        fix,
    )


def import_error(kind: str, error: str, fix: Fix) -> Issue:
    """Return the issue reporting that ``import torch`` raises an error of this type and with this text."""
    params = {"type": kind, "error": error}
    return Issue("torch-import-error", "broken", params, _raised(kind, error), fix)


def import_error_by_hidden_module(kind: str, error: str, hiding: HidingFile) -> Issue:
    """Return the issue reporting that ``import torch`` raises an error because a file hides a module."""
    params = {"type": kind, "error": error, **hiding._asdict()}
    reason = joined([_raised(kind, error), translatable("{hides}.", hides=_hides(hiding))], " ")
    fix = rename_file(hiding.file)
    return Issue("torch-import-error-hidden-module", "broken", params, reason, fix)


def import_error_by_damage(kind: str, error: str, package: CheckedPackage, fix: Fix) -> Issue:
    """Return the issue reporting that ``import torch`` raises an error because a package is damaged."""
    params = {"type": kind, "error": error, "package": package.name}
    reason = joined([_raised(kind, error), damage(package)], " ")
    return Issue("torch-import-error-damaged-package", "broken", params, reason, fix)


def import_error_in_package(kind: str, error: str, package: str, fix: Fix) -> Issue:
    """Return the issue reporting that ``import torch`` raises an error in the code of another package, or in
    a file that belongs to no package."""
    params = {"type": kind, "error": error, "package": package}
    reason = translatable(
        "{raised} The error comes from {package}.", raised=_raised(kind, error), package=package
    )
    return Issue("torch-import-error-in-package", "broken", params, reason, fix)


def _raised(kind: str, error: str) -> Text:
    lines = error.strip().splitlines()
    if not lines:
        return translatable("'import torch' raises {kind} without an error message.", kind=kind)
    return translatable("'import torch' raises {kind}: {first}.", kind=kind, first=lines[0].rstrip("."))


def correct_variable(variable: str) -> Fix:
    """Return the fix for an environment variable whose value torch does not accept."""
    return text_fix(
        "correct-variable",
        "Correct the value of the environment variable {variable}, or unset it, and restart the kernel.",
        variable=variable,
    )


def see_import_traceback() -> Fix:
    """Return the fix for an error for which nothing shows that files are damaged."""
    return text_fix(
        "see-import-traceback",
        "Run python -X faulthandler -c 'import torch' in a terminal: the traceback shows which code fails. "
        "Nothing shows that PyTorch's files are damaged, so a reinstallation is unlikely to help.",
    )


def older_torch() -> Fix:
    """Return the fix for a system whose C library is too old for this build of torch."""
    return text_fix(
        "install-torch-for-older-system",
        "This system is too old for this build of PyTorch: install an older PyTorch.",
    )


def raise_memory_limit() -> Fix:
    """Return the fix for a library that could not be mapped into memory."""
    return text_fix(
        "raise-memory-limit",
        "Check whether memory is limited (ulimit -v), or the file system is mounted with noexec.",
    )
