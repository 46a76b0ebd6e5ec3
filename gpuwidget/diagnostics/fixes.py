"""Fixes that several checks share.

A command must leave a complete installation. It changes one package, to the version that the installed torch
requires. Before it uninstalls anything, it verifies that the replacement is available.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from gpuwidget.diagnostics import cuda_versions, messages_torch, packages
from gpuwidget.diagnostics import messages_packages as messages
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.diagnostics.torch_copies import TorchCopy, environment_prefix
from gpuwidget.model import installation
from gpuwidget.model.diagnosis import Fix

WHEELS = "https://download.pytorch.org/whl"
_LIBRARY_FILE = re.compile(r"lib(?:cu|nv|nccl)\w*\.so[\d.]*|lib(?:torch|c10)\w*\.so")
_SETTING = re.compile(r"(?:CUBLAS|CUDA|CUDNN|KMP|MKL|NCCL|OMP|PYTORCH|TORCH)\w*")
"""Environment variables that torch and its libraries read."""
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
"""NVIDIA's package for each shared library, without the prefix ``nvidia-`` and the CUDA version."""


def missing_library(results: ProbeResults) -> str | None:
    """Return the shared library that made the import of torch fail, such as ``libcudnn.so.9``, or None."""
    error = results.torch.get("import_error")
    found = _LIBRARY_FILE.search(error) if isinstance(error, str) else None
    return None if found is None else found[0]


def missing_library_fix(library: str, results: ProbeResults) -> Fix:
    """Return the fix for a shared library that is missing or incompatible."""
    if library.startswith("libcuda.so"):
        return messages.SEE_DRIVER_CHECK()
    shadow = results.on_library_path(library.partition(".")[0])
    if shadow:
        return messages.REMOVE_FROM_LIBRARY_PATH(folder=next(iter(shadow)))
    return reinstall_libraries(results, library)


def setting_in(text: str, results: ProbeResults) -> str | None:
    """Return the environment variable that an error of torch is about, or None.

    The error contains the variable's name, or, as a word, the value that torch does not accept. Numbers and
    paths also occur in errors that have another cause.
    """
    for name in sorted(results.variables):
        if _SETTING.fullmatch(name) and re.search(rf"\b{name}\b", text):
            return name
    for name, value in sorted(results.variables.items()):
        value = value.strip()
        is_word = len(value) > 1 and any(map(str.isalpha, value)) and "/" not in value and "\\" not in value
        word = rf"(?<![\w./\\-]){re.escape(value)}(?![\w/\\-])"
        if name.startswith(("PYTORCH", "TORCH")) and is_word and re.search(word, text):
            return name
    return None


def reinstall_libraries(
    results: ProbeResults, library: str | None = None, *, otherwise: Fix | None = None
) -> Fix:
    """Return the fix for incompatible libraries: unset what overrides them, or else reinstall a package.

    The package to reinstall is a damaged package if there is one, otherwise the package of ``library``,
    otherwise torch. If nothing shows that a library is the cause, ``otherwise`` replaces this last case.
    """
    preload = results.variables.get("LD_PRELOAD")
    if preload:
        return messages.UNSET_PRELOAD(value=preload)
    if results.machine.libraries:
        return messages.REMOVE_FROM_LIBRARY_PATH(folder=next(iter(results.machine.libraries)))
    if results.damaged:
        return reinstall(results, results.damaged[0].name)
    if otherwise is not None:
        return otherwise
    return reinstall(results, (library and _required_package(library, results)) or "torch")


def _required_package(library: str, results: ProbeResults) -> str | None:
    """Return the package required by torch that contains the library; None if there is none."""
    stem = library.partition(".")[0]
    name = _PACKAGES.get("libcudnn" if stem.startswith("libcudnn") else stem)
    if name is None:
        return None
    pattern = re.compile(rf"nvidia-{name}(-cu\d+)?")
    return next((name for name in results.packages.required if pattern.fullmatch(name)), None)


# -- fixes that install or remove packages ---------------------------------------------------------------


def reinstall(results: ProbeResults, name: str) -> Fix:
    """Return the fix that reinstalls only this package, in the version that torch requires."""
    requirement, index = _requirement(results, name), _index_options(results, name)
    by = _installer_of(results, name)
    if requirement is None:
        return messages.REINSTALL_FROM_SOURCE(package=name)
    if by == "conda":
        package = "pytorch" if name == "torch" else name
        version = requirement.partition("==")[2].partition("+")[0]
        conda = [
            "conda",
            "install",
            "--prefix",
            environment_prefix(results.python),
            "--force-reinstall",
            "--freeze-installed",
        ]
        words = [*conda, f"{package}={version}" if version else package]
        return messages.REINSTALL(package=name, command=shlex.join(words))
    if by == "debian":
        return messages.REINSTALL(package=name, command=f"sudo apt-get install --reinstall python3-{name}")
    install = _reinstall_arguments(results, by, requirement, index)
    if install is None:
        return messages.REINSTALL_WITH_INSTALLER(requirement=requirement, installer=by)
    return messages.REINSTALL(package=name, command=shlex.join(install))


def replace_package(results: ProbeResults, wrong: str, right: str) -> Fix:
    """Return the fix that uninstalls ``wrong`` and reinstalls ``right``, which own the same files."""
    dependents = results.packages.required_by.get(wrong, ())
    if dependents:
        return messages.SEPARATE_ENVIRONMENTS(wrong=wrong, right=right, dependents=tuple(dependents))
    requirement, by = _requirement(results, right), _installer_of(results, right)
    install = None if requirement is None else _reinstall_arguments(results, by, requirement, [])
    remove = _uninstall_arguments(results, by, wrong)
    if install is None or remove is None or _installer_of(results, wrong) not in ("pip", by):
        return messages.REPLACE_PACKAGE_MANUALLY(wrong=wrong, requirement=requirement or right)
    # The dry run fails if there is no network or if the index lacks the version. In these cases, nothing is
    # uninstalled.
    command = _shell_commands([*install, "--dry-run"], remove, install)
    return messages.REPLACE_PACKAGE(wrong=wrong, right=right, command=command)


def remove_torch_copy(results: ProbeResults, copy: TorchCopy) -> Fix:
    """Return the fix that makes Python import the next copy of torch instead of this one, the first.

    The fix removes the folder of the copy from what puts it into ``sys.path``. If the folder belongs to the
    environment or the user, the fix uninstalls the copy. pip uninstalls the first copy that it finds, so
    without metadata in this folder it would uninstall the wrong one.
    """
    match copy.source:
        case "pythonpath":
            return _remove_from_pythonpath(results, copy)
        case "pth-file":
            return messages.REMOVE_FROM_PTH_FILE(folder=copy.folder, file=copy.set_in or "")
        case "working-directory":
            return messages_torch.LEAVE_WORKING_DIRECTORY()
        case "code":
            return messages.REMOVE_FROM_CODE(folder=copy.folder)
    outside = copy.source == "user-site" and results.packages.isolated
    if copy.by is None or not copy.package or outside:
        return messages_torch.RENAME_FILE(file=copy.path)
    remove = _uninstall_arguments(results, copy.by, "torch")
    if remove is None:
        return messages.REMOVE_TORCH_COPY_WITH_INSTALLER(folder=copy.folder, installer=copy.by)
    return messages.REMOVE_TORCH_COPY(folder=copy.folder, command=shlex.join(remove))


def _remove_from_pythonpath(results: ProbeResults, copy: TorchCopy) -> Fix:
    unwanted = copy.set_in or copy.folder
    entries = results.variables.get("PYTHONPATH", "").split(os.pathsep)
    folder = os.path.realpath(copy.folder)
    rest = [entry for entry in entries if entry and os.path.realpath(entry) != folder]
    command = f"export PYTHONPATH={shlex.quote(os.pathsep.join(rest))}" if rest else "unset PYTHONPATH"
    in_shell = results.place == "shell"
    fix = messages.REMOVE_FROM_PYTHONPATH_OF_SHELL if in_shell else messages.REMOVE_FROM_PYTHONPATH_OF_JUPYTER
    return fix(entry=unwanted, command=command)


def reinstall_torch_copies(results: ProbeResults) -> Fix:
    """Return the fix for a folder with the metadata of several versions of torch, which overwrote each other.

    The fix uninstalls all of them, and installs one. uv uninstalls all of them at once. pip uninstalls one at
    a time; the last one is uninstalled by the installation.
    """
    copy = results.packages.torch_copies[0]
    by = _installer_of(results, "torch")
    remove = _uninstall_arguments(results, by, "torch")
    if remove is None:
        return messages.REMOVE_TORCH_COPY_WITH_INSTALLER(folder=copy.folder, installer=by)
    fix = reinstall(results, "torch")
    install = _reinstall_arguments(
        results, by, _requirement(results, "torch") or "", _index_options(results, "torch")
    )
    if fix.command is None or install is None:
        return fix
    removals = [remove] * (len(copy.metadata) - 1 if by == "pip" else 1)
    command = _shell_commands([*install, "--dry-run"], *removals, install)
    return messages.REINSTALL_TORCH_COPIES(command=command)


def replace_torch_leftovers(results: ProbeResults, folder: str) -> Fix:
    """Return the fix for a folder that an incomplete uninstallation of torch has left."""
    if "torch" in results.packages.installed:
        return reinstall(results, "torch")
    install = install_torch(results, "missing")
    if install.command is None:
        return messages.DELETE_TORCH_LEFTOVERS(folder=folder, shown={"install": install.before})
    fix = messages.REPLACE_TORCH_LEFTOVERS(folder=folder, command=install.command)
    return replace(fix, after=install.after)


def conda_cuda_build(results: ProbeResults) -> Fix:
    """Return the fix that replaces conda's CPU build of torch with conda's CUDA build of the same version."""
    version = _torch_version(results)
    package = f"pytorch-gpu={version.partition('+')[0]}" if version else "pytorch-gpu"
    words = ["conda", "install", "--prefix", environment_prefix(results.python), package]
    return messages.INSTALL_CONDA_CUDA_BUILD(command=shlex.join(words))


def install_nvml_binding(results: ProbeResults) -> Fix:
    """Return the fix that installs nvidia-ml-py and uninstalls any other package with the module pynvml."""
    known = {package.name: package for package in results.packages.binding}
    ours, other = known.get("nvidia-ml-py"), known.get("pynvml")
    by = (ours or other or known.get("torch") or packages.InstalledPackage("", "", "pip")).by
    requirement = f"nvidia-ml-py=={ours.version}" if ours is not None else "nvidia-ml-py"
    install, remove = (
        _reinstall_arguments(results, by, requirement, []),
        _uninstall_arguments(results, by, "pynvml"),
    )
    dependents = results.packages.required_by.get("pynvml", ())
    if install is None or remove is None:
        return messages.INSTALL_NVML_BINDING_WITH_INSTALLER(requirement=requirement, installer=by)
    if other is None:
        return messages.INSTALL_NVML_BINDING(command=shlex.join(install))
    if dependents or other.by not in ("pip", by):
        return messages.REPLACE_PYNVML_MANUALLY()
    return messages.REPLACE_PYNVML(command=_shell_commands([*install, "--dry-run"], remove, install))


def reinstall_gpuwidget(results: ProbeResults) -> Fix:
    """Return the fix that reinstalls gpuwidget after another package has overwritten its files."""
    other = results.packages.other
    manual = messages.REINSTALL_GPUWIDGET_MANUALLY(
        documentation=installation.documentation(), instructions=installation.INSTRUCTIONS
    )
    try:
        words = installation.pip_arguments(
            results.variables.get(installation.REQUIREMENT_VARIABLE, ""), results.version
        )
    except ValueError:
        return manual
    by = "pip" if results.packages.ours_by is None else results.packages.ours_by
    install, remove = (
        _reinstall_arguments(results, by, words[0], words[1:]),
        _uninstall_arguments(results, by, packages.OTHER_DISTRIBUTION),
    )
    if install is None or remove is None:
        return manual
    lines = [[*install, "--dry-run"], remove, install] if other is not None else [install]
    return messages.REINSTALL_GPUWIDGET(command=_shell_commands(*lines))


def install_required(results: ProbeResults, name: str) -> Fix:
    """Return the fix that installs a missing package that torch requires, including its dependencies."""
    requirement = f"{name}{results.packages.required.get(name, '')}"
    by = _installer_of(results, "torch")
    if by not in ("pip", "uv"):
        return messages.INSTALL_REQUIRED_WITH_INSTALLER(requirement=requirement, installer=by)
    words = [*_pip_arguments(results, by), "install", *_python_option(results, by), requirement]
    return messages.INSTALL_REQUIRED(requirement=requirement, command=shlex.join(words))


def install_older_numpy(results: ProbeResults) -> Fix:
    """Return the fix that installs numpy 1, for extension modules that were built for numpy 1."""
    by = _installer_of(results, "numpy")
    if by not in ("pip", "uv"):
        return messages.INSTALL_OLDER_NUMPY_WITH_INSTALLER(installer=by)
    words = [*_pip_arguments(results, by), "install", *_python_option(results, by), "--no-deps", "numpy<2"]
    return messages.INSTALL_OLDER_NUMPY(command=shlex.join(words))


def install_torch(
    results: ProbeResults,
    why: messages.TorchInstallation,
    *,
    always_index: bool = False,
    capabilities: Sequence[str] | None = None,
) -> Fix:
    """Return the fix that installs a torch build for this driver and GPU.

    If there is no such build, the fix is a newer driver, another GPU or a build from source. The command
    keeps the installed version of torch if that version has such a build. If this build is installed already,
    the command upgrades torch. If torch is not installed and the newest build fits, the command installs
    torch from PyPI, without ``--index-url``, unless ``always_index`` is True or PyPI's build may be a CPU
    build.
    """
    here = results.capabilities if capabilities is None else capabilities
    wheel = cuda_versions.torch_wheel(results.driver, here, arm=results.arm, version=_torch_version(results))
    if wheel is None:
        newest = cuda_versions.torch_wheel(None, here, arm=results.arm)
        if results.driver is not None and newest is not None:
            minimum = cuda_versions.minimum_driver(cuda_versions.wheel_cuda(newest))
            return messages.UPDATE_DRIVER_FIRST(driver=results.driver, minimum=minimum)
        return messages.USE_ANOTHER_GPU()
    reason = {"why": messages.INSTALL_REASONS[why]}
    # On ARM, PyPI's build is a CPU build, or was one for a long time.
    if (
        _torch_version(results) is None
        and wheel == cuda_versions.NEWEST_WHEEL
        and not (always_index or results.arm)
    ):
        words = [*_pip_arguments(results, "pip"), "install", "torch"]
        command = shlex.join(words)
        return messages.INSTALL_TORCH(why=why, last_torch=None, command=command, shown=reason)
    built = build_command(results, wheel)
    if built is None:
        cuda = cuda_versions.wheel_cuda(wheel)
        return messages.INSTALL_TORCH_WITH_INSTALLER(why=why, cuda=cuda, shown=reason)
    last_torch = cuda_versions.wheel_last_torch(wheel)
    return messages.INSTALL_TORCH(why=why, last_torch=last_torch, command=built, shown=reason)


def build_command(results: ProbeResults, wheel: str) -> str | None:
    """Return the command that installs this build; None if a tool other than pip or uv installed torch.

    The command keeps the installed version of torch if that version has the build. pip then only changes
    torch, and libraries that are missing or whose version is not the one that torch requires. If the build is
    installed already, the command upgrades torch.
    """
    version, by = _torch_version(results), _installer_of(results, "torch")
    if by not in ("pip", "uv"):
        return None
    if version is None:
        specifier = ["torch"]
    elif not cuda_versions.wheel_has(wheel, version) or not re.fullmatch(
        r"[\d.]+", version.partition("+")[0]
    ):
        specifier = [f"torch{cuda_versions.wheel_specifier(wheel)}"]
    elif results.cuda == cuda_versions.wheel_cuda(wheel):
        specifier = ["--upgrade", "torch"]
    else:
        specifier = [f"torch=={version.partition('+')[0]}+{wheel}"]
    words = [
        *_pip_arguments(results, by),
        "install",
        *_python_option(results, by),
        *specifier,
        "--index-url",
        f"{WHEELS}/{wheel}",
    ]
    return shlex.join(words)


def _reinstall_arguments(
    results: ProbeResults, by: str, requirement: str, index: Sequence[str]
) -> list[str] | None:
    """Return the arguments that reinstall only this requirement; None if the installer is neither pip nor
    uv."""
    if by not in ("pip", "uv"):
        return None
    force = "--force-reinstall" if by == "pip" else "--reinstall"
    return [
        *_pip_arguments(results, by),
        "install",
        *_python_option(results, by),
        force,
        "--no-deps",
        requirement,
        *index,
    ]


def _uninstall_arguments(results: ProbeResults, by: str, name: str) -> list[str] | None:
    if by == "pip":
        return [*_pip_arguments(results, by), "uninstall", "-y", name]
    return (
        [*_pip_arguments(results, by), "uninstall", *_python_option(results, by), name]
        if by == "uv"
        else None
    )


def _pip_arguments(results: ProbeResults, by: str) -> list[str]:
    return ["uv", "pip"] if by == "uv" else [results.python or "python", "-m", "pip"]


def _python_option(results: ProbeResults, by: str) -> list[str]:
    return ["--python", results.python] if by == "uv" and results.python else []


def _shell_commands(*lines: Sequence[str]) -> str:
    """Return the commands as one line, in which each command runs only if the previous one succeeds."""
    return " && ".join(map(shlex.join, lines))


def _installer_of(results: ProbeResults, name: str) -> str:
    """Return the installer of the package, or of torch if the package is not installed."""
    if name == "torch" and packages.is_conda_torch(results.packages):
        return "conda"
    known = {package.name: package for package in results.packages.cuda} | dict(results.packages.installed)
    package = known.get(name) or known.get("torch")
    return "pip" if package is None else package.by


def _torch_version(results: ProbeResults) -> str | None:
    """Return torch's version from its metadata, which pip uses, or else from torch's files."""
    torch = results.packages.installed.get("torch")
    return torch.version if torch is not None else results.torch_version


def _requirement(results: ProbeResults, name: str) -> str | None:
    """Return the requirement that reinstalls the package in a version that torch accepts.

    Return None if the package is torch and no index has the installed build.
    """
    if name == "torch":
        package = results.packages.installed.get("torch")
        version = "" if package is None else package.version
        local = version.partition("+")[2]
        if not version or (local and not re.fullmatch(r"cu\d+|cpu|xpu|rocm[\d.]+", local)):
            return None
        return f"torch=={version}"
    specifier, package = results.packages.required.get(name, ""), results.packages.installed.get(name)
    if package is not None and "==" not in specifier and packages.satisfies(package.version, specifier):
        return f"{name}=={package.version}"
    return f"{name}{specifier}"


def _index_options(results: ProbeResults, name: str) -> list[str]:
    """Return the options for an index that has this build of torch; empty if pip's default index has it."""
    version = _torch_version(results) if name == "torch" else None
    local = "" if version is None else version.partition("+")[2]
    nightly = "/nightly" if version is not None and ".dev" in version else ""
    return ["--index-url", f"{WHEELS}{nightly}/{local}"] if local else []
