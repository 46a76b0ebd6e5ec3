"""The clock interface, passed as a parameter so that tests can replace the clock."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time, monotonic time, and waiting."""

    def time(self) -> float:
        """Return epoch seconds, which may jump when the system's clock is set."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start. The value never decreases."""
        ...

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait until ``condition`` is notified or ``seconds`` have passed.

        The caller must hold ``condition``. With None for ``seconds``, wait without a limit.
        """
        ...


class SystemClock:
    """The system's clock."""

    def time(self) -> float:
        """Return epoch seconds from ``time.time``."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds from ``time.perf_counter``."""
        return time.perf_counter()

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait with ``Condition.wait``."""
        condition.wait(seconds)


SYSTEM_CLOCK = SystemClock()
