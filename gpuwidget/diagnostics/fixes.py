"""What is to be done, in the words that several links share.

A command that is offered leaves a whole installation. It changes one package, to the version that the
installed torch asks for, and where it has to uninstall something, it first makes sure that what it installs
after that can be had.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from gpuwidget.diagnostics import cuda_versions, packages
from gpuwidget.diagnostics.probe_results import Facts
from gpuwidget.model import installation

WHEELS = "https://download.pytorch.org/whl"
_LIBRARY = re.compile(r"lib(?:cu|nv|nccl)\w*\.so[\d.]*|lib(?:torch|c10)\w*\.so")
_PACKAGES = {
    "libcudnn": "cudnn",
    "libnccl": "nccl",
    "libcudart": "cuda-runtime",
    "libcublas": "cublas",
    "libcublasLt": "cublas",
    "libcufft": "cufft",
    "libcufile": "cufile",
    "libcupti": "cuda-cupti",
    "libcurand": "curand",
    "libcusolver": "cusolver",
    "libcusparse": "cusparse",
    "libcusparseLt": "cusparselt",
    "libnvJitLink": "nvjitlink",
    "libnvToolsExt": "nvtx",
    "libnvrtc": "cuda-nvrtc",
    "libnvshmem_host": "nvshmem",
}
"""NVIDIA's package of each shared library, without ``nvidia-`` and the CUDA version."""


class Fix(NamedTuple):
    """A remedy as a :class:`gpuwidget.diagnostics.issues.Finding` has it."""

    remedy: str
    command: str | None = None


def missing_library(facts: Facts) -> str | None:
    """The shared library for which importing torch failed, as ``libcudnn.so.9``."""
    error = facts.torch.get("import_error")
    found = _LIBRARY.search(error) if isinstance(error, str) else None
    return None if found is None else found[0]


def remedy_for(library: str, facts: Facts) -> Fix:
    """The remedy of a shared library that is missing or does not fit."""
    if library.startswith("libcuda.so"):
        return Fix("That is a part of the driver: see there.")
    shadow = facts.on_library_path(library.partition(".")[0])
    if shadow:
        return unset(next(iter(shadow)))
    return fix_libraries(facts, library)


def unset(folder: str) -> Fix:
    """The remedy of a folder in LD_LIBRARY_PATH."""
    return Fix(
        f"Take {folder} out of LD_LIBRARY_PATH, whose files come before those PyTorch was built with, and "
        "start the kernel's server anew."
    )


def fix_libraries(facts: Facts, library: str | None = None) -> Fix:
    """The remedy of libraries that do not fit: what is put before them, else the package of ``library``.

    Without a library, or where no package is known for it, that is torch itself.
    """
    preload = facts.variables.get("LD_PRELOAD")
    if preload:
        return Fix(f"Unset LD_PRELOAD ({preload}) and try again: it puts a library before all others.")
    if facts.machine.libraries:
        return unset(next(iter(facts.machine.libraries)))
    if facts.damaged:
        return reinstall(facts, facts.damaged[0].name)
    return reinstall(facts, (library and _package_of(library, facts)) or "torch")


def _package_of(library: str, facts: Facts) -> str | None:
    """Return the required package that brings the library; None where none does."""
    stem = library.partition(".")[0]
    name = _PACKAGES.get("libcudnn" if stem.startswith("libcudnn") else stem)
    if name is None:
        return None
    pattern = re.compile(rf"nvidia-{name}(-cu\d+)?")
    return next((one for one in facts.packages.required if pattern.fullmatch(one)), None)


# -- commands --------------------------------------------------------------------------------------------


def reinstall(facts: Facts, name: str) -> Fix:
    """Return how to install one package again, in the version that is right here, and nothing else."""
    requirement, index = _requirement(facts, name), _index(facts, name)
    by = _installer(facts, name)
    if requirement is None:
        return Fix(f"Install {name} again from where it came: no package index has this build.")
    said = f"Install {name} again, in the version that belongs here"
    if by == "conda":
        package = "pytorch" if name == "torch" else name
        version = requirement.partition("==")[2].partition("+")[0]
        conda = ["conda", "install", "--prefix", _prefix(facts), "--force-reinstall", "--freeze-installed"]
        return _fix(said, _line(facts, [*conda, f"{package}={version}" if version else package]))
    if by == "debian":
        return _fix(said, f"sudo apt-get install --reinstall python3-{name}")
    install = _install(facts, by, requirement, index)
    if install is None:
        return Fix(f"Install {requirement} again with {by}, which installed it.")
    return _fix(said, _line(facts, install))


def replace(facts: Facts, wrong: str, right: str) -> Fix:
    """Return how to uninstall ``wrong``, which owns files of ``right``, and keep ``right`` whole."""
    dependents = facts.packages.required_by.get(wrong, ())
    if dependents:
        users = " and ".join(dependents)
        return Fix(f"PyTorch requires {right}, but {users} {wrong}: give them separate environments.")
    requirement, by = _requirement(facts, right), _installer(facts, right)
    install = None if requirement is None else _install(facts, by, requirement, [])
    remove = _uninstall(facts, by, wrong)
    if install is None or remove is None or _installer(facts, wrong) not in ("pip", by):
        return Fix(f"Uninstall {wrong} with what installed it, then install {requirement or right} again.")
    # Offline, or without that version, nothing is uninstalled.
    lines = [[*install, "--dry-run"], remove, install]
    return _fix(
        f"Keep {right}, which this PyTorch requires, and uninstall {wrong}; they own the same files, so the "
        "first is installed again",
        " && ".join(_line(facts, words) for words in lines),
    )


def keep_one_torch(facts: Facts) -> Fix:
    """Return how to uninstall the first of several torches, or to repair two that share a folder."""
    first, second = facts.packages.torch_copies[:2]
    by = _installer(facts, "torch")
    remove = _uninstall(facts, by, "torch")
    if remove is None:
        return Fix(f"Keep one of them: uninstall the one in {first.folder} with {by}, which installed it.")
    if facts.packages.isolated and not first.folder.startswith(os.path.join(_prefix(facts), "")):
        off = f"take {first.folder} off the path (PYTHONPATH, a .pth file), or delete its torch"
        return Fix(f"Keep one of them: {off}.")
    if first.folder != second.folder:
        return Fix(
            f"Keep one of them: {_line(facts, remove)} removes the one in {first.folder}.",
            _line(facts, remove),
        )
    fix = reinstall(facts, "torch")
    install = _install(facts, by, _requirement(facts, "torch") or "", _index(facts, "torch"))
    if fix.command is None or install is None:
        return fix
    lines = [[*install, "--dry-run"], remove, install]
    return _fix(
        "They share their files: uninstall both and install one",
        " && ".join(_line(facts, words) for words in lines),
    )


def conda_with_cuda(facts: Facts) -> Fix:
    """Return how to install conda's build with CUDA in place of the one for the CPU, in the same version."""
    version = _torch_version(facts)
    package = f"pytorch-gpu={version.partition('+')[0]}" if version else "pytorch-gpu"
    words = ["conda", "install", "--prefix", _prefix(facts), package]
    return _fix("Install conda's build with CUDA", _line(facts, words))


def nvml_binding(facts: Facts) -> Fix:
    """Return how to install NVIDIA's own Python binding, in place of another package with its module."""
    known = {one.name: one for one in facts.packages.binding}
    ours, other = known.get("nvidia-ml-py"), known.get("pynvml")
    by = (ours or other or known.get("torch") or packages.Installed("", "", "pip")).by
    requirement = f"nvidia-ml-py=={ours.version}" if ours is not None else "nvidia-ml-py"
    install, remove = _install(facts, by, requirement, []), _uninstall(facts, by, "pynvml")
    dependents = facts.packages.required_by.get("pynvml", ())
    if install is None or remove is None:
        return Fix(f"Install {requirement} with {by}, which installed what is there.")
    if other is None:
        return _fix("Install it", _line(facts, install))
    if dependents or other.by not in ("pip", by):
        return Fix("Uninstall pynvml, unless another package requires it, and install nvidia-ml-py again.")
    lines = [[*install, "--dry-run"], remove, install]
    return _fix("Replace it", " && ".join(_line(facts, words) for words in lines))


def our_package(facts: Facts) -> Fix:
    """Return how to install gpuwidget again after another package's files were put over its own."""
    other = facts.packages.other
    documented = installation.documentation()
    where = f"as {documented} says" if documented else f"({installation.README})"
    by_hand = Fix(f"Uninstall {packages.OTHERS} if it is there, then install {packages.OURS} again {where}.")
    try:
        words = installation.pip_arguments(
            facts.variables.get(installation.REQUIREMENT_VARIABLE, ""), facts.version
        )
    except ValueError:
        return by_hand
    by = "pip" if facts.packages.ours_by is None else facts.packages.ours_by
    install, remove = _install(facts, by, words[0], words[1:]), _uninstall(facts, by, packages.OTHERS)
    if install is None or remove is None:
        return by_hand
    lines = [[*install, "--dry-run"], remove, install] if other is not None else [install]
    return _fix("Install it again", " && ".join(_line(facts, line) for line in lines))


def require(facts: Facts, name: str) -> Fix:
    """Return how to install a package that torch requires and that is missing, with what it needs."""
    requirement = f"{name}{facts.packages.required.get(name, '')}"
    by = _installer(facts, "torch")
    if by not in ("pip", "uv"):
        return Fix(f"Install {requirement} with {by}, which installed PyTorch.")
    return _fix(
        "Install what PyTorch requires",
        _line(facts, [*_tool(facts, by), "install", *_python(facts, by), requirement]),
    )


def older_numpy(facts: Facts) -> Fix:
    """Return how to install a numpy for extension modules that were built with numpy 1."""
    by = _installer(facts, "numpy")
    if by not in ("pip", "uv"):
        return Fix(f"Install a numpy older than 2 with {by}, which installed it, or a newer PyTorch.")
    words = [*_tool(facts, by), "install", *_python(facts, by), "--no-deps", "numpy<2"]
    return _fix("This PyTorch was built with numpy 1: install that, or a newer PyTorch", _line(facts, words))


def install(
    facts: Facts,
    what: str,
    *,
    always_index: bool = False,
    capabilities: Sequence[str] | None = None,
) -> Fix:
    """To install a build of PyTorch that runs here, with ``what`` before it; else what must come first.

    Where a torch is installed its version stays, if that has such a build.
    The newest build needs no address, unless another index may be configured here (``always_index``).
    """
    here = facts.capabilities if capabilities is None else capabilities
    wheel = cuda_versions.torch_wheel(facts.driver, here, arm=facts.arm, version=_torch_version(facts))
    if wheel is None:
        newest = cuda_versions.torch_wheel(None, here, arm=facts.arm)
        if facts.driver is not None and newest is not None:
            why = f"no build of PyTorch runs with {facts.driver}"
            least = cuda_versions.minimum(cuda_versions.wheel_cuda(newest))
            return Fix(f"Update the driver to {least} or newer first: {why}.")
        return Fix(
            "PyTorch's builds have no code for this GPU any more: use another GPU, or build it from source."
        )
    # For these PyPI has, or long had, the build for the CPU.
    elsewhere = facts.arm or facts.machine.system == "win32"
    if _torch_version(facts) is None and wheel == cuda_versions.NEWEST and not (always_index or elsewhere):
        return _fix(what, _line(facts, [*_tool(facts, "pip"), "install", "torch"]))
    command = build(facts, wheel)
    if command is None:
        return Fix(
            f"{what}, for CUDA {cuda_versions.wheel_cuda(wheel)}, with what installed the present one."
        )
    return Fix(f"{what}: {command}.{last(wheel)}", command)


def build(facts: Facts, wheel: str) -> str | None:
    """Return the command that installs this build; None where torch was installed by another tool than pip.

    The installed version stays where it comes in that build: only torch, and libraries that are missing or
    of another version than it requires, are installed. If it is that build, a newer version of it is.
    """
    version, by = _torch_version(facts), _installer(facts, "torch")
    if by not in ("pip", "uv"):
        return None
    if version is None:
        wanted = ["torch"]
    elif not cuda_versions.has(wheel, version) or not re.fullmatch(r"[\d.]+", version.partition("+")[0]):
        wanted = [f"torch{cuda_versions.versions(wheel)}"]
    elif facts.cuda == cuda_versions.wheel_cuda(wheel):
        wanted = ["--upgrade", "torch"]
    else:
        wanted = [f"torch=={version.partition('+')[0]}+{wheel}"]
    words = [*_tool(facts, by), "install", *_python(facts, by), *wanted, "--index-url", f"{WHEELS}/{wheel}"]
    return _line(facts, words)


def last(wheel: str) -> str:
    """What must be known of a build that newer versions do not come in; empty for others."""
    version = cuda_versions.last_torch(wheel)
    return "" if version is None else f" PyTorch {version} is the last with such a build."


def _fix(what: str, command: str) -> Fix:
    return Fix(f"{what}: {command}.", command)


def _install(facts: Facts, by: str, requirement: str, index: Sequence[str]) -> list[str] | None:
    """Return the words that install exactly this requirement again; None for a tool that is not known."""
    if by not in ("pip", "uv"):
        return None
    force = "--force-reinstall" if by == "pip" else "--reinstall"
    return [*_tool(facts, by), "install", *_python(facts, by), force, "--no-deps", requirement, *index]


def _uninstall(facts: Facts, by: str, name: str) -> list[str] | None:
    if by == "pip":
        return [*_tool(facts, by), "uninstall", "-y", name]
    return [*_tool(facts, by), "uninstall", *_python(facts, by), name] if by == "uv" else None


def _tool(facts: Facts, by: str) -> list[str]:
    return ["uv", "pip"] if by == "uv" else [facts.python or "python", "-m", "pip"]


def _python(facts: Facts, by: str) -> list[str]:
    return ["--python", facts.python] if by == "uv" and facts.python else []


def _line(facts: Facts, words: Sequence[str]) -> str:
    """Return the words quoted for the shell of this system."""
    return subprocess.list2cmdline(words) if facts.machine.system == "win32" else shlex.join(words)


def _prefix(facts: Facts) -> str:
    folder = os.path.dirname(facts.python)
    return os.path.dirname(folder) if os.path.basename(folder) == "bin" else folder


def _installer(facts: Facts, name: str) -> str:
    """Return who installed the package, or torch where that is not installed."""
    if name == "torch" and packages.torch_is_condas(facts.packages):
        return "conda"
    known = {one.name: one for one in facts.packages.cuda} | dict(facts.packages.installed)
    one = known.get(name) or known.get("torch")
    return "pip" if one is None else one.by


def _torch_version(facts: Facts) -> str | None:
    """Return the version by torch's metadata, which is the one that pip compares, else by its files."""
    one = facts.packages.installed.get("torch")
    return one.version if one is not None else facts.torch_version


def _requirement(facts: Facts, name: str) -> str | None:
    """Return the package with the version that belongs here; None where no index has that build of torch."""
    if name == "torch":
        one = facts.packages.installed.get("torch")
        version = "" if one is None else one.version
        local = version.partition("+")[2]
        if not version or (local and not re.fullmatch(r"cu\d+|cpu|xpu|rocm[\d.]+", local)):
            return None
        return f"torch=={version}"
    wanted, one = facts.packages.required.get(name, ""), facts.packages.installed.get(name)
    if one is not None and "==" not in wanted and packages.satisfies(one.version, wanted):
        return f"{name}=={one.version}"
    return f"{name}{wanted}"


def _index(facts: Facts, name: str) -> list[str]:
    """Return the options for the index that has this build of torch; none where that is pip's own."""
    version = _torch_version(facts) if name == "torch" else None
    local = "" if version is None else version.partition("+")[2]
    nightly = "/nightly" if version is not None and ".dev" in version else ""
    return ["--index-url", f"{WHEELS}{nightly}/{local}"] if local else []
