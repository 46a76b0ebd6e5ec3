"""The clock, as a parameter, so that tests can replace it."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time, monotonic time, and waiting."""

    def time(self) -> float:
        """Return epoch seconds; the system may set them back or forward."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never falls."""
        ...

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait, holding ``condition``, until it is notified or ``seconds`` have passed (None: without
        limit)."""
        ...


class SystemClock:
    """The system's clock."""

    def time(self) -> float:
        """Return epoch seconds by ``time.time``."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds by ``time.perf_counter``."""
        return time.perf_counter()

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait by ``Condition.wait``."""
        condition.wait(seconds)


SYSTEM_CLOCK = SystemClock()
