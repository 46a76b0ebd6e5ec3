"""Threads for calls that may hang. Each such thread can be abandoned and replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple


class Call(NamedTuple):
    """A call that a thread is making."""

    name: str
    since: float
    """When the call began, in monotonic seconds."""
    timeout_s: float
    """Seconds after which the call counts as hung."""

    @property
    def hung_at(self) -> float:
        """When the call will count as hung, in monotonic seconds."""
        return self.since + self.timeout_s


class AbandonableThread(threading.Thread):
    """A daemon thread whose calls may hang.

    A hanging call can't be interrupted, so the thread's owner abandons the thread and starts another one. An
    abandoned thread ends when its call returns, and its owner ignores the result.
    """

    def __init__(self, name: str, target: Callable[..., None]) -> None:
        """``target`` is called on the thread, with the thread as its argument."""
        super().__init__(target=target, args=(self,), name=name, daemon=True)
        self.call: Call | None = None
        """The current call; None between calls."""
        self.abandoned = False

    def is_hung(self, now: float) -> bool:
        """Return whether the current call has taken so long that it counts as hung."""
        call = self.call
        return call is not None and now >= call.hung_at

    def abandon(self) -> Call | None:
        """Let the thread end after its current call. Return this call, or None between calls."""
        self.abandoned = True
        return self.call


class WorkerThread(AbandonableThread):
    """A thread that runs submitted functions one after the other, until it is abandoned.

    The thread keeps running between functions, because starting a thread can take up to 8 ms. A thread pool
    can't be used: the process would wait for the pool's threads when it ends, and a call that hangs never
    returns.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, _run)
        self.queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, work: Callable[[], None]) -> None:
        """Run ``work`` on the thread. This returns immediately."""
        self.queue.put(work)

    def abandon(self) -> Call | None:
        """Let the thread end once it has run the submitted functions. Return its current call."""
        self.queue.put(None)
        return super().abandon()


def _run(thread: WorkerThread) -> None:
    while (work := thread.queue.get()) is not None:
        work()
