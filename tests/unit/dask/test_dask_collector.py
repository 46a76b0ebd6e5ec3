"""Tests of the exchange between a run in the notebook and the Dask workers, with stand-ins for Dask's client,
scheduler and workers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from helpers_reports import report
from helpers_wait import until

from gpuwidget.dask import collector as module
from gpuwidget.dask.collector import DaskCollector
from gpuwidget.dask.worker_run import RunStart
from gpuwidget.measure.worker_updates import WORKER_UPDATES
from gpuwidget.model.messages import Message, MessageId
from gpuwidget.model.report import Span
from gpuwidget.model.to_json import to_json
from gpuwidget.model.worker_update import WORKER_SCHEMA, WorkerGpuUpdate, WorkerUpdate

TORCH = Span(0, 5, 9)
NO_PEAK = Span(0, 5, None)


def update(pid: int, steps: int = 1) -> WorkerUpdate:
    gpu = WorkerGpuUpdate("u", TORCH, TORCH)
    return WorkerUpdate(
        *(WORKER_SCHEMA, "dask", "there", pid, str(pid), None, None, None, steps, None, None, None, 2.0),
        *(False, "running", None, (gpu,), None),
    )


class Worker:
    """A worker that answers the messages of a kernel as the plugin does."""

    def __init__(self, pid: int) -> None:
        self.update = update(pid)
        self.started_in_run = False
        self.answers = threading.Event()
        """The worker answers while this is set."""
        self.answers.set()
        self.error: str | None = None
        self.runs: dict[str, RunStart] = {}
        self.actions: list[str] = []

    def metrics(self) -> dict[str, Any]:
        if self.error is not None:
            return {"error": self.error}
        return {"runs": {run: to_json(self.update) for run in self.runs}}

    async def answer(self, action: str, run: str, start: dict[str, Any]) -> dict[str, Any]:
        while not self.answers.is_set():
            await asyncio.sleep(0.001)
        self.actions.append(action)
        if self.error is not None:
            return {"error": self.error}
        self.runs[run] = RunStart(**start)
        if action == "begin":
            return {"started_in_run": self.started_in_run}
        del self.runs[run]
        last = replace(self.update, steps=100, started_in_run=self.started_in_run)
        return {"update": to_json(last)}


class Scheduler:
    """A scheduler that passes messages to its workers."""

    address = "tcp://scheduler:1"

    def __init__(self, workers: dict[str, Worker]) -> None:
        self.workers = workers
        self.logged: list[tuple[float, Any]] = []

    async def identity(self) -> dict[str, Any]:
        return {
            "workers": {
                address: {"metrics": {"gpuwidget": worker.metrics()}}
                for address, worker in self.workers.items()
            }
        }

    async def broadcast(self, msg: dict[str, Any], workers: Sequence[str], on_error: str) -> dict[str, Any]:
        assert on_error == "ignore"
        values = {name: value for name, value in msg.items() if name != "op"}
        return {address: await self.workers[address].answer(**values) for address in workers}

    async def events(self, topic: str) -> list[tuple[float, Any]]:
        assert topic == "gpuwidget"
        return self.logged


class Client:
    """A client whose event loop runs on a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: dict[str, Worker]) -> None:
        self.scheduler = Scheduler(workers)
        self.status = "running"
        self._loop = loop

    def sync(self, function: Callable[..., Any], argument: Any, **options: Any) -> None:
        if self.status != "running":
            raise RuntimeError("IOLoop is closed")
        assert options["asynchronous"] is False
        asyncio.run_coroutine_threadsafe(function(argument), self._loop).result(options["callback_timeout"])


class Cluster:
    """Two workers, the run that measures them, and what the run receives."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.workers = {"tcp://a:1": Worker(1), "tcp://b:1": Worker(2)}
        self.client = Client(loop, self.workers)
        self.received: list[tuple[WorkerUpdate, Message | None, bool]] = []
        self.watched = True
        self.collector = DaskCollector(lambda: [self.client], lambda: self.watched)
        self.collector.deliver = self.deliver

    def deliver(self, update: WorkerUpdate, incomplete: Message | None = None, *, gone: bool = False) -> None:
        self.received.append((update, incomplete, gone))

    def finish(self) -> dict[int, tuple[int | None, str | None, bool]]:
        """End the run. Return the last delivery for each worker: its tasks, why it is incomplete, whether the
        worker is gone."""
        self.collector.stop()
        WORKER_UPDATES.collect()
        made = self.collector.annotate(report())
        self.notes, self.note_ids = made.notes, made.note_ids
        self.collector.abandon()
        return {
            one.pid: (one.steps, None if incomplete is None else incomplete.id, gone)
            for one, incomplete, gone in self.received
        }


async def cancel_others() -> None:
    """Cancel all other tasks of the event loop, as Dask does when a client is closed: those that wait for a
    worker that does not answer. Otherwise asyncio would log each of them as destroyed."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(module, "BEGIN_TIMEOUT_S", 20.0)
    monkeypatch.setattr(module, "END_TIMEOUT_S", 20.0)
    monkeypatch.setattr(module, "_COLLECT_TIMEOUT_S", 20.0)
    monkeypatch.setattr(module, "INTERVAL_S", 0.005)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = Cluster(loop)
    yield made
    made.collector.abandon()
    if made.collector._thread is not None:
        made.collector._thread.join(20.0)
        assert not made.collector._thread.is_alive()
    asyncio.run_coroutine_threadsafe(cancel_others(), loop).result(20.0)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_workers_measure_from_the_start_to_the_end(cluster: Cluster) -> None:
    """The workers measure before the run begins. During the run, their heartbeats are delivered, marked as
    incomplete. At the end, their last figures are delivered, and they stop."""
    cluster.collector.start()
    workers = list(cluster.workers.values())
    assert [len(worker.runs) for worker in workers] == [1, 1]
    until(lambda: len(cluster.received) == 2)
    assert {(one.steps, reason and reason.id) for one, reason, _ in cluster.received} == {
        (1, "dask-worker-without-end")
    }
    assert cluster.finish() == {1: (100, None, False), 2: (100, None, False)}
    assert cluster.notes == ()
    assert [(worker.runs, worker.actions) for worker in workers] == [({}, ["begin", "end"])] * 2


def test_a_worker_that_answers_late(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's start does not wait for a worker that does not answer. If the worker begins to measure only
    after the run has begun, its figures are incomplete; those of the other workers are not."""
    late = cluster.workers["tcp://b:1"]
    late.answers.clear()
    monkeypatch.setattr(module, "BEGIN_TIMEOUT_S", 0.0)
    monkeypatch.setattr(cluster.collector._measuring, "wait", lambda timeout: until(
        lambda: cluster.workers["tcp://a:1"].runs and cluster.collector._clusters[0]._workers["tcp://a:1"].measures
    ))  # fmt: skip
    cluster.collector.start()
    late.answers.set()
    until(lambda: late.runs)
    assert cluster.finish() == {1: (100, None, False), 2: (100, "dask-worker-late", False)}


def test_a_worker_that_never_answers(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's end does not wait for a worker that does not answer. The reason for its missing figures
    contains those of its last heartbeat."""
    hung = cluster.workers["tcp://b:1"]
    cluster.collector.start()
    until(lambda: len(cluster.received) == 2)
    hung.answers.clear()
    monkeypatch.setattr(module, "END_TIMEOUT_S", 0.05)
    assert cluster.finish()[2] == (1, "dask-worker-without-end", False)
    reason = cluster.received[-1][1]
    assert reason is not None
    assert reason.message_id == MessageId(
        "dask-worker-without-end", {"elapsed_s": 2.0, "steps": 1, "torch_peak": 9}
    )
    assert "1 task and a torch peak of 9 B" in reason


def test_a_last_report_without_figures(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a worker's tasks are not counted and torch's memory is unknown, the reason contains neither: unknown
    is not 0."""
    hung = cluster.workers["tcp://b:1"]
    hung.update = replace(
        hung.update, steps=None, gpus=(WorkerGpuUpdate("u", TORCH), WorkerGpuUpdate("v", NO_PEAK))
    )
    cluster.collector.start()
    until(lambda: len(cluster.received) == 2)
    hung.answers.clear()
    monkeypatch.setattr(module, "END_TIMEOUT_S", 0.05)
    cluster.finish()
    reason = cluster.received[-1][1]
    assert reason is not None
    assert reason.message_id == MessageId(
        "dask-worker-without-end", {"elapsed_s": 2.0, "steps": None, "torch_peak": None}
    )
    assert "showed" not in reason


def test_a_client_that_is_watched_during_the_run(cluster: Cluster) -> None:
    """If no client is watched at the run's start, no worker measures and there is no thread. When the code
    calls ``watch``, the workers measure from then on: those that the code has started have complete figures,
    and the figures of the others are incomplete."""
    cluster.watched = False
    cluster.workers["tcp://b:1"].started_in_run = True
    cluster.collector.start()
    assert cluster.collector._thread is None
    module.begin_in_running()
    assert [len(worker.runs) for worker in cluster.workers.values()] == [1, 1]
    module.begin_in_running()
    assert cluster.finish() == {1: (100, "dask-worker-late", False), 2: (100, None, False)}
    assert [worker.actions for worker in cluster.workers.values()] == [["begin", "end"]] * 2


def test_a_client_that_is_watched_after_the_run(cluster: Cluster) -> None:
    """A run without a watched client has no Dask workers and no notes about them, also if a client is watched
    while the report is made."""
    cluster.watched = False
    cluster.collector.start()
    cluster.collector.stop()
    module.begin_in_running()
    assert cluster.finish() == {}
    module.begin_in_running()
    assert cluster.collector._thread is None
    assert cluster.notes == ()
    assert [worker.actions for worker in cluster.workers.values()] == [[], []]


def test_a_run_is_freed_when_it_ends(cluster: Cluster) -> None:
    """After the run, the collector does not refer to the run, which may refer to the user's objects."""
    cluster.collector.start()
    cluster.finish()
    assert cluster.collector.deliver is module._ignore
    assert cluster.collector not in module._running


def test_workers_that_join_the_cluster(cluster: Cluster) -> None:
    """A worker whose process started during the run has complete figures, even if the run ends before the
    worker has been noticed. The figures of one that started before are incomplete."""
    cluster.collector.start()
    young, old = Worker(3), Worker(4)
    young.started_in_run = True
    cluster.workers |= {"tcp://c:1": young, "tcp://d:1": old}
    until(lambda: young.runs and old.runs)
    newest = Worker(5)
    newest.started_in_run = True
    cluster.workers["tcp://e:1"] = newest
    found = cluster.finish()
    assert (found[3], found[4]) == ((100, None, False), (100, "dask-worker-late", False))
    assert found[5] == (100, None, False)
    (start,) = {worker.actions[-1] for worker in (young, old, newest)}
    assert start == "end"


def test_workers_that_leave_the_cluster(cluster: Cluster) -> None:
    """A worker that has left without a last report is reported as gone, and its figures as incomplete. The
    last report of a worker that left in an orderly way is complete."""
    cluster.collector.start()
    until(lambda: len(cluster.received) == 2)
    (run,) = cluster.workers["tcp://a:1"].runs
    last = to_json(replace(update(1, steps=50), status="ended"))
    others = {"run": "another", "address": "tcp://b:1", "update": to_json(update(2, steps=77))}
    cluster.client.scheduler.logged = [
        (0.0, {"run": run, "address": "tcp://a:1", "update": last}),
        (0.0, others),
        (0.0, "another program"),
    ]
    cluster.workers.clear()
    assert cluster.finish() == {1: (50, None, False), 2: (1, "dask-worker-without-end", True)}
    assert {one.status for one, _, _ in cluster.received if one.steps == 50} == {"ended"}


def test_workers_that_cannot_report(cluster: Cluster) -> None:
    """The card names the workers whose plugin has failed, with the reason. The other workers have their
    figures."""
    cluster.workers["tcp://b:1"].error = "ModuleNotFoundError: No module named 'gpuwidget'"
    cluster.collector.start()
    assert cluster.finish() == {1: (100, None, False)}
    error = "ModuleNotFoundError: No module named 'gpuwidget'"
    assert cluster.note_ids == (MessageId("dask-no-reports", {"workers": 1, "error": error}),)
    assert "tcp://b:1" in cluster.notes[0]


def test_a_client_that_is_closed(cluster: Cluster) -> None:
    """If the client is closed during the run, the card notes that reports are missing. Nothing raises."""
    cluster.collector.start()
    until(lambda: len(cluster.received) == 2)
    cluster.client.status = "closed"
    assert {reason for _, reason, _ in cluster.finish().values()} == {"dask-worker-without-end"}
    (note,) = cluster.note_ids
    assert (note.id, note.params["error"]) == (
        "dask-no-connection",
        "The client was closed during the run.",
    )


def test_invalid_reports_are_ignored(cluster: Cluster) -> None:
    """Reports that are not valid, such as those of another version of gpuwidget, are ignored, and the card
    names the workers."""
    worker = cluster.workers["tcp://b:1"]
    worker.update = replace(worker.update, schema=99)
    worker.metrics = lambda: {"runs": [1]}  # type: ignore[method-assign]
    cluster.collector.start()
    assert cluster.finish() == {1: (100, None, False)}
    assert [note[:25] for note in cluster.notes] == ["1 Dask worker (tcp://b:1)"]


def test_an_abandoned_run(cluster: Cluster) -> None:
    """When a run is abandoned, the workers stop, and nothing is delivered."""
    cluster.collector.start()
    cluster.collector.abandon()
    until(lambda: not any(worker.runs for worker in cluster.workers.values()))
    assert {one.steps for one, _, _ in cluster.received} <= {1}


def test_a_run_does_not_end_with_an_inner_run(cluster: Cluster) -> None:
    """When a watch inside the cell ends, the run of the cell goes on."""
    cluster.collector.start()
    WORKER_UPDATES.collect()
    assert all(worker.runs for worker in cluster.workers.values())


def test_two_clients_of_one_cluster(cluster: Cluster) -> None:
    """The workers of a cluster measure a run once, even if two watched clients are connected to it."""
    other = SimpleNamespace(scheduler=cluster.client.scheduler, status="running", sync=cluster.client.sync)
    cluster.collector._clients = lambda: [cluster.client, other]
    cluster.collector.start()
    cluster.finish()
    assert cluster.workers["tcp://a:1"].actions == ["begin", "end"]
