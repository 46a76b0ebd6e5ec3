"""The link of PyTorch itself: whether it can be imported, and is built for CUDA."""

from __future__ import annotations

import re
from pathlib import PurePath

from gpuwidget.diagnosis import Link
from gpuwidget.health import packages
from gpuwidget.health.facts import Facts
from gpuwidget.health.findings import Finding, link, skipped
from gpuwidget.health.remedies import anew, install, missing_library, pip, reinstall, remedy_for

TORCH = ("torch", "PyTorch")

_NO_ROOM = re.compile("failed to map segment|[Cc]annot allocate memory")
_MOST_FILES = 5
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
        finding = Finding("broken", reason, install(facts, "Install it", force=False))
        return link(TORCH, "not found", [finding], evidence)
    version = facts.torch_version or "of unknown version"
    in_the_way = _in_the_way(facts)
    if in_the_way is not None:
        return link(TORCH, "hidden by something else of that name", [in_the_way], evidence)
    if said.ending == "not started":
        reason = f"Python could not be started to look at it ({said.how})."
        return link(TORCH, version, [Finding("unknown", reason, None)], evidence)
    if not told.get("imported"):
        findings = [_import_failure(facts), *_hiding(facts)]
        return link(TORCH, f"{version}, which can't be imported", findings, evidence)
    if told.get("cuda") is None:
        what = "for AMD's ROCm" if told.get("hip") else "for the CPU only"
        return link(TORCH, f"{version}, built {what}", [_without_cuda(facts)], evidence)
    found = f"{version}, built for CUDA {told['cuda']}"
    if said.ending == "crashed" and told.get("step") in ("ask", "available"):
        reason = f"PyTorch crashes when it is asked about the GPU ({said.how})."
        return link(TORCH, found, [Finding("broken", reason, anew(facts))], evidence)
    return link(TORCH, found, [*_loaded_before(facts), *_hiding(facts), *_twice(facts)], evidence)


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
    remedy = f"Keep one of them: {pip(facts)} uninstall torch removes the one in {copies[0].folder}."
    return [Finding("warning", reason, remedy)]


def _hiding(facts: Facts) -> list[Finding]:
    return [
        Finding("warning", f"{_hides(file)}.", _rename(file)) for file in facts.packages.hiding[:_MOST_FILES]
    ]


def _hides(file: str) -> str:
    path = PurePath(file)
    return f"{path.name} in {path.parent} hides Python's own module {path.stem}"


def _rename(what: str) -> str:
    return f"Give {what} another name, and start the kernel anew."


def _in_the_way(facts: Facts) -> Finding | None:
    files = facts.packages.torch
    if files is None or (facts.torch.get("imported") and facts.torch.get("version")):
        return None
    if files.origin is None or not files.folders:
        what = files.origin or (files.folders[0] if files.folders else "a folder")
        reason = f"{what} is what 'import torch' finds in place of the package."
        return Finding("broken", reason, _rename(what))
    return None


def _import_failure(facts: Facts) -> Finding:
    said, told = facts.torch_said, facts.torch
    if said.ending == "hung":
        return Finding(
            "broken",
            f"'import torch' has not ended after {facts.patience_s:.0f} s.",
            "See where it stands: python -X importtime -c 'import torch' in a terminal. A "
            "network file system "
            "that is slow or gone does that, and a driver that hangs (then nvidia-smi hangs too).",
        )
    if said.ending == "crashed" and said.how == "SIGKILL":
        return Finding(
            "broken",
            "'import torch' was killed (SIGKILL), as happens where memory runs out.",
            "Give this environment more memory; the kernel log (dmesg) says whether that was it.",
        )
    if said.ending == "crashed" and "import_error" not in told:
        return Finding("broken", f"'import torch' crashes Python ({said.how}).", anew(facts))
    if "import_error" not in told:
        return Finding("broken", "'import torch' ends Python without a word.", anew(facts))
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
        return Finding("broken", reason, remedy_for(library, facts))
    of_libraries = kind in ("ImportError", "OSError")
    return Finding("broken", reason, anew(facts) if of_libraries else reinstall(facts))


def _without_cuda(facts: Facts) -> Finding:
    system = facts.machine.system
    if system == "darwin":
        return Finding(
            "broken", "PyTorch for macOS has no CUDA.", "Use a machine with an NVIDIA GPU and Linux."
        )
    what = "is for AMD's GPUs" if facts.torch.get("hip") else "can't use a GPU"
    reason = f"This build of PyTorch {what}: it has no CUDA."
    if packages.torch_is_condas(facts.packages):
        return Finding("broken", reason, "Install conda's build with CUDA: conda install pytorch-gpu.")
    return Finding("broken", reason, install(facts, "Install a build with CUDA", always_index=True))
