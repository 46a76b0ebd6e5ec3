"""Start a Jupyter server with kernels, and measure its response time for requests unrelated to GPUs."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

_READY_S = 60.0
_PAUSE_S = 0.01
_KERNEL = "gpuwidget-benchmark"


@dataclass(frozen=True)
class Server:
    """A running Jupyter server: its address as host:port, its token and its process id."""

    address: str
    token: str
    pid: int

    def start_notebooks(self, count: int) -> list[int]:
        """Start ``count`` notebooks and return the process ids of their kernels. Raises RuntimeError on
        failure."""
        for number in range(count):
            name = f"notebook-{number}.ipynb"
            wanted = {"path": name, "name": name, "type": "notebook", "kernel": {"name": _KERNEL}}
            connection = http.client.HTTPConnection(self.address, timeout=_READY_S)
            connection.request("POST", "/api/sessions", json.dumps(wanted), self._headers)
            answer = connection.getresponse()
            said = answer.read()
            connection.close()
            if answer.status != http.client.CREATED:
                raise RuntimeError(f"the Jupyter server starts no kernel: {answer.status} {said!r}")
        pids = [child.pid for child in psutil.Process(self.pid).children() if _KERNEL in child.cmdline()]
        if len(pids) != count:
            raise RuntimeError(f"of {count} kernels {len(pids)} are alive")
        return pids

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"token {self.token}"}

    def status_times(self, window_s: float) -> list[float]:
        """Repeat ``GET /api/status`` for ``window_s`` seconds and return the milliseconds of each request.

        At least one request is made. All requests use one connection, as in a browser. Raises OSError if the
        server does not answer, and RuntimeError if it returns an error status.
        """
        connection = http.client.HTTPConnection(self.address, timeout=_READY_S)
        times: list[float] = []
        until = time.perf_counter() + window_s
        while not times or time.perf_counter() < until:
            began = time.perf_counter()
            connection.request("GET", "/api/status", headers=self._headers)
            answer = connection.getresponse()
            answer.read()
            times.append(1000 * (time.perf_counter() - began))
            if answer.status != http.client.OK:
                raise RuntimeError(f"the Jupyter server answers {answer.status}")
            time.sleep(_PAUSE_S)
        connection.close()
        return times


@contextmanager
def server(
    folder: Path,
    extension: str,
    variables: Mapping[str, str],
    *,
    python: str = sys.executable,
    options: Sequence[str] = (),
) -> Iterator[Server]:
    """Run a Jupyter server with the interpreter ``python``, with ``extension`` enabled and with ``options``.

    A context manager: the server ends with the block. Its home folders are empty and lie in ``folder``. Its
    environment consists of ``variables`` and the variables for the home folders and the token.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, token = f"127.0.0.1:{port}", secrets.token_hex(16)
    homes = {
        name: str(folder / name.lower())
        for name in ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    for home in homes.values():
        Path(home).mkdir()
    kernel = Path(homes["JUPYTER_DATA_DIR"]) / "kernels" / _KERNEL / "kernel.json"
    kernel.parent.mkdir(parents=True)
    waits = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); signal.pause()"
    program = [python, "-c", waits, _KERNEL, "{connection_file}"]
    kernel.write_text(json.dumps({"argv": program, "display_name": _KERNEL, "language": "python"}))
    command = [
        *(python, "-m", "jupyter_server", "--no-browser", "--allow-root"),
        *(f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--ServerApp.log_level=ERROR"),
        *(f"--ServerApp.root_dir={folder}", f"--ServerApp.jpserver_extensions={{'{extension}': True}}"),
        *options,
    ]
    process = subprocess.Popen(command, env={**variables, **homes, "JUPYTER_TOKEN": token})
    started = Server(address, token, process.pid)
    try:
        _wait_until_ready(process, started)
        yield started
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], started: Server) -> None:
    deadline = time.monotonic() + _READY_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            started.status_times(0.0)
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the Jupyter server did not start")
