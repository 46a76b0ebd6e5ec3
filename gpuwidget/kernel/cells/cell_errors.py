"""Detect an error as soon as a cell's code raises it, before IPython spends time on the traceback.

IPython assigns the error to an attribute of the cell's result object, then formats and shows the traceback.
gpuwidget replaces the class of this one object by a subclass that reports the assignment, and restores the
class after the assignment or at the end of the cell. Nothing in the shell is replaced. If a version of
IPython stores errors in another way, the callback is not called.
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
"""The attribute of the result object to which IPython assigns an error that the cell's code raises."""
_CALLBACK = "_gpuwidget_on_error"


def listen_for_error(info: object, callback: _Callback) -> Callable[[], None]:
    """Call ``callback`` with the cell's result as soon as the cell's code raises an error.

    Call this function in a ``pre_run_cell`` hook. ``callback`` must not raise. The returned function stops
    listening. It may be called at any time, and more than once.
    """
    result = _find_result(info)
    original: Any = type(result)
    try:
        result.__class__ = _listening_class(original)
        vars(result)[_CALLBACK] = callback
    except TypeError:  # no result object was found, or its class can't be replaced
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
    """Return a subclass of ``original`` that calls the callback when IPython assigns an error."""

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
    """Restore the class of ``result``. Return the callback, or None if the class was restored before."""
    callback: _Callback | None = vars(result).pop(_CALLBACK, None)
    if callback is not None:
        result.__class__ = type(result).__base__
    return callback
