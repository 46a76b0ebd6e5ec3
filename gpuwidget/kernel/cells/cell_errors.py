"""The moment at which an error leaves a cell's code: before IPython explains it, which takes its time.

IPython notes the error in the cell's result, then makes the traceback and shows it. The result of one cell is
given a class that tells of the note, and its own back at once, or when the cell has ended; nothing of the
shell's is replaced. Where IPython does otherwise nobody is told.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from gpuwidget.kernel.shell.running_cells import RUNS_A_CELL

Told = Callable[[Any], None]

_NOTE = "error_in_exec"
_TOLD = "_gpuwidget_told"


def tell_of_error(info: object, told: Told) -> Callable[[], None]:
    """``pre_run_cell``: have ``told``, which must not raise, called with the result once the code has failed.

    What is returned takes that back; safe to call at any time, and twice.
    """
    result = _result_of(info)
    kind: Any = type(result)
    try:
        result.__class__ = _telling(kind)
        vars(result)[_TOLD] = told
    except TypeError:  # there is none, or it is of a kind that can't be told apart
        return lambda: None

    def stop() -> None:
        _restore(result)

    return stop


def _result_of(info: object) -> Any:
    """What IPython will note the cell's end in, a variable of the function that runs it; None without one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == RUNS_A_CELL and frame.f_locals.get("info") is info:
            return frame.f_locals.get("result")
        frame = frame.f_back
    return None


@functools.cache
def _telling(kind: Any) -> Any:
    """``kind`` by its name and in all else but that it tells of the note."""

    def __setattr__(self: Any, name: str, value: object) -> None:
        kind.__setattr__(self, name, value)
        if name == _NOTE and value is not None:
            told = _restore(self)
            if told is not None:
                told(self)

    names = {"__setattr__": __setattr__, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), names)


def _restore(result: Any) -> Told | None:
    """Give ``result`` its own class back; who was to be told, the first time."""
    told: Told | None = vars(result).pop(_TOLD, None)
    if told is not None:
        result.__class__ = type(result).__base__
    return told
