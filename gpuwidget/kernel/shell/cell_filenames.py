"""Which cell a code file is, by the name that IPython or ipykernel gave it."""

from __future__ import annotations

import linecache
import re
from typing import Any

_WITH_NUMBER = re.compile(r"<ipython-input-(\d+)-")
_MOST_CELLS = 300
"""Of the history, the newest first, that are looked through where nobody keeps the names."""


def is_cell(shell: Any, filename: str) -> bool:
    """Whether that is the file name of a cell's code, found without a search."""
    return (
        filename in getattr(getattr(shell, "compile", None), "_filename_map", {})
        or _WITH_NUMBER.match(filename) is not None
        or filename in getattr(linecache, "_ipython_cache", {})
    )


def name_of(shell: Any, filename: str) -> str | None:
    """``In[3]``, or ``a cell`` for what ran without an In[N] of its own; None for any other file."""
    number = number_of(shell, filename)
    if number is not None:
        return f"In[{number}]"
    return "a cell" if is_cell(shell, filename) else None


def number_of(shell: Any, filename: str) -> int | None:
    """The N of the cell In[N] whose code has that file name; None where it is no cell's, or none is known."""
    compiler: Any = getattr(shell, "compile", None)
    kept = getattr(compiler, "_filename_map", None)  # since IPython 8
    if kept is not None and type(kept.get(filename)) is int:
        return int(kept[filename])
    named = _WITH_NUMBER.match(filename)
    if named is not None:
        return int(named[1])
    if kept is not None or filename not in getattr(linecache, "_ipython_cache", {}):
        return None
    # ipykernel makes the name of the cell's text.
    history = getattr(getattr(shell, "history_manager", None), "input_hist_raw", None)
    cells = history if isinstance(history, list) else []
    for number in range(len(cells) - 1, max(0, len(cells) - 1 - _MOST_CELLS), -1):
        if compiler.get_code_name(cells[number], cells[number], number) == filename:
            return number
    return None
