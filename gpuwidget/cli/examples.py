"""The notebooks that come with gpuwidget, copied out for a user to run and to change."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

from gpuwidget.model.errors import ExamplesError

_INSTALLED = Path(__file__).parents[1] / "notebooks"
_CLONE = Path(__file__).parents[2] / "notebooks"


def notebooks() -> list[Path]:
    """Where they lie: in the package that was installed, or in the clone that this runs from."""
    folder = _INSTALLED if _INSTALLED.is_dir() else _CLONE
    return sorted(folder.glob("*.ipynb"))


def copy_notebooks(folder: Path) -> list[Path]:
    """Copy them into ``folder``, which is made where it is missing; the copies.

    Raises ExamplesError where one of them is there already or can't be written; then none is copied.
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
    """Take away what is not whole, so that the next try finds nothing in its way."""
    with suppress(OSError):
        copy.unlink()
