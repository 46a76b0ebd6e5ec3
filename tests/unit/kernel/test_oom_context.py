"""Tests of collecting the context of an out-of-memory error: exact sizes if possible, and memory holders."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from helpers_allocator import MIB
from helpers_out_of_memory import LimitedGpu

from gpuwidget.kernel.attribution import memory_holders
from gpuwidget.kernel.devices import non_torch_memory
from gpuwidget.kernel.devices.non_torch_memory import CONTEXT, NonTorchMemory
from gpuwidget.kernel.oom import context as context_module
from gpuwidget.kernel.oom.context import collect_context
from gpuwidget.kernel.oom.failed_cell import FailedCell
from gpuwidget.measure.oom.facts import LibraryPool, OomContext, OtherMemory
from gpuwidget.model.report import Holder
from gpuwidget.system import processes

torch: Any = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def unlimited_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the search for holders finish, although the test process has many objects."""
    monkeypatch.setattr(context_module, "_TIME_LIMIT_S", 60.0)


@pytest.fixture(autouse=True)
def driver_memory(monkeypatch: pytest.MonkeyPatch) -> dict[str, NonTorchMemory]:
    """Replace the driver's values of the memory outside torch by a dict; return the dict.

    While the dict is empty, there is no driver.
    """
    memory: dict[str, NonTorchMemory] = {}
    monkeypatch.setattr(
        non_torch_memory, "by_device", lambda known: (memory, None if memory else "no driver here.")
    )
    return memory


def failure(small_gpu: LimitedGpu, size: int, cell: FailedCell | None = None) -> OomContext:
    """Return the context of a failing allocation of ``size`` bytes in a script, which has no IPython
    shell."""
    try:
        small_gpu.empty(size // 4)
    except torch.OutOfMemoryError as error:
        return collect_context(None, error, cell)
    raise AssertionError("the allocation succeeded")


def test_exact_counters_replace_rounded_sizes(small_gpu: LimitedGpu) -> None:
    """If torch's exact counters agree with the rounded sizes in the error's message, the context has the
    counters."""
    kept = small_gpu.empty(10_000_001)
    facts = failure(small_gpu, 60 * MIB, FailedCell(None, 3, {0: 512})).facts
    assert (facts.device, facts.allocated, facts.reserved) == ("cuda:0", 40_000_512, 20 * 2 * MIB)
    assert (facts.free, facts.total, facts.requested) == (24 * MIB, 64 * MIB, 60 * MIB)
    assert (facts.at_start, facts.cell_growth) == (512, 40_000_000)
    assert (facts.fragmented, facts.limit) == (20 * 2 * MIB - 40_000_512, None)
    assert kept is not None


def test_memory_freed_since_the_error(small_gpu: LimitedGpu) -> None:
    """If memory was freed after the error, the context contains the allocated size from the error's message
    and the size that was freed."""

    def fail() -> None:
        batch = small_gpu.empty(4 * MIB)
        try:
            small_gpu.empty(16 * MIB)
        finally:
            del batch

    try:
        fail()
    except torch.OutOfMemoryError as error:
        context = collect_context(None, error, FailedCell(None, 3))
    assert (context.facts.allocated, context.facts.freed) == (16 * MIB, 16 * MIB)


def test_other_holders(small_gpu: LimitedGpu, driver_memory: dict[str, NonTorchMemory]) -> None:
    """The context lists other processes, which can be shut down, and this process's libraries, which
    cannot."""
    holders = tuple(
        Holder("outside torch", (name,), None, "cuda:0", size, None)
        for name, size in ((CONTEXT, 6 * MIB), ("bob: train.py", 20 * MIB))
    )
    driver_memory["cuda:0"] = NonTorchMemory("GPU 3 H200", holders, ("A remark.",))
    context = failure(small_gpu, 80 * MIB)
    assert context.gpu == "GPU 3 H200"
    assert context.facts.others == (
        OtherMemory(CONTEXT, 6 * MIB, False),
        OtherMemory("bob: train.py", 20 * MIB, True),
    )
    assert context.unknown == ("A remark.",)


def test_without_a_driver(small_gpu: LimitedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver, the context contains the other processes that torch's message lists.

    It also contains the reason why the driver's values are missing.
    """
    message = small_gpu.message(80 * MIB).replace(
        "Including",
        "Process 4123 has 12.00 MiB memory in use. Process 1 has 17179869184.00 GiB memory in use. Including",
    )
    monkeypatch.setattr(small_gpu, "message", lambda size: message)
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: False)
    context = failure(small_gpu, 80 * MIB)
    assert context.facts.others == (OtherMemory("another process (4123)", 12 * MIB, True),)
    (unknown,) = context.unknown
    assert unknown.endswith("(no driver here).")


def test_the_pool_of_cupy(small_gpu: LimitedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's pool is read only if the user has imported CuPy."""
    assert failure(small_gpu, 80 * MIB).facts.pools == ()
    pool = SimpleNamespace(free_bytes=lambda: 30 * MIB, total_bytes=lambda: 30 * MIB)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(get_default_memory_pool=lambda: pool))
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    assert failure(small_gpu, 80 * MIB).facts.pools == (
        LibraryPool("CuPy's pool", 30 * MIB, "cupy.get_default_memory_pool().free_all_blocks()"),
    )


def test_without_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch has no counters, the context contains the sizes from the error's message.

    It also contains the reason why the holders of the memory are unknown.
    """
    error: Any = torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 8.00 GiB of which "
        "1.00 GiB is free."
    )
    context = collect_context(None, error, FailedCell(None, 3))
    assert (context.facts.device, context.facts.held, context.facts.at_start) == ("cuda:1", (), None)
    assert "because CUDA is not initialized" in context.unknown[0]


def test_a_search_that_reaches_its_limit(small_gpu: LimitedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the search for holders left out objects, the context has a sentence about this. It names no variable
    to delete, since the objects that were left out may hold the same memory."""
    monkeypatch.setattr(sys.modules["__main__"], "kept", small_gpu.empty(10 * MIB // 4), raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "rest", [[]], raising=False)
    cell = FailedCell("train()", 3, {0: 0})
    left_out = (
        "Couldn't tell all holders of torch's memory, because the search reached a limit and left out some "
        "objects."
    )
    for limit_s, variables in ((60.0, ("kept",)), (0.0, None)):
        monkeypatch.setattr(context_module, "_TIME_LIMIT_S", limit_s)
        context = failure(small_gpu, 80 * MIB, cell)
        held = [(holder.holder.names, holder.variables) for holder in context.facts.held]
        assert held == [(("kept",), variables)]
        assert (left_out in context.unknown) == (variables is None)


@pytest.mark.stops_errors
def test_if_the_search_fails(small_gpu: LimitedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the search for holders fails, the context contains the reason in place of the holders."""

    def fail(shell: object) -> None:
        raise TypeError("unhashable type")

    monkeypatch.setattr(memory_holders, "search", fail)
    kept = small_gpu.empty(10 * MIB // 4)
    context = failure(small_gpu, 80 * MIB, FailedCell(None, 3, {0: 0}))
    assert (context.facts.held, context.facts.allocated, context.cells) == ((), 10 * MIB, ())
    assert any("could not search the variables" in reason for reason in context.unknown)
    assert kept is not None
