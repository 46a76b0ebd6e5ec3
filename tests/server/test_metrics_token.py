"""The metrics token opens gpuwidget/metrics for Prometheus, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers_jupyter import Service, fetch, jupyter_variables
from helpers_programs import free_ports
from helpers_server import Server
from server.test_routes import registered
from tornado.httpclient import HTTPClientError

from gpuwidget.server.metrics_token import MetricsToken

TOKEN = "e0f6a7c2d3b84915"
NEW_TOKEN = "91d2c3b4a5968778"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """Return a file with the token, which only its owner can read."""
    path = tmp_path / "metrics.token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def configuration(token_file: Path) -> dict[str, object]:
    """Configure the token's file."""
    return {"metrics_token_file": str(token_file)}


async def status(server: Server, *path: str, method: str = "GET", **headers: str) -> int:
    """Send a request with these headers, and return the status of the reply. The fake clock advances."""
    body = None if method in ("GET", "HEAD") else ""
    asked = asyncio.ensure_future(
        server.fetch(
            *path,
            method=method,
            body=body,
            headers=headers,
            allow_nonstandard_methods=True,
            follow_redirects=False,
        )
    )
    # Most replies do not depend on the clock, and come sooner than the clock would advance.
    await asyncio.wait({asked}, timeout=0.02)
    await server.until(asked.done)
    error = asked.exception()
    if isinstance(error, HTTPClientError):
        return error.code
    return int(asked.result().code)


def paths(server: Server) -> list[str]:
    """Return a path for each of gpuwidget's and of Jupyter's own routes, relative to the base URL."""
    rules = [rule for group in server.app.web_app.default_router.rules for rule in group.target.rules]
    rules += server.app.web_app.wildcard_router.rules
    # Tornado gives a path for each pattern that is simple enough, with %s for each of its groups.
    simple = [path for rule in rules if (path := getattr(rule.matcher, "_path", None)) is not None]
    found = {path.replace("%s", "x").removeprefix(server.app.base_url).strip("/") for path in simple}
    return sorted(found | {path for path, _ in registered(server)})


async def test_the_token_opens_the_metrics(
    server: Server, jp_auth_header: dict[str, str], logged: list[str], jp_logging_stream: Any
) -> None:
    """Prometheus gets the metrics with ``Authorization: Bearer TOKEN``, and gets no cookie.
    Jupyter's own token keeps working. Another token, another scheme and a token in the URL are refused."""
    own = dict(jp_auth_header)
    jp_auth_header.clear()
    path = ("gpuwidget", "metrics")
    assert await status(server, *path, Authorization=f"Bearer {TOKEN}") == 200
    assert await status(server, *path, Authorization=f"bearer  {TOKEN} ") == 200
    answer = await server.fetch(*path, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.headers.get_list("Set-Cookie") == []
    assert await status(server, *path, **own) == 200
    for refused in (
        f"Bearer {TOKEN}0",
        f"Bearer {TOKEN[:-1]}",
        "Bearer",
        "Bearer  ",
        f"token {TOKEN}",
        TOKEN,
        "",
    ):
        assert await status(server, *path, Authorization=refused) == 403, refused
    assert await status(server, *path) == 403
    with pytest.raises(HTTPClientError) as error:
        await server.fetch(*path, params={"token": TOKEN})
    assert error.value.code == 403
    assert logged == []
    assert TOKEN not in jp_logging_stream.getvalue()


async def test_the_token_opens_nothing_else(server: Server, jp_auth_header: dict[str, str]) -> None:
    """Every route of the server, Jupyter's own included, treats the metrics token like a wrong one.
    The only exception is GET gpuwidget/metrics."""
    jp_auth_header.clear()
    walked = paths(server)
    assert {"gpuwidget/api/sample", "gpuwidget/api/doctor", "gpuwidget/metrics", "api/kernels"} <= set(walked)
    opened = [
        (path, method)
        for path in walked
        for method in METHODS
        if await status(server, *path.split("/"), method=method, Authorization=f"Bearer {TOKEN}")
        != await status(server, *path.split("/"), method=method, Authorization="Bearer wrong")
    ]
    assert opened == [("gpuwidget/metrics", "GET")]
    for path in ("gpuwidget/api/sample", "gpuwidget/api/history", "api/kernels", "api/contents", "api/me"):
        assert await status(server, *path.split("/"), Authorization=f"Bearer {TOKEN}") == 403


async def test_no_authorizer_is_called(server: Server, jp_auth_header: dict[str, str]) -> None:
    """The token permits the metrics by itself. An authorizer, which may expect one of its own users, is not
    called; with Jupyter's token it is."""

    async def deny(*_: object) -> bool:
        return False

    server.app.authorizer.is_authorized = deny
    own = dict(jp_auth_header)
    jp_auth_header.clear()
    assert await status(server, "gpuwidget", "metrics", Authorization=f"Bearer {TOKEN}") == 200
    assert await status(server, "gpuwidget", "metrics", **own) == 403


async def test_the_token_is_checked_for_a_local_host(server: Server, jp_auth_header: dict[str, str]) -> None:
    """Where Jupyter refuses requests for another host name, it refuses them with the token too."""
    jp_auth_header.clear()
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": "elsewhere.example"}
    assert await status(server, "gpuwidget", "metrics", **headers) == 403


def test_jupyterhub_does_not_redirect_prometheus(tmp_path: Path, token_file: Path) -> None:
    """A server that authenticates users with JupyterHub answers Prometheus's token without a request to the
    Hub, which is not even running. Without the token it refuses, and does not redirect to a login page."""
    port = free_ports(1)[0]
    extension = "jupyterhub.singleuser.extension"
    # JupyterHub's identity provider changes Jupyter's classes, so the server runs in a separate process.
    server = Service(
        [
            *(sys.executable, "-m", "jupyter", "server", "--no-browser", "--allow-root"),
            f"--ServerApp.port={port}",
            "--ServerApp.base_url=/user/anna/",
            f"--ServerApp.identity_provider_class={extension}.JupyterHubIdentityProvider",
            f"--ServerApp.authorizer_class={extension}.JupyterHubAuthorizer",
            f"--GpuWidget.metrics_token_file={token_file}",
        ],
        tmp_path,
        f"http://127.0.0.1:{port}/user/anna/gpuwidget/metrics",
        jupyter_variables(
            tmp_path,
            GPUWIDGET_SOURCE="replay",
            JUPYTERHUB_API_TOKEN="token-of-this-server",
            JUPYTERHUB_API_URL=f"http://127.0.0.1:{free_ports(1)[0]}/hub/api",
            JUPYTERHUB_CLIENT_ID="jupyterhub-user-anna",
            JUPYTERHUB_HOST="",
            JUPYTERHUB_OAUTH_CALLBACK_URL="/user/anna/oauth_callback",
            JUPYTERHUB_OAUTH_SCOPES='["access:servers!server=anna/"]',
            JUPYTERHUB_SERVICE_PREFIX="/user/anna/",
            JUPYTERHUB_USER="anna",
        ),
    )
    try:
        server.wait_until_ready()
        base = f"http://127.0.0.1:{port}/user/anna"
        status, _, text = fetch(f"{base}/gpuwidget/metrics", {"Authorization": f"Bearer {TOKEN}"})
        assert (status, "gpuwidget_gpu_up{" in text) == (200, True)
        assert fetch(f"{base}/gpuwidget/metrics")[0] == 403
        assert fetch(f"{base}/gpuwidget/api/sample")[0] == 403
        assert TOKEN not in server.log
    finally:
        server.stop()


# -- the token's file --------------------------------------------------------------------------------------


def replace(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace the file at once, as an administrator's tool does."""
    new = path.with_name("new")
    new.write_text(text)
    new.chmod(mode)
    new.replace(path)


def test_a_new_token_replaces_the_old_one(token_file: Path) -> None:
    """After the file has changed, the new token is valid and the old one is not, without a restart."""
    token = MetricsToken(str(token_file), logging.getLogger("test"))
    assert token.matches(f"Bearer {TOKEN}")
    replace(token_file, NEW_TOKEN)
    assert not token.matches(f"Bearer {TOKEN}")
    assert token.matches(f"Bearer {NEW_TOKEN}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "No such file or directory"),
        ("", "it is empty"),
        (" \n", "it is empty"),
        (f"{TOKEN}\n{NEW_TOKEN}\n", "it contains more than one token, or characters that no token has"),
        (f"{TOKEN}é", "it contains more than one token, or characters that no token has"),
        ("a" * 5000, "it contains more than one token, or characters that no token has"),
    ],
)
def test_a_file_that_cannot_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | None, problem: str
) -> None:
    """If the file is missing or contains no single token, every token is refused,
    and the log contains the reason once, without the file's content. Once the file is correct, it is used."""
    path = tmp_path / "token"
    if text is not None:
        replace(path, text)
    token = MetricsToken(str(path), logging.getLogger("test"))
    for sent in (TOKEN, NEW_TOKEN, "", "a" * 5000):
        assert not token.matches(f"Bearer {sent}")
    (message,) = caplog.messages
    assert f" GpuWidget.metrics_token_file, {path}, can't be used: {problem}. " in message
    replace(path, TOKEN)
    assert token.matches(f"Bearer {TOKEN}")
    path.unlink()
    assert not token.matches(f"Bearer {TOKEN}")


def test_a_file_that_others_can_read(token_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If other users can read the file, the log has a warning with the command that corrects that."""
    token_file.chmod(0o640)
    token = MetricsToken(str(token_file), logging.getLogger("test"))
    assert token.matches(f"Bearer {TOKEN}")
    (message,) = caplog.messages
    assert message.startswith("Other users of this machine may read")
    assert message.endswith(f": chmod 600 {token_file}.")


def test_a_symbolic_link_that_changes(tmp_path: Path) -> None:
    """If the file is a link to the current version, as Kubernetes mounts a secret, a new version is used."""
    for name, text in (("1", TOKEN), ("2", NEW_TOKEN)):
        (tmp_path / name).mkdir()
        replace(tmp_path / name / "token", text)
    os.symlink("1", tmp_path / "data")
    os.symlink("data/token", tmp_path / "token")
    token = MetricsToken(str(tmp_path / "token"), logging.getLogger("test"))
    assert token.matches(f"Bearer {TOKEN}")
    os.symlink("2", tmp_path / "new")
    (tmp_path / "new").replace(tmp_path / "data")
    assert token.matches(f"Bearer {NEW_TOKEN}")
    assert not token.matches(f"Bearer {TOKEN}")


def test_without_a_file_there_is_no_token(caplog: pytest.LogCaptureFixture) -> None:
    """If no file is configured, no token is accepted, and nothing is logged."""
    token = MetricsToken("", logging.getLogger("test"))
    assert not token.matches("Bearer ")
    assert not token.matches("Bearer x")
    assert not token.matches(None)
    assert caplog.messages == []
