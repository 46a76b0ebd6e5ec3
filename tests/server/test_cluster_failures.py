"""If Prometheus fails, is slow or refuses, only the cluster view is affected, and it shows the reason."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeClock
from helpers_http import WebServer, send, write_certificate
from helpers_server import Server

TOKEN = "t0ken-of-prometheus"
TIME = 1_000_000.0


class FakePrometheus:
    """A Prometheus with one GPU, whose answers a test can delay or replace by an error."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.status = 200
        self.utilization = 97
        self.hour_fails = False
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.web = WebServer(self._respond, certificate)

    @property
    def queries(self) -> list[str]:
        return [form["query"] for _, _, form in self.web.requests]

    def _respond(self, handler: BaseHTTPRequestHandler, form: dict[str, str]) -> None:
        self.may_answer.wait(20)
        is_hour = "time()" not in form["query"].partition(" or ")[0]
        if self.status != 200 or (is_hour and self.hour_fails):
            send(
                handler, b'{"status":"error","error":"too much"}', self.status if self.status != 200 else 503
            )
            return
        result: list[Any] = []
        if not is_hour:
            gpu = {"exporter": "dcgm", "uuid": "GPU-a", "Hostname": "gpu1", "gpu": "0", "job": "dcgm"}
            values = (
                ({"metric": "time"}, TIME),
                (gpu, TIME),
                ({"metric": "utilization", "uuid": "GPU-a"}, self.utilization),
            )
            result = [{"metric": labels, "value": [TIME, str(value)]} for labels, value in values]
        body = {"status": "success", "data": {"resultType": "vector", "result": result}}
        send(handler, json.dumps(body).encode())


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    """A fake Prometheus, stopped after the test."""
    made = FakePrometheus()
    yield made
    made.may_answer.set()
    made.web.stop()


@pytest.fixture
def configuration(prometheus: FakePrometheus) -> dict[str, object]:
    """The server queries the fake Prometheus."""
    return {"prometheus_url": prometheus.web.url}


async def cluster(server: Server) -> Any:
    """Return the answer of ``GET api/cluster``."""
    status, answer = await server.get("cluster")
    assert status == 200
    return answer


def address(prometheus: FakePrometheus) -> str:
    return prometheus.web.url.removeprefix("http://")


async def test_all_clients_share_a_query(
    server: Server, prometheus: FakePrometheus, clock: FakeClock
) -> None:
    """Within a scrape interval, Prometheus is queried once for all clients; without clients, not at all."""
    assert prometheus.queries == []
    assert (await server.stream()) is not None
    assert prometheus.queries == []
    for _ in range(5):
        answer = await cluster(server)
    assert answer["gpus"][0]["utilization"] == 97
    assert len(prometheus.queries) == 2
    prometheus.utilization = 5
    clock.advance(4.4)
    assert (await cluster(server))["gpus"][0]["utilization"] == 97
    clock.advance(0.2)
    assert (await cluster(server))["gpus"][0]["utilization"] == 5
    assert len(prometheus.queries) == 3


async def test_the_last_values_stay_with_the_reason(
    server: Server, prometheus: FakePrometheus, clock: FakeClock
) -> None:
    """If Prometheus fails, clients keep the last values with the reason, what to do and the values' age. When
    it answers again, there is no problem any more."""
    good = await cluster(server)
    assert good["problem"] is None
    prometheus.status = 503
    clock.advance(40)
    failed = await cluster(server)
    assert failed == {**good, "problem": failed["problem"]}
    assert failed["problem"].startswith(f"Prometheus at {address(prometheus)} could not answer")
    assert "(status 503: too much)" in failed["problem"]
    assert failed["problem"].endswith(" 40 s old.")
    clock.advance(260)
    assert (await cluster(server))["problem"].endswith(" 5 min old.")
    prometheus.status = 200
    clock.advance(5)
    assert await cluster(server) == good


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (401, "has refused the request because of its lack of a token (status 401). Check the token in"),
        (302, "redirects to another address (status 302). gpuwidget does not follow redirects"),
        (404, "has answered with something other than Prometheus's JSON (status 404)."),
    ],
)
async def test_a_prometheus_that_never_answered(
    server: Server, prometheus: FakePrometheus, status: int, text: str
) -> None:
    """If Prometheus refuses from the start, the view has the reason and no values."""
    prometheus.status = status
    answer = await cluster(server)
    assert (answer["time"], answer["nodes"], answer["gpus"]) == (None, [], [])
    assert answer["problem"].startswith(f"Prometheus at {address(prometheus)} {text}")


async def test_the_last_hour_may_fail_alone(server: Server, prometheus: FakePrometheus) -> None:
    """If only the query for the last hour fails, the newest values are shown, and the
    problem names what is not up to date."""
    prometheus.hour_fails = True
    answer = await cluster(server)
    assert answer["gpus"][0]["utilization"] == 97
    assert "last hour are not up to date. Prometheus at " in answer["problem"]


async def test_a_slow_prometheus_delays_nobody_else(
    server: Server, prometheus: FakePrometheus, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While Prometheus does not answer, a request for the cluster returns what there is, other requests are
    answered as usual, and no second query is sent."""
    monkeypatch.setattr("gpuwidget.server.cluster_monitor._MAX_WAIT_S", 0.05)
    prometheus.may_answer.clear()
    for _ in range(3):
        answer = await cluster(server)
        assert (answer["time"], answer["gpus"]) == (None, [])
        assert answer["problem"].endswith("not answered yet.")
        clock.advance(100)
    assert len(prometheus.queries) <= 1
    before = time.monotonic()
    assert (await server.fetch("api", "status")).code == 200
    assert time.monotonic() - before < 10
    prometheus.may_answer.set()
    while (await cluster(server))["problem"] is not None:
        clock.advance(1)


class TestCredentials:
    """A Prometheus that requires a token and whose certificate is signed by a private authority."""

    @pytest.fixture
    def certificate(self, tmp_path: Path) -> Path:
        return write_certificate(tmp_path / "prometheus.pem")

    @pytest.fixture
    def prometheus(self, certificate: Path) -> Iterator[FakePrometheus]:
        made = FakePrometheus(certificate)
        yield made
        made.web.stop()

    @pytest.fixture
    def configuration(
        self, prometheus: FakePrometheus, certificate: Path, tmp_path: Path
    ) -> dict[str, object]:
        token = tmp_path / "token"
        token.write_text(f"{TOKEN}\n")
        return {
            "prometheus_url": prometheus.web.url,
            "prometheus_ca_file": str(certificate),
            "prometheus_token_file": str(token),
        }

    async def test_token_and_authority_are_used(
        self, server: Server, prometheus: FakePrometheus, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The server authenticates itself with the token of the file to a server that the file of authorities
        certifies. Neither the answer nor the log contains the token."""
        answer = await cluster(server)
        assert answer["problem"] is None
        assert {headers["Authorization"] for _, headers, _ in prometheus.web.requests} == {f"Bearer {TOKEN}"}
        assert TOKEN not in json.dumps(answer)
        assert TOKEN not in caplog.text


class TestInvalidSettings:
    """A server with settings that can't be used."""

    @pytest.mark.parametrize(
        ("configuration", "logged_text"),
        [
            (
                {"prometheus_url": "http://me:secret@example.org"},
                "GpuWidget.prometheus_url can't be used: it contains a user name or password, which logs "
                "would show; use prometheus_token_file. Give the address under which /api/v1/query "
                "lies, such as https://prometheus.example.org:9090. There is no cluster view.",
            ),
            (
                {"prometheus_url": "http://127.0.0.1:9", "prometheus_matchers": 'a="b"} or up{c="d"'},
                "GpuWidget.prometheus_matchers can't be used: give label matchers as PromQL has them, "
                'separated by commas, such as cluster="a",env=~"prod|dev". There is no cluster view.',
            ),
        ],
    )
    async def test_there_is_no_cluster_view(
        self, server: Server, configuration: dict[str, object], logged: list[str], logged_text: str
    ) -> None:
        """With an invalid address or matchers, the log has the reason and there is no cluster view: without
        its matchers, it would show more machines than users may see."""
        assert (await server.get("cluster"))[0] == 404
        assert "gpuwidgetCluster" not in server.app.web_app.settings.get("page_config_data", {})
        assert logged == [logged_text]
