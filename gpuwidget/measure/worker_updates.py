"""Pass what workers report about themselves to the runs that are being measured."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from gpuwidget.model.boundary import Boundary
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.worker_update import WorkerUpdate

_LOG = logging.getLogger(__name__)

UpdateCallback = Callable[[WorkerUpdate], None]
Collect = Callable[[], None]


class WorkerUpdates:
    """Passes updates from their receivers (ranks' socket, Dask) to the running runs.

    May be used from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: list[UpdateCallback] = []
        self._collectors: list[Collect] = []

    def subscribe(self, callback: UpdateCallback) -> None:
        """Call ``callback`` with each update, on the thread that receives the update."""
        with self._lock:
            self._subscribers.append(callback)

    def unsubscribe(self, callback: UpdateCallback) -> None:
        """Stop calling ``callback``. Safe to call twice."""
        with self._lock:
            self._subscribers = [known for known in self._subscribers if known != callback]

    def add_collector(self, collect: Collect) -> None:
        """Call ``collect`` before each report. It must publish the updates that have arrived by then, and
        return within a fraction of a second."""
        with self._lock:
            self._collectors.append(collect)

    def remove_collector(self, collect: Collect) -> None:
        """Stop calling ``collect``. Safe to call twice."""
        with self._lock:
            self._collectors = [known for known in self._collectors if known != collect]

    def publish(self, update: WorkerUpdate) -> None:
        """Pass an update to all subscribers."""
        for callback in tuple(self._subscribers):
            with Boundary(_LOG, "a worker's update could not be added to a run"):
                callback(update)

    def collect(self) -> None:
        """Publish all updates that have arrived."""
        for collect in tuple(self._collectors):
            with Boundary(_LOG, "the workers' updates could not be collected"):
                collect()

    def reset_in_child(self) -> None:
        """Drop the parent's subscribers and lock. Another thread may have held the lock during the fork."""
        self._lock = threading.Lock()
        self._subscribers, self._collectors = [], []


WORKER_UPDATES = WorkerUpdates()
"""The only instance in the process."""

reset_after_fork(WORKER_UPDATES.reset_in_child)
