"""A clock on which a day passes in minutes, and a source of GPU readings that change all the time."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gpuwidget.model.gpu_process import Process
from gpuwidget.model.metrics import keys
from gpuwidget.model.readings import Activity, FastReadings, SlowReadings, StatusReadings
from gpuwidget.model.samples import Gpu, Origin
from gpuwidget.sources import Inventory, UtilizationWindow

_EPOCH = 1_700_000_000.0
_WINDOW_S = 1.0
_WINDOWS = 14
_NOTIFIED_S = 0.005
"""Real seconds within which another thread answers a thread that waits and advances the clock."""
_THREADS = ("gpuwidget-fast", "gpuwidget-slow", "gpuwidget-watchdog")
"""Names of the sampler's threads, which wait on the clock whenever they have nothing to do."""


class SimulatedClock:
    """A clock that stands still until :meth:`advance`, which skips the time in which all threads wait.

    The clock jumps from one timeout to the next. At each of them it wakes the threads whose time has come,
    and stands still until they wait again. If the thread that calls :meth:`advance` waits itself, the clock
    advances for it.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._driver = threading.current_thread()
        self._lock = threading.Lock()
        self._waiting: dict[threading.Thread, tuple[threading.Condition, float]] = {}
        """The condition and the timeout of each thread that waits."""

    def time(self) -> float:
        """Return epoch seconds."""
        return _EPOCH + self._now

    def monotonic(self) -> float:
        """Return the seconds by which the clock was advanced."""
        return self._now

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait until ``condition`` is notified, but at most ``seconds`` of this clock."""
        thread = threading.current_thread()
        until = math.inf if seconds is None else self._now + seconds
        if thread is self._driver:
            if not condition.wait(_NOTIFIED_S):
                condition.release()
                try:
                    self._step(until)
                finally:
                    condition.acquire()
            return
        with self._lock:
            self._waiting[thread] = condition, until
        condition.wait()
        with self._lock:
            del self._waiting[thread]

    def advance(self, seconds: float) -> None:
        """Advance the time, and let the threads run whose timeouts pass."""
        until = self._now + seconds
        while self._now < until:
            self._step(until)

    def _step(self, until: float) -> None:
        """Advance to the next timeout, at most to ``until``, and wait until all woken threads wait again."""
        self._settle()
        with self._lock:
            waiting = list(self._waiting.values())
        self._now = max(self._now, min([until, *(timeout for _, timeout in waiting)]))
        due = {id(condition): condition for condition, timeout in waiting if timeout <= self._now}
        for condition in due.values():
            with condition:
                condition.notify_all()
        self._settle()

    def _settle(self) -> None:
        """Wait until all threads that use this clock wait."""
        while not self._all_wait:
            time.sleep(0)

    @property
    def _all_wait(self) -> bool:
        with self._lock:
            waiting = dict(self._waiting)
        threads = Counter(id(condition) for condition, _ in waiting.values())
        return all(
            _waiters(condition) == threads[id(condition)] for condition, _ in waiting.values()
        ) and all(thread in waiting for thread in threading.enumerate() if thread.name in _THREADS)


def _waiters(condition: Any) -> int:
    """Return how many threads wait on a condition. One that was notified does not count, even before it
    runs."""
    return len(condition._waiters)


class ChangingSource:
    """A source whose readings differ each time, so that no cache hides a leak."""

    def __init__(self, clock: Any, gpus: int, pids: Sequence[int]) -> None:
        """``pids`` are the processes that hold memory on each GPU."""
        self._clock = clock
        self.pids = list(pids)
        self._gpus = tuple(
            Gpu(
                uuid=f"GPU-{index:08d}-aaaa-bbbb-cccc-dddddddddddd",
                index=index,
                mig_index=None,
                mig_parent=None,
                name="NVIDIA H200",
                pci_bus_id=f"00000000:{index:02X}:00.0",
                memory_total=1 << 37,
                memory_reserved=0,
                unified_memory=False,
                compute_capability="9.0",
                peak_fp32_flops=66.9e12,
                memory_bandwidth=4.9e12,
            )
            for index in range(gpus)
        )

    def open(self) -> Inventory:
        """Return the GPUs."""
        return Inventory(Origin("nvml", None, None, None, "580.95.05", "13.0"), self._gpus)

    def close(self) -> None:
        """Do nothing."""

    def _wave(self) -> float:
        return math.sin(self._clock.monotonic()) + 1

    def read_fast(self, gpu: Gpu) -> FastReadings:
        """Return values that change with the time."""
        wave = self._wave()
        return FastReadings(50 * wave, 40 * wave, int(wave * 2**36), 350 * wave, {})

    def read_memory(self, gpu: Gpu) -> int | None:
        """Return bytes that change with the time."""
        return int(self._wave() * 2**36)

    def read_processes(self, gpu: Gpu) -> tuple[Process, ...] | None:
        """Return a share of the memory for each process."""
        share = int(self._wave() * 2**35) // max(1, len(self.pids))
        return tuple(Process(pid, "compute", share, "user", "python", "") for pid in self.pids)

    def read_status(self, gpu: Gpu) -> StatusReadings:
        """Return values that change with the time."""
        values: dict[str, Any] = dict.fromkeys(keys("status"), 40 * self._wave())
        return StatusReadings(**{**values, "pstate": 0}, throttle=(), missing={})

    def read_slow(self, gpu: Gpu) -> SlowReadings:
        """Return an energy counter that grows with the time."""
        return SlowReadings(700 * self._clock.monotonic(), 0.2, 0, None, None, {})

    def read_utilization_windows(self, gpu: Gpu) -> tuple[UtilizationWindow, ...]:
        """Return the newest windows, as a driver does."""
        newest = int(self._clock.time() / _WINDOW_S)
        return tuple(
            UtilizationWindow(number * _WINDOW_S, 50 * (math.sin(number) + 1))
            for number in range(newest - _WINDOWS, newest + 1)
        )

    def read_working_processes(self, gpu: Gpu) -> frozenset[int] | None:
        """Return the first process half of the time."""
        return frozenset(self.pids[:1] if self._wave() > 1 else ())

    def read_activity(self, gpu: Gpu) -> Activity | None:
        """Return hardware counters that change with the time."""
        now, wave = self._clock.time(), 50 * self._wave()
        return Activity(now - 0.5, now, wave, wave, wave, wave, wave, wave, wave, wave, 0.0, 0.0, 0.0, 0.0)

    def stop_activity(self) -> None:
        """Do nothing."""
