"""Answer queries for the history of GPUs from Prometheus, in the format of the server's own history."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuwidget.model.clock import Clock
from gpuwidget.model.metrics import METRICS
from gpuwidget.prometheus.client import PrometheusClient
from gpuwidget.prometheus.exporters import Over, count_expression, metric_expression
from gpuwidget.prometheus.settings import PrometheusSettings
from gpuwidget.server.cluster_monitor import ClusterMonitor
from gpuwidget.server.encoding import encode_at_once
from gpuwidget.server.history_metrics import BYTE_METRICS
from gpuwidget.server.history_query import MIN_POINTS, HistoryQuery
from gpuwidget.system.daemon_thread import run_in_daemon_thread

_MAX_STEPS = 600
"""The maximum number of steps of a query. More steps than a chart has pixels cost Prometheus time for
nothing."""
_COUNTED = "memory_used"
"""The metric whose samples are counted: every exporter has it, also for MIG slices."""
_MEAN_DIGITS = 3
_PARALLEL = 4
"""Maximum number of queries that Prometheus answers at the same time.

There are three queries per metric. Reading the samples takes nearly all of their time: 2 to 3 s of CPU time
for 30 days of 16 metrics of 8 GPUs, with a sample every 30 s (docs/developers/benchmarks.md). One query for
all three functions would read the same samples.
"""
_MAX_ANSWERS = 16
"""The maximum number of answers that are kept for further clients."""
_EXPORTED = frozenset(metric.key for metric in METRICS if metric.exported is not None)

_Column = Mapping[int, float]
"""The value of each step, by the step's number."""


class _Steps(NamedTuple):
    """The steps of a query, numbered from the epoch. ``last`` is included."""

    step_s: float
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Answer:
    """The part of a response that is the same for all clients."""

    starts: list[float]
    """Start of each step that has samples, in epoch seconds."""
    samples: list[int | None]
    gpus: bytes
    """The field ``gpus`` of a MetricHistory, as JSON."""


class PrometheusHistory:
    """Queries one Prometheus for the history of GPUs, in threads. Equal queries of several clients are sent
    once per scrape interval.

    All methods are called on the server's event loop.
    """

    def __init__(self, settings: PrometheusSettings, cluster: ClusterMonitor, clock: Clock) -> None:
        self._client = PrometheusClient(settings)
        self._matchers = settings.matchers
        self._cluster = cluster
        self._clock = clock
        self._slots = asyncio.Semaphore(_PARALLEL)
        self._answers: dict[object, tuple[float, asyncio.Task[_Answer]]] = {}
        """For each query the time, in monotonic seconds, at which its answer expires, and the answer."""

    async def gpus_of(self, node: str) -> tuple[str, ...] | None:
        """Return the UUIDs of a node's GPUs as the cluster's snapshot has them; None for an unknown node."""
        await self._cluster.snapshot()
        newest = self._cluster.newest
        if all(known.name != node for known in newest.nodes):
            return None
        return tuple(gpu.uuid for gpu in newest.gpus if gpu.node == node)

    async def query(self, query: HistoryQuery, uuids: Sequence[str]) -> list[bytes]:
        """Return the :class:`gpuwidget.server.wire.MetricHistory` of these GPUs as JSON.

        Metrics that no exporter has are omitted. Raises PrometheusError.
        """
        await self._cluster.snapshot()  # It contains the scrape interval.
        steps = _steps(query, self._cluster.scrape_interval_s)
        answer = await self._shared((steps, query.metrics, tuple(uuids)), steps, query.metrics, uuids)
        newest = None
        if answer.starts:
            newest = min(query.until, answer.starts[-1] + steps.step_s)
        fields = {
            "since": query.since,
            "until": query.until,
            "step_s": steps.step_s,
            "newest": newest,
            "t": answer.starts,
            "samples": answer.samples,
            "gpus": answer.gpus,
        }
        return [encode_at_once(fields)]

    async def _shared(
        self, key: object, steps: _Steps, metrics: Sequence[str], uuids: Sequence[str]
    ) -> _Answer:
        now = self._clock.monotonic()
        self._answers = {
            known: answer
            for known, answer in self._answers.items()
            if not answer[1].done() or (now < answer[0] and answer[1].exception() is None)
        }
        if key not in self._answers:
            while len(self._answers) >= _MAX_ANSWERS:
                del self._answers[next(iter(self._answers))]
            task = asyncio.ensure_future(self._answer(steps, metrics, uuids))
            self._answers[key] = now + self._cluster.scrape_interval_s, task
        # One client's closed connection must not cancel the answer for the others.
        return await asyncio.shield(self._answers[key][1])

    async def _answer(self, steps: _Steps, metrics: Sequence[str], uuids: Sequence[str]) -> _Answer:
        if not uuids:
            return _Answer([], [], b"[]")
        step = steps.step_s
        matchers = self._matchers
        expressions = {
            (metric, function): metric_expression(metric, matchers, uuids, Over(function, step))
            for metric in metrics
            if metric in _EXPORTED
            for function in ("avg_over_time", "min_over_time", "max_over_time")
        }
        queries = [
            asyncio.ensure_future(self._columns(expression, steps))
            for expression in (
                count_expression(_COUNTED, matchers, uuids, step),
                *expressions.values(),
            )
        ]
        try:
            counts, *columns = await asyncio.gather(*queries)
        except BaseException:
            # A Prometheus that has failed gets no further queries.
            for query in queries:
                query.cancel()
            raise
        found = dict(zip(expressions, columns, strict=True))
        return await run_in_daemon_thread(
            lambda: _encode(steps, metrics, uuids, counts, found), "gpuwidget-history"
        )

    async def _columns(self, expression: str, steps: _Steps) -> dict[str, _Column]:
        """Return the values of each GPU. A point's value covers the step that ends at the point."""
        step, first, last = steps

        def query() -> dict[str, _Column]:
            series = self._client.query_range(expression, (first + 1) * step, (last + 1) * step, step)
            return {
                one.labels.get("uuid", ""): {
                    round(time / step) - 1: value for time, value in one.points if math.isfinite(value)
                }
                for one in series
            }

        async with self._slots:
            return await run_in_daemon_thread(query, "gpuwidget-history")


def _steps(query: HistoryQuery, interval_s: float) -> _Steps:
    """Return the steps that cover a query. A step is at least as long as the scrape interval, because shorter
    ones would lack samples."""
    span = query.until - query.since
    points = max(MIN_POINTS, min(query.points, _MAX_STEPS, int(span / interval_s)))
    limited = HistoryQuery(query.since, query.until, query.metrics, points, query.node)
    step = limited.step_s(full_rate=False, samples=0, interval_s=interval_s)
    return _Steps(step, math.floor(query.since / step), math.floor(query.until / step))


def _encode(
    steps: _Steps,
    metrics: Sequence[str],
    uuids: Collection[str],
    counts: Mapping[str, _Column],
    found: Mapping[tuple[str, str], Mapping[str, _Column]],
) -> _Answer:
    known = {
        number for columns in (counts, *found.values()) for column in columns.values() for number in column
    }
    numbers = sorted(number for number in known if steps.first <= number <= steps.last)
    samples = [
        max((int(column[number]) for column in counts.values() if number in column), default=None)
        for number in numbers
    ]
    gpus = (
        {
            "uuid": uuid,
            "metrics": {
                metric: series
                for metric in metrics
                if (series := _series(metric, uuid, numbers, found)) is not None
            },
        }
        for uuid in uuids
    )
    return _Answer([number * steps.step_s for number in numbers], samples, encode_at_once(gpus))


def _series(
    metric: str,
    uuid: str,
    numbers: Sequence[int],
    found: Mapping[tuple[str, str], Mapping[str, _Column]],
) -> Mapping[str, list[float | int | None] | None] | None:
    """Return the fields of a :class:`gpuwidget.server.wire.MetricSeries`; None if no value is known."""
    mean, low, high = (
        found.get((metric, function), {}).get(uuid, {})
        for function in ("avg_over_time", "min_over_time", "max_over_time")
    )
    if not mean:
        return None
    digits = None if metric in BYTE_METRICS else _MEAN_DIGITS

    def values(column: _Column) -> list[float | int | None]:
        return [None if number not in column else round(column[number], digits) for number in numbers]

    fields: dict[str, list[float | int | None] | None] = {
        "mean": values(mean),
        "min": values(low),
        "max": values(high),
    }
    if fields["min"] == fields["max"]:
        fields["min"] = fields["max"] = None
    return fields
