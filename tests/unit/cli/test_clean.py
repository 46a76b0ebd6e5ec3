"""Tests of ``gpuwidget clean`` and of the preprocessor for nbconvert."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import helpers_reports as reports
import pytest

from gpuwidget.cli.commands import clean
from gpuwidget.cli.main import main
from gpuwidget.model.errors import NotebookError
from gpuwidget.views import card
from gpuwidget.views.saved_outputs import output_metadata

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "notebooks" / "quickstart.ipynb"
PAGE = ROOT / "docs" / "using" / "privacy.md"


def notebook(*, with_card: bool = True) -> dict[str, Any]:
    """Return a notebook with printed text and perhaps a card below it, and fields unknown to gpuwidget."""
    bundle = card.bundle(reports.starved())
    shown = {"output_type": "display_data", "metadata": output_metadata(), "data": bundle}
    text = {"output_type": "stream", "name": "stdout", "text": ["größer\n", "Δ 1e-05\n"]}
    return {
        "nbformat": 4,
        "zebra": {"unknown": [1, 2.5, None, "\x1b"]},
        "metadata": {"kernelspec": {"name": "python3"}, "empty": {}},
        "cells": [
            {
                "source": ["%%gpuwatch\n", "print(1)"],
                "cell_type": "code",
                "outputs": [text, shown] if with_card else [text],
                "id": "a",
                "execution_count": 1,
                "metadata": {"tags": ["x"]},
            },
            {"cell_type": "markdown", "id": "b", "metadata": {}, "source": "# Größe"},
        ],
        "nbformat_minor": 5,
    }


def write(path: Path, content: Any, **options: Any) -> Path:
    """Write a notebook as Jupyter does: with one space per level and a newline at the end."""
    text = json.dumps(content, **{"indent": 1, "ensure_ascii": False, **options}) + "\n"
    path.write_bytes(text.encode())
    return path


def files(folder: Path) -> list[str]:
    """Return the names of all files in a folder."""
    return sorted(os.listdir(folder))


def test_only_outputs_of_gpuwidget_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`gpuwidget clean` removes a card and prints what it removed. All other text of the file stays
    the same, including the order of keys, unknown fields and the file's permissions."""
    path = write(tmp_path / "a.ipynb", notebook())
    path.chmod(0o640)
    expected = write(tmp_path / "b.ipynb", notebook(with_card=False)).read_bytes()
    assert main(["clean", str(path)]) == 0
    assert capsys.readouterr() == (f"{path}: removed 1 output of gpuwidget in 1 cell\n", "")
    assert path.read_bytes() == expected
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert files(tmp_path) == ["a.ipynb", "b.ipynb"]


@pytest.mark.parametrize(
    "options",
    [{"indent": 2}, {"indent": "\t"}, {"indent": None}, {"indent": None, "separators": (",", ":")},
     {"ensure_ascii": True}],
)  # fmt: skip
@pytest.mark.parametrize("change", ["", "CRLF", "BOM", "no newline", "two newlines"])
def test_the_format_of_the_file_stays(tmp_path: Path, options: dict[str, Any], change: str) -> None:
    """Indentation, escaped characters, line ends, a byte order mark and the end of the file stay the same."""

    def changed(path: Path) -> Path:
        text = path.read_bytes().decode()
        text = text.replace("\n", "\r\n") if change == "CRLF" else text
        text = "\ufeff" + text if change == "BOM" else text
        text = text.rstrip() if change == "no newline" else text
        text = text + "\n" if change == "two newlines" else text
        path.write_bytes(text.encode())
        return path

    path = changed(write(tmp_path / "a.ipynb", notebook(), **options))
    expected = changed(write(tmp_path / "b.ipynb", notebook(with_card=False), **options)).read_bytes()
    clean.clean_notebook(path)
    assert path.read_bytes() == expected


def test_half_of_a_surrogate_pair(tmp_path: Path) -> None:
    """A string that UTF-8 can't encode stays escaped, even if other characters of the file are not."""
    content = notebook()
    content["cells"][1]["source"] = "ö \ud83d"
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps(content, ensure_ascii=False).replace("\ud83d", "\\ud83d"), encoding="utf-8")
    clean.clean_notebook(path)
    assert '"ö \\ud83d"' in path.read_text(encoding="utf-8")


def test_the_digits_of_numbers_stay(tmp_path: Path) -> None:
    """Numbers keep their digits, also those that Python would round or write in another way."""
    numbers = "[0.12345678901234567890, 1e-7, 1.50, 1E400, NaN, 123456789012345678901234567890]"
    path = write(tmp_path / "a.ipynb", {**notebook(), "numbers": "here"}, indent=None)
    path.write_bytes(path.read_bytes().replace(b'"here"', numbers.encode()))
    clean.clean_notebook(path)
    assert f'"numbers": {numbers}' in path.read_text(encoding="utf-8")


def test_a_name_that_occurs_twice(tmp_path: Path) -> None:
    """If an object has two entries with the same name, the file is unchanged, because one of them would be
    lost."""
    path = write(tmp_path / "a.ipynb", notebook())
    path.write_bytes(path.read_bytes().replace(b'"empty": {}', b'"tags": [1], "tags": [2]'))
    before = path.read_bytes()
    with pytest.raises(NotebookError) as caught:
        clean.clean_notebook(path)
    assert str(caught.value) == (
        f"{path} can't be cleaned: an object of its JSON has two entries with the name 'tags', and one of "
        "them would be lost."
    )
    assert path.read_bytes() == before


def test_a_notebook_that_is_too_deeply_nested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the notebook is nested more deeply than Python can write, an error has the reason, and the file is
    unchanged. How deep that is depends on the version of Python."""
    path = write(tmp_path / "a.ipynb", notebook())
    before = path.read_bytes()

    def fail(*arguments: object, **options: object) -> str:
        raise RecursionError

    monkeypatch.setattr(json, "dumps", fail)
    with pytest.raises(NotebookError, match="can't be cleaned: its JSON is too deeply nested"):
        clean.clean_notebook(path)
    assert path.read_bytes() == before


def test_nothing_to_remove(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A notebook without outputs of gpuwidget is not written, even if its permissions would allow it."""
    path = write(tmp_path / "a.ipynb", notebook(with_card=False))
    before = path.stat()
    assert main(["clean", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: nothing to remove\n"
    after = path.stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """If the path is a symbolic link, the file that it refers to is cleaned."""
    path = write(tmp_path / "a.ipynb", notebook())
    link = tmp_path / "link.ipynb"
    link.symlink_to(path)
    clean.clean_notebook(link)
    assert link.is_symlink()
    assert json.loads(path.read_text(encoding="utf-8")) == notebook(with_card=False)


def test_a_file_with_two_names(tmp_path: Path) -> None:
    """If the notebook has hard links, it is cleaned under all its names, and they remain names of one
    file."""
    path = write(tmp_path / "a.ipynb", notebook())
    path.chmod(0o640)
    (tmp_path / "b.ipynb").hardlink_to(path)
    clean.clean_notebook(path)
    expected = write(tmp_path / "c.ipynb", notebook(with_card=False)).read_bytes()
    assert [(tmp_path / name).read_bytes() for name in ("a.ipynb", "b.ipynb")] == [expected, expected]
    assert path.samefile(tmp_path / "b.ipynb")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert files(tmp_path) == ["a.ipynb", "b.ipynb", "c.ipynb"]


def test_a_file_with_two_names_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If writing a notebook with hard links fails, the old content is written back."""
    path = write(tmp_path / "a.ipynb", notebook())
    (tmp_path / "b.ipynb").hardlink_to(path)
    before, sync, calls = path.read_bytes(), os.fsync, []

    def full(number: int) -> None:
        calls.append(number)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        sync(number)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotebookError, match="can't be written: No space left on device"):
        clean.clean_notebook(path)
    assert (path.read_bytes(), len(calls)) == (before, 2)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is not a notebook: it contains no valid JSON."),
        (b"\xff\xfe{}", "is not a notebook: it is not a text file in UTF-8."),
        (b"print(1)", "is not a notebook: it contains no valid JSON."),
        (b'{"cells": []', "is not a notebook: it contains no valid JSON."),
        (b"[" * 100_000, "is not a notebook: it contains no valid JSON."),
        (b"[]", "is not a notebook: its JSON has no 'nbformat'."),
        (b'{"a": 1}', "is not a notebook: its JSON has no 'nbformat'."),
        (
            b'{"nbformat": 3, "worksheets": []}',
            "has notebook format 3, but gpuwidget can clean only format 4. To convert an old notebook, open "
            "it in JupyterLab and save it.",
        ),
    ],
)
def test_a_file_that_is_no_notebook(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, why: str
) -> None:
    """For a file that is not a notebook, an error has the reason. The file is unchanged, and the other files
    are cleaned."""
    bad, good = tmp_path / "bad.ipynb", write(tmp_path / "good.ipynb", notebook())
    bad.write_bytes(content)
    assert main(["clean", str(bad), str(good)]) == 1
    assert capsys.readouterr() == (
        f"{good}: removed 1 output of gpuwidget in 1 cell\n",
        f"gpuwidget: {bad} {why}\n",
    )
    assert bad.read_bytes() == content
    assert files(tmp_path) == ["bad.ipynb", "good.ipynb"]


def test_a_missing_file_and_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path without a file is an error with the reason."""
    missing = tmp_path / "missing.ipynb"
    assert main(["clean", str(missing), str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"gpuwidget: {missing} can't be read: No such file or directory.",
        f"gpuwidget: {tmp_path} can't be read: Is a directory.",
    ]


def test_a_file_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the new content can't be written completely, the file keeps its content, and no other file stays."""
    path = write(tmp_path / "a.ipynb", notebook())
    before = path.read_bytes()

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotebookError) as caught:
        clean.clean_notebook(path)
    assert str(caught.value) == f"{path} can't be written: No space left on device."
    assert path.read_bytes() == before
    assert files(tmp_path) == ["a.ipynb"]


def test_a_file_that_another_program_saves_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If JupyterLab saves the notebook while it is cleaned, the notebook that JupyterLab saved stays."""
    path = write(tmp_path / "a.ipynb", notebook())
    sync = os.fsync

    def save(number: int) -> None:
        sync(number)
        path.write_text("saved")

    monkeypatch.setattr(os, "fsync", save)
    with pytest.raises(NotebookError) as caught:
        clean.clean_notebook(path)
    assert str(caught.value) == (
        f"{path} can't be written: another program has just changed it. Close the notebook and try again."
    )
    assert path.read_text() == "saved"
    assert files(tmp_path) == ["a.ipynb"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may write every file")
def test_a_file_without_write_permission(tmp_path: Path) -> None:
    """A file that the user has protected against changes is not replaced."""
    path = write(tmp_path / "a.ipynb", notebook())
    path.chmod(0o400)
    with pytest.raises(NotebookError, match="can't be written: permission denied"):
        clean.clean_notebook(path)


def test_clean_accepts_no_options_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The options of the table of GPUs are refused with a sentence."""
    assert main(["--json", "clean", "a.ipynb"]) == 2
    assert capsys.readouterr().err == "gpuwidget: clean accepts neither --json nor --interval.\n"


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_nbconvert(tmp_path: Path, form: str) -> None:
    """With the option that the documentation gives, `jupyter nbconvert` leaves out gpuwidget's cards. Printed
    text stays, and the notebook file is unchanged."""
    path = tmp_path / "train.ipynb"
    path.write_bytes(EXAMPLE.read_bytes())

    def convert(name: str, *options: str) -> str:
        command = [sys.executable, "-m", "jupyter", "nbconvert", "--to", form, f"--output={name}", *options]
        subprocess.run([*command, str(path)], check=True, capture_output=True, cwd=tmp_path)
        (made,) = tmp_path.glob(f"{name}.*")
        return made.read_text(encoding="utf-8")

    card_text = "font:13px/1.5 var(--jp-ui-font-family"
    assert card_text in convert("plain")
    (option,) = re.findall(r"--Exporter\S+", PAGE.read_text(encoding="utf-8"))
    cleaned = convert("cleaned", option)
    assert card_text not in cleaned
    assert "vnd.gpuwidget.report" not in cleaned
    assert "step 300: loss" in cleaned
    assert path.read_bytes() == EXAMPLE.read_bytes()
