"""The state of torch's devices, and the sharing of its peak counters among runs."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from helpers_torch import GIB, FakeTorch

from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.cuda_state import AllocatorCounters, TorchDevice
from gpuwidget.pytorch.peak_tracker import DevicePeaks, PeakTracker


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_without_torch_there_is_nothing_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch is not imported, there are no devices and counters, and gpuwidget does not import it."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert cuda_state.devices() == ()
    assert cuda_state.counters() == {}
    assert cuda_state.no_counters_reason() == "torch is not loaded"
    assert "torch" not in sys.modules


def test_a_half_imported_torch_is_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the user's import of torch is in progress, the partially imported module is not used."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    assert cuda_state.versions().torch is None
    assert cuda_state.devices_with_context() == ()


def test_cuda_that_is_not_up_is_not_brought_up(torch: FakeTorch) -> None:
    """Before user code initializes CUDA, no CUDA call is made."""
    torch.up = False
    torch.cuda.memory_stats_as_nested_dict = None
    assert cuda_state.counters() == {}
    assert cuda_state.no_counters_reason() == "CUDA is not initialised in this process"
    cuda_state.synchronize()
    assert torch.waited == []


def test_versions(torch: FakeTorch) -> None:
    """The versions of torch, CUDA and cuDNN are written as they are published."""
    versions = cuda_state.versions()
    assert (versions.torch, versions.cuda, versions.cudnn) == ("2.13.0", "13.0", "9.7.1")
    assert versions.default_device == "cuda:0"


def test_devices_are_joined_by_uuid(torch: FakeTorch) -> None:
    """torch devices are matched to GPUs by UUID, without NVML's prefix, never by index."""
    assert cuda_state.devices() == (TorchDevice(0, "uuid-0"),)
    assert cuda_state.same_gpu("GPU-uuid-0", "uuid-0")
    assert not cuda_state.same_gpu("GPU-uuid-1", "uuid-0")
    assert not cuda_state.same_gpu("GPU-uuid-0", None)


def test_only_devices_with_a_context_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device without a context is not synchronized, because that would open one."""
    fake = FakeTorch(devices=3)
    fake.contexts = {0, 2}
    monkeypatch.setitem(sys.modules, "torch", fake)
    cuda_state.synchronize()
    assert fake.waited == [0, 2]


def test_a_graph_capture_is_not_spoiled(torch: FakeTorch) -> None:
    """While a CUDA graph is captured, no device is synchronized."""
    assert cuda_state.can_synchronize()
    torch.cuda.is_current_stream_capturing = lambda: True
    assert not cuda_state.can_synchronize()


def test_the_peak_of_a_tensor_that_is_gone_is_exact(torch: FakeTorch) -> None:
    """The peak includes 4 GiB that were allocated and freed between two readings, without a reset."""
    tracker = PeakTracker()
    scope = tracker.open()
    torch.allocate(4 * GIB)
    torch.allocate(-4 * GIB)
    peaks = tracker.close(scope)
    assert peaks == {
        0: DevicePeaks(
            before=AllocatorCounters(0, 0, 0, 0, 2, 1, 0),
            after=AllocatorCounters(0, 4 * GIB, 0, 4 * GIB, 2, 1, 0),
            allocated_peak=4 * GIB,
            reserved_peak=4 * GIB,
        )
    }
    assert torch.resets == 0


def test_an_older_higher_peak_does_not_hide_the_runs_own(torch: FakeTorch) -> None:
    """The peak counter is reset only if an older, higher peak would hide the run's own.

    The scope records the reset.
    """
    torch.allocate(9 * GIB)
    torch.allocate(-9 * GIB)
    tracker = PeakTracker()
    scope = tracker.open()
    assert (torch.resets, scope.hidden_peaks) == (1, {0: 9 * GIB})
    torch.allocate(2 * GIB)
    assert tracker.close(scope)[0].allocated_peak == 2 * GIB
    assert scope.user_resets == 0


def test_nested_runs_share_one_ledger(torch: FakeTorch) -> None:
    """A reset of the peak counter for an inner run does not change the outer run's peak."""
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
    """If user code resets the peak counter, the earlier peak still counts, and the reset is recorded."""
    tracker = PeakTracker()
    scope = tracker.open()
    torch.allocate(4 * GIB)
    torch.allocate(-4 * GIB)
    torch._C._cuda_resetPeakMemoryStats(0)
    assert torch.peak[0] == 0
    torch.allocate(1 * GIB)
    assert tracker.close(scope)[0].allocated_peak == 4 * GIB
    assert scope.user_resets == 1


def test_a_child_of_a_fork_has_no_run(torch: FakeTorch) -> None:
    """A forked child has neither the parent's scopes, nor its held lock, nor its patches of torch."""
    before = torch._C._cuda_resetPeakMemoryStats
    tracker = PeakTracker()
    tracker.open()
    tracker._lock.acquire()
    tracker.reset_in_child()
    assert torch._C._cuda_resetPeakMemoryStats is before
    scope = tracker.open()
    assert tracker.close(scope)[0].allocated_peak == 0


def test_torch_is_left_as_it_was(torch: FakeTorch) -> None:
    """After the last run, torch's functions are no longer patched."""
    before = torch._C._cuda_resetPeakMemoryStats
    tracker = PeakTracker()
    first, second = tracker.open(), tracker.open()
    tracker.close(first)
    assert torch._C._cuda_resetPeakMemoryStats is not before
    tracker.close(second)
    tracker.discard(second)
    assert torch._C._cuda_resetPeakMemoryStats is before


def test_torch_imported_during_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch is imported during a run, the run has no counters from its start, but has the peak."""
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
    """The counters of cudaMallocAsync are partial, so they count as unknown, with the reason."""
    torch.backend = "cudaMallocAsync"
    assert cuda_state.counters() == {}
    assert cuda_state.no_counters_reason() == "torch runs on cudaMallocAsync, whose counters are partial"
