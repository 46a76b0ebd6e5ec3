"""Ways to hear from the torch that the user has imported: of calls into its C part, and when CUDA is up."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

Function = Callable[..., Any]


class Taps:
    """Functions of ``torch._C`` that are replaced for a while by ones that listen in."""

    def __init__(self) -> None:
        self._torch: Any = None
        self._tapped: dict[str, tuple[Function, Function]] = {}

    def put(self, torch: Any, names: Sequence[str], listening: Callable[[Function], Function]) -> None:
        """Replace those of ``names`` that are there, each by what ``listening`` makes of it; once."""
        if self._tapped:
            return
        self._torch = torch
        for name in names:
            original = getattr(torch._C, name, None)
            if original is not None:
                replacement = listening(original)
                self._tapped[name] = (original, replacement)
                setattr(torch._C, name, replacement)

    def original(self, name: str) -> Function | None:
        """What the replaced function was; None where it is not replaced."""
        return self._tapped[name][0] if name in self._tapped else None

    def remove(self) -> None:
        """Put back what was before, where nobody has replaced it since."""
        for name, (original, replacement) in self._tapped.items():
            if getattr(self._torch._C, name, None) is replacement:
                setattr(self._torch._C, name, original)
        self._tapped.clear()


class WhenCudaIsUp:
    """Has torch call ``then``, which must not raise, as soon as it has initialised CUDA."""

    def __init__(self, then: Callable[[Any], object]) -> None:
        self._then = then
        self._asked: Any = None

    def ask(self, torch: Any) -> None:
        """Queue the call, where CUDA is not up; once a process, since a call that is queued stays so."""
        queue = getattr(torch.cuda, "_lazy_call", None)
        if self._asked is torch or torch.cuda.is_initialized() or not callable(queue):
            return
        self._asked = torch
        process = os.getpid()

        def cuda_is_up() -> None:
            # What is raised here would be the user's own call's failure. A forked child decides for itself.
            if os.getpid() == process:
                self._then(torch)

        queue(cuda_is_up)
