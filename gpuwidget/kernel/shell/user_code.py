"""Whose code a file is: the user's cells and modules, or a library's."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

from gpuwidget import version
from gpuwidget.kernel.shell.cell_filenames import number_of
from gpuwidget.kernel.shell.cell_source import CellText
from gpuwidget.kernel.shell.module_source import SourceText

_LIBRARIES = tuple(
    os.path.join(path, "")
    for path in (
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        os.path.dirname(version.__file__),
    )
)
_PACKAGES = ("torch", "IPython", "ipykernel")
"""No user's code wherever they are: a developer may have them in a folder of their own."""
_LIBRARY_FOLDERS = re.compile(r"[/\\](site-packages|dist-packages|torchinductor_[^/\\]*)[/\\]")
_LONGEST_SOURCE = 200


class UserCode:
    """Tells the user's files from libraries', for one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._names: dict[str, str | None] = {}
        self._cell = CellText(shell)
        self._text = SourceText()

    def name(self, filename: str) -> str | None:
        """``In[N]``, or the short path of a module of the user's; None for a library."""
        if filename not in self._names:
            self._names[filename] = self._find(filename)
        return self._names[filename]

    def source(self, filename: str, line: int) -> str:
        """The line's text as the user wrote it, empty where nobody has it."""
        cell = (self.name(filename) or "").startswith("In[")
        return (self._cell if cell else self._text).line(filename, line)[:_LONGEST_SOURCE]

    def above(self, filename: str) -> int | None:
        """How many lines of a cell stand above those that its ``%%time`` runs; None where there is none."""
        return self._cell.above(filename)

    def _find(self, filename: str) -> str | None:
        number = number_of(self._shell, filename)
        if number is not None:
            return f"In[{number}]"
        # What exec and compile make has no file: the line that ran it stands for it.
        if filename.startswith("<") or not os.path.isabs(filename):
            return None
        if filename.startswith((*_LIBRARIES, *_folders())) or _LIBRARY_FOLDERS.search(filename):
            return None
        return _short(filename)


def _folders() -> list[str]:
    files = (getattr(sys.modules.get(name), "__file__", None) for name in _PACKAGES)
    return [os.path.join(os.path.dirname(file), "") for file in files if file]


def _short(path: str) -> str:
    for base, prefix in ((Path.cwd, ""), (Path.home, "~/")):
        try:
            return prefix + str(Path(path).relative_to(base()))
        except (OSError, RuntimeError, ValueError):
            continue  # not below it, or there is none
    return path
