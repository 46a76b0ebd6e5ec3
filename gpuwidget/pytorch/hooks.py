"""Replace functions of ``torch._C`` temporarily, and run a callback when torch initializes CUDA."""

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
        """The original function and its wrapper, by function name."""

    def patch(self, torch: Any, names: Sequence[str], wrap: Callable[[Function], Function]) -> None:
        """Replace each function in ``names`` that exists by ``wrap(function)``.

        Does nothing if functions are patched already.
        """
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
        """Return the original of a patched function, or None if the function is not patched."""
        return self._patched[name][0] if name in self._patched else None

    def restore(self) -> None:
        """Restore the original functions. A function whose wrapper other code has replaced is left as it
        is."""
        for name, (original, wrapper) in self._patched.items():
            if getattr(self._torch._C, name, None) is wrapper:
                setattr(self._torch._C, name, original)
        self._patched.clear()


class OnCudaInit:
    """Calls ``callback(torch)`` right after torch has initialized CUDA. The callback must not raise."""

    def __init__(self, callback: Callable[[Any], object]) -> None:
        self._callback = callback
        self._registered: tuple[Any, int] | None = None
        """The torch module and the process id for which the callback was registered."""

    def register(self, torch: Any) -> None:
        """Register the callback once per process. Does nothing if CUDA is already initialized.

        torch provides no way to unregister the callback.
        """
        lazy_call = getattr(torch.cuda, "_lazy_call", None)
        process = os.getpid()
        # In a forked child, the callback that the parent registered does nothing, so the child registers
        # another one.
        if self._registered == (torch, process) or torch.cuda.is_initialized() or not callable(lazy_call):
            return
        self._registered = (torch, process)

        def cuda_initialized() -> None:
            # If the callback raised an exception here, the user's first CUDA call would fail.
            if os.getpid() == process:
                self._callback(torch)

        lazy_call(cuda_initialized)
