"""The link of PyTorch itself: whether it can be imported, and is built for CUDA."""

from __future__ import annotations

import re
import sys
from pathlib import PurePath

from gpuwidget.diagnostics import packages
from gpuwidget.diagnostics.checks_files import describe, of_files
from gpuwidget.diagnostics.fixes import (
    Fix,
    conda_with_cuda,
    fix_libraries,
    install,
    keep_one_torch,
    missing_library,
    older_numpy,
    reinstall,
    remedy_for,
    require,
)
from gpuwidget.diagnostics.issues import Finding, link, skipped
from gpuwidget.diagnostics.packages import normal
from gpuwidget.diagnostics.probe_results import Facts
from gpuwidget.model.diagnosis import Link

TORCH = ("torch", "PyTorch")

_NO_ROOM = re.compile("failed to map segment|[Cc]annot allocate memory")
_MOST_FILES = 5
_NUMPY_1 = re.compile(r"compiled using NumPy 1\.x|_ARRAY_API not found")
_OLD_LIBC = re.compile(r"GLIBC(?:XX)?_[\d.]+")


def torch_link(facts: Facts) -> Link:
    """Whether torch can be imported and is built for CUDA."""
    files, said, told = facts.packages.torch, facts.torch_said, facts.torch
    evidence = {
        "file": told.get("file") or (files.origin if files is not None else None),
        "packages": ", ".join(facts.package("torch", "pytorch")),
        "interpreter": facts.python,
    }
    if files is None and not told.get("imported"):
        if facts.place == "server":
            return skipped(TORCH, "not in the server's environment, which needs none", evidence)
        reason = "PyTorch is not installed in this environment."
        finding = Finding("broken", reason, *install(facts, "Install it"))
        return link(TORCH, "not found", [finding], evidence)
    version = facts.torch_version or "of unknown version"
    in_the_way = _in_the_way(facts)
    if in_the_way is not None:
        return link(TORCH, "hidden by something else of that name", [in_the_way], evidence)
    if said.ending == "not started":
        reason = f"Python could not be started to look at it ({said.how})."
        return link(TORCH, version, [Finding("unknown", reason, None)], evidence)
    if not told.get("imported"):
        findings = [_import_failure(facts), *of_files(facts, "torch"), *_hiding(facts)]
        found = "whose import did not finish" if said.ending == "hung" else "which can't be imported"
        return link(TORCH, f"{version}, {found}", findings, evidence)
    if told.get("cuda") is None:
        what = "for AMD's ROCm" if told.get("hip") else "for the CPU only"
        findings = [_without_cuda(facts), *of_files(facts, "torch"), *_numpy(facts)]
        return link(TORCH, f"{version}, built {what}", findings, evidence)
    found = f"{version}, built for CUDA {told['cuda']}"
    findings = [*of_files(facts, "torch"), *_numpy(facts), *_loaded_before(facts), *_hiding(facts)]
    return link(TORCH, found, [*findings, *_twice(facts)], evidence)


def _loaded_before(facts: Facts) -> list[Finding]:
    """Installing another one does not change what a notebook has loaded."""
    loaded, installed = facts.notebook.torch, facts.torch.get("version")
    if loaded is None or loaded == installed:
        return []
    reason = f"This notebook has PyTorch {loaded} loaded, while {installed} is installed by now."
    return [Finding("warning", reason, "Restart the kernel.")]


def _twice(facts: Facts) -> list[Finding]:
    copies = facts.packages.torch_copies
    if len(copies) < 2:
        return []
    reason = (
        f"PyTorch is installed {len(copies)} times: {', '.join(map(str, copies))}. The first one is used."
    )
    return [Finding("warning", reason, *keep_one_torch(facts))]


def _numpy(facts: Facts) -> list[Finding]:
    """Without numpy torch works, but neither ``from_numpy()`` nor ``Tensor.numpy()`` does."""
    error = facts.torch.get("numpy_error")
    if error is None:
        return []
    words = " ".join([str(error), *(facts.torch.get("import_warnings") or ())])
    fix = _numpy_fix(words, facts)
    return [Finding("warning", f"numpy fails with this PyTorch: {_first_line(str(error))}.", *fix)]


def _numpy_fix(words: str, facts: Facts) -> Fix:
    numpy_2 = (one := facts.packages.installed.get("numpy")) is not None and not one.version.startswith("1.")
    return older_numpy(facts) if numpy_2 and _NUMPY_1.search(words) else reinstall(facts, "numpy")


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[0].rstrip(".")


def _hiding(facts: Facts) -> list[Finding]:
    return [
        Finding("warning", f"{_hides(file)}.", _rename(file)) for file in facts.packages.hiding[:_MOST_FILES]
    ]


def _hides(file: str) -> str:
    path = PurePath(file)
    if path.name == "__init__.py" and path.parent.name not in sys.stdlib_module_names:
        path = path.parent
    if path.stem not in sys.stdlib_module_names:
        return f"{path.name} in {path.parent} hides the package {path.stem}, which PyTorch uses"
    return f"{path.name} in {path.parent} hides Python's own module {path.stem}"


def _rename(what: str) -> str:
    return f"Give {what} another name, and start the kernel anew."


def _in_the_way(facts: Facts) -> Finding | None:
    files = facts.packages.torch
    if files is None:
        return None
    real = files.origin is not None and files.version is not None
    if files.in_working_directory and real:
        reason = (
            f"'import torch' finds {files.origin}, in the working directory. The doctor runs no file of the "
            "working directory, so this PyTorch was not checked."
        )
        return Finding(
            "unknown", reason, "Start the kernel or the command in another folder, and run it again."
        )
    if facts.torch.get("imported") and facts.torch.get("version") and not files.in_working_directory:
        return None
    if files.in_working_directory or files.origin is None or not files.folders:
        what = files.origin or (files.folders[0] if files.folders else "a folder")
        reason = f"{what} is what 'import torch' finds in place of the package."
        return Finding("broken", reason, _rename(what))
    return None


def _import_failure(facts: Facts) -> Finding:
    said, told = facts.torch_said, facts.torch
    if said.ending == "hung":
        # No proof that it is broken: the first import from a cold or a network disk takes that long.
        return Finding(
            "unknown",
            f"'import torch' did not finish within {facts.patience_s:.0f} s.",
            "Run the doctor again: a first import from a cold or a network disk takes long, the next one "
            "less. If it does not finish either, see where it stops: python -X importtime -c 'import torch' "
            "in a terminal. A driver that hangs does that too (then nvidia-smi also hangs).",
        )
    if said.ending == "crashed" and said.how == "SIGKILL":
        return Finding(
            "broken",
            "'import torch' was killed (SIGKILL), as happens where memory runs out.",
            "Give this environment more memory; the kernel log (dmesg) says whether that was it.",
        )
    if said.ending == "crashed" and "import_error" not in told:
        return Finding("broken", f"'import torch' crashes Python ({said.how}).", *fix_libraries(facts))
    if "import_error" not in told:
        return Finding("broken", "'import torch' ends Python without a word.", *fix_libraries(facts))
    error, kind = str(told["import_error"]), told.get("import_error_type", "")
    first = error.strip().splitlines()[0] if error.strip() else "without a word"
    reason = f"'import torch' raises {kind}: {first}".rstrip(".") + "."
    for file in facts.packages.hiding:
        if re.search(rf"\b{re.escape(PurePath(file).stem)}\b", error):
            return Finding("broken", f"{reason} {_hides(file)}.", _rename(file))
    if _OLD_LIBC.search(error):
        return Finding(
            "broken", reason, "This system is older than that build of PyTorch: install an older PyTorch."
        )
    if _NO_ROOM.search(error):
        remedy = "See whether memory is limited (ulimit -v), or the file system mounted with noexec."
        return Finding("broken", reason, remedy)
    library = missing_library(facts)
    if library is not None:
        return Finding("broken", reason, *remedy_for(library, facts))
    return Finding("broken", *_blamed(reason, kind, facts))


def _blamed(reason: str, kind: str, facts: Facts) -> tuple[str, str, str | None]:
    """Reason, remedy and command by the package that is damaged, is missing or raised the error."""
    name = normal(str(facts.torch.get("import_error_package") or "torch"))
    damaged = facts.damaged
    if damaged and name not in {one.name for one in damaged}:
        return (f"{reason} {describe(damaged[0])}", *reinstall(facts, damaged[0].name))
    if name == "numpy":
        return (f"{reason} That is numpy's error.", *_numpy_fix(reason, facts))
    if kind == "ModuleNotFoundError" and name in facts.packages.required:
        there = name in facts.packages.installed
        return (reason, *(reinstall(facts, name) if there else require(facts, name)))
    if name != "torch" and name in facts.packages.installed:
        return (f"{reason} That is an error of {name}.", *reinstall(facts, name))
    if kind in ("ImportError", "OSError"):
        return (reason, *fix_libraries(facts))
    return (reason, *reinstall(facts, "torch"))


def _without_cuda(facts: Facts) -> Finding:
    system = facts.machine.system
    if system == "darwin":
        return Finding(
            "broken", "PyTorch for macOS has no CUDA.", "Use a machine with an NVIDIA GPU and Linux."
        )
    what = "is for AMD's GPUs" if facts.torch.get("hip") else "can't use a GPU"
    reason = f"This build of PyTorch {what}: it has no CUDA."
    if packages.torch_is_condas(facts.packages):
        return Finding("broken", reason, *conda_with_cuda(facts))
    return Finding("broken", reason, *install(facts, "Install a build with CUDA", always_index=True))
