"""Texts about installed packages: damaged files, wrong versions, and the fixes that change packages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from gpuwidget.diagnostics.files_probe import CheckedPackage, DamagedFile
from gpuwidget.diagnostics.messages import command_fix, text_fix
from gpuwidget.diagnostics.packages import OTHER_DISTRIBUTION, OUR_DISTRIBUTION
from gpuwidget.model.diagnosis import Fix, Issue, IssueStatus
from gpuwidget.model.translation import Text, counted, joined, listed, translatable

TorchInstallation = Literal["missing", "without-cuda", "too-old"]
"""Why the fix installs a build of torch: none is installed, the installed one has no CUDA, or it is too old
for the GPU."""

_INSTALL_TORCH = {
    "missing": translatable("Install it"),
    "without-cuda": translatable("Install a build with CUDA"),
    "too-old": translatable("Install a newer PyTorch"),
}


# -- issues of installed packages ------------------------------------------------------------------------


def damaged_package(package: CheckedPackage, status: IssueStatus, fix: Fix) -> Issue:
    """Return the issue of a package whose files differ from those recorded at installation."""
    params = {
        "package": package.name,
        "version": package.version,
        "file": package.damaged[0].path,
        "problem": package.damaged[0].problem,
        "count": package.count,
    }
    return Issue("package-damaged", status, params, damage(package), fix)


def damage(package: CheckedPackage) -> str:
    """Return a sentence about a package's damaged files."""
    others = package.count - 1
    first = _damaged_file(package.damaged[0], f"{package.name} {package.version}")
    if not others:
        return first
    more = counted(
        others,
        "{number} other file of this package is damaged too.",
        "{number} other files of this package are damaged too.",
    )
    return joined([first, more], " ")


def _damaged_file(file: DamagedFile, package: str) -> str:
    path, size, recorded_size = file.path, file.size, file.recorded_size
    match file.problem:
        case "missing":
            return translatable("{path} of {package} is missing.", path=path, package=package)
        case "unreadable":
            return translatable(
                "{path} of {package} can't be read ({error}).", path=path, package=package, error=file.error
            )
        case "empty":
            return translatable("{path} of {package} is empty.", path=path, package=package)
        case "too-short":
            return translatable(
                "{path} of {package} has {size:,} of {recorded_size:,} bytes.",
                path=path,
                package=package,
                size=size,
                recorded_size=recorded_size,
            )
        case "wrong-size":
            return translatable(
                "{path} of {package} has {size:,} bytes, not {recorded_size:,}.",
                path=path,
                package=package,
                size=size,
                recorded_size=recorded_size,
            )


def required_package_missing(name: str, specifier: str, status: IssueStatus, fix: Fix) -> Issue:
    """Return the issue of a missing package that torch requires."""
    params = {"package": name, "specifier": specifier}
    reason = translatable(
        "{name}{specifier}, which this PyTorch requires, is not installed.", name=name, specifier=specifier
    )
    return Issue("required-package-missing", status, params, reason, fix)


def wrong_package_version(name: str, version: str, specifier: str, status: IssueStatus, fix: Fix) -> Issue:
    """Return the issue of a package whose version is not the one that torch requires."""
    params = {"package": name, "version": version, "specifier": specifier}
    reason = translatable(
        "{name} {version} is installed, but this PyTorch requires {specifier}.",
        name=name,
        version=version,
        specifier=specifier,
    )
    return Issue("required-package-version", status, params, reason, fix)


# -- fixes of libraries ----------------------------------------------------------------------------------


def see_driver_check() -> Fix:
    """Return the fix for a missing library that belongs to the driver."""
    return text_fix("see-driver-check", "This library is part of the driver: see the driver's check.")


def remove_from_library_path(folder: str) -> Fix:
    """Return the fix that removes a folder from LD_LIBRARY_PATH."""
    return text_fix(
        "remove-from-ld-library-path",
        "Remove {folder} from LD_LIBRARY_PATH, because its files take precedence over "
        "PyTorch's own, and restart the kernel's server.",
        folder=folder,
    )


def unset_preload(value: str) -> Fix:
    """Return the fix that unsets LD_PRELOAD."""
    return text_fix(
        "unset-ld-preload",
        "Unset LD_PRELOAD ({value}) and try again: it loads a library before all others.",
        value=value,
    )


# -- fixes of packages -----------------------------------------------------------------------------------


def reinstall(package: str, command: str) -> Fix:
    """Return the fix that reinstalls a package."""
    before = translatable("Reinstall {package} in the matching version:", package=package)
    return command_fix("reinstall-package", before, command, package=package)


def reinstall_from_source(package: str) -> Fix:
    """Return the fix that reinstalls a package that no package index has."""
    return text_fix(
        "reinstall-from-its-source",
        "Reinstall {package} from its original source: no package index has this build.",
        package=package,
    )


def reinstall_with_installer(requirement: str, installer: str) -> Fix:
    """Return the fix that reinstalls a package with an installer other than pip and uv."""
    return text_fix(
        "reinstall-with-its-installer",
        "Install {requirement} with {installer}, the installer of this environment's packages.",
        requirement=requirement,
        installer=installer,
    )


def replace_package(wrong: str, right: str, command: str) -> Fix:
    """Return the fix that uninstalls ``wrong`` and reinstalls ``right``, which own the same files."""
    return command_fix(
        "replace-package",
        "Keep {right}, which this PyTorch requires, and uninstall {wrong}. Both own the same "
        "files, so {right} is then reinstalled:",
        command,
        wrong=wrong,
        right=right,
    )


def replace_package_manually(wrong: str, requirement: str) -> Fix:
    """Return the fix that replaces a package, without a command."""
    return text_fix(
        "replace-package-manually",
        "Uninstall {wrong} with the tool that installed it, then reinstall {requirement}.",
        wrong=wrong,
        requirement=requirement,
    )


def separate_environments(wrong: str, right: str, dependents: Sequence[str]) -> Fix:
    """Return the fix for the conflict that torch requires ``right`` but other packages require ``wrong``."""
    return text_fix(
        "separate-environments",
        translatable(
            "PyTorch requires {right}, but {wrong} is required by {dependents}. Use separate environments "
            "for PyTorch and these packages.",
            right=right,
            dependents=listed(dependents),
            wrong=wrong,
        ),
        wrong=wrong,
        right=right,
        dependents=tuple(dependents),
    )


def install_required(requirement: str, command: str) -> Fix:
    """Return the fix that installs a missing package that torch requires."""
    before = translatable("Install the package that PyTorch requires:")
    return command_fix("install-requirement", before, command, requirement=requirement)


def install_required_with_installer(requirement: str, installer: str) -> Fix:
    """Return the fix that installs a missing package with an installer other than pip and uv."""
    return text_fix(
        "install-requirement-with-its-installer",
        "Install {requirement} with {installer}, which installed PyTorch.",
        requirement=requirement,
        installer=installer,
    )


def install_older_numpy(command: str) -> Fix:
    """Return the fix that installs numpy 1."""
    before = translatable("This PyTorch was built for numpy 1. Install a newer PyTorch, or numpy 1:")
    return command_fix("install-older-numpy", before, command)


def install_older_numpy_with_installer(installer: str) -> Fix:
    """Return the fix that installs numpy 1 with an installer other than pip and uv."""
    return text_fix(
        "install-older-numpy-with-its-installer",
        "Use {installer}, which installed numpy, to install numpy<2; or install a newer PyTorch.",
        installer=installer,
    )


def install_nvml_binding(command: str) -> Fix:
    """Return the fix that installs nvidia-ml-py."""
    return command_fix("install-nvml-binding", "Install it:", command)


def install_nvml_binding_with_installer(requirement: str, installer: str) -> Fix:
    """Return the fix that installs nvidia-ml-py with an installer other than pip and uv."""
    return text_fix(
        "install-nvml-binding-with-its-installer",
        "Install {requirement} with {installer}, the installer of this environment's packages.",
        requirement=requirement,
        installer=installer,
    )


def replace_pynvml(command: str) -> Fix:
    """Return the fix that replaces the package pynvml by nvidia-ml-py."""
    return command_fix("replace-pynvml", "Replace it:", command)


def replace_pynvml_manually() -> Fix:
    """Return the fix that replaces the package pynvml by nvidia-ml-py, without a command."""
    return text_fix(
        "replace-pynvml-manually",
        "Uninstall pynvml, unless another package requires it, and install nvidia-ml-py again.",
    )


def reinstall_gpuwidget(command: str) -> Fix:
    """Return the fix that reinstalls gpuwidget."""
    return command_fix("reinstall-gpuwidget", "Reinstall gpuwidget:", command)


def reinstall_gpuwidget_manually(documentation: str | None, instructions: str) -> Fix:
    """Return the fix that reinstalls gpuwidget as described at the documentation's address, or else as
    described in ``instructions``."""
    where = (
        translatable("as described in {documentation}", documentation=documentation)
        if documentation
        else f"({instructions})"
    )
    return text_fix(
        "reinstall-gpuwidget-manually",
        translatable(
            "Uninstall {other_distribution} if it is installed, then reinstall {our_distribution} {where}.",
            other_distribution=OTHER_DISTRIBUTION,
            our_distribution=OUR_DISTRIBUTION,
            where=where,
        ),
        documentation=documentation,
        instructions=instructions,
    )


# -- fixes of torch --------------------------------------------------------------------------------------


def install_torch(why: TorchInstallation, command: str, last_torch: str | None) -> Fix:
    """Return the fix that installs a build of torch.

    ``last_torch`` is the newest torch version that has this build; None if PyTorch still publishes the build.
    """
    before = translatable("{why}:", why=_INSTALL_TORCH[why])
    then = last_version(last_torch)
    return command_fix("install-torch", before, command, then, why=why, last_torch=last_torch)


def install_torch_with_installer(why: TorchInstallation, cuda: str) -> Fix:
    """Return the fix that installs a build of torch with an installer other than pip and uv."""
    return text_fix(
        "install-torch-with-its-installer",
        translatable(
            "{why}: the build for CUDA {cuda}, with the tool that installed this PyTorch.",
            why=_INSTALL_TORCH[why],
            cuda=cuda,
        ),
        why=why,
        cuda=cuda,
    )


def last_version(last_torch: str | None) -> Text | None:
    """Return a sentence about the last version of torch that has a build; None if there is no last one.

    ``last_torch`` is described in :func:`install_torch`.
    """
    if last_torch is None:
        return None
    return translatable("PyTorch {last_torch} is the last version with such a build.", last_torch=last_torch)


def install_conda_cuda_build(command: str) -> Fix:
    """Return the fix that replaces conda's CPU build of torch."""
    return command_fix("install-conda-cuda-build", "Install conda's build with CUDA:", command)


def update_driver_first(driver: str, minimum: str | None) -> Fix:
    """Return the fix for a driver that is too old for all builds of torch."""
    return text_fix(
        "update-driver-first",
        "First update the driver to {minimum} or newer: no PyTorch build for this GPU runs "
        "with driver {driver}.",
        driver=driver,
        minimum=minimum,
    )


def gpu_too_old() -> Fix:
    """Return the fix for a GPU for which no build of torch has code."""
    return text_fix(
        "use-another-gpu",
        "PyTorch's builds have no code for this GPU: use another GPU, or build PyTorch from source.",
    )


def remove_torch_copy(folder: str, command: str) -> Fix:
    """Return the fix that uninstalls the copy of torch that hides another one."""
    before = translatable("Uninstall the copy in {folder}:", folder=folder)
    return command_fix("remove-torch-copy", before, command, folder=folder)


def remove_torch_copy_with_installer(folder: str, installer: str) -> Fix:
    """Return the fix that uninstalls a copy of torch with an installer other than pip and uv."""
    return text_fix(
        "remove-torch-copy-with-its-installer",
        "Uninstall the copy in {folder} with {installer}, which installed it.",
        folder=folder,
        installer=installer,
    )


def remove_from_pythonpath(entry: str, command: str, *, in_shell: bool) -> Fix:
    """Return the fix that removes a folder from PYTHONPATH.

    ``in_shell`` is whether the doctor runs in the shell whose variable it is.
    """
    before = (
        translatable("Remove {entry} from PYTHONPATH:", entry=entry)
        if in_shell
        else translatable(
            "Remove {entry} from PYTHONPATH in the shell that starts Jupyter, and restart Jupyter:",
            entry=entry,
        )
    )
    then = (
        translatable("If a startup file, such as ~/.bashrc, sets PYTHONPATH, change this file, too.")
        if in_shell
        else translatable("If the kernel's kernel.json sets PYTHONPATH, change this file instead.")
    )
    return command_fix("remove-from-pythonpath", before, command, then, entry=entry)


def remove_from_pth_file(folder: str, file: str) -> Fix:
    """Return the fix that removes a folder from a .pth file."""
    return text_fix(
        "remove-from-pth-file",
        "Remove the line with {folder} from {file}, and restart the kernel.",
        folder=folder,
        file=file,
    )


def remove_from_code(folder: str) -> Fix:
    """Return the fix for a folder that code has added to ``sys.path``."""
    return text_fix(
        "remove-from-code",
        "Remove the code that adds {folder} to sys.path, such as sys.path.insert(), and restart the kernel.",
        folder=folder,
    )


def replace_torch_leftovers(folder: str, install: Fix) -> Fix:
    """Return the fix that deletes what an uninstallation of torch has left, and installs torch."""
    if install.command is None:
        return text_fix(
            "delete-torch-leftovers",
            translatable("Delete {folder}. {install}", folder=folder, install=install.before),
            folder=folder,
        )
    before = translatable("Delete {folder}. Then install PyTorch:", folder=folder)
    return replace(install, id="replace-torch-leftovers", params={"folder": folder}, before=before)


def reinstall_torch_copies(command: str) -> Fix:
    """Return the fix for several copies of torch in one folder."""
    before = translatable("The copies are in the same folder. Uninstall all of them, and install one copy:")
    return command_fix("reinstall-torch-copies", before, command)
