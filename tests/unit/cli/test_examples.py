"""Tests of the ``gpuwidget examples`` command, which copies the example notebooks."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from gpuwidget.cli.commands import examples
from gpuwidget.cli.commands.examples import notebooks
from gpuwidget.cli.main import main


def test_notebooks_are_copied_into_a_new_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``gpuwidget examples DIR`` creates the folder, copies the notebooks into it and prints their paths."""
    folder = tmp_path / "new" / "examples"
    assert main(["examples", str(folder)]) == 0
    copies = sorted(folder.iterdir())
    assert capsys.readouterr().out.splitlines() == [str(copy) for copy in copies]
    assert [copy.read_bytes() for copy in copies] == [notebook.read_bytes() for notebook in notebooks()]
    assert "quickstart.ipynb" in [copy.name for copy in copies]


def test_existing_notebooks_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If the folder already contains a notebook with the name of an example, no notebook is copied. The error
    names the existing notebook, which may contain the user's changes."""
    mine = tmp_path / "quickstart.ipynb"
    mine.write_text("my own work")
    assert main(["examples", str(tmp_path)]) == 1
    assert "already contains quickstart.ipynb. Nothing was overwritten" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["quickstart.ipynb"]
    assert mine.read_text() == "my own work"


def test_no_link_is_followed(tmp_path: Path) -> None:
    """If the folder contains a symbolic link with the name of an example notebook, even a dangling link, no
    notebook is copied."""
    (tmp_path / "quickstart.ipynb").symlink_to(tmp_path / "elsewhere")
    assert main(["examples", str(tmp_path)]) == 1
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_in_place_of_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If the given path is a file, the command prints a one-line error."""
    (tmp_path / "file").write_text("")
    assert main(["examples", str(tmp_path / "file")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("name", ["x" * 300, "shut/inside"])
def test_an_unreadable_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """If the path is too long or its folder can't be read, the command prints a one-line error without a
    traceback."""
    look = os.stat

    def shut(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if "shut" in os.fspath(path):  # simulated, because tests that run as root could read every folder
            raise PermissionError(errno.EACCES, "Permission denied")
        return look(path, *args, **options)

    monkeypatch.setattr(os, "stat", shut)
    assert main(["examples", str(tmp_path / name)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_failure_midway_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the disk becomes full while notebooks are copied, the command leaves no partial copies and leaves
    the user's files unchanged. It succeeds when it is run again with enough space."""
    (tmp_path / "mine.ipynb").write_text("my own work")
    read = Path.read_bytes
    last = notebooks()[-1]

    def full(path: Path) -> bytes:
        if path == last:
            raise OSError(errno.ENOSPC, "No space left on device")
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", full)
        assert main(["examples", str(tmp_path)]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.ipynb"]
    assert main(["examples", str(tmp_path)]) == 0


@pytest.mark.parametrize("words", [["--json", "examples", "x"], ["-i", "1", "examples", "x"]])
def test_wrong_use(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``gpuwidget examples`` rejects the options of the GPU table, such as ``--json``, and creates no
    files."""
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert list(tmp_path.iterdir()) == []


def test_an_installation_without_notebooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If gpuwidget was installed without its notebooks, the command reports that the installation has
    none."""
    monkeypatch.setattr(examples, "_INSTALLED", tmp_path)
    assert main(["examples", str(tmp_path / "x")]) == 1
    assert "has no notebooks" in capsys.readouterr().err
