"""Tests of patching functions of torch, and of the callback for the moment when torch initializes
CUDA.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from helpers_torch import make_torch

from gpuwidget.pytorch.hooks import OnCudaInit, PatchedFunctions


def test_other_patches_stay() -> None:
    """restore() restores the original functions, except those that other code has replaced in the
    meantime.
    """
    torch = make_torch()
    torch._C.one, torch._C.other, replacement = len, sum, max
    called: list[Any] = []

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            called.append(original)
            return original(*args)

        return call

    patches = PatchedFunctions()
    for _ in range(2):
        patches.patch(torch._C, ("one", "other", "no such function"), wrap)
    assert (torch._C.one("four"), torch._C.other([1, 2]), called) == (4, 3, [len, sum])
    assert (patches.original("one"), patches.original("no such function")) == (len, None)
    torch._C.other = replacement
    patches.restore()
    assert (torch._C.one, torch._C.other) == (len, replacement)
    assert patches.original("one") is None


def test_the_callback_runs_once() -> None:
    """However often a callback is registered, it runs once. It never runs if CUDA was already initialized, or
    if torch lacks the function that registers callbacks.
    """
    torch = make_torch()
    called: list[Any] = []
    on_cuda_init = OnCudaInit(called.append)
    for _ in range(3):
        on_cuda_init.register(torch)
    assert called == []
    torch.cuda.init()
    assert called == [torch]
    OnCudaInit(called.append).register(torch)
    without_callbacks = make_torch()
    without_callbacks.cuda._lazy_call = None
    on_cuda_init.register(without_callbacks)
    without_callbacks.cuda.init()
    assert called == [torch]


def test_a_forked_child_registers_its_own_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child process that is forked before CUDA is initialized can register the callback itself. The
    callback that it inherits does nothing.
    """
    torch = make_torch()
    called: list[Any] = []
    on_cuda_init = OnCudaInit(called.append)
    on_cuda_init.register(torch)
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    on_cuda_init.register(torch)
    torch.cuda.init()
    assert called == [torch]  # The callback ran once: the one that the child registered.
