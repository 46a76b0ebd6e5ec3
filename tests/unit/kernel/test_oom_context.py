"""The context of an out-of-memory error: exact figures where possible, and other users of the GPU."""

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
from gpuwidget.kernel.oom.context import FailedCell, collect_context
from gpuwidget.measure.out_of_memory import LibraryPool, OomContext, OtherMemory
from gpuwidget.model.report import Holder
from gpuwidget.system import processes

torch: Any = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> dict[str, NonTorchMemory]:
    """Return what the driver reports per device."""
    said: dict[str, NonTorchMemory] = {}
    monkeypatch.setattr(
        non_torch_memory, "by_device", lambda known: (said, None if said else "no driver here.")
    )
    return said


def story(small_gpu: LimitedGpu, size: int, cell: FailedCell | None = None) -> OomContext:
    """Run out of memory in a plain program."""
    try:
        small_gpu.empty(size // 4)
    except torch.OutOfMemoryError as error:
        return collect_context(None, error, cell)
    raise AssertionError("there was room")


def test_figures_are_exact_where_counters_agree(small_gpu: LimitedGpu) -> None:
    """The context has the exact counters where the rounded message agrees with them."""
    kept = small_gpu.empty(10_000_001)
    facts = story(small_gpu, 60 * MIB, FailedCell(None, 3, {0: 512})).facts
    assert (facts.device, facts.allocated, facts.reserved) == ("cuda:0", 40_000_512, 20 * 2 * MIB)
    assert (facts.free, facts.total, facts.requested) == (24 * MIB, 64 * MIB, 60 * MIB)
    assert (facts.at_start, facts.grown) == (512, 40_000_000)
    assert (facts.fragmented, facts.limit) == (20 * 2 * MIB - 40_000_512, None)
    assert kept is not None


def test_what_was_let_go_of_since(small_gpu: LimitedGpu) -> None:
    """If the counters have changed since the error, the message's figure and the difference are reported."""

    def fail() -> None:
        batch = small_gpu.empty(4 * MIB)
        try:
            small_gpu.empty(16 * MIB)
        finally:
            del batch

    try:
        fail()
    except torch.OutOfMemoryError as error:
        told = collect_context(None, error, FailedCell(None, 3))
    assert (told.facts.allocated, told.freed) == (16 * MIB, 16 * MIB)


def test_who_else_is_there(small_gpu: LimitedGpu, outside: dict[str, NonTorchMemory]) -> None:
    """Other processes are named. This process's libraries, which nobody can shut down, are told apart."""
    holders = tuple(
        Holder("outside torch", (name,), None, "cuda:0", size, None)
        for name, size in ((CONTEXT, 6 * MIB), ("bob: train.py", 20 * MIB))
    )
    outside["cuda:0"] = NonTorchMemory("GPU 3 H200", holders, ("A remark.",))
    told = story(small_gpu, 80 * MIB)
    assert told.gpu == "GPU 3 H200"
    assert told.facts.others == (
        OtherMemory(CONTEXT, 6 * MIB, False),
        OtherMemory("bob: train.py", 20 * MIB, True),
    )
    assert told.unknown == ("A remark",)


def test_torch_is_the_only_witness(small_gpu: LimitedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver, the processes are those of torch's message, and the reason is reported."""
    message = small_gpu.message(80 * MIB).replace(
        "Including",
        "Process 4123 has 12.00 MiB memory in use. Process 1 has 17179869184.00 GiB memory in use. Including",
    )
    monkeypatch.setattr(small_gpu, "message", lambda size: message)
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: False)
    told = story(small_gpu, 80 * MIB)
    assert told.facts.others == (OtherMemory("another process (4123)", 12 * MIB, True),)
    assert told.unknown == ("other processes: no driver here",)


def test_cupys_pool(small_gpu: LimitedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's pool is read if the user has imported CuPy. gpuwidget never imports it."""
    assert story(small_gpu, 80 * MIB).facts.pools == ()
    pool = SimpleNamespace(free_bytes=lambda: 30 * MIB, total_bytes=lambda: 30 * MIB)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(get_default_memory_pool=lambda: pool))
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    assert story(small_gpu, 80 * MIB).facts.pools == (
        LibraryPool("CuPy's pool", 30 * MIB, "cupy.get_default_memory_pool().free_all_blocks()"),
    )


def test_without_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch has no counters, the message alone is reported, and what is missing."""
    error: Any = torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 8.00 GiB of which "
        "1.00 GiB is free."
    )
    told = collect_context(None, error, FailedCell(None, 3))
    assert (told.facts.device, told.facts.held, told.facts.at_start) == ("cuda:1", (), None)
    assert told.unknown[0] == "who holds torch's memory: CUDA is not initialised in this process"


def test_where_looking_fails(small_gpu: LimitedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the search for holders fails, the card appears without holders and without fixes that need them."""

    def fail(shell: object) -> None:
        raise TypeError("unhashable type")

    monkeypatch.setattr(memory_holders, "search", fail)
    kept = small_gpu.empty(10 * MIB // 4)
    told = story(small_gpu, 80 * MIB, FailedCell(None, 3, {0: 0}))
    assert (told.facts.held, told.facts.allocated, told.cells) == ((), 10 * MIB, ())
    assert "who holds torch's memory: gpuwidget could not look through the variables" in told.unknown
    assert kept is not None
