"""A Jupyter server to measure, and how long it takes to answer a request that is none of its extensions'."""

from __future__ import annotations

import http.client
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_READY_S = 60.0
_PAUSE_S = 0.01


@dataclass(frozen=True)
class Server:
    """Where it listens, as host:port, and its token."""

    address: str
    token: str

    def status_times(self, window_s: float) -> list[float]:
        """Milliseconds of each ``GET /api/status``, one after the other, for so long; at least one.

        Over one connection, as a browser keeps it. Raises OSError where it does not answer and RuntimeError
        where it refuses.
        """
        connection = http.client.HTTPConnection(self.address, timeout=_READY_S)
        times: list[float] = []
        until = time.perf_counter() + window_s
        while not times or time.perf_counter() < until:
            began = time.perf_counter()
            connection.request("GET", "/api/status", headers={"Authorization": f"token {self.token}"})
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
    folder: Path, extension: str, variables: Mapping[str, str], *, python: str = sys.executable
) -> Iterator[Server]:
    """A Jupyter server of ``python`` with that extension on, whose homes are new ones in ``folder``.

    ``variables`` are its whole environment otherwise.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = Server(f"127.0.0.1:{port}", secrets.token_hex(16))
    homes = {
        name: str(folder / name.lower())
        for name in ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    for home in homes.values():
        Path(home).mkdir()
    command = [
        *(python, "-m", "jupyter_server", "--no-browser", "--allow-root"),
        *(f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--ServerApp.log_level=ERROR"),
        *(f"--ServerApp.root_dir={folder}", f"--ServerApp.jpserver_extensions={{'{extension}': True}}"),
    ]
    process = subprocess.Popen(command, env={**variables, **homes, "JUPYTER_TOKEN": started.token})
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
