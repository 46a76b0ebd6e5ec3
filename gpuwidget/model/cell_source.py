"""The source of a cell, and the parts of it that IPython compiles separately because of its magics."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from gpuwidget.model.user_files import TIMED_FILES

_CELL_MAGIC = re.compile(r"\s*%%(?P<name>[\w.]+)")
_WORD = re.compile(r"\w+")
# %%timeit is missing here, because IPython wraps its body in a function, which changes the line numbers.
_BODY_FILES = {"time": TIMED_FILES, "prun": ("<string>",)}


@dataclass(frozen=True, slots=True)
class MagicBody:
    """A part of a cell that IPython compiles separately, such as the lines below ``%%time``."""

    lines_above: int
    """Number of the cell's lines above the first line of the body."""
    has_file: Callable[[str], bool]
    """A function that takes a file name and returns whether the body's code can have this file name."""
    magic: str = ""
    """Name of the cell magic that runs the body, or an empty string for the whole cell."""


def _any_file(file: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class CellSource:
    """The lines of a cell, and its bodies, the outermost body first. The first body is the whole cell."""

    lines: tuple[str, ...] = ()
    bodies: tuple[MagicBody, ...] = (MagicBody(0, _any_file),)

    @classmethod
    def parse(cls, raw_cell: str) -> CellSource:
        """Parse a cell. Like IPython, do not count blank lines at the beginning of the cell."""
        lines = raw_cell.splitlines()
        while lines and not lines[0].strip():
            del lines[0]
        at = _skip_to_code(lines, 0)
        bodies = [MagicBody(at, _any_file)]
        while at < len(lines):
            magic = _CELL_MAGIC.match(lines[at])
            if magic is None or magic["name"] == "gpuwatch":
                break
            at = _skip_to_code(lines, at + 1)
            bodies.append(MagicBody(at, _file_test(magic["name"], lines[at:]), magic["name"]))
        return cls(tuple(lines), tuple(bodies))

    def defines(self, body: MagicBody, code: CodeType) -> bool:
        """Return whether the body defines a function or class with the code's name at the code's lines.

        Bodies of different cells can have the same file name, so the file name alone does not prove that the
        code is from this cell.
        """
        first = body.lines_above + code.co_firstlineno
        last = body.lines_above + max((line or 0 for _, _, line in code.co_lines()), default=0)
        text = "\n".join(self.lines[first - 1 : last])
        if code.co_name.startswith("<"):
            return {"<lambda>": "lambda", "<module>": ""}.get(code.co_name, " for ") in text and bool(text)
        return f"def {code.co_name}" in text or f"class {code.co_name}" in text


UNKNOWN_SOURCE = CellSource()
"""The source of a cell whose text is unknown."""


def _skip_to_code(lines: Sequence[str], start: int) -> int:
    """Return the index of the next line of code, starting with ``start``.

    Blank lines are skipped, and so is a ``%%gpuwatch`` line above another magic.
    """
    at = start
    while at < len(lines):
        following = next((n for n in range(at + 1, len(lines)) if lines[n].strip()), len(lines))
        magic = _CELL_MAGIC.match(lines[at])
        watch = magic is not None and magic["name"] == "gpuwatch"
        above_magic = watch and following < len(lines) and _CELL_MAGIC.match(lines[following]) is not None
        if lines[at].strip() and not above_magic:
            return at
        at = following
    return at


def _file_test(magic: str, body: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that tests whether a file name belongs to the body of ``magic``."""
    files = _BODY_FILES.get(magic)
    if files is not None:
        return lambda file: file in files

    def is_nested_cell(file: str) -> bool:
        # Magics such as %%capture run their body as a cell. IPython gives the body the same kind of file name
        # as any other cell, so compare the text of the file with the body.
        return _is_compiled_from(_stripped(body), _stripped(linecache.getlines(file)))

    return is_nested_cell


def _stripped(lines: Sequence[str]) -> list[str]:
    """Return the lines without indentation, and without blank lines at the end."""
    return "\n".join(line.strip() for line in lines).rstrip().split("\n")


def _is_compiled_from(written: Sequence[str], compiled: Sequence[str]) -> bool:
    """Return whether IPython transforms the lines ``written`` into the lines ``compiled``."""
    magic = _CELL_MAGIC.match(written[0])
    if magic is not None and magic["name"] != "gpuwatch":
        body = _magic_call_body(compiled[0]) if len(compiled) == 1 else None
        return body is not None and _stripped(body.splitlines()) == list(written[1:])
    return len(written) == len(compiled) and all(map(_is_line_compiled_from, written, compiled))


def _is_line_compiled_from(written: str, compiled: str) -> bool:
    if compiled in (written, f"# {written}"):  # %%gpuwatch becomes a comment
        return True
    # IPython transforms magics such as %time and !ls into a call whose arguments are the words of the line.
    return "get_ipython()." in compiled and set(_WORD.findall(written)) <= set(_WORD.findall(compiled))


def _magic_call_body(line: str) -> str | None:
    """Return the body of the cell magic that a compiled line calls, or None if it calls no cell magic."""
    if not line.startswith("get_ipython().run_cell_magic("):
        return None
    try:
        call: Any = ast.parse(line, mode="eval").body
        body = ast.literal_eval(call.args[2])
    except (SyntaxError, ValueError, AttributeError, IndexError, RecursionError, MemoryError):
        return None
    return body if type(body) is str else None
