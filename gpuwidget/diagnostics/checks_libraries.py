"""The links of the libraries that come with torch: the CUDA runtime, cuDNN and NCCL."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from gpuwidget.diagnostics.checks_files import of_files
from gpuwidget.diagnostics.fixes import Fix, fix_libraries, missing_library, remedy_for, replace, unset
from gpuwidget.diagnostics.issues import Finding, counted, link, skipped
from gpuwidget.diagnostics.probe_results import Facts
from gpuwidget.diagnostics.versions import cudnn_version
from gpuwidget.model.diagnosis import Link

CUDA = ("cuda", "CUDA runtime")
CUDNN = ("cudnn", "cuDNN")
NCCL = ("nccl", "NCCL")

_RUNTIME = (
    "libcudart",
    "libcublasLt",
    "libcublas",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparseLt",
    "libcusparse",
    "libcupti",
    "libnvrtc",
    "libnvJitLink",
    "libnvToolsExt",
    "libnvshmem_host",
    "libcufile",
)


def cuda_link(facts: Facts) -> Link:
    """The CUDA that comes with torch, and whether its libraries are those."""
    cuda = facts.cuda
    evidence: dict[str, str | None] = {
        "libraries": _files(facts, *_RUNTIME),
        "packages": ", ".join(facts.package("nvidia-cuda", "nvidia-cublas", "cuda-", "cudatoolkit")),
        "CUDA toolkit (nvcc)": facts.machine.nvcc or "none, and none is needed",
    }
    missing = missing_library(facts)
    if missing is not None and missing.partition(".")[0].startswith(_RUNTIME):
        reason = f"{missing}, which PyTorch needs, is not found or does not fit."
        finding = Finding("broken", reason, *remedy_for(missing, facts))
        return link(CUDA, f"{missing} missing", [finding, *of_files(facts, "cuda")], evidence)
    if facts.packages.torch is None and not facts.torch.get("imported"):
        return skipped(CUDA, "comes with PyTorch", evidence)
    if cuda is None:
        return skipped(CUDA, "none in this build of PyTorch", evidence)
    findings = [*of_files(facts, "cuda"), *_shadowed(facts, _RUNTIME), *_sharing(facts)]
    return link(CUDA, cuda, findings, evidence)


def _shadowed(facts: Facts, libraries: tuple[str, ...]) -> list[Finding]:
    """Where LD_LIBRARY_PATH brought another file than the one torch came with.

    A build that brings none, as in NVIDIA's containers, is meant to take the system's.
    """
    if not facts.package("nvidia-"):
        return []
    for library in libraries:
        for path in facts.mapped(library):
            folder = str(PurePosixPath(path).parent)
            spelt = facts.in_library_path(folder)
            if spelt is not None and not _of_torch(folder, facts):
                file = PurePosixPath(path).name
                reason = f"{file} was loaded from {folder}, which is {_in_path(spelt, folder)}."
                return [Finding("warning", reason, *unset(spelt))]
    return []


def _other_parts(facts: Facts) -> list[Finding]:
    """cuDNN loads its parts when they are first needed, by the library path before its own folder."""
    if not facts.package("nvidia-cudnn"):
        return []
    for folder, name in facts.on_library_path("libcudnn").items():
        if not _of_torch(folder, facts):
            reason = f"{folder} in LD_LIBRARY_PATH has another cuDNN ({name}), whose parts may be mixed in."
            return [Finding("warning", reason, *unset(folder))]
    return []


def _in_path(spelt: str, folder: str) -> str:
    return "in LD_LIBRARY_PATH" if spelt.rstrip("/") == folder else f"in LD_LIBRARY_PATH as {spelt}"


def _of_torch(folder: str, facts: Facts) -> bool:
    """Whether this folder, by any of its names, is one that torch came with."""
    files = facts.packages.torch
    known = (facts.torch.get("file"), files.real if files is not None else None)
    sites = {PurePosixPath(file).parents[1] for file in known if isinstance(file, str)}
    spelt = facts.in_library_path(folder)
    # The first one is the folder itself, those after it are where links in it lead.
    real = next((name for name, of in facts.machine.real_folders.items() if of == folder), None)
    return any(sites & {*PurePosixPath(name).parents} for name in (folder, spelt, real) if name)


def _files(facts: Facts, *libraries: str) -> str:
    return ", ".join(dict.fromkeys(path for library in libraries for path in facts.mapped(library)))


# -- cuDNN and NCCL --------------------------------------------------------------------------------------


def cudnn_link(facts: Facts) -> Link:
    """The library of convolutions: there, switched on, and one of it."""
    told = facts.torch
    versions = _copies(facts, "cudnn")
    evidence = {
        "libraries": _files(facts, "libcudnn"),
        "packages": ", ".join(versions),
        "built with": told.get("cudnn_compiled"),
    }
    missing = missing_library(facts)
    if missing is not None and missing.startswith("libcudnn"):
        reason = f"{missing}, which PyTorch needs, is not found or does not fit."
        finding = Finding("broken", reason, *remedy_for(missing, facts))
        return link(CUDNN, f"{missing} missing", [finding, *of_files(facts, "cudnn")], evidence)
    if not told.get("imported") or facts.cuda is None:
        return skipped(CUDNN, "comes with PyTorch for CUDA", evidence)
    error, number = told.get("cudnn_error"), told.get("cudnn")
    findings = of_files(facts, "cudnn")
    if error:
        reason = f"cuDNN fails: {str(error).splitlines()[0]}"
        findings.append(Finding("broken", reason, *fix_libraries(facts, "libcudnn")))
    elif number is None and "cudnn" in told:
        reason = "This build of PyTorch has no cuDNN: convolutions are slow or fail."
        findings.append(Finding("warning", reason, *fix_libraries(facts, "libcudnn")))
    if told.get("cudnn_enabled") is False or facts.notebook.cudnn_off:
        reason = "cuDNN is switched off (torch.backends.cudnn.enabled is False): convolutions are slow."
        findings.append(Finding("warning", reason, "Switch it on: torch.backends.cudnn.enabled = True."))
    findings += _shadowed(facts, ("libcudnn",)) or _other_parts(facts)
    findings += _mixed(facts, "cudnn", "cuDNN")
    findings += _several(facts, "cudnn", "cuDNN")
    unknown = "not found" if "cudnn" in told else "not checked"
    found = cudnn_version(number) if isinstance(number, int) else unknown
    return link(CUDNN, found, findings, evidence)


def nccl_link(facts: Facts) -> Link:
    """The library through which GPUs talk to each other."""
    told = facts.torch
    versions = _copies(facts, "nccl")
    evidence = {"libraries": _files(facts, "libnccl"), "packages": ", ".join(versions)}
    missing = missing_library(facts)
    if missing is not None and missing.startswith("libnccl"):
        reason = f"{missing}, which PyTorch needs, is not found or does not fit."
        finding = Finding("broken", reason, *remedy_for(missing, facts))
        return link(NCCL, f"{missing} missing", [finding, *of_files(facts, "nccl")], evidence)
    if not told.get("imported") or facts.cuda is None:
        return skipped(NCCL, "comes with PyTorch for CUDA", evidence)
    if told.get("nccl") is None:
        return skipped(NCCL, "none in this build of PyTorch: it is needed for several GPUs only", evidence)
    findings = [
        *of_files(facts, "nccl"),
        *_shadowed(facts, ("libnccl",)),
        *_mixed(facts, "nccl", "NCCL"),
        *_several(facts, "nccl", "NCCL"),
    ]
    for name, what in (("NCCL_P2P_DISABLE", "GPUs' direct access"), ("NCCL_SHM_DISABLE", "shared memory")):
        if facts.variables.get(name, "0") not in ("", "0"):
            reason = f"{name} is set: NCCL does without {what}, and is slower."
            findings.append(Finding("warning", reason, f"Unset {name}, unless it is there for a reason."))
    return link(NCCL, str(told["nccl"]), findings, evidence)


def _mixed(facts: Facts, library: str, name: str) -> list[Finding]:
    """Parts of one library from several folders do not fit each other."""
    folders = sorted({str(PurePosixPath(path).parent) for path in facts.mapped(f"lib{library}")})
    if len(folders) < 2:
        return []
    reason = f"{name} was loaded from {counted(len(folders), 'folder')} at once: {' and '.join(folders)}."
    on_path = [spelt for folder in folders if (spelt := facts.in_library_path(folder)) is not None]
    return [Finding("broken", reason, *(unset(on_path[0]) if on_path else _one_of(facts, library, name)))]


def _copies(facts: Facts, library: str) -> list[str]:
    """The packages that bring the library: one a CUDA by pip, and one by conda in however many parts."""
    pip = re.compile(rf"nvidia-{library}(-cu\d+)?")
    condas = [one for one in facts.packages.cuda if one.name in (library, f"lib{library}")]
    found = [one for one in facts.packages.cuda if pip.fullmatch(one.name)] + condas[:1]
    return [f"{one.name} {one.version} ({one.by})" for one in found]


def _several(facts: Facts, library: str, name: str) -> list[Finding]:
    """Copies by pip and by conda, or for two CUDAs: which one is loaded is a matter of order."""
    versions = _copies(facts, library)
    if len(versions) < 2:
        return []
    reason = f"{name} is installed {len(versions)} times: {', '.join(versions)}."
    return [Finding("warning", reason, *_one_of(facts, library, name))]


def _one_of(facts: Facts, library: str, name: str) -> Fix:
    """Keep the package that torch requires, where there are two of pip's that own the same files."""
    own = re.compile(rf"nvidia-{library}(-cu\d+)?")
    by_pip = [one.name for one in facts.packages.cuda if own.fullmatch(one.name)]
    right = [one for one in by_pip if one in facts.packages.required]
    wrong = [one for one in by_pip if one not in right]
    if len(right) == 1 and wrong:
        return replace(facts, wrong[0], right[0])
    if len(right) == 1:
        return Fix(f"This PyTorch uses {right[0]}. Uninstall the other copy if nothing else needs it.")
    return Fix(f"Keep the copy of {name} that this PyTorch was installed with, and uninstall the other one.")


def _sharing(facts: Facts) -> list[Finding]:
    """Other libraries than cuDNN and NCCL that are installed for two versions of CUDA, in the same folder."""
    found = []
    for names in facts.shared:
        right = [one for one in names if one in facts.packages.required]
        wrong = [one for one in names if one not in right]
        told_elsewhere = names[0].startswith(("nvidia-cudnn", "nvidia-nccl"))
        if len(right) == 1 and wrong and not told_elsewhere:
            reason = f"{' and '.join(names)} own the same files, and this PyTorch requires {right[0]}."
            found.append(Finding("warning", reason, *replace(facts, wrong[0], right[0])))
    return found
