"""Issues of installed packages, which are damaged or have the wrong version, and the fixes that change
packages."""

from __future__ import annotations

from typing import Literal

from gpuwidget.diagnostics.messages import LAST_TORCH, FixTemplate, IssueTemplate
from gpuwidget.model.messages import Template, by_id
from gpuwidget.model.translation import translatable

TorchInstallation = Literal["missing", "without-cuda", "too-old"]
"""Why the fix installs a build of torch: none is installed, the installed one has no CUDA, or it is too old
for the GPU."""

# -- issues of installed packages ------------------------------------------------------------------------

DAMAGES = by_id(
    Template("missing", "{path} of {package} is missing."),
    Template("unreadable", "{path} of {package} can't be read ({error})."),
    Template("empty", "{path} of {package} is empty."),
    Template("too-short", "{path} of {package} has {size:,} of {recorded_size:,} bytes."),
    Template("wrong-size", "{path} of {package} has {size:,} bytes, not {recorded_size:,}."),
)
"""The sentence about a damaged file, by its problem."""
OTHER_DAMAGES = translatable(
    "{others} other {others:file|files} of this package {others:is|are} damaged too."
)

PACKAGE_DAMAGED = IssueTemplate("package-damaged", "warning", "{damage}", then=OTHER_DAMAGES)
REQUIRED_PACKAGE_MISSING = IssueTemplate(
    "required-package-missing",
    "warning",
    "{package}{specifier}, which this PyTorch requires, is not installed.",
)
REQUIRED_PACKAGE_VERSION = IssueTemplate(
    "required-package-version",
    "warning",
    "{package} {version} is installed, but this PyTorch requires {specifier}.",
)

# -- fixes of libraries ----------------------------------------------------------------------------------

SEE_DRIVER_CHECK = FixTemplate(
    "see-driver-check", "This library is part of the driver: see the driver's check."
)
REMOVE_FROM_LIBRARY_PATH = FixTemplate(
    "remove-from-ld-library-path",
    "Remove {folder} from LD_LIBRARY_PATH, because its files take precedence over PyTorch's own, and restart "
    "the kernel's server.",
)
UNSET_PRELOAD = FixTemplate(
    "unset-ld-preload", "Unset LD_PRELOAD ({value}) and try again: it loads a library before all others."
)

# -- fixes of packages -----------------------------------------------------------------------------------

REINSTALL = FixTemplate("reinstall-package", "Reinstall {package} in the matching version:", "{command}")
REINSTALL_FROM_SOURCE = FixTemplate(
    "reinstall-from-its-source",
    "Reinstall {package} from its original source: no package index has this build.",
)
REINSTALL_WITH_INSTALLER = FixTemplate(
    "reinstall-with-its-installer",
    "Install {requirement} with {installer}, the installer of this environment's packages.",
)
REPLACE_PACKAGE = FixTemplate(
    "replace-package",
    "Keep {right}, which this PyTorch requires, and uninstall {wrong}. Both own the same files, so {right} "
    "is then reinstalled:",
    "{command}",
)
REPLACE_PACKAGE_MANUALLY = FixTemplate(
    "replace-package-manually",
    "Uninstall {wrong} with the tool that installed it, then reinstall {requirement}.",
)
SEPARATE_ENVIRONMENTS = FixTemplate(
    "separate-environments",
    "PyTorch requires {right}, but {wrong} is required by {dependents:and}. Use separate environments for "
    "PyTorch and these packages.",
)
INSTALL_REQUIRED = FixTemplate(
    "install-requirement", "Install the package that PyTorch requires:", "{command}"
)
INSTALL_REQUIRED_WITH_INSTALLER = FixTemplate(
    "install-requirement-with-its-installer",
    "Install {requirement} with {installer}, which installed PyTorch.",
)
INSTALL_OLDER_NUMPY = FixTemplate(
    "install-older-numpy",
    "This PyTorch was built for numpy 1. Install a newer PyTorch, or numpy 1:",
    "{command}",
)
INSTALL_OLDER_NUMPY_WITH_INSTALLER = FixTemplate(
    "install-older-numpy-with-its-installer",
    "Use {installer}, which installed numpy, to install numpy<2; or install a newer PyTorch.",
)
INSTALL_NVML_BINDING = FixTemplate("install-nvml-binding", "Install it:", "{command}")
INSTALL_NVML_BINDING_WITH_INSTALLER = FixTemplate(
    "install-nvml-binding-with-its-installer",
    "Install {requirement} with {installer}, the installer of this environment's packages.",
)
REPLACE_PYNVML = FixTemplate("replace-pynvml", "Replace it:", "{command}")
REPLACE_PYNVML_MANUALLY = FixTemplate(
    "replace-pynvml-manually",
    "Uninstall pynvml, unless another package requires it, and install nvidia-ml-py again.",
)
REINSTALL_GPUWIDGET = FixTemplate("reinstall-gpuwidget", "Reinstall gpuwidget:", "{command}")
REINSTALL_GPUWIDGET_MANUALLY = FixTemplate(
    "reinstall-gpuwidget-manually",
    (
        "Uninstall gpuwidget if it is installed, then reinstall jupyterlab-gpuwidget as described in "
        "{documentation}.",
        "Uninstall gpuwidget if it is installed, then reinstall jupyterlab-gpuwidget ({instructions}).",
    ),
)

# -- fixes of torch --------------------------------------------------------------------------------------

INSTALL_REASONS: dict[TorchInstallation, str] = {
    "missing": translatable("Install it"),
    "without-cuda": translatable("Install a build with CUDA"),
    "too-old": translatable("Install a newer PyTorch"),
}
INSTALL_TORCH = FixTemplate("install-torch", "{why}:", "{command}", LAST_TORCH)
INSTALL_TORCH_WITH_INSTALLER = FixTemplate(
    "install-torch-with-its-installer",
    "{why}: the build for CUDA {cuda}, with the tool that installed this PyTorch.",
)
INSTALL_CONDA_CUDA_BUILD = FixTemplate(
    "install-conda-cuda-build", "Install conda's build with CUDA:", "{command}"
)
UPDATE_DRIVER_FIRST = FixTemplate(
    "update-driver-first",
    "First update the driver to {minimum} or newer: no PyTorch build for this GPU runs with driver {driver}.",
)
USE_ANOTHER_GPU = FixTemplate(
    "use-another-gpu",
    "PyTorch's builds have no code for this GPU: use another GPU, or build PyTorch from source.",
)
REMOVE_TORCH_COPY = FixTemplate("remove-torch-copy", "Uninstall the copy in {folder}:", "{command}")
REMOVE_TORCH_COPY_WITH_INSTALLER = FixTemplate(
    "remove-torch-copy-with-its-installer",
    "Uninstall the copy in {folder} with {installer}, which installed it.",
)
REMOVE_FROM_PYTHONPATH_OF_SHELL = FixTemplate(
    "remove-from-pythonpath",
    "Remove {entry} from PYTHONPATH:",
    "{command}",
    "If a startup file, such as ~/.bashrc, sets PYTHONPATH, change this file, too.",
)
REMOVE_FROM_PYTHONPATH_OF_JUPYTER = FixTemplate(
    "remove-from-pythonpath",
    "Remove {entry} from PYTHONPATH in the shell that starts Jupyter, and restart Jupyter:",
    "{command}",
    "If the kernel's kernel.json sets PYTHONPATH, change this file instead.",
)
REMOVE_FROM_PTH_FILE = FixTemplate(
    "remove-from-pth-file", "Remove the line with {folder} from {file}, and restart the kernel."
)
REMOVE_FROM_CODE = FixTemplate(
    "remove-from-code",
    "Remove the code that adds {folder} to sys.path, such as sys.path.insert(), and restart the kernel.",
)
DELETE_TORCH_LEFTOVERS = FixTemplate("delete-torch-leftovers", "Delete {folder}. {install}")
REPLACE_TORCH_LEFTOVERS = FixTemplate(
    "replace-torch-leftovers", "Delete {folder}. Then install PyTorch:", "{command}"
)
REINSTALL_TORCH_COPIES = FixTemplate(
    "reinstall-torch-copies",
    "The copies are in the same folder. Uninstall all of them, and install one copy:",
    "{command}",
)
