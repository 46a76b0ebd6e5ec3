"""A real JupyterHub on this machine, with jupyterhub-idle-culler and a server per user."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from helpers_programs import RunningProgram, free_ports

from gpuwidget.model.boundary import STRICT_VARIABLE

PROXY = Path(__file__).parents[1] / "node_modules" / ".bin" / "configurable-http-proxy"
_PATIENCE_S = 240.0
_POLL_S = 0.25

_SERVER_CONFIG = """
from gpuwidget.system import processes

# The stand-in for NVML lists process ids of this container.
processes.in_host_pid_namespace = lambda: True
"""


class JupyterHub(RunningProgram):
    """A running JupyterHub whose data is in ``folder``. Its log has the lines of the users' servers too.

    ``environment`` is added to that of the users' servers, and ``arguments`` to their command lines. A server
    is ended after ``timeout_s`` seconds without activity.
    """

    def __init__(
        self, folder: Path, environment: Mapping[str, str], arguments: list[str], timeout_s: float
    ) -> None:
        self._token = secrets.token_hex(16)
        public, hub, proxy = free_ports(3)
        self._url = f"http://127.0.0.1:{public}"
        for name in ("config", "homes", "runtime"):
            (folder / name).mkdir()
        (folder / "config" / "jupyter_server_config.py").write_text(_SERVER_CONFIG)
        culler = [
            sys.executable,
            "-m",
            "jupyterhub_idle_culler",
            f"--timeout={timeout_s:g}",
            "--cull-every=1",
        ]
        scopes = ["list:users", "read:users:activity", "read:servers", "delete:servers"]
        settings: dict[str, Any] = {
            "JupyterHub.bind_url": self._url,
            "JupyterHub.hub_bind_url": f"http://127.0.0.1:{hub}",
            "JupyterHub.db_url": "sqlite:///:memory:",
            "JupyterHub.cookie_secret_file": str(folder / "secret"),
            "JupyterHub.authenticator_class": "dummy",
            "JupyterHub.spawner_class": "simple",
            "JupyterHub.cleanup_servers": True,
            "JupyterHub.services": [
                {"name": "idle-culler", "command": culler},
                {"name": "test", "api_token": self._token},
            ],
            "JupyterHub.load_roles": [
                {"name": "idle-culler", "scopes": scopes, "services": ["idle-culler"]},
                {
                    "name": "test",
                    "scopes": ["admin:users", "admin:servers", "access:servers"],
                    "services": ["test"],
                },
            ],
            "Authenticator.allow_all": True,
            "DummyAuthenticator.password": secrets.token_hex(16),
            "ConfigurableHTTPProxy.command": [str(PROXY)],
            "ConfigurableHTTPProxy.api_url": f"http://127.0.0.1:{proxy}",
            "ConfigurableHTTPProxy.pid_file": str(folder / "proxy.pid"),
            "SimpleLocalProcessSpawner.home_dir_template": str(folder / "homes" / "{username}"),
            # Without a terminal, a server does not end on SIGINT. The Hub would wait before it sends SIGTERM.
            "LocalProcessSpawner.interrupt_timeout": 1,
            "Spawner.args": ["--allow-root", *arguments],
            "Spawner.environment": {
                "JUPYTER_CONFIG_DIR": str(folder / "config"),
                "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
                "JUPYTERHUB_ACTIVITY_INTERVAL": "2",
                STRICT_VARIABLE: os.environ[STRICT_VARIABLE],
                **environment,
            },
        }
        config = folder / "jupyterhub_config.py"
        config.write_text("".join(f"c.{name} = {value!r}\n" for name, value in settings.items()))
        super().__init__(
            [sys.executable, "-m", "jupyterhub", f"--config={config}"],
            folder / "hub.log",
            folder=folder,
            environment={"PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"},
        )

    def request(self, path: str, method: str = "GET", body: object = None) -> Any:
        """Send a request with the right to administer, and return the decoded reply; None if it is empty."""
        request = urllib.request.Request(
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self._token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def until(self, happened: Callable[[], Any]) -> Any:
        """Wait until the function returns a true value, and return it. A failed request is repeated."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                if result := happened():
                    return result
            except (urllib.error.URLError, OSError):
                pass
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"what was waited for has not happened:\n{self.log}")
            time.sleep(_POLL_S)

    def start_server(self, user: str) -> None:
        """Start the server of a new user, and wait until it is ready."""
        self.until(lambda: self.request("/hub/api/"))
        self.request(f"/hub/api/users/{user}", "POST")
        self.request(f"/hub/api/users/{user}/server", "POST")
        self.until(lambda: self.is_ready(user))

    def is_ready(self, user: str) -> bool:
        """Return whether the Hub lists the user's server as ready."""
        servers = self.request(f"/hub/api/users/{user}")["servers"]
        return bool(servers) and servers[""]["ready"] is True

    def start_kernel(self, user: str) -> str:
        """Start a kernel without a connection, and return its id. This counts as activity of the server."""
        kernel: str = self.request(f"/user/{user}/api/kernels", "POST", {"name": "python3"})["id"]
        return kernel

    def kernels(self, user: str) -> list[str]:
        """Return the ids of the user's kernels. This counts as activity of the server."""
        return [kernel["id"] for kernel in self.request(f"/user/{user}/api/kernels")]
