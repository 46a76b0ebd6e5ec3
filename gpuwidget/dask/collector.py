"""Collect the figures of Dask workers for one run. Runs in the notebook's kernel."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from gpuwidget.dask import messages
from gpuwidget.dask.worker_run import RunStart
from gpuwidget.measure.worker_updates import WORKER_UPDATES
from gpuwidget.model import worker_update
from gpuwidget.model.boundary import Boundary, stopped
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.messages import Message
from gpuwidget.model.report import Report
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.translation import listed, translatable
from gpuwidget.model.worker_update import WorkerUpdate
from gpuwidget.system import processes
from gpuwidget.system.processes import BootTime

_LOG = logging.getLogger(__name__)

NAME = "gpuwidget"
"""The name of the plugin's entry in the workers' metrics, of its message handler and of its events."""
BEGIN_TIMEOUT_S = 0.5
"""Maximum seconds for which a run's start waits until the workers measure."""
END_TIMEOUT_S = 0.5
"""Maximum seconds for which a run's end waits for the workers' last figures."""
_COLLECT_TIMEOUT_S = 1.0
"""Maximum seconds for which a run's end waits for the collector's thread."""
INTERVAL_S = 1.0
"""Seconds between two readings of the workers' heartbeats. Longer for more than 100 workers."""
_MAX_INTERVAL_S = 10.0
_RENEW_S = 20.0
"""Seconds between two messages to the workers that the run continues."""
_ANSWER_TIMEOUT_S = 5.0
"""Maximum seconds for which an answer is accepted. Then the message is sent again."""
_MAX_ERROR = 200
"""Maximum length of an error in a note."""
_MAX_GROUPS = 64
_MAX_NAMES = 4
"""Maximum number of messages into which a message to all workers is divided. A worker that does not answer
delays only the answers of its group."""
_running: set[DaskCollector] = set()
"""The collectors of the runs that are being measured."""


class Deliver(Protocol):
    """Receives the updates of the workers: :meth:`gpuwidget.measure.run.Run.add_worker_update`."""

    def __call__(
        self, update: WorkerUpdate, incomplete: Message | None = None, *, gone: bool = False
    ) -> None:
        """Receive an update."""


@dataclass(slots=True)
class _Worker:
    requested: float
    """When the worker was last requested to measure, in seconds of the monotonic clock."""
    measures: bool = False
    """Whether the worker has answered that it measures the run."""
    error: str | None = None
    """Why the worker can't report, or None."""
    late: bool = False
    """Whether the worker began to measure after the run had begun."""
    update: WorkerUpdate | None = None
    ended: bool = False
    """Whether ``update`` is the worker's last one."""


class DaskCollector:
    """Measures the workers of all watched clients from the run's start to its end.

    A thread exchanges messages with the schedulers, so that the run never waits longer than the timeouts.
    There is no thread until a client is watched.
    """

    measures: str = translatable("Dask workers")

    def __init__(self, clients: Callable[[], Sequence[Any]], watched: Callable[[], bool]) -> None:
        """``clients`` returns the watched clients. It is called on the collector's thread. The run's start
        calls ``watched``, which returns whether there may be such clients."""
        self._clients = clients
        self._watched = watched
        self.deliver: Deliver = _ignore
        """Receives the updates of the workers."""
        self._run = uuid.uuid4().hex
        self._clusters: list[_Cluster] = []
        self._failures: dict[str, None] = {}
        self._began = 0.0
        """When the run began, in seconds of the monotonic clock."""
        self._boot_time: BootTime | None = None
        """When the run began, in seconds since this machine was booted."""
        self._measuring = threading.Event()
        """Set when the workers have answered that they measure."""
        self._ending = threading.Event()
        self._done = threading.Event()
        self._has_begun = False
        """Whether the run has begun, so that workers that begin to measure are late."""
        self._wanted = True
        """Whether the last figures are still needed."""
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        """Held while the thread is started."""

    # -- on the thread that runs the cell ------------------------------------------------------------

    def start(self) -> None:
        """If a client is watched, make the workers measure, and wait until they do, but at most
        ``BEGIN_TIMEOUT_S``."""
        # A preliminary time, for the messages that the thread sends before the run begins.
        self._set_began()
        WORKER_UPDATES.add_collector(self._collect)
        _running.add(self)
        if self._watched():
            self.begin()
        self._set_began()
        self._has_begun = True

    def _set_began(self) -> None:
        self._began, self._boot_time = SYSTEM_CLOCK.monotonic(), processes.boot_time()

    def begin(self) -> None:
        """Make the workers measure, and wait until they do, but at most ``BEGIN_TIMEOUT_S``.

        May be called from any thread. Later calls, and calls after the run's end, do nothing.
        """
        with self._lock:
            if self._thread is not None or self._ending.is_set():
                return
            thread = threading.Thread(target=self._work, name="gpuwidget-dask", daemon=True)
            thread.start()
            self._thread = thread
        self._measuring.wait(BEGIN_TIMEOUT_S)

    def stop(self) -> None:
        """Request the workers' last figures."""
        self._ending.set()

    def annotate(self, report: Report) -> Report:
        """Return the report with notes about workers and clusters that did not report."""
        notes = [messages.NO_CONNECTION(error=failure) for failure in self._failures]
        for cluster in self._clusters:
            notes += cluster.notes()
        return report.with_notes(*notes)

    def abandon(self) -> None:
        """Make the workers stop measuring. Safe to call at any time and more than once."""
        WORKER_UPDATES.remove_collector(self._collect)
        _running.discard(self)
        self._wanted = False
        self._ending.set()
        # The callback refers to the run, and the run to this collector. Without this reference cycle, Python
        # frees the run without a garbage collection.
        self.deliver = _ignore

    def _collect(self) -> None:
        # Reports of other runs, such as a watch inside the cell, end while this run goes on.
        if self._ending.is_set() and self._thread is not None:
            self._done.wait(_COLLECT_TIMEOUT_S)

    # -- on the collector's thread -------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._add_clusters()
            self._measuring.set()
            while not self._ending.wait(self._interval_s()):
                self._add_clusters()
                for cluster in self._clusters:
                    self._try(cluster, cluster.poll, self._start())
            for cluster in self._clusters:
                self._try(cluster, cluster.end, self._start() if self._wanted else None)
        finally:
            self._done.set()

    def _start(self) -> RunStart:
        """Return the run's start for a message that is sent now."""
        boot = self._boot_time
        return RunStart(
            age_s=SYSTEM_CLOCK.monotonic() - self._began,
            boot_id=None if boot is None else boot.boot_id,
            boot_s=None if boot is None else boot.seconds,
        )

    def _interval_s(self) -> float:
        return max((cluster.interval_s for cluster in self._clusters), default=INTERVAL_S)

    def _add_clusters(self) -> None:
        """Begin to measure the clusters of clients that are new."""
        clients: Sequence[Any] = ()
        try:
            clients = self._clients()
        except BaseException as error:
            stopped(_LOG, "the Dask clients could not be listed", error, foreign=True)
            self._failures[str(error)] = None
        for client in clients:
            scheduler = getattr(client.scheduler, "address", None)
            if all(cluster.scheduler != scheduler for cluster in self._clusters):
                cluster = _Cluster(client, scheduler, self._run, self._deliver, lambda: self._has_begun)
                self._clusters = [*self._clusters, cluster]
                self._try(cluster, cluster.begin, self._start())

    def _try(self, cluster: _Cluster, call: Callable[..., None], argument: Any) -> None:
        try:
            call(argument)
        except BaseException as error:
            stopped(_LOG, "a Dask cluster could not be measured", error, foreign=True)
            closed = "The client was closed during the run."
            self._failures[closed if cluster.closed else repr(error)[:_MAX_ERROR]] = None

    def _deliver(
        self, update: WorkerUpdate, incomplete: Message | None = None, *, gone: bool = False
    ) -> None:
        self.deliver(update, incomplete, gone=gone)


def begin_in_running() -> None:
    """Make the workers measure for the runs that began before a client was watched."""
    for collector in tuple(_running):
        collector.begin()


reset_after_fork(_running.clear)


class _Cluster:
    """The workers of one scheduler during one run."""

    def __init__(
        self, client: Any, scheduler: str | None, run: str, deliver: Deliver, has_begun: Callable[[], bool]
    ) -> None:
        self.scheduler = scheduler
        self._client = client
        self._run = run
        self._deliver = deliver
        self._has_begun = has_begun
        self._workers: dict[str, _Worker] = {}
        """The workers by their addresses."""
        self._renewed = SYSTEM_CLOCK.monotonic()
        self._requests: set[asyncio.Future[Any]] = set()

    @property
    def interval_s(self) -> float:
        """Seconds between two readings of the heartbeats."""
        return min(max(INTERVAL_S, len(self._workers) / 100), _MAX_INTERVAL_S)

    @property
    def closed(self) -> bool:
        return bool(self._client.status != "running")

    def notes(self) -> list[Message]:
        """Return the notes about workers that can't report."""
        by_error: dict[str, list[str]] = {}
        for address, worker in sorted(self._workers.items()):
            if worker.error is not None:
                by_error.setdefault(worker.error, []).append(address)
        return [
            messages.NO_REPORTS(
                workers=len(addresses), error=error, shown={"names": listed(addresses, _MAX_NAMES)}
            )
            for error, addresses in by_error.items()
        ]

    # -- on the collector's thread -------------------------------------------------------------------

    def begin(self, start: RunStart) -> None:
        self._sync(self._begin, start)

    def poll(self, start: RunStart) -> None:
        """Read the heartbeats, and make new workers measure."""
        self._sync(self._poll, start)

    def end(self, start: RunStart | None) -> None:
        """Make all workers stop measuring, and deliver their last figures, unless ``start`` is None."""
        self._sync(self._end, start)

    def _sync(self, function: Callable[[Any], Any], argument: Any) -> None:
        """Run a coroutine on the client's event loop. Raise an exception if the client is closed."""
        timeout = 2 * _ANSWER_TIMEOUT_S
        self._client.sync(function, argument, asynchronous=False, callback_timeout=timeout)

    # -- on the client's event loop ------------------------------------------------------------------

    async def _begin(self, start: RunStart) -> None:
        await self._request_begin(await self._heartbeats(), start, BEGIN_TIMEOUT_S)

    async def _poll(self, start: RunStart) -> None:
        heartbeats = await self._heartbeats()
        self._deliver_heartbeats(heartbeats)
        now = SYSTEM_CLOCK.monotonic()
        renew = now - self._renewed >= _RENEW_S
        if renew:
            self._renewed = now
        addresses = [address for address in heartbeats if renew or self._needs_request(address, now)]
        await self._request_begin(addresses, start, 0.0)

    def _needs_request(self, address: str, now: float) -> bool:
        worker = self._workers.get(address)
        if worker is None:
            return True
        return not worker.measures and worker.error is None and now - worker.requested > _ANSWER_TIMEOUT_S

    async def _end(self, start: RunStart | None) -> None:
        heartbeats = await self._heartbeats()
        if start is None:
            measuring = [address for address in heartbeats if address in self._workers]
            await self._send("end", measuring, RunStart(0.0, None, None), lambda address, answer: None, 0.0)
            return
        self._deliver_heartbeats(heartbeats)
        gone = [address for address in self._workers if address not in heartbeats]
        for address in heartbeats:
            self._workers.setdefault(address, _Worker(0.0))
        await self._send("end", list(heartbeats), start, self._take_last, END_TIMEOUT_S)
        if gone:
            await self._deliver_events()
        for address, worker in self._workers.items():
            if worker.update is not None and not worker.ended:
                self._deliver(worker.update, messages.without_end(worker.update), gone=address in gone)

    async def _heartbeats(self) -> dict[str, Any]:
        """Return what each worker has added to its last heartbeat, by the worker's address."""
        answer = await asyncio.wait_for(self._client.scheduler.identity(), _ANSWER_TIMEOUT_S)
        return {address: info["metrics"].get(NAME) for address, info in answer["workers"].items()}

    async def _request_begin(self, addresses: Iterable[str], start: RunStart, timeout_s: float) -> None:
        for address in addresses:
            worker = self._workers.setdefault(address, _Worker(0.0))
            worker.requested = SYSTEM_CLOCK.monotonic()
        await self._send("begin", list(addresses), start, self._take_begin, timeout_s)

    async def _send(
        self,
        action: str,
        addresses: Sequence[str],
        start: RunStart,
        take: Callable[[str, Any], None],
        timeout_s: float,
    ) -> None:
        """Send a message to workers, and pass their answers to ``take`` as they arrive.

        Wait at most ``timeout_s`` seconds for the answers. Later ones are still passed to ``take``.
        """
        size = math.ceil(len(addresses) / _MAX_GROUPS)
        message = {"op": NAME, "action": action, "run": self._run, "start": asdict(start)}

        async def send(group: Sequence[str]) -> None:
            # A worker that has not answered is requested again.
            with Boundary(
                _LOG, "Dask workers did not answer", foreign=True, passing=(asyncio.CancelledError,)
            ):
                broadcast = self._client.scheduler.broadcast(msg=message, workers=group, on_error="ignore")
                answers = await asyncio.wait_for(broadcast, _ANSWER_TIMEOUT_S)
                for address, answer in answers.items():
                    take(address, answer)

        groups = [addresses[i : i + size] for i in range(0, len(addresses), size or 1)]
        requests = {asyncio.ensure_future(send(group)) for group in groups}
        # The event loop holds only weak references to tasks.
        self._requests |= requests
        for request in requests:
            request.add_done_callback(self._requests.discard)
        if requests:
            await asyncio.wait(requests, timeout=timeout_s)

    def _take_begin(self, address: str, answer: Any) -> None:
        worker = self._workers[address]
        values = answer if isinstance(answer, dict) else {}
        started_in_run = values.get("started_in_run")
        if not isinstance(started_in_run, bool):
            worker.error = _error_of(values)
        elif not worker.measures:
            worker.measures, worker.error = True, None
            worker.late = self._has_begun() and not started_in_run

    def _take_last(self, address: str, answer: Any) -> None:
        worker = self._workers[address]
        values = answer if isinstance(answer, dict) else {}
        update = worker_update.from_values(values.get("update"))
        if update is not None:
            self._deliver_last(worker, update)
        else:
            worker.error = _error_of(values)

    def _deliver_last(self, worker: _Worker, update: WorkerUpdate) -> None:
        worker.update, worker.ended, worker.error = update, True, None
        late = worker.late if worker.measures else not update.started_in_run
        self._deliver(update, messages.LATE if late else None)

    def _deliver_heartbeats(self, heartbeats: dict[str, Any]) -> None:
        for address, sent in heartbeats.items():
            worker = self._workers.get(address)
            runs = sent.get("runs") if isinstance(sent, dict) else None
            update = worker_update.from_values(runs.get(self._run)) if isinstance(runs, dict) else None
            if worker is not None and update is not None and update != worker.update:
                worker.update = update
                self._deliver(update, messages.without_end(update))

    async def _deliver_events(self) -> None:
        """Deliver the last figures of the workers that were closed during the run, from the scheduler's
        events."""
        events = await asyncio.wait_for(self._client.scheduler.events(topic=NAME), _ANSWER_TIMEOUT_S)
        for _, event in events:
            if not isinstance(event, dict) or event.get("run") != self._run:
                continue
            worker = self._workers.get(str(event.get("address")))
            update = worker_update.from_values(event.get("update"))
            if worker is not None and update is not None:
                self._deliver_last(worker, update)


def _error_of(answer: Mapping[str, Any]) -> str:
    """Return the error in a worker's answer. Without the plugin, Dask's answer is empty."""
    error = answer.get("error")
    known = isinstance(error, str) and error
    return clean_line(error if known else "gpuwidget's Dask plugin is missing", _MAX_ERROR)


def _ignore(update: WorkerUpdate, incomplete: Message | None = None, *, gone: bool = False) -> None: ...
