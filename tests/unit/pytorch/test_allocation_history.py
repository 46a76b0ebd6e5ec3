"""Tests of recording torch's allocation history, and of the part of the history that belongs to each run."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

import pytest
from helpers_torch import STANDIN, make_torch

from gpuwidget.model.torch_state import RecordedHistory
from gpuwidget.pytorch import allocation_history
from gpuwidget.pytorch.allocation_history import AllocationHistory, HistoryScope

ALLOCATOR = STANDIN.parents[1] / "standin_allocator.py"


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the stand-in for torch, with an allocator and without CUDA initialized."""
    made = make_torch()
    spec = importlib.util.spec_from_file_location("standin_allocator", ALLOCATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made.allocator = module.install(made)
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def sizes(recorded: RecordedHistory | str) -> list[int]:
    """Return the sizes in bytes of what was allocated on the first device during a run."""
    assert isinstance(recorded, RecordedHistory)
    since, trace = recorded.since_us or 0.0, recorded.snapshot["device_traces"][0]
    return [entry["size"] for entry in trace if entry["action"] == "alloc" and entry["time_us"] >= since]


def end(history: AllocationHistory, scope: HistoryScope) -> RecordedHistory | str:
    scope.stop()
    try:
        return history.read(scope)
    finally:
        history.close(scope)


def test_a_run_starts_and_stops_the_recording(torch: Any) -> None:
    """If CUDA is initialized, a run starts a recording with Python stacks, and stops it when the run ends."""
    torch.cuda.init()
    before = torch.allocate(100)
    history = AllocationHistory()
    scope = history.open()
    kept = torch.allocate(200)
    recorded = end(history, scope)
    assert sizes(recorded) == [200]
    assert isinstance(recorded, RecordedHistory)
    assert (recorded.before[0].allocated, recorded.after[0].allocated, recorded.note) == (100, 300, None)
    assert [call[0] for call in torch.allocator.calls] == ["all", None]
    assert torch.allocator.calls[0][1] == {"context": "alloc", "stacks": "python"}
    assert not torch.allocator.enabled
    assert (before, kept) is not None


@pytest.mark.parametrize("during", ["counting", "switching it on"])
def test_an_interrupt_while_recording_starts(
    torch: Any, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    """If an interrupt arrives while a run starts a recording, the recording is switched off, and the next run
    records as usual.
    """
    torch.cuda.init()
    switch = torch._C._cuda_record_memory_history

    def interrupt(*args: Any) -> None:
        monkeypatch.undo()
        monkeypatch.setitem(sys.modules, "torch", torch)
        if during == "switching it on":
            switch(*args)
        raise KeyboardInterrupt

    if during == "counting":
        monkeypatch.setattr(allocation_history, "_requested_bytes", interrupt)
    else:
        monkeypatch.setattr(torch._C, "_cuda_record_memory_history", interrupt)
    history = AllocationHistory()
    with pytest.raises(KeyboardInterrupt):
        history.open()
    assert not torch.allocator.enabled
    scope = history.open()
    assert torch.allocator.enabled
    kept = torch.allocate(100)
    assert sizes(end(history, scope)) == [100]
    assert not torch.allocator.enabled
    assert kept is not None


def test_nothing_is_recorded_before_cuda_is_initialized(torch: Any) -> None:
    """A run does not initialize CUDA. If user code initializes CUDA during the run, all later allocations are
    recorded.
    """
    history = AllocationHistory()
    scope = history.open()
    assert (torch.cuda.is_initialized(), torch.allocator.calls) == (False, [])
    kept = torch.allocate(300)
    recorded = end(history, scope)
    assert sizes(recorded) == [300]
    assert isinstance(recorded, RecordedHistory)
    assert (recorded.before, recorded.after[0].allocated) == ({}, 300)
    assert not torch.allocator.enabled
    assert kept is not None


def test_cuda_initialized_after_the_run(torch: Any) -> None:
    """If CUDA is initialized only after a run has ended, no recording is started."""
    history = AllocationHistory()
    said = end(history, history.open())
    assert isinstance(said, str)
    assert said.startswith("CUDA is not initialized")
    torch.cuda.init()
    assert torch.allocator.calls == []


def test_torch_imported_during_the_run(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch is imported during a run, allocations are recorded from the moment when gpuwidget finds
    torch.
    """
    history = AllocationHistory()
    monkeypatch.delitem(sys.modules, "torch")
    scope = history.open()
    monkeypatch.setitem(sys.modules, "torch", torch)
    history.poll_torch()
    kept = torch.allocate(100)
    history.poll_torch()
    assert sizes(end(history, scope)) == [100]
    monkeypatch.delitem(sys.modules, "torch")
    scope = history.open()
    monkeypatch.setitem(sys.modules, "torch", torch)
    missed = torch.allocate(50)
    history.poll_torch()
    also = torch.allocate(60)
    recorded = end(history, scope)
    assert sizes(recorded) == [60]
    assert (kept, missed, also) is not None


def test_nested_runs_share_the_recording(torch: Any) -> None:
    """Nested runs share one recording. Each run gets its own part, and the recording stops when the outermost
    run ends.
    """
    torch.cuda.init()
    history = AllocationHistory()
    outer = history.open()
    first = torch.allocate(100)
    inner = history.open()
    second = torch.allocate(200)
    recorded = end(history, inner)
    assert sizes(recorded) == [200]
    assert torch.allocator.enabled
    third = torch.allocate(300)
    assert sizes(end(history, outer)) == [100, 200, 300]
    assert [call[0] for call in torch.allocator.calls] == ["all", None]
    assert (first, second, third) is not None


def test_the_users_recording_is_kept(torch: Any) -> None:
    """If the user has already switched on a recording, the run uses it and leaves it on. A note explains
    this.
    """
    torch.cuda.init()
    torch.cuda.memory._record_memory_history("all")
    early = torch.allocate(100)
    history = AllocationHistory()
    scope = history.open()
    late = torch.allocate(200)
    recorded = end(history, scope)
    assert sizes(recorded) == [200]
    assert isinstance(recorded, RecordedHistory)
    assert recorded.recorded_before is None
    assert recorded.note is not None
    assert "was already on" in recorded.note
    assert [call[0] for call in torch.allocator.calls] == ["all"]
    assert torch.allocator.enabled
    assert (early, late) is not None


def test_user_code_starts_a_recording_during_the_run(torch: Any) -> None:
    """If user code switches on a recording during a run, it stays on after the run. A note explains this."""
    torch.cuda.init()
    history = AllocationHistory()
    scope = history.open()
    kept = torch.allocate(100)
    torch.cuda.memory._record_memory_history("all", stacks="all")
    recorded = end(history, scope)
    assert isinstance(recorded, RecordedHistory)
    assert recorded.note is not None
    assert "turned torch's allocation history on or off" in recorded.note
    assert torch.allocator.enabled
    assert torch.allocator.calls[-1] == ("all", {"stacks": "all"})
    assert torch._C._cuda_record_memory_history == torch.allocator.switch
    assert kept is not None


def test_user_code_stops_the_recording_during_the_run(torch: Any) -> None:
    """If user code stops the recording during a run, the run has no history, and the reason is reported."""
    torch.cuda.init()
    history = AllocationHistory()
    scope = history.open()
    torch.cuda.memory._record_memory_history(None)
    assert end(history, scope) == "code in this run ended torch's allocation history"
    assert [call[0] for call in torch.allocator.calls] == ["all", None]


def test_blocks_that_an_earlier_run_recorded(torch: Any) -> None:
    """The result contains the addresses of blocks from an earlier recording, so that they can be excluded
    from this run's allocations.
    """
    torch.cuda.init()
    history = AllocationHistory()
    scope = history.open()
    kept = torch.allocate(100)
    end(history, scope)
    recorded = end(history, history.open())
    assert isinstance(recorded, RecordedHistory)
    assert recorded.recorded_before == frozenset({kept.block.address})


def test_a_torch_that_does_not_report_recordings(torch: Any) -> None:
    """If torch can't report whether a recording is on, gpuwidget starts none."""
    torch.cuda.init()
    del torch._C._cuda_isHistoryEnabled
    history = AllocationHistory()
    said = end(history, history.open())
    assert isinstance(said, str)
    assert "does not report whether its allocation history is on" in said
    assert torch.allocator.calls == []


@pytest.mark.stops_errors
def test_a_recording_that_fails(torch: Any) -> None:
    """If torch raises an exception when a recording is started, the exception does not reach the user, and
    nothing is recorded.
    """

    def refuse(*args: object, **options: object) -> None:
        raise RuntimeError("cudaMallocAsync does not yet support recordHistory")

    torch.cuda.init()
    torch.cuda.memory._record_memory_history = refuse
    history = AllocationHistory()
    said = end(history, history.open())
    assert isinstance(said, str)
    assert said.endswith("nothing was recorded")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_records_nothing(torch: Any) -> None:
    """After a fork, the child process has no runs and does not call torch's recording functions. The parent's
    recording continues.
    """
    torch.cuda.init()
    history = AllocationHistory()
    scope = history.open()
    history.reset_in_child()
    history.close(scope)
    assert [call[0] for call in torch.allocator.calls] == ["all"]
    assert torch._C._cuda_record_memory_history == torch.allocator.switch
