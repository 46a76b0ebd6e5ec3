"""The links of PyTorch's side: the package itself, the CUDA runtime, cuDNN and NCCL."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from gpuwidget.diagnosis import Link
from gpuwidget.health import packages
from gpuwidget.health.drivers import torch_wheel
from gpuwidget.health.facts import Facts
from gpuwidget.health.findings import Finding, counted, link, skipped
from gpuwidget.health.versions import cudnn_version

TORCH = ("torch", "PyTorch")
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
_LIBRARY = re.compile(r"lib(?:cu|nv|nccl)\w*\.so[\d.]*|lib(?:torch|c10)\w*\.so")
_NO_ROOM = re.compile("failed to map segment|[Cc]annot allocate memory")
_OLD_LIBC = re.compile(r"GLIBC(?:XX)?_[\d.]+")


# -- PyTorch ---------------------------------------------------------------------------------------------


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
        finding = Finding("broken", reason, f"Install it: {_pip(facts)} install torch.")
        return link(TORCH, "not found", [finding], evidence)
    version = facts.torch_version or "of unknown version"
    in_the_way = _in_the_way(facts)
    if in_the_way is not None:
        return link(TORCH, "hidden by something else of that name", [in_the_way], evidence)
    if said.ending == "not started":
        reason = f"Python could not be started to look at it ({said.how})."
        return link(TORCH, version, [Finding("unknown", reason, None)], evidence)
    if not told.get("imported"):
        return link(TORCH, f"{version}, which can't be imported", [_import_failure(facts)], evidence)
    if told.get("cuda") is None:
        what = "for AMD's ROCm" if told.get("hip") else "for the CPU only"
        return link(TORCH, f"{version}, built {what}", [_without_cuda(facts)], evidence)
    found = f"{version}, built for CUDA {told['cuda']}"
    if said.ending == "crashed" and told.get("step") in ("ask", "available"):
        reason = f"PyTorch crashes when it is asked about the GPU ({said.how})."
        return link(TORCH, found, [Finding("broken", reason, _anew(facts))], evidence)
    return link(TORCH, found, [*_loaded_before(facts), *_twice(facts)], evidence)


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
    reason = f"PyTorch is installed {len(copies)} times: {', '.join(copies)}. The first one is used."
    remedy = f"Keep one of them: {_pip(facts)} uninstall torch removes the first."
    return [Finding("warning", reason, remedy)]


def _in_the_way(facts: Facts) -> Finding | None:
    files = facts.packages.torch
    if files is None or (facts.torch.get("imported") and facts.torch.get("version")):
        return None
    if files.origin is None or not files.folders:
        what = files.origin or (files.folders[0] if files.folders else "a folder")
        reason = f"{what} is what 'import torch' finds in place of the package."
        return Finding("broken", reason, f"Give {what} another name, and start the kernel anew.")
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
        return Finding("broken", f"'import torch' crashes Python ({said.how}).", _anew(facts))
    if "import_error" not in told:
        return Finding("broken", "'import torch' ends Python without a word.", _anew(facts))
    error, kind = str(told["import_error"]), told.get("import_error_type", "")
    first = error.strip().splitlines()[0] if error.strip() else "without a word"
    reason = f"'import torch' raises {kind}: {first}".rstrip(".") + "."
    if _OLD_LIBC.search(error):
        return Finding(
            "broken", reason, "This system is older than that build of PyTorch: install an older PyTorch."
        )
    if _NO_ROOM.search(error):
        remedy = "See whether memory is limited (ulimit -v), or the file system mounted with noexec."
        return Finding("broken", reason, remedy)
    library = missing_library(facts)
    if library is not None:
        return Finding("broken", reason, _remedy_for(library, facts))
    return Finding("broken", reason, _anew(facts))


def missing_library(facts: Facts) -> str | None:
    """The shared library for which importing torch failed, as ``libcudnn.so.9``."""
    error = facts.torch.get("import_error")
    found = _LIBRARY.search(error) if isinstance(error, str) else None
    return None if found is None else found[0]


def _remedy_for(library: str, facts: Facts) -> str:
    if library.startswith("libcuda.so"):
        return "That is a part of the driver: see there."
    shadow = facts.on_library_path(PurePosixPath(library).name.partition(".")[0])
    if shadow:
        return _unset(next(iter(shadow)))
    return _anew(facts)


def _unset(folder: str) -> str:
    return (
        f"Take {folder} out of LD_LIBRARY_PATH, whose files come before those PyTorch was built "
        "with, and start "
        "the kernel's server anew."
    )


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
    index = f"https://download.pytorch.org/whl/{torch_wheel(facts.driver, facts.capability)}"
    remedy = f"Install a build with CUDA: {_pip(facts)} install --force-reinstall torch --index-url {index}."
    return Finding("broken", reason, remedy)


def _pip(facts: Facts) -> str:
    return f"{facts.python or 'python'} -m pip"


def _anew(facts: Facts) -> str:
    """The remedy of a broken installation."""
    preload = facts.variables.get("LD_PRELOAD")
    if preload:
        return f"Unset LD_PRELOAD ({preload}) and try again: it puts a library before all others."
    if facts.machine.libraries:
        return _unset(next(iter(facts.machine.libraries)))
    if packages.torch_is_condas(facts.packages):
        return "Install it anew: conda install --force-reinstall pytorch."
    return f"Install it anew with its libraries: {_pip(facts)} install --force-reinstall torch."


# -- the CUDA runtime ------------------------------------------------------------------------------------


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
        return link(
            CUDA, f"{missing} missing", [Finding("broken", reason, _remedy_for(missing, facts))], evidence
        )
    if facts.packages.torch is None and not facts.torch.get("imported"):
        return skipped(CUDA, "comes with PyTorch", evidence)
    if cuda is None:
        return skipped(CUDA, "none in this build of PyTorch", evidence)
    return link(CUDA, cuda, _shadowed(facts, _RUNTIME), evidence)


def _shadowed(facts: Facts, libraries: tuple[str, ...]) -> list[Finding]:
    """Where LD_LIBRARY_PATH brought another file than the one torch came with.

    A build that brings none, as in NVIDIA's containers, is meant to take the system's.
    """
    if not facts.package("nvidia-"):
        return []
    folders = facts.machine.libraries
    for library in libraries:
        for path in facts.mapped(library):
            folder = str(PurePosixPath(path).parent)
            if folder in folders and not _of_torch(folder, facts):
                reason = f"{PurePosixPath(path).name} was loaded from {folder}, which is in LD_LIBRARY_PATH."
                return [Finding("warning", reason, _unset(folder))]
    return []


def _other_parts(facts: Facts) -> list[Finding]:
    """cuDNN loads its parts when they are first needed, by the library path before its own folder."""
    if not facts.package("nvidia-cudnn"):
        return []
    for folder, name in facts.on_library_path("libcudnn").items():
        if not _of_torch(folder, facts):
            reason = f"{folder} in LD_LIBRARY_PATH has another cuDNN ({name}), whose parts may be mixed in."
            return [Finding("warning", reason, _unset(folder))]
    return []


def _of_torch(folder: str, facts: Facts) -> bool:
    file = facts.torch.get("file")
    if not isinstance(file, str):
        return False
    place = PurePosixPath(folder)
    return PurePosixPath(file).parents[1] in place.parents


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
        finding = Finding("broken", reason, _remedy_for(missing, facts))
        return link(CUDNN, f"{missing} missing", [finding], evidence)
    if not told.get("imported") or facts.cuda is None:
        return skipped(CUDNN, "comes with PyTorch for CUDA", evidence)
    error, number = told.get("cudnn_error"), told.get("cudnn")
    findings = []
    if error:
        findings.append(Finding("broken", f"cuDNN fails: {str(error).splitlines()[0]}", _anew(facts)))
    elif number is None and "cudnn" in told:
        reason = "This build of PyTorch has no cuDNN: convolutions are slow or fail."
        findings.append(Finding("warning", reason, _anew(facts)))
    if told.get("cudnn_enabled") is False or facts.notebook.cudnn_off:
        reason = "cuDNN is switched off (torch.backends.cudnn.enabled is False): convolutions are slow."
        findings.append(Finding("warning", reason, "Switch it on: torch.backends.cudnn.enabled = True."))
    findings += _shadowed(facts, ("libcudnn",)) or _other_parts(facts)
    findings += _mixed(facts, "libcudnn", "cuDNN")
    findings += _several(versions, facts, "cuDNN")
    found = cudnn_version(number) if isinstance(number, int) else "not found"
    return link(CUDNN, found, findings, evidence)


def nccl_link(facts: Facts) -> Link:
    """The library through which GPUs talk to each other."""
    told = facts.torch
    versions = _copies(facts, "nccl")
    evidence = {"libraries": _files(facts, "libnccl"), "packages": ", ".join(versions)}
    missing = missing_library(facts)
    if missing is not None and missing.startswith("libnccl"):
        reason = f"{missing}, which PyTorch needs, is not found or does not fit."
        finding = Finding("broken", reason, _remedy_for(missing, facts))
        return link(NCCL, f"{missing} missing", [finding], evidence)
    if not told.get("imported") or facts.cuda is None:
        return skipped(NCCL, "comes with PyTorch for CUDA", evidence)
    if told.get("nccl") is None:
        return skipped(NCCL, "none in this build of PyTorch: it is needed for several GPUs only", evidence)
    findings = [
        *_shadowed(facts, ("libnccl",)),
        *_mixed(facts, "libnccl", "NCCL"),
        *_several(versions, facts, "NCCL"),
    ]
    for name, what in (("NCCL_P2P_DISABLE", "GPUs' direct access"), ("NCCL_SHM_DISABLE", "shared memory")):
        if facts.variables.get(name, "0") not in ("", "0"):
            reason = f"{name} is set: NCCL does without {what}, and is slower."
            findings.append(Finding("warning", reason, f"Unset {name}, unless it is there for a reason."))
    return link(NCCL, str(told["nccl"]), findings, evidence)


def _mixed(facts: Facts, library: str, name: str) -> list[Finding]:
    """Parts of one library from several folders do not fit each other."""
    folders = sorted({str(PurePosixPath(path).parent) for path in facts.mapped(library)})
    if len(folders) < 2:
        return []
    reason = f"{name} was loaded from {counted(len(folders), 'folder')} at once: {' and '.join(folders)}."
    on_path = [folder for folder in folders if folder in facts.machine.libraries]
    return [Finding("broken", reason, _unset(on_path[0]) if on_path else _one_of(name))]


def _copies(facts: Facts, library: str) -> list[str]:
    """The packages that bring the library: one a CUDA by pip, and one by conda in however many parts."""
    pip = re.compile(rf"nvidia-{library}(-cu\d+)?")
    condas = [one for one in facts.packages.cuda if one.name in (library, f"lib{library}")]
    found = [one for one in facts.packages.cuda if pip.fullmatch(one.name)] + condas[:1]
    return [f"{one.name} {one.version} ({one.by})" for one in found]


def _several(versions: list[str], facts: Facts, name: str) -> list[Finding]:
    """Copies by pip and by conda, or for two CUDAs: which one is loaded is a matter of order."""
    if len(versions) < 2:
        return []
    reason = f"{name} is installed {len(versions)} times: {', '.join(versions)}."
    return [Finding("warning", reason, _one_of(name))]


def _one_of(name: str) -> str:
    return f"Keep one copy of {name}: uninstall the one that this PyTorch was not installed with."
