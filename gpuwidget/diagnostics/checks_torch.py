"""The check of PyTorch: whether it can be imported and is built for CUDA."""

from __future__ import annotations

import re
import sys
from pathlib import PurePath

from gpuwidget.diagnostics import messages_torch as messages
from gpuwidget.diagnostics import packages
from gpuwidget.diagnostics.file_issues import file_issues
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
from gpuwidget.diagnostics.messages_probes import fix_driver_first
from gpuwidget.diagnostics.packages import normalize_name
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.diagnostics.shadowed_torch import shadowed_torch_issues
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
        "copies": ", ".join(map(messages.version_and_folder, results.packages.torch_copies)),
        "packages": ", ".join(results.package("torch", "pytorch")),
        "interpreter": results.python,
    }
    if files is None and not torch.get("imported"):
        if results.place == "server":
            return skipped_check(TORCH, translatable("not needed in the server's environment"), evidence)
        if results.without_gpu:
            return skipped_check(TORCH, translatable("not found"), evidence)
        issue = messages.not_installed(install_torch(results, "missing"))
        return build_check(TORCH, translatable("not found"), [issue], evidence)
    version = results.torch_version or translatable("of unknown version")
    hidden = _hidden_torch_issue(results)
    if hidden is not None:
        return build_check(
            TORCH, translatable("hidden by another file or folder of that name"), [hidden], evidence
        )
    if result.ending == "not started":
        return build_check(TORCH, version, [messages.python_not_started(result.detail)], evidence)
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
    return [messages.changed_since_import(loaded, installed)]


def _thread_issues(results: ProbeResults) -> list[Issue]:
    """Return an issue if OMP_NUM_THREADS makes DataLoaders without workers prepare batches on one thread.

    A DataLoader with workers is not affected: torch uses one thread in each of them in any case.
    """
    limit = results.variables.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    loaders = results.notebook.loaders
    if limit != "1" or results.notebook.cpu_threads != 1 or not loaders:
        return []
    return [messages.one_thread(loaders)]


def _numpy_issues(results: ProbeResults) -> list[Issue]:
    """Return an issue if numpy does not work with torch, so that ``from_numpy()`` and ``Tensor.numpy()``
    fail."""
    error = results.torch.get("numpy_error")
    if error is None:
        return []
    words = " ".join([str(error), *(results.torch.get("import_warnings") or ())])
    return [messages.numpy_fails(_first_line(str(error)), _numpy_fix(words, results))]


def _numpy_fix(error: str, results: ProbeResults) -> Fix:
    numpy_2 = (numpy := results.packages.installed.get("numpy")) is not None and not numpy.version.startswith(
        "1."
    )
    if numpy_2 and _BUILT_FOR_NUMPY_1.search(error):
        return install_older_numpy(results)
    if _BROKEN_FILE.search(error) or any(package.name == "numpy" for package in results.damaged):
        return reinstall(results, "numpy")
    return messages.see_import_traceback()


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[0].rstrip(".")


def _shadowing_issues(results: ProbeResults) -> list[Issue]:
    return [messages.hidden_module(_hiding_file(file)) for file in results.packages.hiding[:_MAX_FILES]]


def _hiding_file(file: str) -> messages.HidingFile:
    path = PurePath(file)
    if path.name == "__init__.py" and path.parent.name not in sys.stdlib_module_names:
        path = path.parent
    standard = path.stem in sys.stdlib_module_names
    return messages.HidingFile(file, path.name, str(path.parent), path.stem, standard)


def _hidden_torch_issue(results: ProbeResults) -> Issue | None:
    files = results.packages.torch
    if files is None:
        return None
    copies = results.packages.torch_copies
    first = copies[0] if copies else None
    other = next((copy for copy in copies[1:] if copy.package), None)
    if files.in_working_directory and files.origin is not None and files.version is not None:
        return messages.in_working_directory(files.origin, other)
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
            return messages.leftovers(first.path, replace_torch_leftovers(results, first.path))
        return messages.hidden_torch(file, other, first)
    return None


def _import_issue(results: ProbeResults) -> Issue:
    result, torch = results.torch_result, results.torch
    if result.ending == "hung":
        # The status is not "broken", since a first import from a slow or network disk can take this long.
        return messages.import_timeout(results.timeout_s)
    if result.ending == "crashed" and result.detail == "SIGKILL":
        return messages.import_killed()
    if result.ending == "crashed" and "import_error" not in torch:
        driver_crashes = results.cuda_result.ending == "crashed" and libcuda_fails(results)
        see_traceback = reinstall_libraries(results, otherwise=messages.see_import_traceback())
        fix = fix_driver_first() if driver_crashes else see_traceback
        return messages.import_crashed(result.detail, fix)
    if "import_error" not in torch:
        fix = reinstall_libraries(results, otherwise=messages.see_import_traceback())
        return messages.import_ended(fix)
    error, kind = str(torch["import_error"]), str(torch.get("import_error_type", ""))
    for file in results.packages.hiding:
        if re.search(rf"\b{re.escape(PurePath(file).stem)}\b", error):
            return messages.import_error_by_hidden_module(kind, error, _hiding_file(file))
    if _MISSING_GLIBC.search(error):
        return messages.import_error(kind, error, messages.older_torch())
    if _OUT_OF_MEMORY.search(error):
        return messages.import_error(kind, error, messages.raise_memory_limit())
    if (variable := setting_in(error, results)) is not None:
        return messages.import_error(kind, error, messages.correct_variable(variable))
    library = missing_library(results)
    if library is not None:
        return messages.import_error(kind, error, missing_library_fix(library, results))
    return _package_issue(kind, error, results)


def _package_issue(kind: str, error: str, results: ProbeResults) -> Issue:
    """Return the issue of a failed ``import torch``: a package is damaged or missing, or its code raised the
    error."""
    name = normalize_name(str(results.torch.get("import_error_package") or "torch"))
    damaged = results.damaged
    if damaged and name not in {package.name for package in damaged}:
        return messages.import_error_by_damage(kind, error, damaged[0], reinstall(results, damaged[0].name))
    if name == "numpy":
        return messages.import_error_in_package(kind, error, name, _numpy_fix(error, results))
    if kind == "ModuleNotFoundError" and name in results.packages.required:
        there = name in results.packages.installed
        fix = reinstall(results, name) if there else install_required(results, name)
        return messages.import_error(kind, error, fix)
    broken = _BROKEN_FILE.search(error) is not None or bool(damaged)
    fix = messages.see_import_traceback()
    if name != "torch" and name in results.packages.installed:
        fix = reinstall(results, name) if broken else fix
        return messages.import_error_in_package(kind, error, name, fix)
    if kind in ("ImportError", "OSError"):
        fix = reinstall_libraries(results, otherwise=None if broken else fix)
    elif broken:
        fix = reinstall(results, "torch")
    file = results.torch.get("import_error_file")
    if file and name != "torch" and kind != "ModuleNotFoundError":
        return messages.import_error_in_package(kind, error, str(file), fix)
    return messages.import_error(kind, error, fix)


def _no_cuda_issues(results: ProbeResults) -> list[Issue]:
    if results.without_gpu:
        return []
    fix = (
        conda_cuda_build(results)
        if packages.is_conda_torch(results.packages)
        else install_torch(results, "without-cuda", always_index=True)
    )
    return [messages.without_cuda(fix, amd=bool(results.torch.get("hip")))]
