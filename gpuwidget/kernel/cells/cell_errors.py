"""Detects an error as it leaves a cell's code, before IPython spends time on formatting the traceback.

IPython stores the error in the cell's result, then formats and shows the traceback. The result of one cell
gets a subclass that reports the assignment, and its original class back right after it or when the cell has
ended. Nothing in the shell is replaced. If IPython changes how it does this, the callback is never called.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from gpuwidget.kernel.shell.running_cells import RUN_CELL

_Callback = Callable[[Any], None]

_ERROR = "error_in_exec"
"""The result's attribute for an error of the code."""
_CALLBACK = "_gpuwidget_on_error"


def listen_for_error(info: object, callback: _Callback) -> Callable[[], None]:
    """In ``pre_run_cell``: call ``callback`` with the cell's result once its code has raised an error.

    ``callback`` must not raise. Return a function that stops listening; it is safe to call at any time and
    twice.
    """
    result = _find_result(info)
    original: Any = type(result)
    try:
        result.__class__ = _listening_class(original)
        vars(result)[_CALLBACK] = callback
    except TypeError:  # there is no result, or its class does not allow this
        return lambda: None

    def stop() -> None:
        _restore(result)

    return stop


def _find_result(info: object) -> Any:
    """Return the result object, a local variable of the function that runs the cell; None if not found."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == RUN_CELL and frame.f_locals.get("info") is info:
            return frame.f_locals.get("result")
        frame = frame.f_back
    return None


@functools.cache
def _listening_class(original: Any) -> Any:
    """Return a subclass of the same name that calls the callback when an error is assigned."""

    def __setattr__(self: Any, name: str, value: object) -> None:
        original.__setattr__(self, name, value)
        if name == _ERROR and value is not None:
            callback = _restore(self)
            if callback is not None:
                callback(self)

    members = {
        "__setattr__": __setattr__,
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
    }
    return type(original.__name__, (original,), members)


def _restore(result: Any) -> _Callback | None:
    """Give ``result`` its original class back; return the callback the first time."""
    callback: _Callback | None = vars(result).pop(_CALLBACK, None)
    if callback is not None:
        result.__class__ = type(result).__base__
    return callback
