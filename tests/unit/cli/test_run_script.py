"""Tests of ``gpuwidget run``: the script runs as it would without gpuwidget."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import beside
assert __name__ == "__main__"
print(sys.argv[1:], sys.path[0] == {folder!r}, sys.modules["__main__"].__file__ == __file__)
{end}
"""


def ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.parametrize(
    "end", ["", "sys.exit(3)", "sys.exit('too bad')", "1 / 0", "raise KeyboardInterrupt"]
)
def test_a_script_runs_as_without(tmp_path: Path, end: str) -> None:
    """A script prints the same, ends with the same exit code and prints the same error as without
    ``gpuwidget run``. Options for the script are not parsed by gpuwidget."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside.py").touch()
    path = tmp_path / "sub" / "train.py"
    path.write_text(SCRIPT.format(folder=str(path.parent), end=end))
    arguments = [str(path), "--json", "-m", "x", "--", "-i"]
    plain = ran(arguments, tmp_path)
    reported = ran(["-m", "gpuwidget", "run", *arguments], tmp_path)
    assert plain.stdout == "['--json', '-m', 'x', '--', '-i'] True True\n"
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
