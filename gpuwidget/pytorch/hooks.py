"""Patch functions of ``torch._C`` for a while, and run a callback when torch initializes CUDA."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

Function = Callable[..., Any]


class PatchedFunctions:
    """Functions of ``torch._C`` that are replaced by wrappers until :meth:`restore`."""

    def __init__(self) -> None:
        self._torch: Any = None
        self._patched: dict[str, tuple[Function, Function]] = {}
        """By name: the original and its wrapper."""

    def patch(self, torch: Any, names: Sequence[str], wrap: Callable[[Function], Function]) -> None:
        """Replace each existing function of ``names`` by ``wrap(function)``. Does nothing while patched."""
        if self._patched:
            return
        self._torch = torch
        for name in names:
            original = getattr(torch._C, name, None)
            if original is not None:
                wrapper = wrap(original)
                self._patched[name] = (original, wrapper)
                setattr(torch._C, name, wrapper)

    def original(self, name: str) -> Function | None:
        """Return the original of a patched function, or None where it is not patched."""
        return self._patched[name][0] if name in self._patched else None

    def restore(self) -> None:
        """Put the originals back, except where other code has replaced the wrapper since."""
        for name, (original, wrapper) in self._patched.items():
            if getattr(self._torch._C, name, None) is wrapper:
                setattr(self._torch._C, name, original)
        self._patched.clear()


class OnCudaInit:
    """Calls ``callback(torch)``, which must not raise, right after torch has initialized CUDA."""

    def __init__(self, callback: Callable[[Any], object]) -> None:
        self._callback = callback
        self._registered: tuple[Any, int] | None = None
        """The torch and the process for which the callback is registered."""

    def register(self, torch: Any) -> None:
        """Register the callback once per process. Does nothing where CUDA is initialized already.

        torch has no way to unregister it.
        """
        lazy_call = getattr(torch.cuda, "_lazy_call", None)
        process = os.getpid()
        # A forked child inherits the registration of its parent, which does nothing in the child.
        if self._registered == (torch, process) or torch.cuda.is_initialized() or not callable(lazy_call):
            return
        self._registered = (torch, process)

        def cuda_initialized() -> None:
            # An exception in here would appear in the user's first CUDA call.
            if os.getpid() == process:
                self._callback(torch)

        lazy_call(cuda_initialized)
