"""Measure a Dask worker for the notebooks that watch a cell. Runs in the worker's process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpuwidget.dask.worker_run import INTERVAL_S, RunStart, Tasks, WorkerRun
from gpuwidget.model.boundary import Boundary
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.samples import Sample
from gpuwidget.model.to_json import to_json
from gpuwidget.sampler import Subscription, process_sampler

_LOG = logging.getLogger(__name__)

EVENT_TOPIC = "gpuwidget"
"""The topic of the scheduler's events in which workers that leave report their last figures."""
EXPIRED_AFTER_S = 60.0
"""Seconds after which a run ends whose notebook no longer sends messages."""
_READ_TIMEOUT_S = 0.1
"""Maximum seconds for which the beginning and the end of a run each wait for the driver."""


@dataclass(slots=True)
class _OpenRun:
    measured: WorkerRun
    renewed: float
    """When the notebook last sent a message, in seconds of the monotonic clock."""


class WorkerReporter:
    """Measures one worker while cells are watched. Between the runs, nothing is sampled."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="gpuwidget-dask")
        """Waits for the driver and reads torch's counters, which must not delay the worker's event loop."""
        self._lock = threading.Lock()
        """Protects the runs. The event loop waits for it only when the plugin is removed."""
        self._runs: dict[str, _OpenRun] = {}
        self._subscription: Subscription | None = None
        self._reported: dict[str, Any] = {}

    def runs(self) -> dict[str, Any]:
        """Return the newest figures of each run for the heartbeat."""
        return {"runs": self._reported}

    async def handle(self, action: str, run: str, start: Mapping[str, Any]) -> dict[str, Any]:
        """Begin, renew or end a run. ``start`` contains the fields of :class:`RunStart`.

        A run that ends may be unknown here: the worker is new, and the notebook has not yet found it.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._handle, action, run, RunStart(**start))

    def close(self) -> None:
        """Send the last figures of all runs to the scheduler and stop. Called on the worker's event loop."""
        with Boundary(_LOG, "the last figures could not be sent", foreign=True):
            self._send_last_figures()
        with suppress(RuntimeError):
            self._executor.submit(_stop_sampler)
        self._executor.shutdown(wait=False)

    def _send_last_figures(self) -> None:
        with self._lock:
            for run, known in list(self._runs.items()):
                update = to_json(known.measured.update(self._tasks(), "ended"))
                self._drop(run)
                event = {"run": run, "address": self._worker.address, "update": update}
                self._worker.log_event(EVENT_TOPIC, event)

    # -- on the executor's thread --------------------------------------------------------------------

    def _handle(self, action: str, run: str, start: RunStart) -> dict[str, Any]:
        with self._lock:
            known = self._runs.get(run)
            if known is not None:
                known.renewed = SYSTEM_CLOCK.monotonic()
        if known is None:
            known = self._begin(run, start)
        if action == "end":
            return self._end(run, known)
        return {"started_in_run": known.measured.started_in_run}

    def _begin(self, run: str, start: RunStart) -> _OpenRun:
        measured = WorkerRun(str(self._worker.name), start, self._tasks())
        with self._lock:
            self._subscribe()
        sampler = process_sampler()
        requested_at = SYSTEM_CLOCK.time()
        # The lock is not held during this wait, because the sampler's thread needs it.
        sample = sampler.read_now(_READ_TIMEOUT_S) if sampler.wait_until_open(_READ_TIMEOUT_S) else None
        with self._lock:
            if sample is not None:
                measured.begin(sample, requested_at)
            self._runs[run] = known = _OpenRun(measured, SYSTEM_CLOCK.monotonic())
            # Another run, which was the only one, may have ended meanwhile and closed the subscription.
            self._subscribe()
        return known

    def _end(self, run: str, known: _OpenRun) -> dict[str, Any]:
        sample = process_sampler().read_now(_READ_TIMEOUT_S)
        with self._lock:
            if sample is not None:
                known.measured.add(sample)
            update = to_json(known.measured.update(self._tasks()))
            if run in self._runs:
                self._drop(run)
        return {"update": update}

    # -- with the lock held --------------------------------------------------------------------------

    def _subscribe(self) -> None:
        if self._subscription is None:
            self._subscription = process_sampler().subscribe(self._on_sample, interval_s=INTERVAL_S)

    def _drop(self, run: str) -> None:
        self._runs.pop(run).measured.close()
        self._reported = {name: update for name, update in self._reported.items() if name != run}
        if not self._runs and self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    # -- on the sampler's thread ---------------------------------------------------------------------

    def _on_sample(self, sample: Sample) -> None:
        with self._lock:
            for run, known in list(self._runs.items()):
                if SYSTEM_CLOCK.monotonic() - known.renewed > EXPIRED_AFTER_S:
                    self._drop(run)
                    continue
                known.measured.add(sample)
                update = to_json(known.measured.update(self._tasks()))
                self._reported = {**self._reported, run: update}

    def _tasks(self) -> Tasks | None:
        """Return the worker's tasks, or None if this version of Dask does not count them."""
        try:
            state = self._worker.state
            return Tasks(state.executed_count, len(state.executing) + len(state.long_running))
        except AttributeError:
            return None


def _stop_sampler() -> None:
    sampler = process_sampler()
    if not sampler.wanted:
        sampler.stop()
