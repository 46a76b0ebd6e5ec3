"""The clock that everything asks, so that a test can hand in its own."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Two times, one to write down and one to measure with, and a way to wait."""

    def time(self) -> float:
        """Epoch seconds; may be set back or forth by the system."""
        ...

    def monotonic(self) -> float:
        """Seconds since some start; never goes back."""
        ...

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait, holding ``condition``, until it is notified or ``seconds`` have passed (None: no bound)."""
        ...


class SystemClock:
    """The system's own clock."""

    def time(self) -> float:
        """Epoch seconds, ``time.time``."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds, ``time.perf_counter``."""
        return time.perf_counter()

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """``Condition.wait``."""
        condition.wait(seconds)


SYSTEM_CLOCK = SystemClock()
