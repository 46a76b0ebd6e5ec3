"""This process's own memory over a run."""

from __future__ import annotations

from gpuwidget.model.report import Span
from gpuwidget.system import processes


class ResidentMemory:
    """From :meth:`begin` to :meth:`end`, with its peak."""

    def __init__(self, interval_s: float) -> None:
        """``interval_s`` are the seconds between two looks at it."""
        self._interval_s = interval_s
        self._due = 0.0
        self._start: int | None = None
        self._peak: int | None = None
        self._mark: int | None = None

    def begin(self) -> None:
        """The memory just before the run."""
        self._start = self._peak = processes.resident_memory()
        self._mark = processes.peak_resident_memory()

    def add(self, t: float) -> None:
        """A sample was taken ``t`` seconds into the run: this is looked at too, where it is due."""
        if t >= self._due:
            self._due = t + self._interval_s
            resident = processes.resident_memory()
            if resident is not None and (self._peak is None or resident > self._peak):
                self._peak = resident

    def end(self) -> Span:
        """Over the whole run, of which this is the end."""
        end = processes.resident_memory()
        peak = max((value for value in (self._peak, end) if value is not None), default=None)
        mark = processes.peak_resident_memory()
        if mark is not None and self._mark is not None and mark > self._mark:
            # The process's high-water mark rose during the run: that is the exact peak.
            peak = mark
        return Span(self._start, end, peak)
