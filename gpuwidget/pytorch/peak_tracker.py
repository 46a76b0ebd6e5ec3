"""Share torch's peak memory counters among any number of nested and concurrent runs.

The allocator has one peak counter per device. Any code may reset it, but no code can set it to a value
(https://github.com/pytorch/pytorch/issues/16266). :class:`PeakTracker` therefore reads each peak before a
reset.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.torch_state import AllocatorCounters, DevicePeaks
from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.hooks import PatchedFunctions

_RESET_FUNCTIONS = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")
"""Functions of ``torch._C``. Every public function of torch that resets the peaks calls one of them."""


@dataclass(slots=True)
class _Peak:
    allocated: int = 0
    reserved: int = 0

    def include(self, counters: AllocatorCounters) -> None:
        self.allocated = max(self.allocated, counters.allocated_peak)
        self.reserved = max(self.reserved, counters.reserved_peak)


class PeakScope:
    """The peaks of one run, from :meth:`PeakTracker.open` to :meth:`PeakTracker.close`."""

    def __init__(self, before: dict[int, AllocatorCounters]) -> None:
        self._before = before
        self._peaks: dict[int, _Peak] = {}
        self.hidden_peaks: dict[int, int] = {}
        """For each device whose counter was reset when the run began: the earlier, higher peak in bytes."""
        self.user_resets = 0
        """How often other code reset peak counters during the run."""

    def include(self, index: int, counters: AllocatorCounters) -> None:
        """Raise the scope's peaks of a device to the device's peak counters, if the counters are higher.

        Call it before each reset and at the end of the run.
        """
        self._peaks.setdefault(index, _Peak()).include(counters)

    def finish(self, after: dict[int, AllocatorCounters]) -> dict[int, DevicePeaks]:
        """Return the peaks by device index. ``after`` are the counters at the run's end."""
        found = {}
        for index, counters in after.items():
            self.include(index, counters)
            peak = self._peaks[index]
            found[index] = DevicePeaks(
                before=self._before.get(index),
                after=counters,
                allocated_peak=peak.allocated,
                reserved_peak=peak.reserved,
            )
        return found


class PeakTracker:
    """Tracks the peaks of all open scopes of the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._scopes: list[PeakScope] = []
        self._patches = PatchedFunctions()

    def open(self, *, since_process_start: bool = False) -> PeakScope:
        """Begin a scope. Reset a device's peak counters only if an earlier, higher peak would hide the run's
        peak.

        With ``since_process_start``, the scope contains all that the process has done so far, and nothing is
        reset.
        """
        with self._lock:
            before = {} if since_process_start else cuda_state.allocator_counters()
            scope = PeakScope(before)
            for index, now in before.items():
                if now.allocated_peak > now.allocated or now.reserved_peak > now.reserved:
                    self._reset(index, now)
                    hidden = now.allocated_peak if now.allocated_peak > now.allocated else now.reserved_peak
                    scope.hidden_peaks[index] = hidden
            self._scopes.append(scope)
            self.watch_resets()
            return scope

    def peaks(self, scope: PeakScope) -> dict[int, DevicePeaks]:
        """Return a scope's peaks so far, by device index."""
        with self._lock:
            return scope.finish(cuda_state.allocator_counters())

    def close(self, scope: PeakScope) -> dict[int, DevicePeaks]:
        """End a scope and return its peaks by device index."""
        with self._lock:
            found = self.peaks(scope)
            self.discard(scope)
            return found

    def discard(self, scope: PeakScope) -> None:
        """End a scope without reading counters. Safe to call twice."""
        with self._lock:
            if scope in self._scopes:
                self._scopes.remove(scope)
            if not self._scopes:
                self._patches.restore()

    def watch_resets(self) -> None:
        """Patch torch's reset functions, so that the peaks are read before other code resets them.

        Does nothing until torch is imported.
        """
        torch: Any = cuda_state.loaded_torch()
        with self._lock:
            if torch is not None and self._scopes:
                self._patches.patch(torch._C, _RESET_FUNCTIONS, self._wrap_reset)

    def _wrap_reset(self, original: Callable[..., None]) -> Callable[..., None]:
        def reset(*args: Any) -> None:
            self._record_user_reset()
            original(*args)

        return reset

    def _record_user_reset(self) -> None:
        with self._lock:
            now = cuda_state.allocator_counters()
            for scope in self._scopes:
                scope.user_resets += 1
                for index, counters in now.items():
                    scope.include(index, counters)

    def _reset(self, index: int, now: AllocatorCounters) -> None:
        torch: Any = cuda_state.loaded_torch()
        for scope in self._scopes:
            scope.include(index, now)
        reset = self._patches.original(_RESET_FUNCTIONS[0]) or getattr(torch._C, _RESET_FUNCTIONS[0])
        reset(index)

    def reset_in_child(self) -> None:
        """Drop the parent's scopes and its lock, because another thread may have held the lock during the
        fork."""
        self._lock = threading.RLock()
        self._scopes = []
        self._patches.restore()


PEAK_TRACKER = PeakTracker()
"""The only instance in the process."""

reset_after_fork(PEAK_TRACKER.reset_in_child)
