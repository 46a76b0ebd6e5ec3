"""Return names for the user's cells and files, and the source of their lines."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuwidget.model.cell_source import CellSource
from gpuwidget.model.user_files import CELL_FILE, is_user_file

_MAX_SOURCE_LENGTH = 200


class UserCode:
    """Names, line numbers and source lines of the user's cells and modules, for one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._names: dict[str, str | None] = {}
        self._cells: dict[str, _CellCode | None] = {}

    def name(self, filename: str) -> str | None:
        """Return the name of a cell, the short path of a user's module, or None for a library."""
        if filename not in self._names:
            name = self.cell_name(filename)
            self._names[filename] = _short_path(filename) if name is None and is_user_file(filename) else name
        return self._names[filename]

    def is_cell(self, filename: str) -> bool:
        """Return whether ``filename`` is the file name of a cell's code. Takes constant time."""
        return (
            filename in getattr(getattr(self._shell, "compile", None), "_filename_map", {})  # since IPython 8
            or CELL_FILE.match(filename) is not None
            or filename in getattr(linecache, "_ipython_cache", {})
        )

    def cell_name(self, filename: str) -> str | None:
        """Return ``In[3]`` for a cell's code, ``a cell`` if its cell is unknown, or None for other files."""
        if not self.is_cell(filename):
            return None
        cell = self._cell(filename)
        return "a cell" if cell is None else f"In[{cell.number}]"

    def cell_line(self, filename: str, line: int, timed: int | None = None) -> int | None:
        """Return the number that a line of a cell's code has in the cell; None for files other than cells.

        If the code calls ``%%time``, ``timed`` is the line of the code that ``%%time`` runs. If the cell is
        unknown, return ``line``.
        """
        if not self.is_cell(filename):
            return None
        cell = self._cell(filename)
        return line if cell is None else cell.line(line, timed)

    def source(self, filename: str, line: int) -> str:
        """Return the line as the user wrote it, or an empty string if it is unknown.

        For a cell, ``line`` is the line's number in the cell, as returned by :meth:`cell_line`.
        """
        if not self.is_cell(filename):
            # As in a traceback, the line is read from the file as it is now, even if it was edited later.
            linecache.checkcache(filename)
            return linecache.getline(filename, line).strip()[:_MAX_SOURCE_LENGTH]
        cell = self._cell(filename)
        text = None if cell is None else cell.text(line)
        return (linecache.getline(filename, line).strip() if text is None else text)[:_MAX_SOURCE_LENGTH]

    def _cell(self, filename: str) -> _CellCode | None:
        if filename not in self._cells:
            self._cells[filename] = _find_cell(self._shell, filename)
        return self._cells[filename]


def _short_path(path: str) -> str:
    for base, prefix in ((Path.cwd, ""), (Path.home, "~/")):
        try:
            return prefix + str(Path(path).relative_to(base()))
        except (OSError, RuntimeError, ValueError):
            continue  # the path is not below ``base``, or the folder does not exist
    return path


# -- cells -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CellCode:
    """A cell, and the part of it that IPython compiled as one file."""

    number: int
    """The N of In[N]."""
    source: CellSource
    compiled_lines: int
    """Number of lines of the whole cell, as IPython compiled it."""
    depth: int
    """Index of the part in ``source.bodies``: 0 for the whole cell, 1 for the body of its cell magic, etc."""

    def line(self, line: int, timed: int | None) -> int:
        """See :meth:`UserCode.cell_line`."""
        if timed is not None:
            for body in self.source.bodies[self.depth + 1 :]:
                if body.magic == "time":
                    return body.lines_above + timed
        return self.source.bodies[self.depth].lines_above + line

    def text(self, line: int) -> str | None:
        """Return a line of the cell as the user wrote it.

        Return an empty string if there is no such line, or None if IPython compiled a different number of
        lines than the user wrote.
        """
        written, bodies = self.source.lines, self.source.bodies
        if len(bodies) == 1 and self.compiled_lines != len(written):
            return None
        text = written[line - 1].strip() if 0 < line <= len(written) else ""
        for outer, body in itertools.pairwise(bodies):
            if line == outer.lines_above + 1 and body.magic != "time":
                return text + " (its lines can't be told apart)"
        return text


def _find_cell(shell: Any, filename: str) -> _CellCode | None:
    """Return the newest cell whose code, or the body of whose cell magic, has this file name.

    Return None if there is no such cell, for example because IPython did not store it in its history.
    """
    compiled = "".join(linecache.getlines(filename)).rstrip("\n").split("\n")
    if compiled == [""]:
        return None
    compiler: Any = getattr(shell, "compile", None)
    # Code that a magic such as %%capture runs as a nested cell has the number of the cell or, since IPython
    # 9, of the next cell. Before IPython 8, no numbers are stored.
    stored = getattr(compiler, "_filename_map", {}).get(filename)
    for number, written, transformed in _history(shell):
        if stored is not None and number not in (stored, stored - 1):
            continue
        whole = transformed.splitlines()
        is_file = number == stored or (
            stored is None and compiler.get_code_name(written, transformed, number) == filename
        )
        if is_file and "\n".join(whole).rstrip("\n").split("\n") == compiled:
            return _CellCode(number, CellSource.parse(written), len(whole), 0)
        if "%%" in written:
            source = CellSource.parse(written)
            for depth, body in enumerate(source.bodies):
                if depth and body.has_file(filename):
                    return _CellCode(number, source, len(whole), depth)
    return None


def _history(shell: Any) -> Iterator[tuple[int, str, str]]:
    """Yield the N of In[N], the source and the transformed source of each cell, the newest cell first."""
    manager, variables = getattr(shell, "history_manager", None), getattr(shell, "user_ns", {})
    written, transformed = (getattr(manager, f"input_hist_{kind}", []) for kind in ("raw", "parsed"))
    # The position in the history is not the cell's number: %reset clears the history, and IPython omits some
    # cells. IPython stores the source of In[N] in the variable _iN too.
    count = getattr(shell, "execution_count", 0)
    numbers = {id(variables.get(f"_i{number}")): number for number in range(1, count + 1)}
    for raw, parsed in zip(reversed(written), reversed(transformed), strict=False):
        number = numbers.get(id(raw))
        if number is not None:
            yield number, raw, parsed
