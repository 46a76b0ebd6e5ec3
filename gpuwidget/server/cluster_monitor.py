"""Queries Prometheus for the state of the cluster while clients request it, once for all clients."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from dataclasses import dataclass, replace

from gpuwidget.model.clock import Clock
from gpuwidget.model.errors import PrometheusError
from gpuwidget.model.to_json import to_json
from gpuwidget.prometheus.client import PrometheusClient
from gpuwidget.prometheus.cluster_queries import hour_expression, now_expression
from gpuwidget.prometheus.settings import PrometheusSettings
from gpuwidget.server.cluster_snapshot import MIN_INTERVAL_S, ClusterState, Names, parse
from gpuwidget.server.encoding import encode
from gpuwidget.server.wire import ClusterSnapshot
from gpuwidget.system.daemon_thread import run_in_daemon_thread

_MAX_WAIT_S = 2.0
"""Maximum seconds for which a request waits for Prometheus. After that it gets the newest known values."""
_TOLERANCE = 0.9
"""A snapshot is shared for this fraction of the scrape interval, so that a client that requests one per
interval does not get the same one twice because its request is a little early."""
_GZIP_LEVEL = 4
_NOTHING_YET = "Prometheus has been queried and has not answered yet."


@dataclass(frozen=True, slots=True)
class EncodedSnapshot:
    """A snapshot, encoded once for all clients."""

    json: bytes
    gzipped: bytes
    etag: str

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> EncodedSnapshot:
        """Encode a snapshot."""
        encoded = encode(to_json(snapshot))
        # The time of creation would make equal snapshots different.
        gzipped = gzip.compress(encoded, _GZIP_LEVEL, mtime=0)
        return cls(encoded, gzipped, f'"{hashlib.sha1(encoded, usedforsecurity=False).hexdigest()}"')


class ClusterMonitor:
    """Queries one Prometheus, at most once per scrape interval and only while clients request snapshots.

    There is one query at a time, in a thread: a Prometheus that is slow or dead delays only requests for the
    cluster, by two seconds at most. If it fails, clients get the last values with the reason. All methods are
    called on the server's event loop.
    """

    def __init__(self, settings: PrometheusSettings, clock: Clock, shown: Names | None = None) -> None:
        """``shown`` are the only names of a user and a job that snapshots may contain; None for no limit."""
        self._client = PrometheusClient(settings)
        self._clock = clock
        self._now_expression = now_expression(settings.matchers)
        self._hour_expression = hour_expression(settings.matchers)
        self._state = ClusterState(shown)
        """Only the thread of the running query uses it."""
        self.newest = ClusterSnapshot(None, MIN_INTERVAL_S, _NOTHING_YET, (), ())
        """The newest snapshot, which :meth:`snapshot` updates."""
        self.scrape_interval_s = MIN_INTERVAL_S
        """Seconds between two samples in Prometheus, 5 to 60; 5 until it has been measured."""
        self._encoded = EncodedSnapshot.of(self.newest)
        self._answered: float | None = None
        """When Prometheus last answered, in monotonic seconds."""
        self._queried: float | None = None
        """When the newest query was sent, in monotonic seconds."""
        self._query: asyncio.Task[None] | None = None

    async def snapshot(self) -> EncodedSnapshot:
        """Return the newest snapshot. If it is older than the scrape interval, query Prometheus first."""
        now = self._clock.monotonic()
        shared_s = _TOLERANCE * self.newest.interval_s
        if self._query is None and (self._queried is None or now - self._queried >= shared_s):
            self._queried = now
            self._query = asyncio.ensure_future(self._update())
        if self._query is not None:
            await asyncio.wait({self._query}, timeout=_MAX_WAIT_S)
        return self._encoded

    async def _update(self) -> None:
        try:
            self.newest, self._encoded = await run_in_daemon_thread(
                self._query_and_encode, "gpuwidget-prometheus"
            )
            self.scrape_interval_s = self._state.scrape_interval_s
        finally:
            self._query = None

    def _query_and_encode(self) -> tuple[ClusterSnapshot, EncodedSnapshot]:
        try:
            snapshot = self._query_prometheus()
        except PrometheusError as error:
            snapshot = replace(self.newest, problem=self._with_age(str(error)))
        else:
            self._answered = self._clock.monotonic()
        return snapshot, EncodedSnapshot.of(snapshot)

    def _query_prometheus(self) -> ClusterSnapshot:
        now = parse(self._client.query(self._now_expression))
        problem = None
        if self._state.needs_hour(now):
            began = self._clock.monotonic()
            try:
                self._state.add_hour(parse(self._client.query(self._hour_expression)))
            except PrometheusError as error:
                problem = f"Errors, idle times and lost nodes of the last hour are not up to date. {error}"
            self._state.set_hour_duration(self._clock.monotonic() - began)
        snapshot = self._state.add_now(now)
        return snapshot if problem is None else replace(snapshot, problem=problem)

    def _with_age(self, error: str) -> str:
        if self._answered is None:
            return error
        age = self._clock.monotonic() - self._answered
        shown = f"{age:.0f} s" if age < 120 else f"{age / 60:.0f} min"
        return f"{error} The values shown are {shown} old."
