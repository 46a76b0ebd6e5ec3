"""The set-ups in deploy/ run: the container's and Prometheus's start commands, and a real nginx in front.

The commands are those in the container recipe and in the compose file, with the paths, ports and host names
of the test.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers_http import write_certificate
from helpers_jupyter import Service, fetch, jupyter_variables
from helpers_programs import free_ports, skip
from helpers_prometheus import DEPLOY, find_programs
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tools import nginx

TOKEN = "jupyter-0f1e2d3c4b5a6978"
METRICS_TOKEN = "metrics-8f7e6d5c4b3a2918"
HOST = "127.0.0.1"
FORBIDDEN_HOST = "127.0.0.2"
"""An address of this machine that is not in nginx's list of the monitoring network."""


class Jupyter(Service):
    """A Jupyter server, started by the container's command with the container's configuration."""

    def __init__(self, folder: Path) -> None:
        self.port = free_ports(1)[0]
        workspace = folder / "workspace"
        workspace.mkdir()
        (workspace / "kept.ipynb").write_text("{}")
        for name, token in (("jupyter_token", TOKEN), ("metrics_token", METRICS_TOKEN)):
            (folder / name).write_text(f"{token}\n")
            (folder / name).chmod(0o400)
        variables = jupyter_variables(
            folder,
            GPUWIDGET_SOURCE="replay",
            JUPYTER_TOKEN_FILE=str(folder / "jupyter_token"),
            GPUWIDGET_METRICS_TOKEN_FILE=str(folder / "metrics_token"),
        )
        configuration = (DEPLOY / "jupyter_server_config.py").read_text(encoding="utf-8")
        assert "0.0.0.0" in configuration
        configuration = (
            configuration.replace("/workspace", str(workspace))
            .replace("8888", str(self.port))
            .replace("0.0.0.0", "127.0.0.1")
        )
        if os.geteuid() == 0:  # The container's user is not root.
            configuration += "c.ServerApp.allow_root = True\n"
        (folder / "config" / "jupyter_server_config.py").write_text(configuration, encoding="utf-8")
        recipe = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
        *_, command = re.findall(r"^CMD (\[.*\])$", recipe, re.MULTILINE)
        (check,) = re.findall(r"^  CMD (\[.*\])$", recipe, re.MULTILINE)
        self._check = json.loads(check.replace("8888", str(self.port)))
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__(json.loads(command), folder, f"{self.url}/api", variables)

    def is_healthy(self) -> bool:
        """Return whether the container's health check succeeds."""
        command = [sys.executable, *self._check[1:]]
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """Return the container's Jupyter server."""
    server = Jupyter(tmp_path_factory.mktemp("jupyter"))
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


def with_token(token: str) -> dict[str, str]:
    """Return the header that sends a token as Prometheus does."""
    return {"Authorization": f"Bearer {token}"}


def test_the_container_starts(jupyter: Jupyter) -> None:
    """The container's command serves the workspace to whoever has the token, and the metrics to whoever has
    the metrics token. Neither token is in the log."""
    assert fetch(f"{jupyter.url}/api/contents")[0] == 403
    status, _, text = fetch(f"{jupyter.url}/api/contents", {"Authorization": f"token {TOKEN}"})
    assert (status, [one["name"] for one in json.loads(text)["content"]]) == (200, ["kept.ipynb"])
    assert fetch(f"{jupyter.url}/lab")[0] == 302
    assert fetch(f"{jupyter.url}/gpuwidget/metrics", with_token(METRICS_TOKEN))[0] == 200
    assert fetch(f"{jupyter.url}/api/contents", with_token(METRICS_TOKEN))[0] == 403
    assert METRICS_TOKEN not in jupyter.log
    assert TOKEN not in jupyter.log
    assert re.findall(r"GpuWidget.*", jupyter.log) == []  # such as an unknown setting


def test_the_containers_health_check(jupyter: Jupyter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The health check succeeds while the server answers, and fails if nothing listens."""
    assert jupyter.is_healthy()
    monkeypatch.setattr(
        jupyter, "_check", json.loads(json.dumps(jupyter._check).replace(str(jupyter.port), "9"))
    )
    assert not jupyter.is_healthy()


# -- Prometheus ----------------------------------------------------------------------------------------------


def substituted(text: str, replacements: dict[str, str]) -> str:
    """Return the text with all replacements, each of which must occur."""
    for old, new in replacements.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def monitoring(jupyter: Jupyter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a Prometheus that was started by the compose file's command, and scrapes."""
    programs = find_programs()
    folder = tmp_path_factory.mktemp("prometheus")
    for path in (DEPLOY / "prometheus").iterdir():
        (folder / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "token").write_text(METRICS_TOKEN)
    configuration = substituted(
        (folder / "prometheus.yml").read_text(),
        {
            "jupyter:8888": f"127.0.0.1:{jupyter.port}",
            "/run/secrets/prometheus_token": str(folder / "token"),
            "15s": "1s",
        },
    )
    (folder / "prometheus.yml").write_text(configuration)
    checked = [programs["promtool"], "check", "config", str(folder / "prometheus.yml")]
    done = subprocess.run(checked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    arguments = [
        one.replace("=/etc/prometheus/", f"={folder}/").replace("=/prometheus", f"={folder / 'data'}")
        for one in compose["services"]["prometheus"]["command"]
    ]
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [programs["prometheus"], *arguments, f"--web.listen-address={address}"]
    service = Service(command, folder, f"http://{address}/-/ready")
    try:
        service.wait_until_ready()
        yield f"http://{address}"
    finally:
        service.stop()


async def until(address: str, holds: Any) -> Any:
    """Request the address until ``holds`` is true of its data, and return the data."""
    for _ in range(300):
        data = json.loads((await asyncio.to_thread(fetch, address))[2])["data"]
        if holds(data):
            return data
        await asyncio.sleep(0.1)
    raise AssertionError(data)


async def test_the_compose_files_prometheus_scrapes_jupyter(monitoring: str) -> None:
    """Prometheus, started by the compose file's command with its configuration, scrapes the server with the
    metrics token, and loads all rules."""
    data = await until(
        f"{monitoring}/api/v1/query?query=up",
        lambda found: [one["value"][1] for one in found["result"]] == ["1"],
    )
    assert data["result"][0]["metric"] == {"__name__": "up", "instance": "jupyter", "job": "gpuwidget"}
    groups = (await until(f"{monitoring}/api/v1/rules", bool))["groups"]
    assert {group["file"].rpartition("/")[2] for group in groups} == {"alerts.yml", "recording-rules.yml"}


def test_the_scrape_configuration_for_kubernetes_is_valid(tmp_path: Path) -> None:
    """promtool accepts the scrape configuration for Kubernetes. Debian's has no service discovery for
    Kubernetes, so static targets take its place."""
    programs = find_programs()
    text = (DEPLOY / "kubernetes" / "prometheus-scrape.yml").read_text(encoding="utf-8")
    configuration = yaml.safe_load(text)
    for job in configuration["scrape_configs"]:
        assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
        job["static_configs"] = [{"targets": ["localhost:1"]}]
    path = tmp_path / "prometheus.yml"
    path.write_text(json.dumps(configuration))
    checked = [programs["promtool"], "check", "config", "--syntax-only", str(path)]
    done = subprocess.run(checked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# -- nginx ---------------------------------------------------------------------------------------------------

MAIN = """
pid {folder}/nginx.pid;
error_log {folder}/main-error.log;
events {{}}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/gpuwidget.conf;
}}
"""
"""A main configuration as Debian's, which includes the files in conf.d, for a user without root."""


class Nginx(Service):
    """A real nginx with deploy/nginx in front of a Jupyter server."""

    def __init__(self, program: str, folder: Path, jupyter: Jupyter) -> None:
        certificate = write_certificate(folder / "certificate.pem")
        http, https = free_ports(2)
        text = substituted(
            (DEPLOY / "nginx" / "gpuwidget.conf").read_text(encoding="utf-8"),
            {
                "gpu.example.org.pem": "certificate.pem",
                "gpu.example.org.key": "certificate.pem",
                "/etc/ssl/certs/": f"{folder}/",
                "/etc/ssl/private/": f"{folder}/",
                "/var/log/nginx/": f"{folder}/",
                "gpu.example.org": HOST,
                "127.0.0.1:8888": f"127.0.0.1:{jupyter.port}",
                "listen 80;": f"listen 127.0.0.1:{http};",
                "listen 443 ssl;": f"listen 127.0.0.1:{https} ssl;",
            },
        )
        (folder / "gpuwidget.conf").write_text(text, encoding="utf-8")
        (folder / "nginx.conf").write_text(MAIN.format(folder=folder))
        self.folder = folder
        self.http = f"http://{HOST}:{http}"
        self.https = f"https://{HOST}:{https}"
        self.port = https
        self.context = ssl.create_default_context(cafile=str(certificate))
        files = ["-e", str(folder / "main-error.log"), "-c", str(folder / "nginx.conf")]
        super().__init__([program, *files, "-g", "daemon off;"], folder, self.http)

    def fetch(self, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
        """Return the answer to a request over TLS, with the certificate verified."""
        return fetch(f"{self.https}{path}", headers, self.context)

    def log_with(self, line: str) -> str:
        """Return the access log once it contains ``line``. nginx writes it after it has sent the answer."""
        deadline = time.monotonic() + 30
        while line not in (log := (self.folder / "gpuwidget.log").read_text()):
            assert time.monotonic() < deadline, log
            time.sleep(0.1)
        return log

    def status_from(self, source: str, path: str, headers: dict[str, str]) -> int:
        """Return the status of the answer to a request from another address of this machine."""
        connection = HTTPSConnection(HOST, self.port, context=self.context, source_address=(source, 0))
        try:
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()


@pytest.fixture(scope="module")
def proxy(jupyter: Jupyter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    """Return the nginx in front of the container's Jupyter server."""
    program = nginx.find()
    if program is None:
        skip(nginx.MISSING)
    made = Nginx(program, tmp_path_factory.mktemp("nginx"), jupyter)
    try:
        made.wait_until_ready()
        yield made
    finally:
        made.stop()


def test_the_page_comes_over_tls(proxy: Nginx) -> None:
    """JupyterLab is reachable over TLS alone: an address without TLS is redirected, and there is no page
    without a login. The proxy's log contains no token."""
    status, headers, _ = fetch(f"{proxy.http}/lab?a=b")
    assert (status, headers["location"]) == (301, f"https://{HOST}/lab?a=b")
    assert proxy.fetch("/lab")[0] == 302
    status, headers, page = proxy.fetch(f"/lab?token={TOKEN}")
    assert (status, "jupyter-config-data" in page) == (200, True)
    assert headers["strict-transport-security"] == "max-age=31536000"
    assert TOKEN not in proxy.log_with('"GET /lab HTTP/1.1" 200')


async def test_samples_arrive_through_the_proxy(proxy: Nginx) -> None:
    """The stream of samples arrives through the proxy over TLS, message by message. A page behind the proxy
    can open it with Jupyter's cookie, a page of another site can't."""
    address = f"{proxy.https.replace('https', 'wss')}/gpuwidget/api/stream"

    async def stream(**headers: str) -> WebSocketClientConnection:
        return await websocket_connect(HTTPRequest(address, headers=headers, ssl_options=proxy.context))

    socket = await stream(Authorization=f"token {TOKEN}")
    messages = [json.loads(str(await asyncio.wait_for(socket.read_message(), 30))) for _ in range(3)]
    assert messages[0]["type"] == "hello"
    assert {message["type"] for message in messages[1:]} <= {"sample", "changes", "usage"}
    socket.close()
    cookies = proxy.fetch(f"/lab?token={TOKEN}")[1]["set-cookie"].splitlines()
    cookie = "; ".join(one.partition(";")[0] for one in cookies)
    (await stream(Cookie=cookie, Origin=proxy.https)).close()
    with pytest.raises(HTTPClientError) as refused:
        await stream(Cookie=cookie, Origin="https://elsewhere.example")
    assert refused.value.code == 403


def test_metrics_are_open_to_the_monitoring_network(proxy: Nginx) -> None:
    """Through the proxy, the metrics are open to the addresses in its configuration, and only with a token.
    Other addresses are refused, with whatever token and however the path is written."""
    status, _, text = proxy.fetch("/gpuwidget/metrics", **with_token(METRICS_TOKEN))
    assert (status, "gpuwidget_gpu_up{" in text) == (200, True)
    assert proxy.fetch("/gpuwidget/metrics")[0] == 403
    paths = [
        "/gpuwidget/metrics",
        "/gpuwidget/metrics/",
        "/gpuwidget/%6Detrics",
        "/user/anna/gpuwidget/metrics",
    ]
    for token in (METRICS_TOKEN, TOKEN):
        assert [proxy.status_from(FORBIDDEN_HOST, path, with_token(token)) for path in paths] == [403] * 4
    assert (
        proxy.status_from(FORBIDDEN_HOST, "/gpuwidget/api/sample", {"Authorization": f"token {TOKEN}"}) == 200
    )
