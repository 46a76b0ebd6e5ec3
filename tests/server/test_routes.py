"""The server's routes: their permissions and replies, and that no request counts as activity."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fakes import FakeSource
from helpers_server import Server
from tornado.httpclient import HTTPClientError
from tornado.web import RequestHandler
from tornado.websocket import WebSocketHandler

from gpuwidget.server import handlers

ROUTES = ("sample", "history", "runs", "stream")
ALLOWED = {
    ("ClusterHandler", "GET"): "read",
    ("DoctorHandler", "POST"): "execute",
    ("HistoryHandler", "GET"): "read",
    ("HistoryHandler", "POST"): "write",
    ("MetricsHandler", "GET"): "read",
    ("RunHandler", "GET"): "read",
    ("RunsHandler", "GET"): "read",
    ("SampleHandler", "GET"): "read",
    ("StreamHandler", "GET"): "read",
}
"""The action that the authorizer must allow for each method of each handler.
A GET must change nothing and run no code: check that before you add a GET."""
RUN = "1764486000000-00000001"
"""The id of a run, in a path that has one."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


async def test_a_sample_request_reads_the_gpus_once(server: Server, source: FakeSource) -> None:
    """If no stream is open, a request for the sample reads the GPUs once, and sampling does not continue. The
    sample is not stored in the history, where it would be an isolated point."""
    status, sample = await server.get("sample")
    assert status == 200
    assert (sample["schema"], sample["origin"]["kind"]) == (1, "nvml")
    assert [reading["memory_used"] for reading in sample["readings"]] == [1_000_000, 1_000_000]
    assert (await server.get("history"))[1]["t"] == []
    assert not server.hub._sampler.wanted


async def test_sample_reads_nothing_while_a_stream_runs(server: Server, source: FakeSource) -> None:
    """While a stream is open, a request for the sample returns the stream's newest sample and does not call
    the driver."""
    stream = await server.stream()
    await stream.next()
    await stream.next()
    await server.until(lambda: True)
    calls = source.calls["fast"]
    samples = [await server.get("sample") for _ in range(5)]
    assert {status for status, _ in samples} == {200}
    # The stream's own sampling may have called the driver meanwhile, once for each of the two GPUs.
    assert source.calls["fast"] - calls in (0, 2)


async def test_a_hung_driver_returns_503(
    server: Server, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no sample arrives in time, the route returns 503 with the reason and what the user can do."""
    source.hang_in_open = threading.Event()
    monkeypatch.setattr(handlers, "_SAMPLE_TIMEOUT_S", 0.01)
    status, answer = await server.get("sample")
    assert status == 503
    assert answer["message"] == handlers._NO_SAMPLE
    assert not server.hub._sampler.wanted


async def test_history(server: Server) -> None:
    """The history route returns the whole history, or the last ``seconds`` of it."""
    stream = await server.stream()
    await stream.next()
    times = [round((await stream.next())["sample"]["time"], 3) for _ in range(3)]
    _, whole = await server.get("history")
    assert whole["t"][:3] == times
    assert server.clock is not None
    seconds = server.clock.time() - times[-1] + 0.01
    _, part = await server.get("history", seconds=seconds)
    assert part["t"] == [t for t in whole["t"] if t >= times[-1]]
    assert [len(one["power_w"]) for one in part["gpus"]] == [len(part["t"])] * 2


@pytest.mark.parametrize("seconds", ["601", "-0.1", "nan", "1e999", "ten", ""])
async def test_seconds_out_of_range_are_refused(server: Server, seconds: str) -> None:
    """The history route answers an invalid ``seconds`` with status 400 and a sentence that gives the allowed
    range."""
    status, answer = await server.get("history", seconds=seconds)
    assert (status, answer["message"]) == (400, "seconds must be a number of seconds from 0 to 600.")


@pytest.mark.parametrize("route", ROUTES)
async def test_every_route_requires_authentication(
    server: Server, jp_auth_header: dict[str, str], route: str
) -> None:
    """Every route refuses a request without the token,
    so that only the user can see the GPUs and the owners of their processes."""
    fetch = server.ws_fetch if route == "stream" else server.fetch
    jp_auth_header.clear()
    with pytest.raises(HTTPClientError) as refused:
        await fetch("gpuwidget", "api", route)
    assert refused.value.code == 403
    assert refused.value.response is not None
    assert json.loads(refused.value.response.body)["message"] == "Forbidden"
    assert not server.hub._sampler.wanted


@pytest.mark.parametrize("route", ROUTES)
async def test_every_route_requires_authorization(server: Server, route: str) -> None:
    """Every route refuses a request if the server's authorizer denies the right to read ``gpuwidget``."""
    asked = []

    async def deny(handler: Any, user: Any, action: str, resource: str) -> bool:
        asked.append((action, resource))
        return False

    server.app.authorizer.is_authorized = deny
    fetch = server.ws_fetch if route == "stream" else server.fetch
    with pytest.raises(HTTPClientError) as refused:
        await fetch("gpuwidget", "api", route)
    assert (refused.value.code, asked) == (403, [("read", "gpuwidget")])
    assert not server.hub._sampler.wanted


def registered(server: Server) -> list[tuple[str, type[RequestHandler]]]:
    """Return gpuwidget's registered handlers, each with a path that the server routes to that handler."""
    rules = [rule for group in server.app.web_app.default_router.rules for rule in group.target.rules]
    rules += server.app.web_app.wildcard_router.rules
    found = {
        rule.target: rule.matcher.regex.pattern
        for rule in rules
        if getattr(rule.target, "__module__", "").startswith("gpuwidget.")
    }
    paths = {handler: re.sub(r"\(\[.*\)", RUN, pattern) for handler, pattern in found.items()}
    return [(pattern.rstrip("$").rpartition(")/")[2], handler) for handler, pattern in paths.items()]


def implemented(handler: type[RequestHandler]) -> list[str]:
    """Return the HTTP methods that a handler class defines, or inherits from another class of gpuwidget."""
    own = [one for one in handler.__mro__ if one.__module__.startswith("gpuwidget.")]
    return [method for method in METHODS if any(method.lower() in vars(one) for one in own)]


async def request(server: Server, path: str, handler: type[RequestHandler], method: str) -> int:
    """Send a request to this path, and return the status of the reply."""
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    headers = {**upgrade, "Sec-WebSocket-Key": "AAAA"} if issubclass(handler, WebSocketHandler) else {}
    body = None if method in ("GET", "HEAD", "OPTIONS") else ""
    try:
        answer = await server.fetch(
            *path.split("/"), method=method, body=body, headers=headers, allow_nonstandard_methods=True
        )
    except HTTPClientError as error:
        return error.code
    return int(answer.code)


async def test_every_handler_is_in_the_table(server: Server) -> None:
    """Every method of every handler is listed in ``ALLOWED`` with its permission.
    A new one must be added there."""
    found = {(one.__name__, method) for _, one in registered(server) for method in implemented(one)}
    assert found == set(ALLOWED)


async def test_every_method_requires_authentication_and_authorization(
    server: Server, jp_auth_header: dict[str, str]
) -> None:
    """Every method of every handler refuses a request without a login,
    and a request for which the authorizer denies the listed action."""
    asked: list[tuple[str, str]] = []

    async def deny(handler: Any, user: Any, action: str, resource: str) -> bool:
        asked.append((action, resource))
        return False

    server.app.authorizer.is_authorized = deny
    for path, handler in registered(server):
        for method in implemented(handler):
            assert await request(server, path, handler, method) == 403
            assert asked == [(ALLOWED[handler.__name__, method], "gpuwidget")]
            asked.clear()
    jp_auth_header.clear()
    for path, handler in registered(server):
        for method in implemented(handler):
            assert await request(server, path, handler, method) == 403
    assert asked == []


async def test_every_other_method_is_refused(server: Server) -> None:
    """If a handler does not implement a method,
    a request with that method returns 405, except for OPTIONS."""
    for path, handler in registered(server):
        for method in set(METHODS) - set(implemented(handler)) - {"OPTIONS"}:
            assert await request(server, path, handler, method) == 405, (handler, method)


async def test_a_page_of_another_site_gets_no_stream(
    server: Server, jp_auth_header: dict[str, str], jp_http_port: int
) -> None:
    """With the user's cookie, Jupyter's own pages can open the stream, but pages of another site can't."""
    answer = await server.fetch("api", "status", headers={"Host": f"localhost:{jp_http_port}"})
    jp_auth_header.clear()
    jp_auth_header["Cookie"] = "; ".join(
        cookie.partition(";")[0] for cookie in answer.headers.get_list("Set-Cookie")
    )
    await (await server.stream()).next()
    jp_auth_header["Origin"] = "https://elsewhere.example"
    with pytest.raises(HTTPClientError) as refused:
        await server.stream()
    assert refused.value.code == 403


@pytest.mark.parametrize("jp_base_url", ["/", "/user/a.b+c/", "/a%40b/lab-1/"])
async def test_routes_work_under_any_base_url(server: Server, jp_base_url: str) -> None:
    """The routes work under any base URL of the server, for example behind JupyterHub."""
    assert (await server.get("sample"))[0] == 200
    assert (await (await server.stream()).next())["type"] == "hello"


async def test_requests_do_not_count_as_activity(server: Server) -> None:
    """Requests and an open stream do not count as activity,
    so an idle server can still be culled while a panel is open."""
    before = server.app.web_app.last_activity()
    stream = await server.stream()
    await stream.next()
    await stream.next()
    assert (await server.get("sample"))[0] == 200
    assert (await server.get("history"))[0] == 200
    assert server.app.web_app.last_activity() == before
    assert "api_last_activity" not in server.app.web_app.settings


@pytest.mark.parametrize("query", ["history?seconds=-1", "sample?", "stream?history=-1"])
async def test_no_token_in_the_log(
    server: Server,
    jp_auth_header: dict[str, str],
    jp_logging_stream: Any,
    caplog: pytest.LogCaptureFixture,
    query: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If a request is refused or fails, the token in its URL does not appear in the log."""
    token = server.app.identity_provider.token
    jp_auth_header.clear()

    async def fail(timeout_s: float) -> bytes:
        raise RuntimeError("a bug")

    monkeypatch.setattr(server.hub, "sample", fail)
    route, _, rest = query.partition("?")
    name, _, value = rest.partition("=")
    parameters = {"token": token, **({name: value} if name else {})}
    fetch: Callable[..., Any] = server.ws_fetch if route == "stream" else server.fetch
    with pytest.raises(HTTPClientError) as failed:
        await fetch("gpuwidget", "api", route, params=parameters)
    assert failed.value.code == (500 if route == "sample" else 400)
    assert f"gpuwidget/api/{route}" in caplog.text
    assert token not in caplog.text + jp_logging_stream.getvalue()
