"""Tests of the state of torch's CUDA devices, and of measuring peaks of several runs with torch's single peak
counter.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from helpers_torch import GIB, FakeTorch

from gpuwidget.model.torch_state import AllocatorCounters, DevicePeaks, TorchDevice, same_gpu
from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.peak_tracker import PeakTracker


def no_counters() -> str | None:
    """Return the id of the reason for unknown counters, or None if they are known."""
    reason = cuda_state.no_counters_reason()
    return None if reason is None else reason.id


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_without_torch_there_is_nothing_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch is not imported, there are no devices and no counters, and gpuwidget does not import torch."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert cuda_state.devices() == ()
    assert cuda_state.allocator_counters() == {}
    assert no_counters() == "torch-not-loaded"
    assert "torch" not in sys.modules


def test_a_half_imported_torch_is_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """While user code is still importing torch, the incomplete module is not used."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    assert cuda_state.versions().torch is None
    assert cuda_state.devices_with_context() == ()


def test_cuda_is_not_initialized(torch: FakeTorch) -> None:
    """Before user code initializes CUDA, gpuwidget makes no CUDA call."""
    torch.up = False
    torch.cuda.memory_stats_as_nested_dict = None
    assert cuda_state.allocator_counters() == {}
    assert no_counters() == "cuda-not-initialized"
    cuda_state.synchronize()
    assert torch.waited == []


def test_versions(torch: FakeTorch) -> None:
    """The versions of torch, CUDA and cuDNN have their usual form, such as cuDNN '9.7.1'."""
    versions = cuda_state.versions()
    assert (versions.torch, versions.cuda, versions.cudnn) == ("2.13.0", "13.0", "9.7.1")
    assert versions.default_device == "cuda:0"


def test_devices_are_joined_by_uuid(torch: FakeTorch) -> None:
    """torch's devices are matched to GPUs by UUID, ignoring NVML's prefix 'GPU-', and never by index."""
    assert cuda_state.devices() == (TorchDevice(0, "uuid-0"),)
    assert same_gpu("GPU-uuid-0", "uuid-0")
    assert not same_gpu("GPU-uuid-1", "uuid-0")
    assert not same_gpu("GPU-uuid-0", None)


def test_only_devices_with_a_context_are_synchronized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices without a context are not synchronized, because synchronizing would open a context on them."""
    fake = FakeTorch(devices=3)
    fake.contexts = {0, 2}
    monkeypatch.setitem(sys.modules, "torch", fake)
    cuda_state.synchronize()
    assert fake.waited == [0, 2]


def test_a_graph_capture_is_not_disturbed(torch: FakeTorch) -> None:
    """While a CUDA graph is being captured, no device is synchronized, since that would break the capture."""
    assert cuda_state.can_synchronize()
    torch.cuda.is_current_stream_capturing = lambda: True
    assert not cuda_state.can_synchronize()


def test_the_peak_of_a_tensor_that_is_gone_is_exact(torch: FakeTorch) -> None:
    """If a tensor of 4 GiB is allocated and freed between two readings, the peak includes the tensor. torch's
    counter is not reset for this.
    """
    tracker = PeakTracker()
    scope = tracker.open()
    torch.allocate(4 * GIB)
    torch.allocate(-4 * GIB)
    peaks = tracker.close(scope)
    assert peaks == {
        0: DevicePeaks(
            before=AllocatorCounters(0, 0, 0, 0, 2, 1, 0, 0),
            after=AllocatorCounters(0, 4 * GIB, 0, 4 * GIB, 2, 1, 0, 1),
            allocated_peak=4 * GIB,
            reserved_peak=4 * GIB,
        )
    }
    assert torch.resets == 0


def test_an_older_higher_peak_does_not_hide_the_runs_own(torch: FakeTorch) -> None:
    """torch's peak counter is reset at the start of a run only if an older, higher peak would hide the run's
    own peak.

    The older peak is stored in ``hidden_peaks``, since torch no longer reports it after the reset.
    """
    torch.allocate(9 * GIB)
    torch.allocate(-9 * GIB)
    tracker = PeakTracker()
    scope = tracker.open()
    assert (torch.resets, scope.hidden_peaks) == (1, {0: 9 * GIB})
    torch.allocate(2 * GIB)
    assert tracker.close(scope)[0].allocated_peak == 2 * GIB
    assert scope.user_resets == 0


def test_the_peak_since_the_process_started(torch: FakeTorch) -> None:
    """A run that contains the whole life of the process has the peak of everything so far, and torch's
    counter is not reset. A later run inside it keeps that peak."""
    torch.allocate(9 * GIB)
    torch.allocate(-9 * GIB)
    tracker = PeakTracker()
    whole = tracker.open(since_process_start=True)
    assert (torch.resets, whole.hidden_peaks) == (0, {})
    inner = tracker.open()
    torch.allocate(2 * GIB)
    assert tracker.close(inner)[0].allocated_peak == 2 * GIB
    found = tracker.close(whole)[0]
    assert (found.before, found.allocated_peak) == (None, 9 * GIB)


def test_nested_runs_share_one_peak_tracker(torch: FakeTorch) -> None:
    """If torch's peak counter is reset for an inner run, the outer run keeps its higher peak."""
    tracker = PeakTracker()
    outer = tracker.open()
    torch.allocate(5 * GIB)
    torch.allocate(-5 * GIB)
    inner = tracker.open()
    torch.allocate(1 * GIB)
    assert tracker.close(inner)[0].allocated_peak == 1 * GIB
    assert tracker.close(outer)[0].allocated_peak == 5 * GIB
    assert (inner.hidden_peaks, outer.hidden_peaks) == ({0: 5 * GIB}, {})


def test_a_reset_by_the_users_code_loses_nothing(torch: FakeTorch) -> None:
    """If user code resets torch's peak counter during a run, the run keeps the peak from before the reset,
    and the reset is counted.
    """
    tracker = PeakTracker()
    scope = tracker.open()
    torch.allocate(4 * GIB)
    torch.allocate(-4 * GIB)
    torch._C._cuda_resetPeakMemoryStats(0)
    assert torch.peak[0] == 0
    torch.allocate(1 * GIB)
    assert tracker.close(scope)[0].allocated_peak == 4 * GIB
    assert scope.user_resets == 1


def test_a_forked_child_has_no_run(torch: FakeTorch) -> None:
    """In a forked child process, there are no runs, the tracker's lock is free, and torch's functions are not
    patched.
    """
    before = torch._C._cuda_resetPeakMemoryStats
    tracker = PeakTracker()
    tracker.open()
    tracker._lock.acquire()
    tracker.reset_in_child()
    assert torch._C._cuda_resetPeakMemoryStats is before
    scope = tracker.open()
    assert tracker.close(scope)[0].allocated_peak == 0


def test_torchs_functions_are_restored(torch: FakeTorch) -> None:
    """When the last run ends, torch's original functions are restored."""
    before = torch._C._cuda_resetPeakMemoryStats
    tracker = PeakTracker()
    first, second = tracker.open(), tracker.open()
    tracker.close(first)
    assert torch._C._cuda_resetPeakMemoryStats is not before
    tracker.close(second)
    tracker.discard(second)
    assert torch._C._cuda_resetPeakMemoryStats is before


def test_torch_imported_during_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch is imported during a run, the run has no counters from its start, but its peak is known."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    tracker = PeakTracker()
    scope = tracker.open()
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    tracker.watch_resets()
    fake.allocate(3 * GIB)
    fake._C._cuda_resetPeakMemoryStats(0)
    settled = tracker.close(scope)[0]
    assert (settled.before, settled.allocated_peak, scope.user_resets) == (None, 3 * GIB, 1)


def test_partial_counters_are_not_shown(torch: FakeTorch) -> None:
    """With the allocator cudaMallocAsync, torch's counters are incomplete, so they are unknown, and the
    reason is given.
    """
    torch.backend = "cudaMallocAsync"
    assert cuda_state.allocator_counters() == {}
    assert no_counters() == "async-allocator"
