"""The proxy of a JupyterHub, in front of one server that can be stopped and started again."""

from __future__ import annotations

import json
import secrets
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from helpers_http import LocalServer, send
from helpers_jupyterhub import PROXY
from helpers_lab import Lab
from helpers_programs import RunningProgram, free_ports, skip

BASE = "/user/ada"
"""The path of the user's server."""
_PATIENCE_S = 60.0


class _StoppedServer(BaseHTTPRequestHandler):
    """What a Hub answers for a stopped server: a redirection to the Hub's own page, with the status 424."""

    def do_GET(self) -> None:
        if self.path.startswith("/hub/"):
            send(self, b"<html>Your server is stopped.</html>", 424, Content_Type="text/html")
        else:
            send(self, b"", 302, Location=f"/hub{self.path}")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

    def log_message(self, *_: Any) -> None:
        pass


class Hub:
    """JupyterHub's proxy with a route to ``lab``, whose path must be :data:`BASE`. Pages that ``lab`` opens
    from now on use the proxy."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        if not PROXY.exists():
            skip("configurable-http-proxy is missing: run jlpm install")
        self._hub = LocalServer(_StoppedServer)
        self._lab = lab
        self._target = lab.url.removesuffix(BASE)
        public, api = free_ports(2)
        self._api = f"http://127.0.0.1:{api}/api/routes{BASE}"
        self._token = secrets.token_hex(8)
        self._proxy = RunningProgram(
            [
                *(
                    str(PROXY),
                    "--ip=127.0.0.1",
                    f"--port={public}",
                    "--api-ip=127.0.0.1",
                    f"--api-port={api}",
                ),
                f"--default-target={self._hub.url}",
            ],
            folder / "proxy.log",
            environment={"CONFIGPROXY_AUTH_TOKEN": self._token},
        )
        lab.url = f"http://127.0.0.1:{public}{BASE}"
        self.add_route()

    def add_route(self) -> None:
        """Send requests for the user's server to it, and wait until it answers."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self._request("POST", {"target": self._target})
                break
            except urllib.error.URLError:
                assert time.monotonic() < deadline, self._proxy.log
                time.sleep(0.1)
        self._lab.wait_until_ready()

    def remove_route(self) -> None:
        """Answer requests for the user's server with the Hub's page."""
        self._request("DELETE")

    def stop(self) -> None:
        """Stop the proxy."""
        self._proxy.stop()
        self._hub.stop()

    def _request(self, method: str, body: object = None) -> None:
        request = urllib.request.Request(
            self._api,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self._token}"},
        )
        with urllib.request.urlopen(request, timeout=10):
            pass
