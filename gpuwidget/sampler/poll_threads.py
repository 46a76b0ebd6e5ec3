"""Manage the threads of the two poll loops and the watchdog."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Literal

from gpuwidget.model.messages import message
from gpuwidget.system.abandonable_thread import AbandonableThread, Call

LoopName = Literal["fast", "slow"]

_LOG = logging.getLogger(__name__)

OPENING = "(open)"
"""Name of the call that opens the source. The name of each other call is the GPU's UUID."""
HUNG_AFTER_S = 1.0
NO_THREAD = message("no-thread", "No thread could be started, so the GPUs can't be read.")
"""Why there are no samples if the poll loops have no threads."""
_OPEN_HUNG_AFTER_S = 10.0


def _start(thread: threading.Thread) -> bool:
    """Start the thread, and return whether that was possible."""
    try:
        thread.start()
    except RuntimeError as error:  # for example, the number of threads is limited
        _LOG.warning("gpuwidget does not measure the GPUs now: %s (%s)", error, thread.name)
        return False
    return True


class PollThread(AbandonableThread):
    """One thread of a poll loop."""

    def __init__(self, loop: LoopName, run: Callable[[PollThread], None]) -> None:
        super().__init__(f"gpuwidget-{loop}", run)
        self.loop = loop

    def begin_call(self, name: str, now: float) -> None:
        """Set :attr:`call`. ``name`` is a GPU's UUID or OPENING."""
        self.call = Call(name, now, _OPEN_HUNG_AFTER_S if name == OPENING else HUNG_AFTER_S)


class PollThreads:
    """The current thread of each poll loop, and the watchdog. Hold the sampler's lock for every use."""

    def __init__(
        self, runs: Mapping[LoopName, Callable[[PollThread], None]], run_watchdog: Callable[[], None]
    ) -> None:
        self._runs = runs
        self._run_watchdog = run_watchdog
        self._poll_threads: dict[LoopName, PollThread] = {}
        self._watchdog: threading.Thread | None = None

    def start(self) -> None:
        """Start each thread that is not running, until one can't be started."""
        for loop in self._runs:
            poll_thread = self._poll_threads.get(loop)
            alive = poll_thread is not None and poll_thread.is_alive()
            if not alive and not self.replace(loop):
                return
        if self._watchdog is None or not self._watchdog.is_alive():
            watchdog = threading.Thread(target=self._run_watchdog, name="gpuwidget-watchdog", daemon=True)
            self._watchdog = watchdog if _start(watchdog) else None

    def replace(self, loop: LoopName) -> bool:
        """Start a new thread for ``loop`` in place of its current one; return whether that was possible."""
        poll_thread = PollThread(loop, self._runs[loop])
        self._poll_threads.pop(loop, None)
        started = _start(poll_thread)
        if started:
            self._poll_threads[loop] = poll_thread
        return started

    def remove(self, poll_thread: PollThread) -> bool:
        """Remove a thread from its poll loop. Returns False if another thread has already replaced it."""
        if self._poll_threads.get(poll_thread.loop) is not poll_thread:
            return False
        del self._poll_threads[poll_thread.loop]
        return True

    def remove_watchdog(self) -> None:
        """Remove the watchdog. The watchdog thread calls this before it ends."""
        self._watchdog = None

    def has(self, loop: LoopName) -> bool:
        """Return whether ``loop`` has a thread."""
        return loop in self._poll_threads

    def next_hang(self, now: float) -> float:
        """Return the earliest time after ``now`` at which a call can count as hung, in monotonic seconds.

        A call that starts after ``now`` can't count as hung before ``HUNG_AFTER_S`` seconds from now.
        """
        calls = (poll_thread.call for poll_thread in self.current)
        ends = (call.hung_at for call in calls if call is not None)
        return min((now + HUNG_AFTER_S, *(end for end in ends if end > now)))

    @property
    def current(self) -> tuple[PollThread, ...]:
        """The current threads of the poll loops."""
        return tuple(self._poll_threads.values())

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads of the poll loops and the watchdog's thread."""
        watchdog = [self._watchdog] if self._watchdog is not None else []
        return [*self._poll_threads.values(), *watchdog]
