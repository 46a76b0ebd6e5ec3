"""A registry of functions that reset state in a forked child.

A forked child has only the thread that called ``fork``. If another thread of the parent held a lock at that
moment, the lock stays locked in the child forever. The registered functions replace such locks, and discard
state that belongs to the parent.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from types import MethodType

_functions: list[Callable[[], object]] = []
_methods: list[weakref.WeakMethod[Callable[[], object]]] = []
"""The registered methods, of which one object may have several."""


def reset_after_fork(reset: Callable[[], object]) -> None:
    """Call ``reset`` in every child that this process forks. A method is called only as long as its object
    exists."""
    if isinstance(reset, MethodType):
        _methods.append(weakref.WeakMethod(reset, _methods.remove))
    else:
        _functions.append(reset)


def _reset_all() -> None:
    for reset in _functions:
        reset()
    for reference in list(_methods):
        method = reference()
        if method is not None:
            method()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
