"""Boundaries, which keep errors of gpuwidget, and of the code it looks at, out of the user's code.

A boundary is broad on purpose. It stops every exception but an interrupt, because torch and the user's
objects may raise anything, even SystemExit. It logs what it stops, so that no error is silent.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

_LOG = logging.getLogger(__name__)

STRICT_VARIABLE = "GPUWIDGET_TEST_ERRORS"
"""Names the file to which gpuwidget's own tests let boundaries write the errors that they stop, so that a
test fails that did not expect an error. Not set for users."""

_PASSING: tuple[type[BaseException], ...] = (KeyboardInterrupt, GeneratorExit)


def stopped(log: logging.Logger, what: str, error: BaseException, *, foreign: bool = False) -> None:
    """Log an error that a boundary stops, and raise it again if it is an interrupt.

    ``what`` says which work failed.
    ``foreign`` is true if the error comes from code that is not gpuwidget's, such as torch after a failed
    CUDA kernel. Such an error is no defect of gpuwidget.
    """
    if isinstance(error, _PASSING):
        raise error
    log.debug("%s", what, exc_info=error)
    path = os.environ.get(STRICT_VARIABLE)
    if path and not foreign:
        with open(path, "a", encoding="utf-8", errors="replace") as file:
            file.write(f"{what}\n{''.join(traceback.format_exception(error))}\n")


class Boundary:
    """A ``with`` block that ends at its first error, which is logged and not raised.

    An interrupt, and an error of a type in ``passing``, is raised.
    """

    __slots__ = ("_failed", "_foreign", "_log", "_passing", "_what")

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        failed: Callable[[BaseException], object] | None = None,
        *,
        foreign: bool = False,
        passing: tuple[type[BaseException], ...] = (),
    ) -> None:
        """``failed`` is called with the error. For ``what`` and ``foreign``, see :func:`stopped`."""
        self._log = log
        self._what = what
        self._failed = failed
        self._foreign = foreign
        self._passing: tuple[type[BaseException], ...] = (*_PASSING, *passing)

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """End the block, and return whether an error was stopped."""
        if error is None or isinstance(error, self._passing):
            return False
        stopped(self._log, self._what, error, foreign=self._foreign)
        if self._failed is not None:
            self._failed(error)
        return True


def foreign_attribute(module: str, *path: str) -> Any:
    """Return an attribute of a module that the user may have imported, or an attribute of that attribute.

    Return None if the module is not imported, lacks the attribute or raises an error. A test of the user may
    have replaced the module with any object.
    """
    value: Any = sys.modules.get(module)
    with Boundary(_LOG, "an attribute of an imported module could not be read", foreign=True):
        for name in path:
            value = getattr(value, name, None)
        return value
    return None


def error_line(error: BaseException) -> str:
    """Return the type and the first line of an error, for a message to the user."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
