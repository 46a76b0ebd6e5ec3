"""A cell's lines as the user wrote them, where IPython has put magics into Python."""

from __future__ import annotations

import ast
import linecache
from typing import Any

from gpuwidget.kernel.shell.cell_filenames import number_of

_MAGIC = "get_ipython()."
_WHOLE = "run_cell_magic"
_TIMED = "time"
"""The magic whose lines run as such, under a file name of their own (``<timed exec>``)."""


class CellText:
    """The lines of a shell's cells, by the file names that IPython gives them."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._history = getattr(shell, "history_manager", None)

    def line(self, filename: str, line: int) -> str:
        """The line's text, empty where nobody has it."""
        text = linecache.getline(filename, line).strip()
        if text and not text.startswith(_MAGIC):
            return text
        whole = self._whole(filename)
        if whole is not None:
            written, above, magic = whole
            if line > 1:
                return written[line - 1].strip() if above < line <= len(written) else ""
            apart = "" if magic == _TIMED else " (its lines can't be told apart)"
            return written[above - 1].strip() + apart
        name, _ = _call(text, "run_line_magic")
        written = self._written(filename)
        if name is not None and line <= len(written) and f"%{name}" in written[line - 1]:
            return written[line - 1].strip()
        return text

    def above(self, filename: str) -> int | None:
        """How many lines of a cell stand above those that its ``%%time`` runs; None where there is none."""
        whole = self._whole(filename)
        if whole is None or whole[2] != _TIMED:
            return None
        written, above, _ = whole
        # IPython leaves out empty lines before the first.
        return next((n for n, text in enumerate(written[above:], above) if text.strip()), above)

    def _whole(self, filename: str) -> tuple[list[str], int, str] | None:
        """Of a cell under a magic: its lines, the number of the magic's own, and its name."""
        name, body = _call(linecache.getline(filename, 1).strip(), _WHOLE)
        if name is None or body is None:
            return None
        written = self._written(filename)
        for above, text in enumerate(written, 1):
            if text.lstrip().startswith(f"%%{name}") and _same(body, written[above:]):
                return written, above, name
        return None

    def _written(self, filename: str) -> list[str]:
        number, history = number_of(self._shell, filename), getattr(self._history, "input_hist_raw", None)
        if not isinstance(history, list) or number is None or not 0 < number < len(history):
            return []
        return str(history[number]).splitlines()


def _call(text: str, what: str) -> tuple[str | None, str | None]:
    """Name and body of a magic that is called as Python; None for other code, and without a body."""
    if not text.startswith(f"{_MAGIC}{what}("):
        return None, None
    try:
        call: Any = ast.parse(text, mode="eval").body
        arguments = [ast.literal_eval(one) for one in call.args]
    except (SyntaxError, ValueError, AttributeError, RecursionError, MemoryError):
        return None, None
    if not arguments or not all(type(one) is str for one in arguments):
        return None, None
    return arguments[0], arguments[2] if len(arguments) > 2 else None


def _same(body: str, lines: list[str]) -> bool:
    return body.rstrip().splitlines() == "\n".join(lines).rstrip().splitlines()
