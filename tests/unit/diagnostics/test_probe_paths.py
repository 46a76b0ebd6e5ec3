"""Tests that no probe runs a file from the working directory, and that a file that hides torch is
nevertheless reported."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_doctor import WORKING, fake_torch, fix, issue, outcome

from gpuwidget.diagnostics import isolated_run
from gpuwidget.diagnostics.probe_process import ProbeEnvironment, without_working_directory
from gpuwidget.model.diagnosis import Check, EnvironmentKind

RunTorchCheck = Callable[..., Check]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a folder, make it the working directory, and return it. It represents a folder that other users
    can write to."""
    here = tmp_path / "shared"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def run_torch_check(tmp_path: Path, folder: Path) -> RunTorchCheck:
    """Return a function that runs the PyTorch check. On the module search path, the working directory comes
    before a folder with a working torch."""
    fake_torch(tmp_path / "site", WORKING)

    def run(place: EnvironmentKind = "kernel", first: str = "", **variables: str) -> Check:
        path = [first, str(tmp_path / "site"), *sys.path]
        environment = ProbeEnvironment(sys.executable, path, {**os.environ, **variables})
        return isolated_run.run_in_subprocess(place, "0.1.0", environment).links[0]

    return run


def leaves_a_mark(folder: Path, name: str) -> Path:
    """Create a Python file that creates a marker file when it runs; return the path of the marker file."""
    mark = folder / f"{name}-ran"
    (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    return mark


@pytest.mark.parametrize("first", ["", ".", "the folder's own name"])
@pytest.mark.parametrize("name", ["torch", "psutil", "pynvml", "packaging", "gpuwidget", "numpy"])
def test_no_file_of_the_working_directory_runs(
    run_torch_check: RunTorchCheck, folder: Path, name: str, first: str
) -> None:
    """A probe runs no file from the working directory, whether the working directory is on the module search
    path as "", as "." or by its full name."""
    mark = leaves_a_mark(folder, name)
    run_torch_check(first=str(folder) if first.startswith("the") else first)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize", "os"])
def test_no_file_runs_when_python_starts(run_torch_check: RunTorchCheck, folder: Path, name: str) -> None:
    """A probe's interpreter runs no file from the working directory when it starts, even if PYTHONPATH
    contains that directory or an empty entry."""
    mark = leaves_a_mark(folder, name)
    run_torch_check(PYTHONPATH=os.pathsep.join(("", str(folder), "/elsewhere")))
    assert not mark.exists()


def test_a_torch_py_beside_the_notebook_is_found_without_running_it(
    run_torch_check: RunTorchCheck, folder: Path, tmp_path: Path
) -> None:
    """If the working directory contains a torch.py, which the notebook would import instead of torch, the
    PyTorch check is "broken". The file is not run."""
    mark, site = leaves_a_mark(folder, "torch"), tmp_path / "site"
    one = run_torch_check()
    assert outcome(one) == (
        "broken",
        issue("torch-hidden", file=f"{folder}/torch.py", second=f"{site}/torch", source="working-directory"),
        fix("rename-file", file=f"{folder}/torch.py"),
    )
    assert not mark.exists()


def test_a_server_ignores_torch_in_its_working_directory(
    run_torch_check: RunTorchCheck, folder: Path
) -> None:
    """On a server, a torch.py in the working directory is no issue, because the server imports nothing from
    the working directory."""
    leaves_a_mark(folder, "torch")
    assert (run_torch_check("server").status, run_torch_check("server").found) == (
        "ok",
        "2.10.0, built for CUDA 12.8",
    )


def test_a_checkout_of_torch_is_not_imported(
    run_torch_check: RunTorchCheck, folder: Path, tmp_path: Path
) -> None:
    """If the working directory contains a whole torch package, the PyTorch check is "unknown" and explains
    that this torch was not checked."""
    fake_torch(folder, WORKING)
    assert outcome(run_torch_check())[:2] == (
        "unknown",
        issue(
            "torch-in-working-directory",
            file=f"{folder}/torch/__init__.py",
            second=f"{tmp_path / 'site'}/torch",
        ),
    )


@pytest.mark.parametrize(("name", "standard"), [("calendar", True), ("numpy", False)])
def test_a_file_that_hides_a_module_that_torch_needs(
    run_torch_check: RunTorchCheck, folder: Path, name: str, standard: bool
) -> None:
    """If a file in the working directory hides a module that torch needs, the warning names the file and the
    module."""
    mark = leaves_a_mark(folder, name)
    one = run_torch_check()
    file = f"{folder}/{name}.py"
    assert outcome(one) == (
        "warning",
        issue(
            "module-hidden",
            file=file,
            name=f"{name}.py",
            folder=str(folder),
            module=name,
            standard=standard,
        ),
        fix("rename-file", file=file),
    )
    assert not mark.exists()


def test_the_environments_own_folder_stays(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """If the working directory is the environment's library folder, that folder stays on the probe's module
    search path. Any other working directory is removed."""
    monkeypatch.chdir(os.path.dirname(os.__file__))
    path = ["", os.path.dirname(os.__file__), "/elsewhere"]
    assert without_working_directory(path) == path[1:]
    monkeypatch.chdir(folder)
    assert without_working_directory(["", ".", str(folder), *path]) == path[1:]
