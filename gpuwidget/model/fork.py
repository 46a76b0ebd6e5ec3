"""The registry of state that a forked child must reset.

No thread survives a fork, and a lock that another thread of the parent held stays locked in the child.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from types import MethodType

_resets: dict[object, Callable[[], Callable[[], object] | None]] = {}
"""By method or function: what returns it, or None once its object is gone."""


def reset_after_fork(reset: Callable[[], object]) -> None:
    """Call ``reset`` in every child that this process forks; a method only while its object exists."""
    if isinstance(reset, MethodType):
        key = weakref.WeakMethod(reset, lambda reference: _resets.pop(reference, None))
        _resets[key] = key
    else:
        _resets[reset] = lambda: reset


def _reset_all() -> None:
    for registered in list(_resets.values()):
        reset = registered()
        if reset is not None:
            reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
