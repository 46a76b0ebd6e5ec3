"""Measure this process's resident memory over a run."""

from __future__ import annotations

from gpuwidget.model.report import Span
from gpuwidget.system import processes


class ResidentMemory:
    """Samples this process's resident memory from :meth:`begin` to :meth:`end`."""

    def __init__(self, interval_s: float) -> None:
        """``interval_s`` is the minimum number of seconds between two samples."""
        self._interval_s = interval_s
        self._due = 0.0
        self._start: int | None = None
        self._peak: int | None = None
        self._peak_at_start: int | None = None

    def begin(self) -> None:
        """Read the resident memory just before the run."""
        self._start = self._peak = processes.resident_memory()
        self._peak_at_start = processes.peak_resident_memory()

    def add(self, t: float) -> None:
        """Read the resident memory ``t`` seconds into the run, if a sample is due."""
        if t >= self._due:
            self._due = t + self._interval_s
            resident = processes.resident_memory()
            if resident is not None and (self._peak is None or resident > self._peak):
                self._peak = resident

    def end(self) -> Span:
        """Read the resident memory at the run's end. Return the bytes at start and end, and the peak."""
        end = processes.resident_memory()
        peak = max((value for value in (self._peak, end) if value is not None), default=None)
        process_peak = processes.peak_resident_memory()
        if (
            process_peak is not None
            and self._peak_at_start is not None
            and process_peak > self._peak_at_start
        ):
            # The process's high-water mark rose during the run, so the mark is the run's exact peak.
            peak = process_peak
        return Span(self._start, end, peak)
