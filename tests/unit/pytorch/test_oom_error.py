"""Tests of recognizing out-of-memory errors and reading the allocator's state, with the real torch on a
stand-in for a GPU.
"""

from __future__ import annotations

import builtins
from typing import Any

import pytest
from helpers_allocator import MIB
from helpers_out_of_memory import LimitedGpu

from gpuwidget.model.torch_state import AllocatorState
from gpuwidget.pytorch import oom_error

torch: Any = pytest.importorskip("torch")


def oom(message: str = "CUDA out of memory. Tried to allocate 1.00 GiB.") -> Any:
    return torch.OutOfMemoryError(message)


def test_the_allocators_state(small_gpu: LimitedGpu) -> None:
    """The allocator's state has exact byte counts, and lists every block of each segment."""
    kept = [small_gpu.empty(MIB // 4), small_gpu.empty(10)]
    state = oom_error.allocator_state(0)
    assert state == AllocatorState(
        allocated=MIB + 512,
        reserved=2 * MIB,
        fragmented=MIB - 512,
        free=62 * MIB,
        total=64 * MIB,
        limit=None,
        segments=state.segments,
        expandable=False,
    )
    (segment,) = state.segments
    assert [(size, used) for _, size, used in segment.blocks] == [
        (MIB, True),
        (512, True),
        (MIB - 512, False),
    ]
    assert (segment.size, segment.shared, segment.expandable) == (2 * MIB, True, False)
    assert oom_error.allocated_memory() == {0: MIB + 512}
    assert kept


def test_a_limit_is_known(small_gpu: LimitedGpu) -> None:
    """If torch has a memory limit for this process, the allocator's state contains the exact limit."""
    small_gpu.limit = 16 * MIB
    assert oom_error.allocator_state(0).limit == 16 * MIB


def test_a_device_without_a_context(small_gpu: LimitedGpu) -> None:
    """Devices without a context of this process are not queried, because a query would open a context on
    them.
    """
    assert oom_error.allocator_state(1) == AllocatorState(None, None, None, None, None, None, (), False)


def test_without_cuda() -> None:
    """If CUDA is not initialized, all values of the allocator's state are None, and no exception is
    raised.
    """
    assert oom_error.allocated_memory() == {}
    assert oom_error.allocator_state(0) == AllocatorState(None, None, None, None, None, None, (), False)


def test_expandable_segments_are_noticed(small_gpu: LimitedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expandable segments are recognized with both names of the environment variable that configures torch's
    allocator.
    """
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.setenv(name, "max_split_size_mb:128, expandable_segments: True")
        assert oom_error.allocator_state(0).expandable
        monkeypatch.delenv(name)
    assert not oom_error.allocator_state(0).expandable


def test_the_name_of_the_settings_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the environment variable that configures the allocator is taken from the error message. If
    the message contains no name, the name that this version of torch uses is returned.
    """
    name = oom_error.allocator_setting
    assert name("… try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True") == "PYTORCH_CUDA_ALLOC_CONF"
    assert name("… try setting PYTORCH_ALLOC_CONF=expandable_segments:True") == "PYTORCH_ALLOC_CONF"
    monkeypatch.setattr(torch, "__version__", "2.9.1+cu128")
    assert name("CUDA error: out of memory") == "PYTORCH_CUDA_ALLOC_CONF"
    monkeypatch.setattr(torch, "__version__", "2.10.0+cu128")
    assert name("CUDA error: out of memory") == "PYTORCH_ALLOC_CONF"


def test_recognized_errors() -> None:
    """torch's OutOfMemoryError, the RuntimeError of old versions, and errors with one of these as their cause
    are recognized. Other errors are not.
    """
    found = oom_error.find_oom_error
    error, wrapper = oom(), ValueError("no")
    wrapper.__cause__ = error
    assert found(error) is error
    assert found(wrapper) is error
    old = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    assert found(old) is old
    for other in (
        oom("XPU out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("shape mismatch"),
        MemoryError("CUDA out of memory"),
        KeyboardInterrupt(),
    ):
        assert found(other) is None


def test_related_errors_are_recognized() -> None:
    """Subclasses of torch's error, the CUDA driver's error, and errors raised while such an error was handled
    are recognized.

    Interrupts, and errors raised with ``from None``, are not.
    """
    found = oom_error.find_oom_error

    made: Any = type("Mine", (torch.OutOfMemoryError,), {})
    error = made("CUDA out of memory. Tried to allocate 1.00 GiB.")
    assert found(error) is error
    driver = RuntimeError("CUDA driver error: out of memory")
    assert found(driver) is driver
    later = RuntimeError("gave up")
    later.__context__ = driver
    assert found(later) is driver
    later.__suppress_context__ = True
    assert found(later) is None
    interrupt = KeyboardInterrupt()
    interrupt.__context__ = driver
    assert found(interrupt) is None
    circle = ValueError()
    circle.__context__ = circle
    assert found(circle) is None


@pytest.mark.skipif(not hasattr(builtins, "ExceptionGroup"), reason="came with Python 3.11")
def test_errors_in_exception_groups() -> None:
    """An out-of-memory error is found inside an exception group, such as asyncio.TaskGroup's, and inside
    nested groups.
    """
    group: Any = vars(builtins)["ExceptionGroup"]
    error = oom()
    inner = group("inner", [ValueError(), error])
    assert oom_error.find_oom_error(group("outer", [KeyError(), inner])) is error


def test_no_user_code_runs() -> None:
    """Searching for an out-of-memory error never calls ``__str__`` or ``__eq__`` of a user's class."""

    class Mine(RuntimeError):
        def __str__(self) -> str:
            raise AssertionError("asked")

    class Meta(type):
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

    class Odd(RuntimeError, metaclass=Meta):
        pass

    class Text:
        def __str__(self) -> str:
            raise AssertionError("asked")

    for error in (Mine("CUDA out of memory"), Odd("CUDA out of memory"), RuntimeError(Text())):
        assert oom_error.find_oom_error(error) is None
