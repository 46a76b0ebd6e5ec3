"""Hearing from torch: calls into its C part are passed on, and CUDA's start is told once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helpers_torch import make_torch

from gpuwidget.pytorch.hooks import OnCudaInit, PatchedFunctions


def test_what_somebody_else_has_put_there_stays() -> None:
    """A tapped function is put back; one that other code has replaced meanwhile is left to it."""
    torch = make_torch()
    torch._C.one, torch._C.other, theirs = len, sum, max
    heard: list[Any] = []

    def listening(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            heard.append(original)
            return original(*args)

        return call

    patches = PatchedFunctions()
    for _ in range(2):
        patches.patch(torch, ("one", "other", "no such function"), listening)
    assert (torch._C.one("four"), torch._C.other([1, 2]), heard) == (4, 3, [len, sum])
    assert (patches.original("one"), patches.original("no such function")) == (len, None)
    torch._C.other = theirs
    patches.restore()
    assert (torch._C.one, torch._C.other) == (len, theirs)
    assert patches.original("one") is None


def test_cudas_start_is_told_once() -> None:
    """However often it is asked for; not where CUDA is up already, nor by a torch that cannot tell."""
    torch = make_torch()
    told: list[Any] = []
    when = OnCudaInit(told.append)
    for _ in range(3):
        when.register(torch)
    assert told == []
    torch.cuda.init()
    assert told == [torch]
    OnCudaInit(told.append).register(torch)
    silent = make_torch()
    silent.cuda._lazy_call = None
    when.register(silent)
    silent.cuda.init()
    assert told == [torch]
