"""The server's routes as an OpenAPI description, from the handlers' docstrings and their dataclasses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuwidget.model.diagnosis import Diagnosis
from gpuwidget.model.samples import Sample
from gpuwidget.server import handlers, wire
from gpuwidget.server.handlers import GpuWidgetHandler
from gpuwidget.server.history_metrics import METRICS
from gpuwidget.server.history_query import MAX_POINTS, MIN_POINTS
from gpuwidget.server.stream_handler import StreamHandler
from gpuwidget.version import __version__
from tools.dataclass_types import paragraphs
from tools.json_schema import Schema, definitions

VERSION = "3.1.1"
_PLACE = "#/components/schemas"
_SENT = (
    wire.InitialMessage,
    wire.SampleMessage,
    wire.SampleChanges,
    wire.MemoryOwnership,
    wire.AlwaysOn,
)
_RECEIVED = (wire.ActivityRequest, wire.RateRequest)
_SECONDS: Schema = {"type": "number", "minimum": 0}
_ALWAYS_ON: Schema = {
    "type": "object",
    "properties": {"always_on": {"type": "boolean"}},
    "required": ["always_on"],
}
_ERROR: Schema = {
    "type": "object",
    "description": "What is wrong and, if possible, what to do.",
    "properties": {
        "message": {"type": "string", "description": "One or more sentences."},
        "reason": {"type": ["string", "null"], "description": "Jupyter's name of the status, or null."},
    },
    "required": ["message"],
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of a route."""

    handler: type[GpuWidgetHandler]
    method: Literal["get", "post"]
    name: str
    returns: tuple[type, ...] = ()
    """The dataclasses of a successful response's JSON."""
    query: Mapping[str, tuple[Schema, str]] = field(default_factory=dict)
    """The schema and the meaning of each parameter of the query string."""
    body: Schema | None = None
    other: Mapping[int, str] = field(default_factory=dict)
    """The meaning of each other status than 200."""


_NO_ANSWER = "The driver returns no sample within 5 s."
_TOO_MANY = "Too many requests at the same time. The header `Retry-After` has the seconds to wait."
_TIME: Schema = {"type": "number"}
_LOCALE = ({"type": "string"}, "Language of the texts, such as `zh-CN`.")
ROUTES: Mapping[str, tuple[Operation, ...]] = {
    "/gpuwidget/api/sample": (
        Operation(handlers.SampleHandler, "get", "getSample", (Sample,), other={503: _NO_ANSWER}),
    ),
    "/gpuwidget/api/history": (
        Operation(
            handlers.HistoryHandler,
            "get",
            "getHistory",
            (wire.History, wire.MetricHistory),
            {
                "seconds": (
                    _SECONDS,
                    "Length of the time range. Without another parameter, at most `GpuWidget.history`.",
                ),
                "metrics": (
                    {"type": "string", "default": "all"},
                    f"`all`, or a comma-separated list of these: {', '.join(METRICS)}.",
                ),
                "since": (_TIME, "Start of the time range in epoch seconds, instead of `seconds`."),
                "until": (_TIME, "End of the time range in epoch seconds; now by default."),
                "points": (
                    {"type": "integer", "minimum": MIN_POINTS, "maximum": MAX_POINTS, "default": 600},
                    "Maximum number of steps in the response.",
                ),
                "node": ({"type": "string"}, "Name of another machine in `api/cluster`."),
            },
            other={
                400: "A parameter is invalid.",
                404: "No Prometheus is configured, or it has no machine with this name.",
                429: _TOO_MANY,
                503: "Only Prometheus has the data and does not answer, or the driver does not.",
            },
        ),
        Operation(
            handlers.HistoryHandler,
            "post",
            "setAlwaysOn",
            body=_ALWAYS_ON,
            other={
                204: "Done.",
                400: "The body is invalid.",
                403: "The administrator has set `always_on`, or does not allow it.",
            },
        ),
    ),
    "/gpuwidget/api/stream": (
        Operation(
            StreamHandler,
            "get",
            "openStream",
            query={
                "history": (
                    _SECONDS,
                    "Length of the history in the first message, at most `GpuWidget.history`.",
                )
            },
            other={
                101: "The websocket is open. The server sends messages of the schema `StreamMessage`. A "
                "client may send messages of the schema `StreamRequest`.",
                400: "`history` is invalid.",
                426: "The request is not a websocket.",
                429: "Too many clients. The header `Retry-After` has the seconds to wait.",
            },
        ),
    ),
    "/gpuwidget/api/doctor": (
        Operation(
            handlers.DoctorHandler,
            "post",
            "diagnose",
            (Diagnosis,),
            {"locale": _LOCALE},
            other={503: "The checks do not finish in time."},
        ),
    ),
    "/gpuwidget/api/cluster": (
        Operation(
            handlers.ClusterHandler,
            "get",
            "getCluster",
            (wire.ClusterSnapshot,),
            other={
                304: "There are no newer values than those of the `ETag` in `If-None-Match`.",
                404: "No Prometheus is configured.",
            },
        ),
    ),
    "/gpuwidget/api/runs": (
        Operation(handlers.RunsHandler, "get", "getRuns", (wire.JournalRuns,), {"locale": _LOCALE}),
    ),
    "/gpuwidget/api/runs/{id}": (
        Operation(
            handlers.RunHandler,
            "get",
            "getRun",
            (wire.JournalCard,),
            {"locale": _LOCALE},
            other={404: "The journal has no run with this id."},
        ),
    ),
    "/gpuwidget/metrics": (Operation(handlers.MetricsHandler, "get", "getMetrics", other={503: _NO_ANSWER}),),
}
"""The operations of each route, by the path below the server's base URL."""


def description() -> dict[str, Any]:
    """Return the OpenAPI description."""
    roots = [
        type_ for operations in ROUTES.values() for operation in operations for type_ in operation.returns
    ]
    schemas = definitions([*roots, *_SENT, *_RECEIVED], _PLACE)
    schemas["StreamMessage"] = _any_of("A message of the stream, from the server.", _SENT)
    schemas["StreamRequest"] = _any_of("A message of the stream, from a client.", _RECEIVED)
    schemas["Error"] = _ERROR
    return {
        "openapi": VERSION,
        "info": {
            "title": "gpuwidget's Jupyter server extension",
            "version": __version__,
            "description": "Unless a field says otherwise, null means that a value is unknown, never 0.",
        },
        "servers": [
            {
                "url": "{base_url}",
                "description": "The Jupyter server's address with its base URL.",
                "variables": {"base_url": {"default": "http://127.0.0.1:8888"}},
            }
        ],
        "security": [{"token": []}, {"cookie": []}],
        "paths": {
            path: {operation.method: _operation(operation, path) for operation in operations}
            for path, operations in ROUTES.items()
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "`token TOKEN`, with the Jupyter server's token. For the metrics, also "
                    "`Bearer TOKEN` with the token of `GpuWidget.metrics_token_file`.",
                },
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "username-127-0-0-1-8888",
                    "description": "The login of a browser. The name contains the Jupyter server's host and "
                    "port. A POST request also needs the header `X-XSRFToken` with the value of the cookie "
                    "`_xsrf`.",
                },
            },
        },
    }


def _any_of(meaning: str, types: tuple[type, ...]) -> Schema:
    mapping = {
        definition["properties"]["type"]["const"]: f"{_PLACE}/{name}"
        for name, definition in definitions(types, _PLACE).items()
        if name in {type_.__name__ for type_ in types}
    }
    return {
        "description": meaning,
        "oneOf": [{"$ref": f"{_PLACE}/{type_.__name__}"} for type_ in types],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }


def _operation(operation: Operation, path: str) -> dict[str, Any]:
    docstring = inspect.cleandoc(getattr(operation.handler, operation.method).__doc__ or "")
    found: dict[str, Any] = {
        "operationId": operation.name,
        "description": "\n\n".join(paragraphs(docstring)),
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ] + [
        {"name": name, "in": "query", "description": meaning, "schema": schema}
        for name, (schema, meaning) in operation.query.items()
    ]
    if parameters:
        found["parameters"] = parameters
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": operation.body}}}
    responses = {str(status): _response(status, meaning) for status, meaning in operation.other.items()}
    references = [{"$ref": f"{_PLACE}/{type_.__name__}"} for type_ in operation.returns]
    if references:
        schema = references[0] if len(references) == 1 else {"oneOf": references}
        responses["200"] = {
            "description": "The result.",
            "content": {"application/json": {"schema": schema}},
        }
    elif operation.handler is handlers.MetricsHandler:
        responses["200"] = {
            "description": "The metrics in Prometheus's text format.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    if 403 not in operation.other:
        responses["403"] = _response(403, "The user is not logged in, or not authorized.")
    found["responses"] = dict(sorted(responses.items()))
    return found


def _response(status: int, meaning: str) -> dict[str, Any]:
    if status < 400:
        return {"description": meaning}
    error = {"application/json": {"schema": {"$ref": f"{_PLACE}/Error"}}}
    return {"description": meaning, "content": error}
