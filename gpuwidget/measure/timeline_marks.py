"""The moments worth seeing on a run's timeline, however many lines it prints."""

from __future__ import annotations

import threading

from gpuwidget.model.report import Mark

_MOST_MARKS = 200
_MOST_PRINTED = 100


class Marks:
    """Keeps the first 200 marks, and printed lines evenly thinned to at most 100."""

    def __init__(self) -> None:
        # Reentrant: what prints may be a signal handler, or a finalizer that the garbage collector runs.
        self._lock = threading.RLock()
        self._marks: list[Mark] = []
        self._printed: list[Mark] = []
        self._stride = 1
        self.marks_set = 0
        self.lines_printed = 0

    def mark(self, t: float, label: str) -> None:
        """A mark that the user set ``t`` seconds into the run."""
        with self._lock:
            self.marks_set += 1
            if len(self._marks) < _MOST_MARKS:
                self._marks.append(Mark(t, label, "mark"))

    def printed(self, t: float, line: str) -> None:
        """A line that the user's code printed ``t`` seconds into the run."""
        with self._lock:
            if self.lines_printed % self._stride == 0:
                if len(self._printed) == _MOST_PRINTED:
                    self._printed = self._printed[::2]
                    self._stride *= 2
                if self.lines_printed % self._stride == 0:
                    self._printed.append(Mark(t, line, "printed"))
            self.lines_printed += 1

    def all(self) -> tuple[Mark, ...]:
        """Every mark kept, in the order of time."""
        with self._lock:
            return tuple(sorted((*self._marks, *self._printed), key=lambda mark: mark.t))

    def left_out(self) -> list[str]:
        """What was not kept, in words."""
        with self._lock:
            notes = []
            if self.marks_set > len(self._marks):
                notes.append(f"{self.marks_set} marks were set; the first {len(self._marks)} are kept.")
            if self.lines_printed > len(self._printed):
                notes.append(
                    f"{self.lines_printed} lines were printed; every {_ordinal(self._stride)} is on the "
                    "timeline."
                )
            return notes


def _ordinal(number: int) -> str:
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{suffix}"
