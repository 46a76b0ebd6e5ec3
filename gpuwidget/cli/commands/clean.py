"""``gpuwidget clean``: remove gpuwidget's outputs from notebook files."""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import shutil
import tempfile
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from gpuwidget.cli.command import FAILED, Command, fail, print_line
from gpuwidget.model.errors import NotebookError
from gpuwidget.views.saved_outputs import Removed, remove_outputs

_BOM = "\ufeff"
_FORMAT = 4
"""The major version of the notebook format that Jupyter has used since 2015."""
_INDENT = re.compile(r"[{\[]\r?\n([ \t]+)")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NUMBER = secrets.token_hex()
"""Prefix of the text of a number with a fraction or an exponent. The text is kept, because Python would write
many of these numbers with other digits. The prefix is random, so that no notebook contains it."""
_MARKED_NUMBER = re.compile(f'"{_NUMBER}([^"]*)"')


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("notebooks", type=Path, nargs="+", metavar="NOTEBOOK", help="path of a notebook file")


def _clean(options: argparse.Namespace) -> int:
    status = 0
    for path in options.notebooks:
        try:
            print_line(clean_notebook(path))
        except NotebookError as error:
            # The error in one notebook is no reason not to clean the others.
            status = fail(str(error), FAILED)
    return status


COMMAND = Command(
    description="Remove gpuwidget's outputs from notebook files: reports, cards, the outputs of %gpu, "
    "and the saved state of live charts and dashboards. Everything else stays as it is.",
    add_options=_add_options,
    run=_clean,
)


def clean_notebook(path: Path) -> str:
    """Remove gpuwidget's outputs from a notebook file, and return a sentence about what was removed.

    Everything else in the file stays the same, including its permissions and its other names (hard links). If
    there is nothing to remove, the file is not written. Raises NotebookError if the file is not a notebook or
    can't be written; the file is then unchanged.
    """
    try:
        target = Path(os.path.realpath(path))  # replaces the file that a link refers to, not the link
        before = target.stat()
        text = target.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise NotebookError(f"{path} is not a notebook: it is not a text file in UTF-8.") from None
    except OSError as error:
        raise NotebookError(f"{path} can't be read: {error.strerror or error}.") from None
    notebook = _parse(path, text)
    try:
        removed = remove_outputs(notebook)
        if removed.outputs or removed.widgets:
            _replace(target, before, _serialize(notebook, text))
    except RecursionError:
        raise NotebookError(f"{path} can't be cleaned: its JSON is too deeply nested.") from None
    except OSError as error:
        raise NotebookError(f"{path} can't be written: {error.strerror or error}.") from None
    return f"{path}: {_describe(removed)}"


def _parse(path: Path, text: str) -> Any:
    try:
        notebook = json.loads(
            text.removeprefix(_BOM), parse_float=_NUMBER.__add__, object_pairs_hook=_without_duplicates
        )
    except _DuplicateNameError as error:
        raise NotebookError(
            f"{path} can't be cleaned: an object of its JSON has two entries with the name {error.name!r}, "
            "and one of them would be lost."
        ) from None
    except (ValueError, RecursionError):
        raise NotebookError(f"{path} is not a notebook: it contains no valid JSON.") from None
    if not isinstance(notebook, dict) or "nbformat" not in notebook:
        raise NotebookError(f"{path} is not a notebook: its JSON has no 'nbformat'.")
    version = notebook["nbformat"]
    if version != _FORMAT or not isinstance(notebook.get("cells"), list):
        if isinstance(version, str):
            version = version.removeprefix(_NUMBER)
        raise NotebookError(
            f"{path} has notebook format {version!r}, but gpuwidget can clean only format "
            f"{_FORMAT}. To convert an old notebook, open it in JupyterLab and save it."
        )
    return notebook


class _DuplicateNameError(Exception):
    """An object of the JSON has two entries with the same name."""

    def __init__(self, name: str) -> None:
        self.name = name


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise _DuplicateNameError(name)
        made[name] = value
    return made


def _serialize(notebook: Any, text: str) -> bytes:
    """Return the notebook as JSON in the format of ``text``, from which it was parsed."""
    body = text.removeprefix(_BOM)
    indent = _INDENT.match(body)
    made = json.dumps(
        notebook,
        # If all characters of the file are ASCII, others were escaped.
        ensure_ascii=body.isascii(),
        indent=None if indent is None else indent[1],
        separators=(",", ":") if indent is None and '": ' not in body[:1000] else None,
    )
    made = _MARKED_NUMBER.sub(r"\1", made)
    # UTF-8 can't encode half of a surrogate pair, so it stays escaped.
    made = _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", made)
    made += body[len(body.rstrip()) :].replace("\r\n", "\n")
    if "\r\n" in body:
        made = made.replace("\n", "\r\n")
    return f"{_BOM if text.startswith(_BOM) else ''}{made}".encode()


def _replace(path: Path, before: os.stat_result, data: bytes) -> None:
    """Replace the content of the file. Raises OSError if the file has changed since ``before``.

    The content is replaced in one step, so that it is complete even after a crash. This is not possible if
    the file has several names: a new file would leave the old content under the other names.
    """
    if not os.access(path, os.W_OK):
        raise PermissionError(None, "permission denied")
    if before.st_nlink > 1:
        _overwrite(path, before, data)
        return
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # Also copies the access control list, but the time of the change must be now: JupyterLab notices by
        # it that the file has changed.
        shutil.copystat(path, name)
        os.utime(name)
        made = os.stat(name)
        if (before.st_uid, before.st_gid) != (made.st_uid, made.st_gid):
            os.chown(name, before.st_uid, before.st_gid)
            os.chmod(name, before.st_mode & 0o7777)
        _check_unchanged(path, before)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _overwrite(path: Path, before: os.stat_result, data: bytes) -> None:
    """Write into the existing file. If that fails, write the old content back."""
    with path.open("r+b", buffering=0) as file:
        old = file.readall()
        _check_unchanged(path, before)
        try:
            _write_all(file, data)
        except BaseException:
            _write_all(file, old)
            raise


def _write_all(file: FileIO, data: bytes) -> None:
    file.seek(0)
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
    file.truncate()
    os.fsync(file.fileno())


def _check_unchanged(path: Path, before: os.stat_result) -> None:
    now = path.stat()
    if (now.st_mtime_ns, now.st_size, now.st_ino) != (before.st_mtime_ns, before.st_size, before.st_ino):
        raise OSError(None, "another program has just changed it. Close the notebook and try again")


def _describe(removed: Removed) -> str:
    if not removed.outputs and not removed.widgets:
        return "nothing to remove"
    parts = []
    if removed.outputs:
        cells = f" in {_count(removed.cells, 'cell')}" if removed.cells else ""
        parts.append(f"{_count(removed.outputs, 'output')} of gpuwidget{cells}")
    if removed.widgets:
        parts.append(f"the saved state of {_count(removed.widgets, 'widget')}")
    return f"removed {' and '.join(parts)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
