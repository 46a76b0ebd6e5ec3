"""A thread for what the event loop must not wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]


class Worker:
    """Does one piece of work after the other, from the first one on until :meth:`stop`.

    It stays, since to start a thread is to wait for it: up to 8 ms where it has work to do at once. And it is
    not one of a pool, which is waited for when the server ends: nothing ends a read that hangs.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[Work | None] | None = None

    def do(self, work: Work) -> None:
        """Have it done; returns at once."""
        if self._work is None:
            self._work = SimpleQueue()
            threading.Thread(target=_run, args=(self._work,), name=self._name, daemon=True).start()
        self._work.put(work)

    def stop(self) -> None:
        """Nothing more will come for now. Safe to call twice."""
        if self._work is not None:
            self._work.put(None)
            self._work = None


def _run(queue: SimpleQueue[Work | None]) -> None:
    while (work := queue.get()) is not None:
        work()
