"""The threads of the two lanes, and what makes a thread one that hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Literal

Lane = Literal["fast", "slow"]

OPENING = "(open)"
"""Stands for a GPU's UUID in a call that opens the source."""
HUNG_AFTER_S = 1.0
_OPEN_HUNG_AFTER_S = 10.0


class Worker:
    """One thread of a lane, and the call it is in: what the watchdog looks at."""

    def __init__(self, lane: Lane, run: Callable[[Worker], None]) -> None:
        self.lane = lane
        self.call: tuple[str, float] | None = None
        """UUID of the GPU, or OPENING, and since when (monotonic seconds); None between two calls."""
        self.abandoned = False
        self.thread = threading.Thread(target=run, args=(self,), name=f"gpuwidget-{lane}", daemon=True)

    def hangs(self, now: float) -> bool:
        """Whether it has been in one call for longer than any call takes."""
        if self.call is None:
            return False
        uuid, since = self.call
        return now - since >= (_OPEN_HUNG_AFTER_S if uuid == OPENING else HUNG_AFTER_S)


class Workers:
    """The present thread of each lane, and the watchdog. Every use holds the sampler's lock."""

    def __init__(self, runs: Mapping[Lane, Callable[[Worker], None]], watch: Callable[[], None]) -> None:
        self._runs = runs
        self._watch = watch
        self._workers: dict[Lane, Worker] = {}
        self._watchdog: threading.Thread | None = None

    def start(self) -> None:
        """Start whatever does not run."""
        for lane in self._runs:
            worker = self._workers.get(lane)
            if worker is None or not worker.thread.is_alive():
                self.replace(lane)
        if self._watchdog is None or not self._watchdog.is_alive():
            self._watchdog = threading.Thread(target=self._watch, name="gpuwidget-watchdog", daemon=True)
            self._watchdog.start()

    def replace(self, lane: Lane) -> None:
        """Start a new thread in the place of a lane's present one."""
        worker = Worker(lane, self._runs[lane])
        self._workers[lane] = worker
        worker.thread.start()

    def retire(self, worker: Worker) -> bool:
        """Leave a thread's lane empty; False where another has taken its place already."""
        if self._workers.get(worker.lane) is not worker:
            return False
        del self._workers[worker.lane]
        return True

    def retire_watchdog(self) -> None:
        """The watchdog ends."""
        self._watchdog = None

    def has(self, lane: Lane) -> bool:
        """Whether a lane has a thread."""
        return lane in self._workers

    @property
    def present(self) -> tuple[Worker, ...]:
        """The lanes' threads."""
        return tuple(self._workers.values())

    @property
    def threads(self) -> list[threading.Thread]:
        """The lanes' threads and the watchdog."""
        watchdog = [self._watchdog] if self._watchdog is not None else []
        return [worker.thread for worker in self._workers.values()] + watchdog
