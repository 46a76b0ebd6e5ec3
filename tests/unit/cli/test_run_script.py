"""Tests of ``gpuwidget run``: the script runs as it would without gpuwidget."""

from __future__ import annotations

import subprocess
import sys
import zipapp
from pathlib import Path

import pytest

SCRIPT = """
import sys
import beside
assert __name__ == "__main__"
print(sys.argv, sys.path[0] == {folder!r}, sys.modules["__main__"].__file__ == __file__, __file__)
{end}
"""


def ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize(
    "end", ["", "sys.exit(3)", "sys.exit('too bad')", "1 / 0", "raise KeyboardInterrupt"]
)
def test_a_script_runs_as_without(tmp_path: Path, end: str, absolute: bool) -> None:
    """A script prints the same, ends with the same exit code and prints the same error as without
    ``gpuwidget run``. Its ``__file__`` is absolute, and its path in ``sys.argv`` is as given. Options for the
    script are not parsed by gpuwidget."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside.py").touch()
    path = tmp_path / "sub" / "train.py"
    path.write_text(SCRIPT.format(folder=str(path.parent), end=end))
    script = str(path) if absolute else "sub/train.py"
    arguments = [script, "--json", "-m", "x", "--", "-i"]
    plain = ran(arguments, tmp_path)
    reported = ran(["-m", "gpuwidget", "run", *arguments], tmp_path)
    assert plain.stdout == f"{[script, *arguments[1:]]} True True {path}\n"
    assert reported.stdout == plain.stdout
    assert reported.returncode == plain.returncode
    assert reported.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]


def test_a_module_runs_as_without(tmp_path: Path) -> None:
    """``gpuwidget run -m MODULE`` runs a module as ``python -m MODULE`` does."""
    (tmp_path / "job.py").write_text("import sys; print(__name__, sys.argv[1:], sys.argv[0] == __file__)")
    plain = ran(["-m", "job", "--lr", "3"], tmp_path)
    reported = ran(["-m", "gpuwidget", "run", "-m", "job", "--lr", "3"], tmp_path)
    assert plain.stdout == "__main__ ['--lr', '3'] True\n"
    assert reported.stdout == plain.stdout


def test_a_missing_script(tmp_path: Path) -> None:
    """A script that does not exist is named in one sentence, and the exit status is 2."""
    found = ran(["-m", "gpuwidget", "run", "absent.py"], tmp_path)
    text = "gpuwidget: there is no script 'absent.py'. Give the path of a Python file, or -m and a module.\n"
    assert (found.returncode, found.stdout, found.stderr) == (2, "", text)


@pytest.mark.parametrize("name", ["absent", "absent.part", "package", "package.absent", ".relative"])
def test_a_missing_module(tmp_path: Path, name: str) -> None:
    """A module that does not exist, and a package that can't be run, is named in one line."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    found = ran(["-m", "gpuwidget", "run", "-m", name], tmp_path)
    missing = "package.__main__" if name == "package" else name
    text = f"gpuwidget: there is no module {missing!r}.\n"
    assert (found.returncode, found.stdout, found.stderr) == (1, "", text)


def test_an_archive_runs_as_without(tmp_path: Path) -> None:
    """An archive of Python code runs as with ``python ARCHIVE``."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "__main__.py").write_text("import sys; print(__name__, sys.argv)")
    zipapp.create_archive(tmp_path / "code", tmp_path / "app.pyz")
    plain = ran(["app.pyz", "x"], tmp_path)
    assert plain.stdout == "__main__ ['app.pyz', 'x']\n"
    assert ran(["-m", "gpuwidget", "run", "app.pyz", "x"], tmp_path).stdout == plain.stdout


def test_a_missing_import_of_a_module(tmp_path: Path) -> None:
    """If the module to run imports one that is missing, the error is Python's."""
    (tmp_path / "job.py").write_text("import absent")
    found = ran(["-m", "gpuwidget", "run", "-m", "job"], tmp_path)
    assert found.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'absent'"
