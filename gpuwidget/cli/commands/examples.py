"""``gpuwidget examples``: copies the packaged notebooks, so that the user can run and change them."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, suppress
from pathlib import Path

from gpuwidget.cli.command import Command, print_line
from gpuwidget.model.errors import ExamplesError

_INSTALLED = Path(__file__).parents[2] / "notebooks"
_CLONE = Path(__file__).parents[3] / "notebooks"


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder; created if missing")


def _copy(options: argparse.Namespace) -> int:
    for copy in copy_notebooks(options.folder):
        print_line(str(copy))
    return 0


COMMAND = Command(
    description="Copy the notebooks that come with gpuwidget into a folder. Nothing is overwritten.",
    add_options=_add_options,
    run=_copy,
)


def notebooks() -> list[Path]:
    """Return the paths of the notebooks in the installed package or, when run from a clone, in the clone."""
    folder = _INSTALLED if _INSTALLED.is_dir() else _CLONE
    return sorted(folder.glob("*.ipynb"))


def copy_notebooks(folder: Path) -> list[Path]:
    """Copy the notebooks into ``folder``, which is created if missing. Return the paths of the copies.

    Raises ExamplesError if a notebook already exists there or can't be written. In that case no copies
    remain.
    """
    found = notebooks()
    if not found:
        raise ExamplesError("This installation has no notebooks: reinstall gpuwidget from its wheel.")
    copies = [folder / notebook.name for notebook in found]
    try:
        there = [copy.name for copy in copies if copy.exists() or copy.is_symlink()]
        if there:
            raise ExamplesError(
                f"{folder} already contains {', '.join(there)}. Nothing was overwritten: choose another "
                "folder, or move these files."
            )
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as undo:
            for notebook, copy in zip(found, copies, strict=True):
                with copy.open("xb") as file:
                    undo.callback(_remove, copy)
                    file.write(notebook.read_bytes())
            undo.pop_all()
    except OSError as error:
        raise ExamplesError(
            f"{folder}: {error.strerror or error}. Name a folder that you can write to."
        ) from None
    return copies


def _remove(copy: Path) -> None:
    """Remove a copy after a failure, so that the next attempt does not fail because the copy exists."""
    with suppress(OSError):
        copy.unlink()
