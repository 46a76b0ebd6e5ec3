"""The interface of clocks. A clock is passed as a parameter, so that tests can replace it.

Durations are differences of monotonic times. Epoch seconds only label moments, or compare with those of other
programs, because they jump when the system's clock is set.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Provides wall-clock time, monotonic time, and waiting."""

    def time(self) -> float:
        """Return epoch seconds. They may jump when the system's clock is set."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment. The value never decreases."""
        ...

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait until ``condition`` is notified, but at most ``seconds``.

        The caller must hold ``condition``. If ``seconds`` is None, wait without a limit.
        """
        ...


class SystemClock:
    """The system's clock, also if the user's code replaces the functions of the module ``time``.

    Code in a notebook may do so, for example with freezegun, which also replaces functions that other modules
    have imported. It does not find attributes of a class.
    """

    _time = staticmethod(time.time)
    _perf_counter = staticmethod(time.perf_counter)

    def time(self) -> float:
        """Return epoch seconds from ``time.time``."""
        return self._time()

    def monotonic(self) -> float:
        """Return seconds from ``time.perf_counter``."""
        return self._perf_counter()

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait with ``Condition.wait``."""
        condition.wait(seconds)


SYSTEM_CLOCK = SystemClock()
