"""The check of PyTorch: whether it can be imported and is built for CUDA."""

from __future__ import annotations

import re
import sys
from pathlib import PurePath

from gpuwidget.diagnostics import packages
from gpuwidget.diagnostics.file_issues import describe_damage, file_issues
from gpuwidget.diagnostics.fixes import (
    Fix,
    conda_cuda_build,
    install_older_numpy,
    install_required,
    install_torch,
    missing_library,
    missing_library_fix,
    reinstall,
    reinstall_libraries,
    remove_duplicate_torch,
)
from gpuwidget.diagnostics.issues import Issue, build_check, skipped_check
from gpuwidget.diagnostics.packages import normalize_name
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.model.diagnosis import Check

TORCH = ("torch", "PyTorch")

_OUT_OF_MEMORY = re.compile("failed to map segment|[Cc]annot allocate memory")
_MAX_FILES = 5
_BUILT_FOR_NUMPY_1 = re.compile(r"compiled using NumPy 1\.x|_ARRAY_API not found")
_MISSING_GLIBC = re.compile(r"GLIBC(?:XX)?_[\d.]+")


def check_torch(results: ProbeResults) -> Check:
    """Check that torch can be imported and is built for CUDA."""
    files, result, torch = results.packages.torch, results.torch_result, results.torch
    evidence = {
        "file": torch.get("file") or (files.origin if files is not None else None),
        "packages": ", ".join(results.package("torch", "pytorch")),
        "interpreter": results.python,
    }
    if files is None and not torch.get("imported"):
        if results.place == "server":
            return skipped_check(TORCH, "not in the server's environment, which needs none", evidence)
        reason = "PyTorch is not installed in this environment."
        issue = Issue("broken", reason, *install_torch(results, "Install it"))
        return build_check(TORCH, "not found", [issue], evidence)
    version = results.torch_version or "of unknown version"
    hidden = _hidden_torch_issue(results)
    if hidden is not None:
        return build_check(TORCH, "hidden by something else of that name", [hidden], evidence)
    if result.ending == "not started":
        reason = f"Python could not be started to look at it ({result.how})."
        return build_check(TORCH, version, [Issue("unknown", reason, None)], evidence)
    if not torch.get("imported"):
        issues = [_import_issue(results), *file_issues(results, "torch"), *_shadowing_issues(results)]
        found = "whose import did not finish" if result.ending == "hung" else "which can't be imported"
        return build_check(TORCH, f"{version}, {found}", issues, evidence)
    if torch.get("cuda") is None:
        what = "for AMD's ROCm" if torch.get("hip") else "for the CPU only"
        issues = [_no_cuda_issue(results), *file_issues(results, "torch"), *_numpy_issues(results)]
        return build_check(TORCH, f"{version}, built {what}", issues, evidence)
    found = f"{version}, built for CUDA {torch['cuda']}"
    issues = [
        *file_issues(results, "torch"),
        *_numpy_issues(results),
        *_stale_module_issues(results),
        *_shadowing_issues(results),
    ]
    return build_check(TORCH, found, [*issues, *_duplicate_issues(results)], evidence)


def _stale_module_issues(results: ProbeResults) -> list[Issue]:
    """Return an issue if the notebook has loaded a version of torch other than the installed one."""
    loaded, installed = results.notebook.torch, results.torch.get("version")
    if loaded is None or loaded == installed:
        return []
    reason = f"This notebook has PyTorch {loaded} loaded, while {installed} is installed by now."
    return [Issue("warning", reason, "Restart the kernel.")]


def _duplicate_issues(results: ProbeResults) -> list[Issue]:
    copies = results.packages.torch_copies
    if len(copies) < 2:
        return []
    reason = (
        f"PyTorch is installed {len(copies)} times: {', '.join(map(str, copies))}. The first one is used."
    )
    return [Issue("warning", reason, *remove_duplicate_torch(results))]


def _numpy_issues(results: ProbeResults) -> list[Issue]:
    """Return an issue if numpy fails with torch: ``from_numpy()`` and ``Tensor.numpy()`` then fail too."""
    error = results.torch.get("numpy_error")
    if error is None:
        return []
    words = " ".join([str(error), *(results.torch.get("import_warnings") or ())])
    fix = _numpy_fix(words, results)
    return [Issue("warning", f"numpy fails with this PyTorch: {_first_line(str(error))}.", *fix)]


def _numpy_fix(words: str, results: ProbeResults) -> Fix:
    numpy_2 = (one := results.packages.installed.get("numpy")) is not None and not one.version.startswith(
        "1."
    )
    return (
        install_older_numpy(results)
        if numpy_2 and _BUILT_FOR_NUMPY_1.search(words)
        else reinstall(results, "numpy")
    )


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[0].rstrip(".")


def _shadowing_issues(results: ProbeResults) -> list[Issue]:
    return [
        Issue("warning", f"{_shadowing_text(file)}.", _rename_fix(file))
        for file in results.packages.hiding[:_MAX_FILES]
    ]


def _shadowing_text(file: str) -> str:
    path = PurePath(file)
    if path.name == "__init__.py" and path.parent.name not in sys.stdlib_module_names:
        path = path.parent
    if path.stem not in sys.stdlib_module_names:
        return f"{path.name} in {path.parent} hides the package {path.stem}, which PyTorch uses"
    return f"{path.name} in {path.parent} hides Python's own module {path.stem}"


def _rename_fix(what: str) -> str:
    return f"Give {what} another name, and start the kernel anew."


def _hidden_torch_issue(results: ProbeResults) -> Issue | None:
    files = results.packages.torch
    if files is None:
        return None
    real = files.origin is not None and files.version is not None
    if files.in_working_directory and real:
        reason = (
            f"'import torch' finds {files.origin}, in the working directory. The doctor runs no file of the "
            "working directory, so this PyTorch was not checked."
        )
        return Issue(
            "unknown", reason, "Start the kernel or the command in another folder, and run it again."
        )
    if results.torch.get("imported") and results.torch.get("version") and not files.in_working_directory:
        return None
    if files.in_working_directory or files.origin is None or not files.folders:
        what = files.origin or (files.folders[0] if files.folders else "a folder")
        reason = f"{what} is what 'import torch' finds in place of the package."
        return Issue("broken", reason, _rename_fix(what))
    return None


def _import_issue(results: ProbeResults) -> Issue:
    result, torch = results.torch_result, results.torch
    if result.ending == "hung":
        # The status is not "broken", since a first import from a cold or network disk can take that long.
        return Issue(
            "unknown",
            f"'import torch' did not finish within {results.timeout_s:.0f} s.",
            "Run the doctor again: a first import from a cold or a network disk takes long, the next one "
            "less. If it does not finish either, see where it stops: python -X importtime -c 'import torch' "
            "in a terminal. A driver that hangs does that too (then nvidia-smi also hangs).",
        )
    if result.ending == "crashed" and result.how == "SIGKILL":
        return Issue(
            "broken",
            "'import torch' was killed (SIGKILL), as happens where memory runs out.",
            "Give this environment more memory; the kernel log (dmesg) says whether that was it.",
        )
    if result.ending == "crashed" and "import_error" not in torch:
        return Issue(
            "broken", f"'import torch' crashes Python ({result.how}).", *reinstall_libraries(results)
        )
    if "import_error" not in torch:
        return Issue("broken", "'import torch' ends Python without a word.", *reinstall_libraries(results))
    error, kind = str(torch["import_error"]), torch.get("import_error_type", "")
    first = error.strip().splitlines()[0] if error.strip() else "without a word"
    reason = f"'import torch' raises {kind}: {first}".rstrip(".") + "."
    for file in results.packages.hiding:
        if re.search(rf"\b{re.escape(PurePath(file).stem)}\b", error):
            return Issue("broken", f"{reason} {_shadowing_text(file)}.", _rename_fix(file))
    if _MISSING_GLIBC.search(error):
        return Issue(
            "broken", reason, "This system is older than that build of PyTorch: install an older PyTorch."
        )
    if _OUT_OF_MEMORY.search(error):
        fix = "See whether memory is limited (ulimit -v), or the file system mounted with noexec."
        return Issue("broken", reason, fix)
    library = missing_library(results)
    if library is not None:
        return Issue("broken", reason, *missing_library_fix(library, results))
    return Issue("broken", *_blame_package(reason, kind, results))


def _blame_package(reason: str, kind: str, results: ProbeResults) -> tuple[str, str, str | None]:
    """Return reason, fix and command for the package that is damaged or missing, or that raised the error."""
    name = normalize_name(str(results.torch.get("import_error_package") or "torch"))
    damaged = results.damaged
    if damaged and name not in {one.name for one in damaged}:
        return (f"{reason} {describe_damage(damaged[0])}", *reinstall(results, damaged[0].name))
    if name == "numpy":
        return (f"{reason} That is numpy's error.", *_numpy_fix(reason, results))
    if kind == "ModuleNotFoundError" and name in results.packages.required:
        there = name in results.packages.installed
        return (reason, *(reinstall(results, name) if there else install_required(results, name)))
    if name != "torch" and name in results.packages.installed:
        return (f"{reason} That is an error of {name}.", *reinstall(results, name))
    if kind in ("ImportError", "OSError"):
        return (reason, *reinstall_libraries(results))
    return (reason, *reinstall(results, "torch"))


def _no_cuda_issue(results: ProbeResults) -> Issue:
    system = results.machine.system
    if system == "darwin":
        return Issue(
            "broken", "PyTorch for macOS has no CUDA.", "Use a machine with an NVIDIA GPU and Linux."
        )
    what = "is for AMD's GPUs" if results.torch.get("hip") else "can't use a GPU"
    reason = f"This build of PyTorch {what}: it has no CUDA."
    if packages.is_conda_torch(results.packages):
        return Issue("broken", reason, *conda_cuda_build(results))
    return Issue("broken", reason, *install_torch(results, "Install a build with CUDA", always_index=True))
