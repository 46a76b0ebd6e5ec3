"""The check of PyTorch: whether it can be imported and is built for CUDA."""

from __future__ import annotations

import re
import sys
from pathlib import PurePath
from typing import NamedTuple

from gpuwidget.diagnostics import messages_torch as messages
from gpuwidget.diagnostics import packages
from gpuwidget.diagnostics.file_issues import damage, file_issues
from gpuwidget.diagnostics.fixes import (
    conda_cuda_build,
    install_older_numpy,
    install_required,
    install_torch,
    missing_library,
    missing_library_fix,
    reinstall,
    reinstall_libraries,
    replace_torch_leftovers,
    setting_in,
)
from gpuwidget.diagnostics.issues import build_check, skipped_check
from gpuwidget.diagnostics.messages_probes import FIX_DRIVER_FIRST
from gpuwidget.diagnostics.packages import normalize_name
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.diagnostics.shadowed_torch import path_source, shadowed_torch_issues, version_and_folder
from gpuwidget.diagnostics.torch_copies import TorchCopy
from gpuwidget.diagnostics.unfinished_probes import libcuda_fails
from gpuwidget.model.diagnosis import Check, Fix, Issue
from gpuwidget.model.translation import joined, translatable

TORCH = ("torch", "PyTorch")

_OUT_OF_MEMORY = re.compile("failed to map segment|[Cc]annot allocate memory")
_MAX_FILES = 5
_BUILT_FOR_NUMPY_1 = re.compile(r"compiled using NumPy 1\.x|_ARRAY_API not found")
_BROKEN_FILE = re.compile(
    r"undefined symbol|shared object file|\.so\b|\.dylib|\.pyd|DLL load failed|ELF|file too short|"
    r"multiarray|[Cc]-extension|null bytes|bad marshal|bad magic|No module named 'torch\b"
)
"""Errors which show that a file is missing, damaged or built for another version."""
_MISSING_GLIBC = re.compile(r"GLIBC(?:XX)?_[\d.]+")


def check_torch(results: ProbeResults) -> Check:
    """Check that torch can be imported and is built for CUDA."""
    files, result, torch = results.packages.torch, results.torch_result, results.torch
    evidence = {
        "file": torch.get("file") or (files.origin if files is not None else None),
        "copies": ", ".join(map(version_and_folder, results.packages.torch_copies)),
        "packages": ", ".join(results.package("torch", "pytorch")),
        "interpreter": results.python,
    }
    if files is None and not torch.get("imported"):
        if results.place == "server":
            return skipped_check(TORCH, translatable("not needed in the server's environment"), evidence)
        if results.without_gpu:
            return skipped_check(TORCH, translatable("not found"), evidence)
        issue = messages.NOT_INSTALLED(fix=install_torch(results, "missing"))
        return build_check(TORCH, translatable("not found"), [issue], evidence)
    version = results.torch_version or translatable("of unknown version")
    hidden = _hidden_torch_issue(results)
    if hidden is not None:
        return build_check(
            TORCH, translatable("hidden by another file or folder of that name"), [hidden], evidence
        )
    if result.ending == "not started":
        return build_check(TORCH, version, [messages.PYTHON_NOT_STARTED(error=result.detail)], evidence)
    shadowed = shadowed_torch_issues(results)
    if not torch.get("imported"):
        own = [_import_issue(results), *file_issues(results, "torch"), *_shadowing_issues(results)]
        found = (
            translatable("whose import did not finish")
            if result.ending == "hung"
            else translatable("which can't be imported")
        )
        return build_check(TORCH, joined([version, found]), _with_shadowed(own, shadowed), evidence)
    if torch.get("cuda") is None:
        what = (
            translatable("built for AMD's ROCm")
            if torch.get("hip")
            else translatable("built for the CPU only")
        )
        own = [*_no_cuda_issues(results), *file_issues(results, "torch"), *_numpy_issues(results)]
        return build_check(TORCH, joined([version, what]), _with_shadowed(own, shadowed), evidence)
    found = translatable("{version}, built for CUDA {cuda}", version=version, cuda=torch["cuda"])
    issues = [
        *file_issues(results, "torch"),
        *_numpy_issues(results),
        *_stale_module_issues(results),
        *_shadowing_issues(results),
        *_thread_issues(results),
    ]
    return build_check(TORCH, found, [*issues, *shadowed], evidence)


def _with_shadowed(own: list[Issue], shadowed: list[Issue]) -> list[Issue]:
    """Return the issues of a torch that can't use the GPU. If it hides another copy, its own issues do not
    matter."""
    return shadowed if any(issue.status == "broken" for issue in shadowed) else [*own, *shadowed]


def _stale_module_issues(results: ProbeResults) -> list[Issue]:
    """Return an issue if the notebook has loaded a version of torch other than the installed one."""
    loaded, installed = results.notebook.torch, results.torch.get("version")
    if loaded is None or loaded == installed:
        return []
    return [messages.CHANGED_SINCE_IMPORT(loaded=loaded, installed=installed)]


def _thread_issues(results: ProbeResults) -> list[Issue]:
    """Return an issue if OMP_NUM_THREADS makes DataLoaders without workers prepare batches on one thread.

    A DataLoader with workers is not affected: torch uses one thread in each of them in any case.
    """
    limit = results.variables.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    loaders = results.notebook.loaders
    if limit != "1" or results.notebook.cpu_threads != 1 or not loaders:
        return []
    return [messages.ONE_THREAD(loaders=tuple(loaders))]


def _numpy_issues(results: ProbeResults) -> list[Issue]:
    """Return an issue if numpy does not work with torch, so that ``from_numpy()`` and ``Tensor.numpy()``
    fail."""
    error = results.torch.get("numpy_error")
    if error is None:
        return []
    words = " ".join([str(error), *(results.torch.get("import_warnings") or ())])
    return [messages.NUMPY_FAILS(error=_first_line(str(error)), fix=_numpy_fix(words, results))]


def _numpy_fix(error: str, results: ProbeResults) -> Fix:
    numpy_2 = (numpy := results.packages.installed.get("numpy")) is not None and not numpy.version.startswith(
        "1."
    )
    if numpy_2 and _BUILT_FOR_NUMPY_1.search(error):
        return install_older_numpy(results)
    if _BROKEN_FILE.search(error) or any(package.name == "numpy" for package in results.damaged):
        return reinstall(results, "numpy")
    return messages.SEE_IMPORT_TRACEBACK()


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[0].rstrip(".")


def _shadowing_issues(results: ProbeResults) -> list[Issue]:
    hiding = map(_hiding_file, results.packages.hiding[:_MAX_FILES])
    return [messages.MODULE_HIDDEN(**file._asdict(), shown={"hides": file.text}) for file in hiding]


class _HidingFile(NamedTuple):
    """A user's file or folder that hides a module that torch uses."""

    file: str
    name: str
    """Name of the file. If a folder hides the module, the name of the folder."""
    folder: str
    module: str
    standard: bool
    """Whether the hidden module is in Python's standard library."""

    @property
    def text(self) -> str:
        template = messages.HIDES_STANDARD_MODULE if self.standard else messages.HIDES_PACKAGE
        return template(name=self.name, folder=self.folder, module=self.module)


def _hiding_file(file: str) -> _HidingFile:
    path = PurePath(file)
    if path.name == "__init__.py" and path.parent.name not in sys.stdlib_module_names:
        path = path.parent
    standard = path.stem in sys.stdlib_module_names
    return _HidingFile(file, path.name, str(path.parent), path.stem, standard)


def _hidden_torch_issue(results: ProbeResults) -> Issue | None:
    files = results.packages.torch
    if files is None:
        return None
    copies = results.packages.torch_copies
    first = copies[0] if copies else None
    other = next((copy for copy in copies[1:] if copy.package), None)
    if files.in_working_directory and files.origin is not None and files.version is not None:
        second, shown = (other.path, version_and_folder(other)) if other is not None else (None, None)
        return messages.IN_WORKING_DIRECTORY(file=files.origin, second=second, shown={"other": shown})
    if results.torch.get("imported") and results.torch.get("version") and not files.in_working_directory:
        return None
    if files.in_working_directory or files.origin is None or not files.folders:
        file = files.origin or next(iter(files.folders), None)
        if (
            first is not None
            and not first.package
            and not files.origin
            and first.source in ("environment", "user-site")
        ):
            fix = replace_torch_leftovers(results, first.path)
            return messages.LEFTOVERS(folder=first.path, fix=fix)
        return _hidden_by_file_issue(file, other, first)
    return None


def _hidden_by_file_issue(file: str | None, other: TorchCopy | None, found: TorchCopy | None) -> Issue:
    """Return the issue reporting that a file hides the package torch.

    ``file`` is None if the file is unknown. ``other`` is the copy that it hides, and ``found`` is the copy
    that Python finds, if they are known.
    """
    what = file or messages.A_FOLDER
    where = messages.HIDDEN_PACKAGE(folder=None if other is None else other.folder)
    source = None if found is None or found.source == "environment" else path_source(found)
    return messages.HIDDEN(
        file=file,
        second=None if other is None else other.path,
        source=None if found is None else found.source,
        fix=messages.RENAME_FILE(file=what),
        shown={"what": what, "where": where, "source": source},
    )


def _import_issue(results: ProbeResults) -> Issue:
    result, torch = results.torch_result, results.torch
    if result.ending == "hung":
        # The status is not "broken", since a first import from a slow or network disk can take this long.
        return messages.IMPORT_TIMEOUT(timeout_s=results.timeout_s)
    if result.ending == "crashed" and result.detail == "SIGKILL":
        return messages.IMPORT_KILLED(signal=result.detail)
    if result.ending == "crashed" and "import_error" not in torch:
        driver_crashes = results.cuda_result.ending == "crashed" and libcuda_fails(results)
        see_traceback = reinstall_libraries(results, otherwise=messages.SEE_IMPORT_TRACEBACK())
        fix = FIX_DRIVER_FIRST() if driver_crashes else see_traceback
        return messages.IMPORT_CRASHED(signal=result.detail, fix=fix)
    if "import_error" not in torch:
        fix = reinstall_libraries(results, otherwise=messages.SEE_IMPORT_TRACEBACK())
        return messages.IMPORT_ENDED(fix=fix)
    error, kind = str(torch["import_error"]), str(torch.get("import_error_type", ""))
    for file in results.packages.hiding:
        if re.search(rf"\b{re.escape(PurePath(file).stem)}\b", error):
            hiding = _hiding_file(file)
            return messages.IMPORT_ERROR_BY_HIDDEN_MODULE(
                type=kind,
                error=error,
                **hiding._asdict(),
                shown={"raised": _raised(kind, error), "hides": hiding.text},
            )
    if _MISSING_GLIBC.search(error):
        return _import_error(kind, error, messages.INSTALL_TORCH_FOR_OLDER_SYSTEM())
    if _OUT_OF_MEMORY.search(error):
        return _import_error(kind, error, messages.RAISE_MEMORY_LIMIT())
    if (variable := setting_in(error, results)) is not None:
        return _import_error(kind, error, messages.CORRECT_VARIABLE(variable=variable))
    library = missing_library(results)
    if library is not None:
        return _import_error(kind, error, missing_library_fix(library, results))
    return _package_issue(kind, error, results)


def _package_issue(kind: str, error: str, results: ProbeResults) -> Issue:
    """Return the issue of a failed ``import torch``: a package is damaged or missing, or its code raised the
    error."""
    name = normalize_name(str(results.torch.get("import_error_package") or "torch"))
    damaged = results.damaged
    if damaged and name not in {package.name for package in damaged}:
        return messages.IMPORT_ERROR_BY_DAMAGE(
            type=kind,
            error=error,
            package=damaged[0].name,
            fix=reinstall(results, damaged[0].name),
            shown={"raised": _raised(kind, error), **damage(damaged[0])},
        )
    if name == "numpy":
        return _import_error_in(kind, error, name, _numpy_fix(error, results))
    if kind == "ModuleNotFoundError" and name in results.packages.required:
        there = name in results.packages.installed
        fix = reinstall(results, name) if there else install_required(results, name)
        return _import_error(kind, error, fix)
    broken = _BROKEN_FILE.search(error) is not None or bool(damaged)
    fix = messages.SEE_IMPORT_TRACEBACK()
    if name != "torch" and name in results.packages.installed:
        fix = reinstall(results, name) if broken else fix
        return _import_error_in(kind, error, name, fix)
    if kind in ("ImportError", "OSError"):
        fix = reinstall_libraries(results, otherwise=None if broken else fix)
    elif broken:
        fix = reinstall(results, "torch")
    file = results.torch.get("import_error_file")
    if file and name != "torch" and kind != "ModuleNotFoundError":
        return _import_error_in(kind, error, str(file), fix)
    return _import_error(kind, error, fix)


def _import_error(kind: str, error: str, fix: Fix) -> Issue:
    return messages.IMPORT_ERROR(type=kind, error=error, fix=fix, shown={"raised": _raised(kind, error)})


def _import_error_in(kind: str, error: str, package: str, fix: Fix) -> Issue:
    """Return the issue of an error in the code of another package, or in a file that belongs to none."""
    return messages.IMPORT_ERROR_IN_PACKAGE(
        type=kind, error=error, package=package, fix=fix, shown={"raised": _raised(kind, error)}
    )


def _raised(kind: str, error: str) -> str:
    lines = error.strip().splitlines()
    return messages.RAISES(type=kind, first_line=lines[0].rstrip(".") if lines else None)


def _no_cuda_issues(results: ProbeResults) -> list[Issue]:
    if results.without_gpu:
        return []
    fix = (
        conda_cuda_build(results)
        if packages.is_conda_torch(results.packages)
        else install_torch(results, "without-cuda", always_index=True)
    )
    amd = bool(results.torch.get("hip"))
    template = messages.FOR_AMD if amd else messages.WITHOUT_CUDA
    return [template(amd=amd, fix=fix)]
