"""Measure the CPU time that this process and its child processes use during a run."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from gpuwidget.model.boundary import Boundary
from gpuwidget.model.clock import Clock
from gpuwidget.system import processes

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class CpuReading:
    """CPU seconds that this process and its children have used up to the moment ``t``."""

    t: float
    own: float
    children: processes.ChildrenTime | None


class CpuTimes:
    """Measures CPU times between :meth:`begin` and :meth:`end`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start: CpuReading | None = None
        self._end: CpuReading | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Read the CPU times at the start of the measurement. Further calls do nothing."""
        if self._start is not None or self._thread is not None:
            return
        if not processes.has_children():
            self._read_start()
            return
        # Reading the children's CPU times takes several system calls per thread. While the cell runs pure
        # Python, the calling thread would have to wait for the GIL after each of them, so another thread
        # reads them.
        self._thread = threading.Thread(target=self._read_start, name="gpuwidget-children", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Read the CPU times at the end of the measurement."""
        if self._start is not None:
            self._end = self._read()

    @property
    def percent(self) -> tuple[float | None, float | None]:
        """CPU time of this process, and of its children, in percent of one core; None if unknown."""
        start, end = self._start, self._end
        if start is None or end is None or end.t <= start.t:
            return None, None
        scale = 100 / (end.t - start.t)
        own = scale * (end.own - start.own)
        if start.children is None or end.children is None:
            return own, None
        return own, scale * max(0.0, sum(end.children) - sum(start.children))

    def _read_start(self) -> None:
        with Boundary(_LOG, "the CPU time could not be read"):
            self._start = self._read()

    def _read(self) -> CpuReading:
        return CpuReading(self._clock.monotonic(), time.process_time(), processes.children_cpu_time())
