"""Return names for the user's cells and files, and the source of their lines."""

from __future__ import annotations

import ast
import gc
import linecache
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from gpuwidget.model.raw_attributes import class_dict, module_dict
from gpuwidget.model.user_files import CELL_FILE, is_user_file
from gpuwidget.system import processes

CHANGED = "(the file may have changed since it was imported)"
"""Shown instead of a source line that may differ from the line that ran."""

_MAX_SOURCE_LENGTH = 200


class UserCode:
    """Names and source lines of the user's cells and modules, for one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._names: dict[str, str | None] = {}
        self._cells = _CellLines(shell)
        self._modules = _ModuleLines()

    def name(self, filename: str) -> str | None:
        """Return ``In[N]`` for a cell, the short path of a user's module, or None for a library."""
        if filename not in self._names:
            self._names[filename] = self._find_name(filename)
        return self._names[filename]

    def source(self, filename: str, line: int) -> str:
        """Return the line as the user wrote it, or an empty string if it is unknown."""
        is_cell = (self.name(filename) or "").startswith("In[")
        return (self._cells if is_cell else self._modules).line(filename, line)[:_MAX_SOURCE_LENGTH]

    def lines_above_timed(self, filename: str) -> int | None:
        """Return how many lines of a cell are above the code that ``%%time`` runs.

        Return None for a cell without ``%%time``.
        """
        return self._cells.lines_above_timed(filename)

    def _find_name(self, filename: str) -> str | None:
        number = cell_number(self._shell, filename)
        if number is not None:
            return f"In[{number}]"
        return _short_path(filename) if is_user_file(filename) else None


def _short_path(path: str) -> str:
    for base, prefix in ((Path.cwd, ""), (Path.home, "~/")):
        try:
            return prefix + str(Path(path).relative_to(base()))
        except (OSError, RuntimeError, ValueError):
            continue  # the path is not below ``base``, or the folder does not exist
    return path


# -- file names of cells ---------------------------------------------------------------------------------

_MAX_CELLS_SEARCHED = 300
"""If IPython does not keep the file names of cells, they are computed only for this many of the newest
cells."""


def is_cell_file(shell: Any, filename: str) -> bool:
    """Return whether ``filename`` is the file name of a cell's code. Takes constant time."""
    return (
        filename in getattr(getattr(shell, "compile", None), "_filename_map", {})
        or CELL_FILE.match(filename) is not None
        or filename in getattr(linecache, "_ipython_cache", {})
    )


def cell_label(shell: Any, filename: str) -> str | None:
    """Return ``In[3]`` for a cell, ``a cell`` if the cell has no number, or None for any other file."""
    number = cell_number(shell, filename)
    if number is not None:
        return f"In[{number}]"
    return "a cell" if is_cell_file(shell, filename) else None


def cell_number(shell: Any, filename: str) -> int | None:
    """Return the N of the cell In[N] whose code has this file name; None for other files."""
    compiler: Any = getattr(shell, "compile", None)
    numbers = getattr(compiler, "_filename_map", None)  # since IPython 8
    if numbers is not None and type(numbers.get(filename)) is int:
        return int(numbers[filename])
    numbered = CELL_FILE.match(filename)
    if numbered is not None:
        return int(numbered[1])
    if numbers is not None or filename not in getattr(linecache, "_ipython_cache", {}):
        return None
    # Before IPython 8, file names are not mapped to cell numbers. Compute each cell's file name from its
    # text, as ipykernel does, and compare.
    cells = cell_history(shell)
    for number in range(len(cells) - 1, max(0, len(cells) - 1 - _MAX_CELLS_SEARCHED), -1):
        if compiler.get_code_name(cells[number], cells[number], number) == filename:
            return number
    return None


def cell_history(shell: Any) -> list[Any]:
    """Return the cells' sources as the user wrote them, indexed by cell number.

    The list is empty if there is no history.
    """
    history = getattr(getattr(shell, "history_manager", None), "input_hist_raw", None)
    return history if isinstance(history, list) else []


# -- source of cells -------------------------------------------------------------------------------------

_MAGIC_CALL = "get_ipython()."
_TIME = "time"
"""Name of the cell magic whose body IPython compiles separately, so that each line's number is known."""


class _CellLines:
    """The lines of a shell's cells as the user wrote them.

    They differ from the source that IPython compiles, in which magics are Python calls.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def line(self, filename: str, line: int) -> str:
        """Return the line's text, or an empty string if it is unknown."""
        text = linecache.getline(filename, line).strip()
        if text and not text.startswith(_MAGIC_CALL):
            return text
        found = self._find_cell_magic(filename)
        if found is not None:
            written, above, magic = found
            if line > 1:
                return written[line - 1].strip() if above < line <= len(written) else ""
            suffix = "" if magic == _TIME else " (its lines can't be told apart)"
            return written[above - 1].strip() + suffix
        name, _ = _parse_magic_call(text, "run_line_magic")
        written = self._written(filename)
        if name is not None and line <= len(written) and f"%{name}" in written[line - 1]:
            return written[line - 1].strip()
        return text

    def lines_above_timed(self, filename: str) -> int | None:
        """See :meth:`UserCode.lines_above_timed`."""
        found = self._find_cell_magic(filename)
        if found is None or found[2] != _TIME:
            return None
        written, above, _ = found
        # IPython strips blank lines at the beginning of the body, so they count as above the code.
        return next((n for n, text in enumerate(written[above:], above) if text.strip()), above)

    def _find_cell_magic(self, filename: str) -> tuple[list[str], int, str] | None:
        """Return the cell's lines, the line number of its cell magic and the magic's name.

        Return None if the code does not call a cell magic.
        """
        name, body = _parse_magic_call(linecache.getline(filename, 1).strip(), "run_cell_magic")
        if name is None or body is None:
            return None
        written = self._written(filename)
        for above, text in enumerate(written, 1):
            if text.lstrip().startswith(f"%%{name}") and _same_lines(body, written[above:]):
                return written, above, name
        return None

    def _written(self, filename: str) -> list[str]:
        number, cells = cell_number(self._shell, filename), cell_history(self._shell)
        if number is None or not 0 < number < len(cells):
            return []
        return str(cells[number]).splitlines()


def _parse_magic_call(text: str, function: str) -> tuple[str | None, str | None]:
    """Return the name and the body of the magic that the code calls; each is None if it is missing."""
    if not text.startswith(f"{_MAGIC_CALL}{function}("):
        return None, None
    try:
        call: Any = ast.parse(text, mode="eval").body
        arguments = [ast.literal_eval(argument) for argument in call.args]
    except (SyntaxError, ValueError, AttributeError, RecursionError, MemoryError):
        return None, None
    if not arguments or not all(type(argument) is str for argument in arguments):
        return None, None
    return arguments[0], arguments[2] if len(arguments) > 2 else None


def _same_lines(body: str, lines: list[str]) -> bool:
    return body.rstrip().splitlines() == "\n".join(lines).rstrip().splitlines()


# -- source of modules -----------------------------------------------------------------------------------

_CLOCK_MARGIN_S = 2.0
"""Maximum difference in seconds between the clocks of process start times and of file times."""
_MAX_OBJECTS = 10_000
# The set contains ids instead of classes, because looking up a class in a set may run code of the metaclass.
_WRAPPERS = frozenset(map(id, (FunctionType, CellType, tuple, staticmethod, classmethod, property)))


class _ModuleLines:
    """The lines of imported modules, if their files still contain the code that was imported."""

    def __init__(self) -> None:
        self._files: dict[str, _ModuleFile] = {}

    def line(self, filename: str, line: int) -> str:
        """Return the line's text, or :data:`CHANGED` if the file may have changed since it was imported.

        The text is empty if the line is unknown.
        """
        if filename not in self._files:
            linecache.checkcache(filename)
            self._files[filename] = _ModuleFile(filename)
        text = linecache.getline(filename, line).strip()
        return text if not text or self._files[filename].is_current(line) else CHANGED


class _ModuleFile:
    """Compares one file with the functions that were imported from it."""

    def __init__(self, filename: str) -> None:
        self._unchanged = _older_than_process(filename)
        self._on_disk: frozenset[CodeType] = frozenset()
        self._imported: tuple[CodeType, ...] = ()
        if not self._unchanged:
            self._on_disk = frozenset(_compile_file(filename))
            self._imported = tuple(_imported_code(filename))

    def is_current(self, line: int) -> bool:
        """Return whether the imported code at the line equals the code in the file."""
        if self._unchanged:
            return True
        at_line = [code for code in self._imported if any(line == at for _, _, at in code.co_lines())]
        return bool(at_line) and all(code in self._on_disk for code in at_line)


def _older_than_process(filename: str) -> bool:
    started = processes.start_time()
    try:
        status = os.stat(filename)
    except OSError:
        return False
    return started is not None and max(status.st_mtime, status.st_ctime) < started - _CLOCK_MARGIN_S


def _compile_file(filename: str) -> Iterator[CodeType]:
    """Return the code of all functions in the current version of the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = compile("".join(linecache.getlines(filename)), filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return iter(())
    return _with_nested(module)


def _imported_code(filename: str) -> Iterator[CodeType]:
    """Yield the code of the functions that were imported from the file, including decorated functions."""
    pending: list[Any] = []
    for module in list(sys.modules.values()):
        if issubclass(type(module), ModuleType) and module_dict(module).get("__file__") == filename:
            pending += module_dict(module).values()
    visited: dict[int, object] = {}
    while pending and len(visited) < _MAX_OBJECTS:
        value = pending.pop()
        if id(value) in visited:
            continue
        visited[id(value)] = value
        kind = type(value)
        if issubclass(kind, type):
            pending += class_dict(value).values()
        elif id(kind) in _WRAPPERS:
            namespace = value.__globals__ if kind is FunctionType else None
            pending += [referent for referent in gc.get_referents(value) if referent is not namespace]
            if kind is FunctionType and value.__code__.co_filename == filename:
                yield from _with_nested(value.__code__)


def _with_nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _with_nested(constant)
