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
from typing import Any

_functions: list[Callable[[], object]] = []
_methods: list[tuple[weakref.ref[Any], Callable[[Any], object]]] = []
"""The registered methods: their objects, which may have several, and their functions. WeakMethod is not used,
because it may print an error when the interpreter exits."""


def reset_after_fork(reset: Callable[[], object]) -> None:
    """Call ``reset`` in every child that this process forks. A method is called only as long as its object
    exists."""
    if isinstance(reset, MethodType):
        _methods[:] = [(known, function) for known, function in _methods if known() is not None]
        _methods.append((weakref.ref(reset.__self__), reset.__func__))
    else:
        _functions.append(reset)


def _reset_all() -> None:
    for reset in _functions:
        reset()
    for reference, function in list(_methods):
        owner = reference()
        if owner is not None:
            function(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
