"""Tests of the checks of PyTorch, the CUDA libraries, cuDNN and NCCL, with the exact ids and parameters of
their issues and fixes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from helpers_doctor import (
    CUDNN_FILE,
    NOT_INSTALLED,
    PACKAGES,
    PIP,
    SITE,
    build,
    check_of,
    fix,
    h200,
    issue,
    no_import,
    nvml,
    outcome,
    results,
)

from gpuwidget.diagnostics.packages import InstalledPackage
from gpuwidget.diagnostics.probe_process import ProbeResult
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.diagnostics.target import NotebookState
from gpuwidget.diagnostics.torch_copies import TorchFiles


def reinstall(package: str) -> tuple[str, str | None, Mapping[str, Any]]:
    """Return the fix that reinstalls ``package``."""
    name = package.partition("==")[0].strip("'")
    return fix("reinstall-package", f"{PIP} install --force-reinstall --no-deps {package}", package=name)


ANEW = reinstall("torch==2.13.0")
SEE_TRACEBACK = fix("see-import-traceback")

# -- PyTorch ---------------------------------------------------------------------------------------------


def test_torch_that_is_not_installed() -> None:
    """If torch is not installed in the environment of a notebook or a shell, the PyTorch check is "broken"
    and offers the command that installs torch. On a server, the check is skipped."""
    assert outcome(check_of("torch", results(**NOT_INSTALLED))) == (
        "broken",
        issue("torch-not-installed"),
        fix("install-torch", f"{PIP} install torch", why="missing", last_torch=None),
    )
    server = results(place="server", **NOT_INSTALLED)
    assert outcome(check_of("torch", server)) == ("skipped", None, None)
    assert check_of("cuda", server).status == check_of("cudnn", server).status == "skipped"


@pytest.mark.parametrize(
    ("driver", "capability", "command", "last"),
    [
        ("580.95.05", "9.0", build("cu130"), None),
        ("535.183.01", "9.0", build("cu126"), "2.14"),
        ("570.86", "10.0", build("cu128", "'torch>=2.7,<2.12'"), "2.11"),
        ("580.95.05", "7.0", build("cu126"), "2.14"),
    ],
)
def test_the_cpu_build(driver: str, capability: str, command: str, last: str | None) -> None:
    """For a CPU build of torch, the fix installs a CUDA build that supports this driver and GPU. The torch
    version stays the same if PyTorch offers such a build of that version."""
    one = results(
        torch={"cuda": None, "version": "2.13.0+cpu"},
        nvml=nvml(h200(compute_capability=capability), driver=driver),
    )
    assert check_of("torch", one).found == "2.13.0+cpu, built for the CPU only"
    assert outcome(check_of("torch", one)) == (
        "broken",
        issue("torch-without-cuda", amd=False),
        fix("install-torch", command, why="without-cuda", last_torch=last),
    )


def test_builds_for_something_else() -> None:
    """A torch built for AMD is reported with a specific reason, and conda's CPU build with a specific
    fix."""
    amd = results(torch={"cuda": None, "hip": "6.2"})
    assert outcome(check_of("torch", amd))[1] == issue("torch-without-cuda", amd=True)
    built = {"torch": InstalledPackage("torch", "2.9.0", "conda")}
    conda = results(
        torch={"cuda": None},
        packages={"cuda": (InstalledPackage("pytorch", "2.9.0", "conda"),), "installed": built},
    )
    assert outcome(check_of("torch", conda))[2] == (
        fix("install-conda-cuda-build", "conda install --prefix /env pytorch-gpu=2.9.0")
    )


@pytest.mark.parametrize(
    ("origin", "folders", "what"),
    [("/home/anna/torch.py", (), "/home/anna/torch.py"), (None, ("/home/anna/torch",), "/home/anna/torch")],
)
def test_a_users_file_that_hides_torch(origin: str | None, folders: tuple[str, ...], what: str) -> None:
    """If a user's file torch.py or a folder named torch hides the package, the PyTorch check shows the path
    of that file or folder."""
    one = results(
        torch={"imported": True, "version": None}, packages={"torch": TorchFiles(origin, folders, None, None)}
    )
    assert outcome(check_of("torch", one)) == (
        "broken",
        issue("torch-hidden", file=what, second=None, source="environment"),
        fix("rename-file", file=what),
    )


@pytest.mark.parametrize(
    ("library", "which", "package"),
    [
        ("libcudnn.so.9", "cudnn", "nvidia-cudnn-cu13==9.10.2.21"),
        ("libcublasLt.so.13", "cuda", "'nvidia-cublas==13.1.0.*'"),
        ("libnccl.so.2", "nccl", "nvidia-nccl-cu13==2.27.5"),
        ("libcufft.so.12", "cuda", "torch==2.13.0"),
    ],
)
def test_an_import_that_lacks_a_library(library: str, which: str, package: str) -> None:
    """If `import torch` fails because a library is missing, the PyTorch check and the library's check are
    "broken". The fix reinstalls only the package of the library, or torch if that package is not known."""
    error = f"{library}: cannot open shared object file: No such file or directory"
    required = {"nvidia-cudnn-cu13": "==9.10.2.21", "nvidia-nccl-cu13": "==2.27.5"}
    cublas = {"nvidia-cublas": "==13.1.0.*"}
    installed = {**PACKAGES.installed, "nvidia-cublas": InstalledPackage("nvidia-cublas", "13.1.0.3", "pip")}
    one = results(
        torch=no_import(error), packages={"required": {**required, **cublas}, "installed": installed}
    )
    remedy = reinstall(package)
    assert check_of("torch", one).found == "2.13.0, which can't be imported"
    assert outcome(check_of("torch", one)) == (
        "broken",
        issue("torch-import-error", type="ImportError", error=error),
        remedy,
    )
    assert outcome(check_of(which, one)) == ("broken", issue("library-missing", library=library), remedy)
    assert check_of("driver", one).status == "ok"


def test_an_import_that_fails_by_the_library_path() -> None:
    """If an older library in a folder of LD_LIBRARY_PATH breaks `import torch`, the fix is to remove that
    folder from the variable."""
    error = "libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12"
    folder = "/usr/local/cuda-12.1/lib64"
    one = results(torch=no_import(error), machine={"libraries": {folder: ("libcusparse.so.12",)}})
    remedy = fix("remove-from-ld-library-path", folder=folder)
    assert outcome(check_of("torch", one))[2] == remedy
    assert outcome(check_of("cuda", one))[2] == remedy


def test_other_failures_of_the_import() -> None:
    """For each other cause of a failing `import torch` (old glibc, crash, timeout, LD_PRELOAD, missing
    module), the PyTorch check has a specific reason or fix."""
    old = results(torch=no_import("/lib/libc.so.6: version `GLIBC_2.28' not found"))
    assert outcome(check_of("torch", old))[2] == fix("install-torch-for-older-system")
    nothing = {**no_import(""), "import_error": None}
    del nothing["import_error"]
    without = replace(
        results(), torch_result=replace(results().torch_result, ending="crashed", detail="SIGSEGV", values={})
    )
    assert outcome(check_of("torch", without)) == (
        "broken",
        issue("torch-import-crashed", signal="SIGSEGV"),
        SEE_TRACEBACK,
    )
    hung = replace(
        results(), torch_result=replace(results().torch_result, ending="hung", values={"step": "import"})
    )
    assert outcome(check_of("torch", hung))[:2] == ("unknown", issue("torch-import-timeout", timeout_s=15.0))
    preloaded = results(torch=no_import("no\nmore", "OSError"), variables={"LD_PRELOAD": "/x/lib.so"})
    found = check_of("torch", preloaded)
    assert outcome(found) == (
        "broken",
        issue("torch-import-error", type="OSError", error="no\nmore"),
        fix("unset-ld-preload", value="/x/lib.so"),
    )
    assert found.reason == "'import torch' raises OSError: no."
    of_python = results(
        torch=no_import("No module named 'sympy'", "ModuleNotFoundError"),
        machine={"libraries": {"/usr/local/cuda/lib64": ("libcudart.so.12",)}},
    )
    assert outcome(check_of("torch", of_python))[2] == SEE_TRACEBACK
    own = results(torch=no_import("No module named 'torch.x'", "ModuleNotFoundError"))
    assert outcome(check_of("torch", own))[2] == ANEW


def test_an_import_that_ends_python_silently() -> None:
    """If `import torch` ends Python without an exception or a crash, the PyTorch check reports that Python
    ended silently."""
    silent = replace(results(), torch_result=ProbeResult("ended", "", {"step": "import"}))
    assert outcome(check_of("torch", silent))[1] == issue("torch-import-ended")


def test_a_torch_that_was_loaded_before_another_was_installed() -> None:
    """If another torch version was installed after the notebook imported torch, the fix is to restart the
    kernel."""
    assert outcome(check_of("torch", results(notebook=NotebookState("2.9.0")))) == (
        "warning",
        issue("torch-changed-since-import", loaded="2.9.0", installed="2.13.0"),
        fix("restart-kernel"),
    )
    assert check_of("torch", results(notebook=NotebookState("2.13.0"))).status == "ok"


def test_another_cudnn_in_the_library_path_that_is_not_loaded_yet() -> None:
    """A second cuDNN in LD_LIBRARY_PATH is a warning even before any of its libraries has been loaded."""
    one = results(machine={"libraries": {"/opt/cudnn8": ("libcudnn.so.8", "libcudnn_ops_infer.so.8")}})
    assert outcome(check_of("cudnn", one))[:2] == (
        "warning",
        issue("second-cudnn", folder="/opt/cudnn8", file="libcudnn.so.8"),
    )


def test_memory_that_is_too_little_for_the_import() -> None:
    """If `import torch` is killed or can't map a library into memory, the fix is to check the memory limit or
    to give the environment more memory."""
    killed = replace(results(), torch_result=ProbeResult("crashed", "SIGKILL", {"step": "import"}))
    assert outcome(check_of("torch", killed))[1:] == (
        issue("torch-import-killed", signal="SIGKILL"),
        fix("more-memory"),
    )
    limited = results(torch=no_import("libtorch_cuda.so: failed to map segment from shared object"))
    assert outcome(check_of("torch", limited))[2] == fix("raise-memory-limit")


def test_one_thread_for_a_data_loader() -> None:
    """OMP_NUM_THREADS=1 is a warning only beside a DataLoader that prepares its batches in the notebook's
    process, and only if torch really uses one thread."""
    one = NotebookState("2.13.0", cpu_threads=1, loaders=("train", "test"))
    limited = {"OMP_NUM_THREADS": "1"}
    assert outcome(check_of("torch", results(variables=limited, notebook=one))) == (
        "warning",
        issue("omp-one-thread", loaders=("train", "test")),
        fix("add-workers-or-threads"),
    )
    for variables, notebook in (
        ({}, one),
        ({"OMP_NUM_THREADS": "8"}, one),
        (limited, replace(one, loaders=())),
        (limited, replace(one, cpu_threads=8)),
        (limited, replace(one, cpu_threads=None)),
    ):
        assert check_of("torch", results(variables=variables, notebook=notebook)).status == "ok"


def test_a_crash_in_the_drivers_library_is_not_blamed_on_torch() -> None:
    """If the driver's library crashes without torch, too, the fix for torch's crash is to fix the driver."""
    crashed = ProbeResult("crashed", "SIGABRT", {"step": "init"})
    one = replace(
        results(), cuda_result=crashed, torch_result=ProbeResult("crashed", "SIGABRT", {"step": "import"})
    )
    assert outcome(check_of("torch", one))[2] == fix("fix-driver-first")
    assert outcome(check_of("driver", one)) == (
        "broken",
        issue(
            "step-unfinished",
            step="CUDA initialization (cuInit)",
            ending="crashed",
            how="SIGABRT",
            silent_s=0.0,
        ),
        fix("repair-driver", library="libcuda.so.1"),
    )
    preloaded = replace(one, variables={"LD_PRELOAD": "/x.so"})
    assert outcome(check_of("driver", preloaded))[2] == fix("unset-ld-preload", value="/x.so")


# -- cuDNN, NCCL -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "one",
    [results(torch={"cudnn_enabled": False}), results(notebook=NotebookState("2.13.0", cudnn_off=True))],
)
def test_cudnn_switched_off(one: ProbeResults) -> None:
    """If the environment or the notebook disables cuDNN, the cuDNN check is a warning."""
    assert outcome(check_of("cudnn", one)) == ("warning", issue("cudnn-off"), fix("switch-cudnn-on"))


def test_cudnn_of_another_version_than_the_build() -> None:
    """If cuDNN's version differs from the one that torch was built with, the cuDNN check shows the first line
    of torch's error."""
    error = (
        "cuDNN version incompatibility: PyTorch was compiled against (9, 10, 2) but found (8, 9, 7).\nMore"
    )
    one = check_of("cudnn", results(torch={"cudnn": None, "cudnn_error": error}))
    assert outcome(one)[:2] == ("broken", issue("cudnn-fails", error=error.splitlines()[0]))


def test_cudnn_from_two_folders_at_once() -> None:
    """If parts of cuDNN were loaded from two folders, the cuDNN check is "broken". The fix is to remove the
    folder that is not torch's from LD_LIBRARY_PATH."""
    other = "/usr/lib/cudnn8"
    one = results(
        torch={"mapped": [CUDNN_FILE, f"{other}/libcudnn_ops.so.9"]},
        machine={"libraries": {other: ("libcudnn_ops.so.9",)}},
    )
    found = check_of("cudnn", one)
    folder = CUDNN_FILE.rpartition("/")[0]
    assert outcome(found) == (
        "broken",
        issue("library-mixed", library="cudnn", folders=(folder, other)),
        fix("remove-from-ld-library-path", folder=other),
    )
    (second,) = found.issues[1:]
    assert (second.id, second.params) == issue(
        "library-overridden", file="libcudnn_ops.so.9", folder=other, entry=other
    )
    assert found.evidence["finding 2"] == second.reason


def test_torchs_own_folder_in_the_library_path_beside_another_cudnn() -> None:
    """If LD_LIBRARY_PATH contains torch's own folder, a part of another cuDNN is still found. The fix does
    not remove torch's folder."""
    folder, file = CUDNN_FILE.rsplit("/", 1)
    one = results(
        torch={"mapped": [CUDNN_FILE, "/opt/c/libcudnn_ops.so.9"]},
        machine={"libraries": {folder: (file,)}, "same_as_torchs": frozenset({CUDNN_FILE})},
    )
    (mixed,) = check_of("cudnn", one).issues
    assert (mixed.id, mixed.params) == issue("library-mixed", library="cudnn", folders=(folder, "/opt/c"))
    assert mixed.fix is not None
    assert mixed.fix.id != "remove-from-ld-library-path"


def test_copies_by_pip_and_by_conda() -> None:
    """If pip and conda have each installed cuDNN, the cuDNN check lists both copies and the installer of
    each. The package nvidia-cudnn-frontend does not count as a copy."""
    cuda = (
        InstalledPackage("cudnn", "9.3.0", "conda"),
        InstalledPackage("libcudnn", "9.3.0", "conda"),
        InstalledPackage("nvidia-cudnn-cu13", "9.10.2.21", "pip"),
        InstalledPackage("nvidia-cudnn-frontend", "1.14", "pip"),
    )
    copies = ("nvidia-cudnn-cu13 9.10.2.21 (pip)", "cudnn 9.3.0 (conda)")
    assert outcome(check_of("cudnn", results(packages={"cuda": cuda}))) == (
        "warning",
        issue("library-copies", library="cudnn", packages=copies),
        fix("uninstall-other-copy", package="nvidia-cudnn-cu13"),
    )


def test_a_library_that_shadows_torchs_own() -> None:
    """If a CUDA library was loaded from a folder in LD_LIBRARY_PATH instead of torch's folder, the check is a
    warning that names the library and the folder. If LD_LIBRARY_PATH contains torch's own folder, the check
    is "ok"."""
    folder = "/usr/local/cuda/lib64"
    one = results(
        torch={"mapped": [f"{folder}/libcudart.so.13"]}, machine={"libraries": {folder: ("libcudart.so.13",)}}
    )
    assert outcome(check_of("cuda", one))[:2] == (
        "warning",
        issue("library-overridden", file="libcudart.so.13", folder=folder, entry=folder),
    )
    own = f"{SITE}/nvidia/cuda_runtime/lib"
    harmless = results(
        torch={"mapped": [f"{own}/libcudart.so.13"]}, machine={"libraries": {own: ("libcudart.so.13",)}}
    )
    assert check_of("cuda", harmless).status == "ok"


def test_a_library_path_that_leads_there_by_links() -> None:
    """If LD_LIBRARY_PATH contains a link to a folder with another CUDA, the reason names the folder that the
    link points to, and the fix names the link as it is written in the variable."""
    spelt, real = "/usr/local/cuda/lib64/", "/usr/local/cuda-13.0/targets/x86_64-linux/lib"
    path = {"libraries": {spelt: ("libcudart.so.13",)}, "real_folders": {real: spelt}}
    found = check_of("cuda", results(torch={"mapped": [f"{real}/libcudart.so.13"]}, machine=path))
    assert outcome(found)[1:] == (
        issue("library-overridden", file="libcudart.so.13", folder=real, entry=spelt),
        fix("remove-from-ld-library-path", folder=spelt),
    )
    slash = {"libraries": {f"{real}/": ("libcudart.so.13",)}, "real_folders": {real: f"{real}/"}}
    found = check_of("cuda", results(torch={"mapped": [f"{real}/libcudart.so.13"]}, machine=slash))
    assert outcome(found)[1] == (
        issue("library-overridden", file="libcudart.so.13", folder=real, entry=f"{real}/")
    )


def test_a_library_path_that_leads_to_torchs_own_by_links() -> None:
    """If LD_LIBRARY_PATH contains torch's own library folder, directly or through a link, the cuDNN check is
    "ok"."""
    own, spelt = CUDNN_FILE.rpartition("/")[0], "/home/anna/cudnn"
    path = {"libraries": {spelt: ("libcudnn.so.9",)}, "real_folders": {own: spelt}}
    assert check_of("cudnn", results(machine=path)).status == "ok"
    linked = results(
        torch={"file": "/env/lib64/python3.12/site-packages/torch/__init__.py"},
        machine={"libraries": {own: ("libcudnn.so.9",)}, "real_folders": {own: own}},
        packages={"torch": TorchFiles("/x/torch/__init__.py", (), "2", "13", f"{SITE}/torch/__init__.py")},
    )
    assert check_of("cudnn", linked).status == "ok"


def test_variables_that_change_cudas_speed_or_results() -> None:
    """CUDA_LAUNCH_BLOCKING and NVIDIA_TF32_OVERRIDE are warnings that state what they do. TF32 is not
    mentioned on a GPU without TF32."""
    assert outcome(check_of("cuda", results(variables={"CUDA_LAUNCH_BLOCKING": "1"}))) == (
        "warning",
        issue("cuda-launch-blocking"),
        fix("unset-launch-blocking"),
    )
    for value in ("0", "1"):
        assert outcome(check_of("cuda", results(variables={"NVIDIA_TF32_OVERRIDE": value})))[:2] == (
            "warning",
            issue("tensor-float-override", value=value),
        )
    turing = nvml(h200(compute_capability="7.5"))
    for variables in ({"CUDA_LAUNCH_BLOCKING": "0"}, {"NVIDIA_TF32_OVERRIDE": ""}):
        assert check_of("cuda", results(variables=variables)).status == "ok"
    assert check_of("cuda", results(variables={"NVIDIA_TF32_OVERRIDE": "0"}, nvml=turing)).status == "ok"


def test_nccl() -> None:
    """The NCCL check is skipped if torch has no NCCL. It is a warning if NCCL_P2P_DISABLE is 1, because NCCL
    is slower then."""
    assert check_of("nccl", results(torch={"nccl": None})).status == "skipped"
    assert outcome(check_of("nccl", results(variables={"NCCL_P2P_DISABLE": "1"})))[:2] == (
        "warning",
        issue("nccl-switch", variable="NCCL_P2P_DISABLE"),
    )
    assert check_of("nccl", results(variables={"NCCL_P2P_DISABLE": "0"})).status == "ok"
