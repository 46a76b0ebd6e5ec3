"""The server's routes are those of its OpenAPI description.

:class:`helpers_server.Server` compares each response that the server tests get with the description, too.
"""

from __future__ import annotations

import inspect
import json
import re

import pytest
from helpers_schemas import check_values, openapi
from helpers_server import Server
from tornado.web import RequestHandler

from tools.openapi import ROUTES

STREAM = {"$ref": "#/components/schemas/StreamMessage"}


async def test_the_description_has_every_route(server: Server) -> None:
    """The description has every route of the extension, with all of its methods."""
    found = {}
    for rule in server.app.web_app.wildcard_router.rules + server.app.web_app.default_router.rules:
        for inner in getattr(rule.target, "rules", [rule]):
            target, pattern = inner.target, getattr(inner.matcher, "regex", None)
            if pattern is None or not inspect.isclass(target) or not issubclass(target, RequestHandler):
                continue
            if target.__module__.startswith("gpuwidget."):
                path = "/gpuwidget/" + pattern.pattern.rpartition("/gpuwidget/")[2].rstrip("$")
                path = re.sub(r"\(.*\)", "{id}", path)
                methods = {name for name in ("get", "post", "put", "patch", "delete") if name in vars(target)}
                found[path] = (target, methods)
    described = {
        path: (operations[0].handler, {operation.method for operation in operations})
        for path, operations in ROUTES.items()
    }
    assert found == described


async def test_the_stream(server: Server) -> None:
    """Every message of the stream matches the description."""
    stream = await server.stream()
    types = set()
    for _ in range(6):
        text = await stream._next_of_any_kind()
        assert text is not None
        message = json.loads(text)
        types.add(message["type"])
        check_values(message, STREAM)
    assert {"hello", "usage"} <= types <= {"hello", "usage", "sample", "changes"}


@pytest.mark.parametrize("query", [{}, {"locale": "zh-CN"}])
async def test_the_doctor(server: Server, query: dict[str, str]) -> None:
    """A diagnosis of this environment matches the description, with and without translations."""
    status, values = await server.post("doctor", **query)
    assert status == 200
    assert ("texts" in values) == bool(query)


async def test_the_metrics(server: Server) -> None:
    """The metrics are text, as the description says."""
    answer = await server.fetch("gpuwidget", "metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    described = openapi()["paths"]["/gpuwidget/metrics"]["get"]["responses"]["200"]["content"]
    assert [*described] == ["text/plain"]
