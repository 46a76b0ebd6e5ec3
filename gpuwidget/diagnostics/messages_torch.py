"""Issues of the check of PyTorch."""

from __future__ import annotations

from gpuwidget.diagnostics.messages import FixTemplate, IssueTemplate
from gpuwidget.diagnostics.messages_packages import OTHER_DAMAGES
from gpuwidget.model.messages import Template, by_id
from gpuwidget.model.translation import translatable

# -- the package -----------------------------------------------------------------------------------------

NOT_INSTALLED = IssueTemplate(
    "torch-not-installed", "broken", "PyTorch is not installed in this environment."
)
SEVERAL_VERSIONS = IssueTemplate(
    "torch-copies",
    "warning",
    "{folder} contains the metadata of {number} versions of PyTorch ({versions:list}), which overwrote each "
    "other's files.",
)
PATH_SOURCES = by_id(
    Template("environment", "its folder comes first in sys.path"),
    Template("working-directory", "the working directory comes first in sys.path"),
    Template("pythonpath", "PYTHONPATH contains {set_in}"),
    Template("user-site", "pip install --user installed it, and this folder comes first in sys.path"),
    Template("pth-file", "{set_in} adds this folder to sys.path"),
    Template(
        "code",
        "neither PYTHONPATH nor a .pth file contains this folder, so code has added it to sys.path",
    ),
)
"""What puts the folder of a copy of torch into ``sys.path``, as the end of a sentence."""
FOR_CPU_ONLY = Template("cpu-only", "The copy that Python finds is built for the CPU only.")
FAILS = Template("fails", "The copy that Python finds can't be imported: {error}.")
SHADOWED = IssueTemplate(
    "torch-shadowed",
    "warning",
    "'import torch' finds {first}, not {second}: {source}.",
    then="{problem}",
)
LEFTOVERS = IssueTemplate(
    "torch-leftovers",
    "broken",
    "{folder} has no __init__.py: an installation or uninstallation of PyTorch did not finish.",
)
CHANGED_SINCE_IMPORT = IssueTemplate(
    "torch-changed-since-import",
    "warning",
    "This notebook has loaded PyTorch {loaded}, but {installed} is installed now.",
    FixTemplate("restart-kernel", "Restart the kernel."),
)
FOR_AMD = IssueTemplate(
    "torch-without-cuda", "broken", "This build of PyTorch is for AMD's GPUs: it has no CUDA."
)
WITHOUT_CUDA = IssueTemplate(
    "torch-without-cuda", "broken", "This build of PyTorch can't use NVIDIA GPUs: it has no CUDA."
)
NUMPY_FAILS = IssueTemplate("numpy-fails", "warning", "numpy fails with this PyTorch: {error}.")
ONE_THREAD = IssueTemplate(
    "omp-one-thread",
    "warning",
    "OMP_NUM_THREADS is 1, so PyTorch uses one CPU thread in this notebook. DataLoaders without workers "
    "prepare their batches on it: {loaders:list}.",
    FixTemplate(
        "add-workers-or-threads",
        "Give the DataLoader workers, such as num_workers=4. Or unset OMP_NUM_THREADS where Jupyter is "
        "started, and restart Jupyter.",
    ),
)

# -- files that hide modules -----------------------------------------------------------------------------

RENAME_FILE = FixTemplate("rename-file", "Rename {file}, and restart the kernel.")
HIDES_STANDARD_MODULE = Template("standard-module", "{name} in {folder} hides Python's own module {module}.")
HIDES_PACKAGE = Template("package", "{name} in {folder} hides the package {module}, which PyTorch uses.")
MODULE_HIDDEN = IssueTemplate("module-hidden", "warning", "{hides}", RENAME_FILE)
LEAVE_WORKING_DIRECTORY = FixTemplate(
    "use-another-folder",
    "Start the kernel or the command in another folder, and run the doctor again.",
)
IN_WORKING_DIRECTORY = IssueTemplate(
    "torch-in-working-directory",
    "unknown",
    (
        "'import torch' finds {file}, in the working directory, not {other}. The doctor runs no file of the "
        "working directory, so this PyTorch was not checked.",
        "'import torch' finds {file}, in the working directory. The doctor runs no file of the working "
        "directory, so this PyTorch was not checked.",
    ),
    LEAVE_WORKING_DIRECTORY,
)
HIDDEN = IssueTemplate(
    "torch-hidden",
    "broken",
    (
        "'import torch' finds {what} instead of {where}: {source}.",
        "'import torch' finds {what} instead of {where}.",
    ),
)
A_FOLDER = translatable("a folder")
HIDDEN_PACKAGE = Template("package", ("the package in {folder}", "the package"))

# -- the import ------------------------------------------------------------------------------------------

PYTHON_NOT_STARTED = IssueTemplate(
    "python-not-started", "unknown", "Python could not be started to check PyTorch ({error})."
)
IMPORT_TIMEOUT = IssueTemplate(
    "torch-import-timeout",
    "unknown",
    "'import torch' did not finish within {timeout_s:.0f} s.",
    FixTemplate(
        "run-doctor-again",
        "Run the doctor again: the first import from a slow or network disk takes long, and later imports "
        "are faster. If the import does not finish again, run python -X importtime -c 'import torch' in a "
        "terminal to see where it stops. Another possible cause is a driver that hangs (nvidia-smi then "
        "hangs too).",
    ),
)
IMPORT_KILLED = IssueTemplate(
    "torch-import-killed",
    "broken",
    "'import torch' was killed (SIGKILL), usually because main memory ran out.",
    FixTemplate(
        "more-memory",
        "Give this container or machine more main memory (RAM). The system's kernel log (dmesg) shows "
        "whether a lack of memory was the cause.",
    ),
)
IMPORT_CRASHED = IssueTemplate("torch-import-crashed", "broken", "'import torch' crashes Python ({signal}).")
IMPORT_ENDED = IssueTemplate(
    "torch-import-ended", "broken", "'import torch' ends Python without an error message."
)
RAISES = Template(
    "raises",
    (
        "'import torch' raises {type}: {first_line}.",
        "'import torch' raises {type} without an error message.",
    ),
)
IMPORT_ERROR = IssueTemplate("torch-import-error", "broken", "{raised}")
IMPORT_ERROR_BY_HIDDEN_MODULE = IssueTemplate(
    "torch-import-error-hidden-module", "broken", "{raised} {hides}", RENAME_FILE
)
IMPORT_ERROR_BY_DAMAGE = IssueTemplate(
    "torch-import-error-damaged-package", "broken", "{raised} {damage}", then=OTHER_DAMAGES
)
IMPORT_ERROR_IN_PACKAGE = IssueTemplate(
    "torch-import-error-in-package", "broken", "{raised} The error comes from {package}."
)
CORRECT_VARIABLE = FixTemplate(
    "correct-variable",
    "Correct the value of the environment variable {variable}, or unset it, and restart the kernel.",
)
SEE_IMPORT_TRACEBACK = FixTemplate(
    "see-import-traceback",
    "Run python -X faulthandler -c 'import torch' in a terminal: the traceback shows which code fails. "
    "Nothing shows that PyTorch's files are damaged, so a reinstallation is unlikely to help.",
)
INSTALL_TORCH_FOR_OLDER_SYSTEM = FixTemplate(
    "install-torch-for-older-system",
    "This system is too old for this build of PyTorch: install an older PyTorch.",
)
RAISE_MEMORY_LIMIT = FixTemplate(
    "raise-memory-limit",
    "Check whether memory is limited (ulimit -v), or the file system is mounted with noexec.",
)
