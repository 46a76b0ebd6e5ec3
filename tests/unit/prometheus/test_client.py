"""Tests of the client of Prometheus's HTTP API against a local web server that misbehaves in many ways."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from helpers_http import Respond, WebServer, send, write_certificate
from helpers_programs import free_ports

from gpuwidget.model.errors import PrometheusError
from gpuwidget.prometheus import client
from gpuwidget.prometheus.client import InstantValue, PrometheusClient, RangeValues
from gpuwidget.prometheus.settings import prometheus_settings

TOKEN = "s3cret-token"

Start = Callable[..., WebServer]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a web server, which is stopped after the test."""
    started: list[WebServer] = []

    def start(respond: Respond, certificate: Path | None = None) -> WebServer:
        started.append(WebServer(respond, certificate))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def answer(kind: str, result: list[Any]) -> Respond:
    """Return a function that sends a successful response."""
    body = json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()
    return lambda handler, _: send(handler, body)


def with_body(body: bytes, status: int = 200, **headers: str) -> Respond:
    """Return a function that sends this response."""
    return lambda handler, _: send(handler, body, status, **headers)


def error_of(url: str, **settings: Any) -> str:
    """Return the text of the error that a query raises, with the server's address replaced by HOST."""
    with pytest.raises(PrometheusError) as raised:
        PrometheusClient(prometheus_settings(url, **settings)).query("up")
    return str(raised.value).replace(url.partition("//")[2].partition("/")[0], "HOST")


def test_a_query_returns_labels_times_and_values(start: Start) -> None:
    """A query is sent as a form, under the configured path, and returns each series' labels, time and
    value."""
    web = start(answer("vector", [{"metric": {"a": "b"}, "value": [1.5, "97"]}]))
    prometheus = PrometheusClient(prometheus_settings(f"{web.url}/prefix/", timeout_s=2.5))
    assert prometheus.query('up{a="b&c"}') == (InstantValue({"a": "b"}, 1.5, 97.0),)
    ((path, headers, form),) = web.requests
    assert (path, form) == ("/prefix/api/v1/query", {"query": 'up{a="b&c"}', "timeout": "3s"})
    assert "Authorization" not in headers


def test_a_range_query_returns_the_points_of_each_series(start: Start) -> None:
    """A range query returns the points of each series."""
    web = start(answer("matrix", [{"metric": {}, "values": [[1, "0.5"], [2.5, "+Inf"]]}]))
    prometheus = PrometheusClient(prometheus_settings(web.url))
    assert prometheus.query_range("up", 1, 2.5, 1.5) == (RangeValues({}, ((1.0, 0.5), (2.5, float("inf")))),)
    assert web.requests[0][0] == "/api/v1/query_range"
    assert web.requests[0][2] == {
        "query": "up",
        "start": "1.000",
        "end": "2.500",
        "step": "1.500",
        "timeout": "10s",
    }


def test_the_token_is_read_for_each_query(start: Start, tmp_path: Path) -> None:
    """The bearer token is read from its file for each query, so that a renewed token is used at once."""
    web = start(answer("vector", []))
    file = tmp_path / "token"
    prometheus = PrometheusClient(prometheus_settings(web.url, token_file=str(file)))
    for token in (TOKEN, "renewed"):
        file.write_text(f"{token}\n")
        prometheus.query("up")
    assert [headers["Authorization"] for _, headers, _ in web.requests] == [
        f"Bearer {TOKEN}",
        "Bearer renewed",
    ]


def test_a_redirect_is_not_followed(start: Start, tmp_path: Path) -> None:
    """A redirect to another server is an error, and the other server receives no request, so no token."""
    other = start(answer("vector", []))
    web = start(with_body(b"", 307, Location=f"{other.url}/api/v1/query"))
    file = tmp_path / "token"
    file.write_text(TOKEN)
    text = error_of(web.url, token_file=str(file))
    assert text.startswith("Prometheus at HOST redirects to another address (status 307). ")
    assert text.endswith("Set prometheus_url to the final address.")
    assert other.requests == []


def test_a_proxy_of_the_environment_is_not_used(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that the environment names receives no request, so no token."""
    proxy = start(answer("vector", []))
    web = start(answer("vector", []))
    monkeypatch.setenv("http_proxy", proxy.url)
    monkeypatch.delenv("no_proxy", raising=False)
    assert PrometheusClient(prometheus_settings(web.url)).query("up") == ()
    assert (len(web.requests), proxy.requests) == (1, [])


@pytest.mark.parametrize("content", ["", "two\nlines", "a b", "caf\u00e9"])
def test_a_file_without_a_token(start: Start, tmp_path: Path, content: str) -> None:
    """If the token's file contains no token, no request is sent, and the error contains neither the file's
    content nor its path."""
    web = start(answer("vector", []))
    file = tmp_path / "token"
    file.write_text(content, encoding="utf-8")
    text = error_of(web.url, token_file=str(file))
    assert "the file of prometheus_token_file can't be used (it does not contain a token" in text
    assert content == "" or content not in text
    assert str(file) not in text
    assert web.requests == []


def test_a_missing_token_file(start: Start, tmp_path: Path) -> None:
    """If the token's file is missing, the error has the reason."""
    web = start(answer("vector", []))
    assert "(No such file or directory)" in error_of(web.url, token_file=str(tmp_path / "none"))


def test_certificates(start: Start, tmp_path: Path) -> None:
    """A server whose certificate is signed by a private authority is queried with that authority's file, and
    refused without it."""
    certificate = write_certificate(tmp_path / "server.pem")
    web = start(answer("vector", []), certificate)
    assert PrometheusClient(prometheus_settings(web.url, ca_file=str(certificate))).query("up") == ()
    text = error_of(web.url)
    assert "can't be verified (self-signed certificate)" in text
    assert "prometheus_ca_file" in text
    assert len(web.requests) == 1


def test_files_without_certificates(tmp_path: Path) -> None:
    """If the file with the authorities is missing or contains no certificate, the error names that cause."""
    for content in (None, "no certificate"):
        file = tmp_path / "ca.pem"
        if content is not None:
            file.write_text(content)
        text = error_of("https://127.0.0.1:1", ca_file=str(file))
        assert "the file of prometheus_ca_file can't be used (" in text


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (
            401,
            b"who are you?",
            "has refused the request because of its lack of a token (status 401). Check the token in the "
            "file of prometheus_token_file, and what this token permits.",
        ),
        (
            403,
            b"{}",
            "has refused the request because of its lack of a token (status 403). Check the token in the "
            "file of prometheus_token_file, and what this token permits.",
        ),
        (
            503,
            b'{"status":"error","errorType":"timeout","error":"query timed out\\nin expression evaluation"}',
            "could not answer a query (status 503: query timed out in expression evaluation). If it is "
            "overloaded or has just started, the next query may succeed; else see its log.",
        ),
        *(
            (
                status,
                body,
                f"has answered with something other than Prometheus's JSON (status {status}). Set "
                "prometheus_url to the address under which /api/v1/query lies.",
            )
            for status, body in [
                (404, b"404 page not found"),
                (502, b"<html>Bad gateway</html>"),
                (200, b"<html>Sign in</html>"),
                (200, b"[]"),
                (200, b'{"status":"success"}'),
                (200, b'{"status":"success","data":{"resultType":"matrix","result":[]}}'),
                (200, b'{"status":"success","data":{"resultType":"vector","result":{}}}'),
            ]
        ),
    ],
)
def test_responses_that_are_no_result(start: Start, status: int, body: bytes, text: str) -> None:
    """If a server refuses a query or is no Prometheus, the error states what happened and what to do."""
    web = start(with_body(body, status))
    assert error_of(web.url) == f"Prometheus at HOST {text}"


@pytest.mark.parametrize("series", [1, {}, {"metric": {}}, {"metric": {}, "value": [0, "much"]}])
def test_a_series_without_a_value(start: Start, series: object) -> None:
    """A response that contains anything but series with values is an error."""
    web = start(answer("vector", [series]))
    assert "something other than Prometheus's JSON. Set" in error_of(web.url)


def test_a_response_without_an_end(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response that is larger than any that gpuwidget requests is not read to its end."""
    monkeypatch.setattr(client, "_MAX_BYTES", 1024**2)

    def respond(handler: BaseHTTPRequestHandler, _: dict[str, str]) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(bytes(1 << 16))
        except OSError:
            pass

    text = error_of(start(respond).url)
    assert "more than 1 MiB" in text
    assert "prometheus_matchers" in text


def test_slow_servers(start: Start) -> None:
    """A query ends after the time-out if the server never answers or answers byte by byte, with an error or
    without."""
    ended = threading.Event()

    def nothing(handler: BaseHTTPRequestHandler, _: dict[str, str]) -> None:
        ended.wait(20)

    def drip(handler: BaseHTTPRequestHandler, _: dict[str, str], status: int = 200) -> None:
        handler.send_response(status)
        handler.end_headers()
        try:
            while not ended.wait(0.05):
                handler.wfile.write(b" ")
        except OSError:
            pass

    try:
        for respond in (nothing, drip, partial(drip, status=503)):
            text = error_of(start(respond).url, timeout_s=1)
            assert text.startswith("Prometheus at HOST has not answered within 1 s.")
            assert "prometheus_timeout" in text
    finally:
        ended.set()


def test_nobody_listens() -> None:
    """If no server listens at the address, the error has the reason."""
    assert error_of(f"http://127.0.0.1:{free_ports(1)[0]}").startswith(
        "Prometheus at HOST can't be reached (Connection refused)."
    )


def test_an_answer_that_is_no_http(start: Start) -> None:
    """If something else than a web server listens, the error has the reason."""

    def respond(handler: BaseHTTPRequestHandler, _: dict[str, str]) -> None:
        handler.wfile.write(b"SSH-2.0-OpenSSH\r\n")

    text = error_of(start(respond).url)
    assert text.startswith("Prometheus at HOST can't be reached (SSH-2.0-OpenSSH).")
