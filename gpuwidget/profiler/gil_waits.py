"""Detect that a late sample waited for an operation that held the GIL while the operation itself waited.

Code written in C may wait for a GPU, a file or a lock without releasing the GIL. Meanwhile no thread runs
Python, and the sampled thread uses no CPU time, as if the machine were busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gpuwidget.system.processes import thread_queue_s

_SHARE = 0.5
"""Fraction of a delay from which on something counts as its cause."""
_CERTAIN_WITHOUT_QUEUE_S = 0.025
"""Shortest delay that counts where the system does not tell how long threads waited for a CPU core."""


class GilWaits:
    """Distinguishes operations that wait with the GIL held from a busy machine and from other threads."""

    def __init__(self, queue_s: Callable[[int], float | None] = thread_queue_s) -> None:
        """``queue_s`` returns the seconds for which a thread has waited for a CPU core, or None."""
        self._queue_s = queue_s
        self._threads: tuple[int, ...] = ()
        self._queued: float | None = None
        self._other_cpu_s = self._others_s = 0.0

    def begin(self, *native_ids: int) -> None:
        """Begin to observe the sampled thread and the calling thread, which takes the samples."""
        self._threads = native_ids
        self._queued = self._read_queued()
        self.add(0.0)

    def add(self, sampled_s: float) -> None:
        """Read the CPU time that this process's other threads have used since the previous sample.

        ``sampled_s`` are the CPU seconds of the sampled thread since then. The sampling thread calls this
        with every sample.
        """
        before, self._other_cpu_s = self._other_cpu_s, time.process_time() - time.thread_time()
        self._others_s = self._other_cpu_s - before - sampled_s

    def held_while_waiting(self, late: float) -> bool:
        """Return whether an operation that itself waited held the GIL during the delay ``late``.

        Call this only if the sampled thread did not run. It reads a file, which releases the GIL.
        """
        if self._others_s >= _SHARE * late:
            return False
        before, self._queued = self._queued, self._read_queued()
        if before is None or self._queued is None:
            return late >= _CERTAIN_WITHOUT_QUEUE_S
        return self._queued - before < _SHARE * late

    def _read_queued(self) -> float | None:
        waits = [self._queue_s(thread) for thread in self._threads]
        return None if not waits or None in waits else sum(wait for wait in waits if wait is not None)
