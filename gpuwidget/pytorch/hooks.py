"""Replace functions of torch temporarily, and run a callback when torch initializes CUDA."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

Function = Callable[..., Any]


class PatchedFunctions:
    """Functions of one module or class that are replaced by wrappers until :meth:`restore`."""

    def __init__(self) -> None:
        self._owner: Any = None
        self._patched: dict[str, tuple[Function, Function]] = {}
        """The original function and its wrapper, by function name."""

    def patch(self, owner: Any, names: Sequence[str], wrap: Callable[[Function], Function]) -> None:
        """Replace each function in ``names`` that ``owner`` has by ``wrap(function)``.

        Does nothing if functions are patched already.
        """
        if self._patched:
            return
        self._owner = owner
        for name in names:
            original = getattr(owner, name, None)
            if original is not None:
                wrapper = wrap(original)
                self._patched[name] = (original, wrapper)
                setattr(owner, name, wrapper)

    def original(self, name: str) -> Function | None:
        """Return the original of a patched function, or None if the function is not patched."""
        return self._patched[name][0] if name in self._patched else None

    def restore(self) -> None:
        """Restore the original functions. A function whose wrapper other code has replaced is left as it
        is."""
        for name, (original, wrapper) in self._patched.items():
            if getattr(self._owner, name, None) is wrapper:
                setattr(self._owner, name, original)
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
