"""The HTTP routes under ``gpuwidget``. All require authentication. Requests to them do not count as user
activity."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from jupyter_server.auth import User
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado import web
from tornado.iostream import StreamClosedError

from gpuwidget.model.errors import DoctorError, PrometheusError, loggable
from gpuwidget.model.to_json import to_json
from gpuwidget.model.translation import find_language, translations
from gpuwidget.server.cached_diagnosis import CachedDiagnosis
from gpuwidget.server.client_limits import HistoryLimit, TooManyRequests
from gpuwidget.server.cluster_monitor import ClusterMonitor
from gpuwidget.server.encoding import encode
from gpuwidget.server.history_query import PROMETHEUS_S, HistoryQuery, parse_seconds
from gpuwidget.server.hourly_rollup import HOUR_S
from gpuwidget.server.metrics_token import MetricsToken
from gpuwidget.server.prometheus import CONTENT_TYPE, KernelLabels, metrics_text
from gpuwidget.server.prometheus_history import PrometheusHistory
from gpuwidget.server.run_journal import RunJournal
from gpuwidget.server.sample_hub import SampleHub

_may_execute: Callable[[Any], Any] = authorized(action="execute")
_may_write: Callable[[Any], Any] = authorized(action="write")

_METRICS_USER = User(username="gpuwidget-metrics")
"""The user of a request with the metrics token, for the server's log."""
_SAMPLE_TIMEOUT_S = 5.0
_NO_PROMETHEUS = (
    "No Prometheus is configured, so there is no cluster view: an administrator of this server sets "
    "c.GpuWidget.prometheus_url."
)
_FIXED_ALWAYS_ON = (
    "Pages can't change whether this server always records, because its administrator has set always_on, or "
    "allow_always_on to False."
)
_NO_RUN = "The journal has no run with this id. It may have been deleted: the oldest runs are."
_NO_NODE = (
    "Prometheus has no GPUs of a machine with this name. The machine may have been "
    "renamed, or may have been down for more than an hour: see the cluster view."
)
_CLOCK_TOLERANCE_S = 5.0
"""A range of the last hour may begin this many seconds before it, since the client's request takes time."""
_NO_SAMPLE = (
    f"The driver has not answered within {_SAMPLE_TIMEOUT_S:g} seconds. Without persistence mode, it may "
    "take longer to start: try again. If nvidia-smi hangs too, the driver or a GPU is stuck: see the kernel "
    "log (dmesg)."
)


class GpuWidgetHandler(JupyterHandler):
    """The base class of all routes."""

    auth_resource = "gpuwidget"
    _track_activity = False

    def initialize(self, hub: SampleHub) -> None:
        """Store the server's sample hub."""
        self._hub = hub

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Log a failure, but without the query string, which may contain the user's token.

        If other users' processes are hidden, the error's text is hidden too, since it may name a process.
        """
        # The server's request log already contains every HTTPError, and omits tokens.
        if value is not None and not isinstance(value, web.HTTPError):
            shown = loggable(value, hide_text=self._hub.hide_other_users)
            self.log.error("gpuwidget could not answer %s", self.request.path, exc_info=shown)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Write an error, with the header ``Retry-After`` if the client should try again later."""
        self.set_retry_after(kwargs.get("exc_info", (None, None))[1])
        super().write_error(status_code, **kwargs)

    def set_retry_after(self, error: BaseException | None) -> None:
        """Set the header ``Retry-After`` if the request was one too many."""
        if isinstance(error, TooManyRequests):
            self.set_header("Retry-After", str(error.retry_s))


class SampleHandler(GpuWidgetHandler, APIHandler):
    """``GET gpuwidget/api/sample``: the newest sample."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Return a :class:`gpuwidget.model.samples.Sample`; status 503 if no sample arrives in time."""
        sample = await self._hub.sample(_SAMPLE_TIMEOUT_S)
        if sample is None:
            raise web.HTTPError(503, _NO_SAMPLE)
        await self.finish(sample.whole)


class HistoryHandler(GpuWidgetHandler, APIHandler):
    """``GET gpuwidget/api/history?seconds=N[&metrics=…][&node=…]``: the stored samples, or those that
    Prometheus has. ``POST gpuwidget/api/history``: whether samples are stored even without pages."""

    def initialize(  # type: ignore[override]
        self, hub: SampleHub, long_history: PrometheusHistory | None, limit: HistoryLimit
    ) -> None:
        """Store the server's sample hub, the history in Prometheus (None if none is configured), and the
        limit on the server's history requests."""
        super().initialize(hub)
        self._long_history = long_history
        self._limit = limit

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Return a :class:`gpuwidget.server.wire.History` of the last N seconds, or of all that is stored.

        If the request has metrics, a time range, a number of points or a node, return a
        :class:`gpuwidget.server.wire.MetricHistory` instead. Prometheus answers for other machines, and for
        times of which this server has no sample. Status 429 if too many requests are being answered.
        """
        with self._limit.request():
            await self._answer()

    @web.authenticated
    @_may_write
    async def post(self) -> None:
        """Turn ``always_on`` on or off, until the server stops; status 403 if pages can't change it."""
        if not self._hub.allow_always_on:
            raise web.HTTPError(403, _FIXED_ALWAYS_ON)
        wanted: object = None
        with suppress(ValueError, RecursionError):
            body = json.loads(self.request.body)
            wanted = body.get("always_on") if isinstance(body, dict) else None
        if not isinstance(wanted, bool):
            raise web.HTTPError(400, 'Send {"always_on": true} or {"always_on": false}.')
        self._hub.set_always_on(wanted)
        self.set_status(204)
        await self.finish()

    async def _answer(self) -> None:
        length_s = HOUR_S if self._long_history is None else PROMETHEUS_S
        query = HistoryQuery.parse(self, self._hub.now, length_s)
        if query is None:
            await self.finish(self._hub.history(parse_seconds(self, "seconds", self._hub.history_s)))
            return
        self.set_header("Content-Type", "application/json")
        try:
            for piece in await self._pieces(query):
                self.write(piece)
                # Send the response piece by piece. Hashing, copying and sending the whole response at once
                # would delay other requests.
                await self.flush()
            await self.finish()
        except PrometheusError as error:
            # web.HTTPError can't be used, because it would double the percent signs of the message.
            self.set_status(503)
            await self.finish({"message": str(error)})
        except StreamClosedError:
            pass  # The client has closed the connection.

    async def _pieces(self, query: HistoryQuery) -> list[bytes]:
        """Return the response.

        Raises PrometheusError if only Prometheus has the data and does not answer, and HTTPError 503 if this
        machine's GPUs are unknown because the driver does not answer.
        """
        if query.node is not None:
            if self._long_history is None:
                raise web.HTTPError(404, _NO_PROMETHEUS)
            uuids = await self._long_history.gpus_of(query.node)
            if uuids is None:
                raise web.HTTPError(404, _NO_NODE)
            return await self._long_history.query(query, uuids)
        is_old = query.since < self._hub.now - HOUR_S - _CLOCK_TOLERANCE_S
        is_stored = self._hub.has_history(query.since, query.until)
        if self._long_history is not None and (is_old or not is_stored):
            sample = await self._hub.sample(_SAMPLE_TIMEOUT_S)
            if sample is not None:
                try:
                    return await self._long_history.query(query, [gpu.uuid for gpu in sample.sample.gpus])
                except PrometheusError:
                    if is_old:
                        raise
            elif is_old:
                # Only a sample contains the GPUs of this machine.
                raise web.HTTPError(503, _NO_SAMPLE)
            # The server's own history has no sample of this time, which is also an answer.
        return await self._hub.query_history(query)


class DoctorHandler(GpuWidgetHandler, APIHandler):
    """``POST gpuwidget/api/doctor``: the diagnosis of the server's environment, from PyTorch to the GPU.

    The request starts processes that import torch. It is therefore not a GET, which any link can trigger, and
    it requires the permission to execute.
    """

    def initialize(self, hub: SampleHub, cached_diagnosis: CachedDiagnosis) -> None:  # type: ignore[override]
        """Store the server's sample hub and its cached diagnosis."""
        super().initialize(hub)
        self._cached_diagnosis = cached_diagnosis

    @web.authenticated
    @_may_execute
    async def post(self) -> None:
        """Return a :class:`~gpuwidget.model.diagnosis.Diagnosis`; status 503 if the checks do not finish.

        If the parameter ``locale`` is given, the field ``texts`` has the diagnosis's texts in that language,
        by the English text.
        """
        try:
            diagnosis = await self._cached_diagnosis.diagnosis()
        except DoctorError as error:
            # web.HTTPError can't be used, because it would double the percent signs of the message.
            self.set_status(503)
            await self.finish({"message": str(error)})
            return
        values = to_json(diagnosis)
        locale = self.get_query_argument("locale", None)
        if locale is not None:
            values["texts"] = translations(diagnosis, find_language(locale))
        await self.finish(encode(values))


class ClusterHandler(GpuWidgetHandler, APIHandler):
    """``GET gpuwidget/api/cluster``: the newest values of all GPUs of the cluster."""

    def initialize(self, hub: SampleHub, cluster: ClusterMonitor | None) -> None:  # type: ignore[override]
        """Store the server's cluster monitor; None if no Prometheus is configured."""
        super().initialize(hub)
        self._cluster = cluster
        self._etag: str | None = None

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Return a :class:`gpuwidget.server.wire.ClusterSnapshot`, or status 304 if the client has it."""
        if self._cluster is None:
            raise web.HTTPError(404, _NO_PROMETHEUS)
        snapshot = await self._cluster.snapshot()
        self._etag = snapshot.etag
        self.set_header("Vary", "Accept-Encoding")
        if "gzip" in self.request.headers.get("Accept-Encoding", ""):
            # Compressed once for all clients.
            self.set_header("Content-Encoding", "gzip")
            await self.finish(snapshot.gzipped)
        else:
            await self.finish(snapshot.json)

    def compute_etag(self) -> str | None:
        """Return the snapshot's ETag, which Tornado compares with the client's."""
        return self._etag


class RunsHandler(GpuWidgetHandler, APIHandler):
    """``GET gpuwidget/api/runs``: the newest runs of the journal."""

    def initialize(self, hub: SampleHub, journal: RunJournal) -> None:  # type: ignore[override]
        """Store the server's sample hub and its journal of runs."""
        super().initialize(hub)
        self._journal = journal

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Return a :class:`gpuwidget.server.wire.JournalRuns`, with texts in the language of ``locale``."""
        await self.finish(await self._journal.runs(self.get_query_argument("locale", "")))


class RunHandler(RunsHandler):
    """``GET gpuwidget/api/runs/ID``: one run of the journal with its card."""

    @web.authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        """Return a :class:`gpuwidget.server.wire.JournalCard`, with texts in the language of ``locale``;
        status 404 if there is no such run."""
        found = await self._journal.card(run_id, self.get_query_argument("locale", ""))
        if found is None:
            raise web.HTTPError(404, _NO_RUN)
        await self.finish(found)


class MetricsHandler(GpuWidgetHandler, APIHandler):
    """``GET gpuwidget/metrics``: the metrics, for a Prometheus server.

    Besides Jupyter's credentials, it accepts the token of ``GpuWidget.metrics_token_file``. That token is
    checked before Jupyter's identity provider is called, because JupyterHub's would send it to the Hub. It
    permits nothing but this request, so no authorizer is called for it.
    """

    def initialize(  # type: ignore[override]
        self, hub: SampleHub, kernel_labels: KernelLabels, metrics_token: MetricsToken
    ) -> None:
        """Store the server's sample hub, how the metrics identify kernels, and the metrics token."""
        super().initialize(hub)
        self._kernel_labels = kernel_labels
        self._metrics_token = metrics_token
        self._has_metrics_token = False

    async def prepare(self) -> None:  # type: ignore[override]
        """Check the metrics token, and without it Jupyter's credentials."""
        is_get = self.request.method == "GET"
        if is_get and self._metrics_token.matches(self.request.headers.get("Authorization")):
            # Jupyter's handler checks the host in its own prepare().
            if not self.check_host():
                raise web.HTTPError(403)
            self.current_user = self._jupyter_current_user = _METRICS_USER
            self._has_metrics_token = True
            return
        await super().prepare()

    async def get(self) -> None:
        """Return the newest sample and the owners of memory as text; status 503 if no sample arrives in
        time."""
        if self._has_metrics_token:
            await self._finish_metrics()
        else:
            # Tornado's type of a decorated method includes None, which a coroutine never returns.
            await self._finish_authorized()  # type: ignore[misc]

    @web.authenticated
    @authorized
    async def _finish_authorized(self) -> None:
        await self._finish_metrics()

    async def _finish_metrics(self) -> None:
        scraped = await self._hub.scrape(_SAMPLE_TIMEOUT_S)
        if scraped is None:
            raise web.HTTPError(503, _NO_SAMPLE)
        text = metrics_text(*scraped, self._kernel_labels, self._hub.gpu_use)
        await self.finish(text, set_content_type=CONTENT_TYPE)
