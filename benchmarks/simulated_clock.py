"""A clock on which a day passes in minutes."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from typing import Any

_EPOCH = 1_700_000_000.0
_NOTIFIED_S = 0.005
"""Real seconds for which the advancing thread waits for a notification before it advances the clock."""
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
        self._advancing_thread = threading.current_thread()
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
        if thread is self._advancing_thread:
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
