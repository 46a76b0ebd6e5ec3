"""The routes under ``gpuwidget``. All ask for authentication, and none counts as activity of the user."""

from __future__ import annotations

import json
import math
from asyncio import Future
from collections.abc import Callable
from types import TracebackType
from typing import Any

from jupyter_server.auth import decorator
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado import web
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketHandler

from gpuwidget.model.errors import DoctorError
from gpuwidget.sampler import MAX_INTERVAL_S
from gpuwidget.server.cached_diagnosis import CachedDiagnosis
from gpuwidget.server.hub import Hub
from gpuwidget.server.prometheus import CONTENT_TYPE, exposition
from gpuwidget.server.queries import course_asked, seconds_asked
from gpuwidget.server.send_queue import Outbox

# Before 2.13 the server has none and misses none; who is not logged in is refused either way.
_ws_authenticated: Callable[[Any], Any] = getattr(decorator, "ws_authenticated", lambda method: method)

_may_execute: Callable[[Any], Any] = authorized(action="execute")

_PATIENCE_S = 5.0
_BEHIND_S = 10.0
_LEAST_BACKLOG = 10
_TRY_AGAIN_LATER = 1013
_LONGEST_MESSAGE = 200

_SILENT = (
    f"The driver has not answered within {_PATIENCE_S:g} seconds. Where nothing keeps it initialised it may "
    "take longer to come up: ask again. If nvidia-smi hangs too, the driver or a GPU is stuck: look into the "
    "kernel log (dmesg)."
)


def routes(
    hub: Hub, cached_diagnosis: CachedDiagnosis
) -> list[tuple[str, type[web.RequestHandler], dict[str, Any]]]:
    """Each route's path under the server's base URL, with who answers it."""
    known = {"hub": hub}
    return [
        (r"gpuwidget/api/sample", SampleHandler, known),
        (r"gpuwidget/api/history", HistoryHandler, known),
        (r"gpuwidget/api/stream", StreamHandler, known),
        (r"gpuwidget/api/doctor", DoctorHandler, {**known, "cached_diagnosis": cached_diagnosis}),
        (r"gpuwidget/metrics", MetricsHandler, known),
    ]


def _said(message: str | bytes) -> dict[str, Any]:
    """What a client says over the stream; nothing where it is none of what one may say."""
    if len(message) > _LONGEST_MESSAGE:
        return {}
    try:
        said = json.loads(message)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _activity_wanted(said: dict[str, Any]) -> bool | None:
    wanted = said.get("wanted") if said.get("type") == "activity" else None
    return wanted if isinstance(wanted, bool) else None


def _interval_wanted(said: dict[str, Any]) -> float | None:
    interval_s = said.get("interval_s") if said.get("type") == "rate" else None
    if isinstance(interval_s, bool) or not isinstance(interval_s, int | float):
        return None
    return interval_s if 0 <= interval_s <= MAX_INTERVAL_S else None


class _Ours(JupyterHandler):
    """What the routes have in common."""

    auth_resource = "gpuwidget"
    _track_activity = False

    def initialize(self, hub: Hub) -> None:
        """``hub`` is the server's."""
        self._hub = hub

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Log a failure without the request's query, which may hold the user's token as Tornado writes it."""
        # A refusal is in the server's log of requests, which leaves tokens out.
        if not isinstance(value, web.HTTPError):
            self.log.error("gpuwidget could not answer %s", self.request.path, exc_info=value)


class SampleHandler(_Ours, APIHandler):
    """``GET gpuwidget/api/sample``: the newest sample."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """A :class:`gpuwidget.model.samples.Sample`; 503 where none can be had in time."""
        sample = await self._hub.sample(_PATIENCE_S)
        if sample is None:
            raise web.HTTPError(503, _SILENT)
        await self.finish(sample)


class HistoryHandler(_Ours, APIHandler):
    """``GET gpuwidget/api/history?seconds=N[&metrics=…]``: what was read while somebody looked."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """A :class:`gpuwidget.server.wire.History` of all that is held, or of the last N seconds.

        Where metrics, a part or a number of points are asked for, a :class:`gpuwidget.server.wire.Course`.
        """
        asked = course_asked(self, self._hub.now)
        if asked is None:
            await self.finish(self._hub.history(seconds_asked(self, "seconds", self._hub.history_s)))
            return
        self.set_header("Content-Type", "application/json")
        try:
            for chunk in await self._hub.course(asked):
                self.write(chunk)
                # A chunk at a time: to hash, copy and send it whole would keep other requests waiting.
                await self.flush()
            await self.finish()
        except StreamClosedError:
            pass  # Who asked has gone, as with a page that is closed.


class DoctorHandler(_Ours, APIHandler):
    """``POST gpuwidget/api/doctor``: the server's environment, from PyTorch down to the GPU.

    It starts processes that import torch. That is why it is no GET, which any link can trigger, and why it
    asks for the right to execute.
    """

    def initialize(self, hub: Hub, cached_diagnosis: CachedDiagnosis) -> None:  # type: ignore[override]
        """``hub`` and ``cached_diagnosis`` are the server's."""
        super().initialize(hub)
        self._consultation = cached_diagnosis

    @web.authenticated
    @_may_execute
    async def post(self) -> None:
        """A :class:`~gpuwidget.model.diagnosis.Diagnosis`, after seconds; 503 where it does not end."""
        try:
            diagnosis = await self._consultation.doctor()
        except DoctorError as error:
            # Not by web.HTTPError, which would write a percent sign of the sentence twice.
            self.set_status(503)
            await self.finish({"message": str(error)})
            return
        await self.finish(diagnosis)


class MetricsHandler(_Ours, APIHandler):
    """``GET gpuwidget/metrics``: what a Prometheus scrapes."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """The newest sample and who holds what, as text; 503 where no sample can be had in time."""
        scraped = await self._hub.scrape(_PATIENCE_S)
        if scraped is None:
            raise web.HTTPError(503, _SILENT)
        await self.finish(exposition(*scraped), set_content_type=CONTENT_TYPE)


class StreamHandler(WebSocketMixin, WebSocketHandler, _Ours):
    """``WS gpuwidget/api/stream?history=SECONDS``: a hello with the past, then every sample."""

    def initialize(self, hub: Hub) -> None:
        """``hub`` is the server's."""
        super().initialize(hub)
        self._history_s = 0.0
        backlog = max(_LEAST_BACKLOG, math.ceil(_BEHIND_S / hub.interval_s))
        self._outbox = Outbox(self._write, backlog)

    def set_default_headers(self) -> None:
        """None: those of a page do not belong on a websocket."""

    @_ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Become a websocket, for who may read and asked for a past that there is."""
        if self.current_user is None:
            raise web.HTTPError(403)
        await self._get()

    @authorized
    async def _get(self) -> None:
        self._history_s = seconds_asked(self, "history", self._hub.history_s)
        await super().get()

    def open(self, *args: Any, **kwargs: Any) -> None:
        """Say hello, and begin to look whether the client still answers pings."""
        super().open(*args, **kwargs)
        self._hub.join(self, self._history_s)

    def on_message(self, message: str | bytes) -> None:
        """An :class:`gpuwidget.server.wire.ActivityRequest` or a :class:`gpuwidget.server.wire.RateRequest`.

        Nothing else of a client is listened to.
        """
        said = _said(message)
        wanted = _activity_wanted(said)
        if wanted is not None:
            self._hub.want_activity(self, wanted)
        interval_s = _interval_wanted(said)
        if interval_s is not None:
            self._hub.want_interval(self, interval_s)

    def on_close(self) -> None:
        """The client has gone, or did not answer pings."""
        self._hub.leave(self)

    def send(self, message: bytes) -> bool:
        """Send a message without waiting; False where the client is gone or too far behind."""
        return self._outbox.put(message)

    def drop(self) -> None:
        """End the connection; what was not sent by a few seconds from now never is."""
        self.close(_TRY_AGAIN_LATER, "too slow: samples piled up")

    def _write(self, message: bytes) -> Future[None]:
        # Bytes, encoded once for all clients, but as a text message.
        return self.write_message(message, binary=False)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Errors before the websocket begins are JSON, as those of the other routes."""
        error = kwargs.get("exc_info", (None, None))[1]
        sentence = getattr(error, "log_message", None) or self._reason
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps({"message": sentence}))
