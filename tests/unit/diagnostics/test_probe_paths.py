"""The working directory: no probe runs a file from it, and one that hides torch is still reported."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_doctor import WORKING, fake_torch

from gpuwidget.diagnostics import isolated_run
from gpuwidget.diagnostics.probe_process import ProbeEnvironment, without_working_directory
from gpuwidget.model.diagnosis import Check, EnvironmentKind

Examine = Callable[..., Check]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which other people can write to."""
    here = tmp_path / "shared"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def examine(tmp_path: Path, folder: Path) -> Examine:
    """Return the check of PyTorch, with a working torch after the working directory on the path."""
    fake_torch(tmp_path / "site", WORKING)

    def run(place: EnvironmentKind = "kernel", first: str = "", **variables: str) -> Check:
        path = [first, str(tmp_path / "site"), *sys.path]
        environment = ProbeEnvironment(sys.executable, path, {**os.environ, **variables})
        return isolated_run.run_in_subprocess(place, "0.1.0", environment).links[0]

    return run


def leaves_a_mark(folder: Path, name: str) -> Path:
    """Create a file of that name in the folder; return the path that exists once it has run."""
    mark = folder / f"{name}-ran"
    (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    return mark


@pytest.mark.parametrize("first", ["", ".", "the folder's own name"])
@pytest.mark.parametrize("name", ["torch", "psutil", "pynvml", "packaging", "gpuwidget", "numpy"])
def test_no_file_of_the_working_directory_runs(examine: Examine, folder: Path, name: str, first: str) -> None:
    """The file does not run, by whatever name the folder is on the path."""
    mark = leaves_a_mark(folder, name)
    examine(first=str(folder) if first.startswith("the") else first)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize", "os"])
def test_nothing_runs_as_python_starts(examine: Examine, folder: Path, name: str) -> None:
    """An empty part of PYTHONPATH is the working directory too, and Python searches it first."""
    mark = leaves_a_mark(folder, name)
    examine(PYTHONPATH=os.pathsep.join(("", str(folder), "/elsewhere")))
    assert not mark.exists()


def test_a_torch_py_beside_the_notebook_is_found_without_running_it(examine: Examine, folder: Path) -> None:
    """A file that breaks the notebook's import is reported, though the probe imported the real torch."""
    mark = leaves_a_mark(folder, "torch")
    one = examine()
    assert (one.status, one.reason, one.remedy) == (
        "broken",
        f"{folder}/torch.py is what 'import torch' finds in place of the package.",
        f"Give {folder}/torch.py another name, and start the kernel anew.",
    )
    assert not mark.exists()


def test_a_torch_in_the_servers_folder_is_not_the_servers(examine: Examine, folder: Path) -> None:
    """A server imports nothing from the folder that it was started in."""
    leaves_a_mark(folder, "torch")
    assert (examine("server").status, examine("server").found) == ("ok", "2.10.0, built for CUDA 12.8")


def test_a_checkout_of_torch_is_not_imported(examine: Examine, folder: Path) -> None:
    """A whole torch in the working directory is reported as unchecked, neither as ok nor as broken."""
    fake_torch(folder, WORKING)
    one = examine()
    assert (one.status, one.reason) == (
        "unknown",
        f"'import torch' finds {folder}/torch/__init__.py, in the working directory. The doctor runs no file "
        "of the working directory, so this PyTorch was not checked.",
    )


@pytest.mark.parametrize(
    ("name", "what"),
    [("calendar", "Python's own module calendar"), ("numpy", "the package numpy, which PyTorch uses")],
)
def test_a_file_that_hides_a_module_that_torch_needs(
    examine: Examine, folder: Path, name: str, what: str
) -> None:
    """The file is named, with the fix."""
    mark = leaves_a_mark(folder, name)
    one = examine()
    assert (one.status, one.reason) == ("warning", f"{name}.py in {folder} hides {what}.")
    assert not mark.exists()


def test_the_environments_own_folder_stays(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A user who works in site-packages needs it on the path."""
    monkeypatch.chdir(os.path.dirname(os.__file__))
    path = ["", os.path.dirname(os.__file__), "/elsewhere"]
    assert without_working_directory(path) == path[1:]
    monkeypatch.chdir(folder)
    assert without_working_directory(["", ".", str(folder), *path]) == path[1:]
