"""``gpuwidget examples``: copies of the packaged notebooks, for a user to run and change."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

from gpuwidget.model.errors import ExamplesError

_INSTALLED = Path(__file__).parents[1] / "notebooks"
_CLONE = Path(__file__).parents[2] / "notebooks"


def notebooks() -> list[Path]:
    """Return the notebooks of the installed package, or of the clone that this runs from."""
    folder = _INSTALLED if _INSTALLED.is_dir() else _CLONE
    return sorted(folder.glob("*.ipynb"))


def copy_notebooks(folder: Path) -> list[Path]:
    """Copy the notebooks into ``folder``, which is created if missing; return the copies.

    Raises ExamplesError where one exists already or can't be written; then none is copied.
    """
    found = notebooks()
    if not found:
        raise ExamplesError("This installation has no notebooks: install gpuwidget anew from its wheel.")
    copies = [folder / notebook.name for notebook in found]
    try:
        there = [copy.name for copy in copies if copy.exists() or copy.is_symlink()]
        if there:
            raise ExamplesError(
                f"{folder} has {', '.join(there)} already, and nothing is overwritten: name another folder, "
                "or move them away."
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
            f"{folder}: {error.strerror or error}. Name a folder that can be written."
        ) from None
    return copies


def _remove(copy: Path) -> None:
    """Remove an incomplete copy, so that the next attempt does not fail on it."""
    with suppress(OSError):
        copy.unlink()
