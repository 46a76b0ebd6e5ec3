"""The clock that everything asks, so that a test can hand in its own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two times: one to write down, one to measure with."""

    def time(self) -> float:
        """Epoch seconds; may be set back or forth by the system."""
        ...

    def monotonic(self) -> float:
        """Seconds since some start; never goes back."""
        ...


class SystemClock:
    """The system's own clock."""

    def time(self) -> float:
        """Epoch seconds, ``time.time``."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds, ``time.perf_counter``."""
        return time.perf_counter()


SYSTEM_CLOCK = SystemClock()
