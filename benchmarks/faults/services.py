"""A Jupyter server, one of its kernels, and the messages that the kernel sends."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import zmq
from jupyter_client.blocking.client import BlockingKernelClient

from benchmarks.faults.instrumentation import ERRORS
from benchmarks.settings import environment

PATIENCE_S = 60.0
"""Seconds after which a process or a reply counts as missing."""
_RETRY_S = 1.0
"""After this time without a reply, a request for the kernel's information is sent again."""
_RECONNECT_S = 20.0
"""If a new kernel has not replied after this time, the client connects again."""
_SPEC = "faults"
_HOMES = ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
_CONFIG = """
from benchmarks.faults import instrumentation
instrumentation.install()
c.GpuWidget.interval = 0.2
"""
"""The server's configuration file."""
_SETUP = """
from benchmarks.faults import instrumentation
instrumentation.install()
%load_ext gpuwidget
"""
"""The first cell of each kernel."""
SHM_BYTES = 1 << 20
"""The size of the kernel's /dev/shm."""
_PRIVATE_SHM = f'mount -t tmpfs -o size={SHM_BYTES} tmpfs /dev/shm && exec "$@"'
"""Runs the program in its arguments with a small /dev/shm. Needs a mount namespace of ``unshare``."""


@dataclass
class Ran:
    """What a kernel has sent for one cell."""

    reply: dict[str, Any] | None = None
    began: float | None = None
    """``time.monotonic()`` when the kernel began to run the cell."""
    ended: float | None = None
    """``time.monotonic()`` when the reply arrived."""
    idle: bool = False
    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """The type and the content of each message that the kernel published."""

    @property
    def complete(self) -> bool:
        """Whether all messages have arrived."""
        return self.reply is not None and self.idle


def private_shm_possible() -> bool:
    """Return whether this user may give a process its own small /dev/shm."""
    command = ["unshare", "-m", "sh", "-c", _PRIVATE_SHM, "sh", "true"]
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


class Services:
    """The server and its kernel. Both can be restarted at any time."""

    def __init__(self, folder: Path, variables: Mapping[str, str], *, private_shm: bool) -> None:
        """Store the settings. ``private_shm`` gives the kernel its own small /dev/shm."""
        self._folder = folder
        self._homes = {name: str(folder / name.lower()) for name in _HOMES}
        for home in self._homes.values():
            Path(home).mkdir()
        self.errors = folder / "errors.jsonl"
        self.errors.touch()
        self.log = folder / "server.log"
        self._variables = {**variables, ERRORS: str(self.errors)}
        spec = Path(self._homes["JUPYTER_DATA_DIR"]) / "kernels" / _SPEC / "kernel.json"
        spec.parent.mkdir(parents=True)
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        if private_shm:
            command = ["unshare", "-m", "sh", "-c", _PRIVATE_SHM, "sh", *command]
        spec.write_text(json.dumps({"argv": command, "display_name": _SPEC, "language": "python"}))
        config = Path(self._homes["JUPYTER_CONFIG_DIR"]) / "jupyter_server_config.py"
        config.write_text(_CONFIG)
        self.address, self.token = "", ""
        self._server: subprocess.Popen[bytes] | None = None
        self._kernel_id = ""
        self.kernel_pid = 0
        self._client: BlockingKernelClient | None = None
        self._poller = zmq.Poller()
        self._runs: dict[str, Ran] = {}

    @property
    def server_pid(self) -> int:
        """The server's process id."""
        assert self._server is not None
        return self._server.pid

    # -- the server --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the server and a kernel in which gpuwidget is loaded."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address, self.token = f"127.0.0.1:{port}", secrets.token_hex(16)
        command = [
            *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
            *(f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--ServerApp.log_level=ERROR"),
            *(f"--ServerApp.root_dir={self._folder}", "--ServerApp.jpserver_extensions={'gpuwidget': True}"),
        ]
        variables = {**environment(self._variables), **self._homes, "JUPYTER_TOKEN": self.token}
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                command, env=variables, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._wait(self._is_up, "the server does not respond")
        self._kernel_id = json.loads(self._request("POST", "/api/kernels", {"name": _SPEC}, 201))["id"]
        self._connect()

    def _is_up(self) -> bool:
        assert self._server is not None
        if self._server.poll() is not None:
            raise RuntimeError(f"the server ended: {self.log.read_text()[-2000:]}")
        try:
            self._request("GET", "/api/status", None, 200)
        except OSError:
            return False
        return True

    def _request(self, method: str, path: str, content: object, status: int) -> bytes:
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        headers = {"Authorization": f"token {self.token}"}
        connection.request(method, path, None if content is None else json.dumps(content), headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status != status:
            raise RuntimeError(f"{method} {path} answered {answer.status}: {text[:500]!r}")
        return text

    def stop(self, number: int = signal.SIGTERM) -> list[str]:
        """End the server with a signal, and return what is still running long after that."""
        assert self._server is not None
        children = psutil.Process(self.server_pid).children(recursive=True)
        self._disconnect()
        self._server.send_signal(number)
        problems = []
        try:
            self._server.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            problems.append("the server did not end")
            self._server.kill()
            self._server.wait()
        _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
        for child in alive:
            with suppress(psutil.NoSuchProcess):
                problems.append(f"still running after the server's end: {child.cmdline()}")
                child.kill()
        return problems

    # -- the kernel --------------------------------------------------------------------------------------

    def _connect(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self._open_channels()
            try:
                self.wait_until_ready(_RECONNECT_S)
                break
            except RuntimeError:
                # The server restarts a killed kernel by itself, too, and may then have chosen other ports.
                if time.monotonic() > deadline:
                    raise
        self.kernel_pid = int(self.value("__import__('os').getpid()"))
        ran = self.run(_SETUP)
        if ran.reply is None or ran.reply["status"] != "ok":
            raise RuntimeError(f"gpuwidget can't be loaded: {ran.reply}")

    def _open_channels(self) -> None:
        self._disconnect()
        path = Path(self._homes["JUPYTER_RUNTIME_DIR"]) / f"kernel-{self._kernel_id}.json"
        client = BlockingKernelClient(connection_file=str(path))
        client.load_connection_file()
        # Without a heartbeat, the client does not count a kernel as dead that is only slow.
        client.start_channels(hb=False)
        self._client = client
        self._poller = zmq.Poller()
        for channel in (client.shell_channel, client.iopub_channel):
            self._poller.register(channel.socket, zmq.POLLIN)

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.stop_channels()
            self._client = None
            self._runs.clear()

    def restart_kernel(self, *, kill: bool) -> list[str]:
        """Restart the kernel, as the user does or after it was killed. Return what is still running."""
        pid, children = self.kernel_pid, psutil.Process(self.kernel_pid).children(recursive=True)
        if kill:
            os.kill(pid, signal.SIGKILL)
        self._disconnect()
        self._request("POST", f"/api/kernels/{self._kernel_id}/restart", {}, 200)
        _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
        self._connect()
        problems = [f"still running after the kernel's end: {child.cmdline()}" for child in alive]
        return problems + ([] if self.kernel_pid != pid else ["the kernel was not restarted"])

    def interrupt(self) -> None:
        """Send the kernel an interrupt."""
        os.kill(self.kernel_pid, signal.SIGINT)

    def dump_stacks(self) -> None:
        """Make the kernel write the stacks of its threads to the log."""
        os.kill(self.kernel_pid, signal.SIGUSR1)

    def send(self, code: str, *, silent: bool = False, expression: str | None = None) -> str:
        """Send a request to run a cell, and return its id."""
        assert self._client is not None
        expressions = {} if expression is None else {"value": expression}
        request = self._client.execute(code, silent=silent, user_expressions=expressions, allow_stdin=True)
        assert isinstance(request, str)
        self._runs[request] = Ran()
        return request

    def take(self, request: str, timeout_s: float) -> Ran:
        """Receive messages for at most ``timeout_s`` seconds or until one has arrived. Return what has been
        received for the request."""
        assert self._client is not None
        ready = dict(self._poller.poll(max(0, round(timeout_s * 1000))))
        for channel in (self._client.shell_channel, self._client.iopub_channel):
            while channel.socket in ready and channel.socket.poll(0):
                self._store(channel is self._client.shell_channel, channel.get_msg(timeout=0))
        return self._runs[request]

    def _store(self, is_reply: bool, message: dict[str, Any]) -> None:
        ran = self._runs.get(message["parent_header"].get("msg_id", ""))
        if ran is None:
            return
        kind, content = message["header"]["msg_type"], message["content"]
        if is_reply:
            ran.reply, ran.ended = content, time.monotonic()
        elif kind == "status":
            ran.idle = ran.idle or content["execution_state"] == "idle"
        else:
            if kind == "execute_input" and ran.began is None:
                ran.began = time.monotonic()
            ran.messages.append((kind, content))

    def run(self, code: str, **options: Any) -> Ran:
        """Run a cell, and return what the kernel sent for it."""
        request = self.send(code, **options)
        self._wait(lambda: self.take(request, 0.1).complete, f"the kernel does not reply to {code!r}")
        return self._runs.pop(request)

    def wait_until_ready(self, seconds: float = PATIENCE_S) -> None:
        """Wait until the kernel runs requests again. After a failed cell, it aborts those in its queue.

        Raises RuntimeError if it does not within ``seconds``.
        """
        assert self._client is not None
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            request = self._client.kernel_info()
            self._runs[request] = Ran()
            # Messages that a kernel publishes before the client has subscribed are lost, so send the request
            # again.
            again = time.monotonic() + _RETRY_S
            while time.monotonic() < again:
                if self.take(request, 0.1).complete:
                    self.forget(request)
                    return
            self.forget(request)
        raise RuntimeError("the kernel does not reply")

    def forget(self, request: str) -> None:
        """Discard the messages of a request."""
        self._runs.pop(request, None)

    def value(self, expression: str) -> str:
        """Return the repr of an expression in the kernel."""
        ran = self.run("", silent=True, expression=expression)
        assert ran.reply is not None
        answer = ran.reply["user_expressions"]["value"]
        if answer["status"] != "ok":
            raise RuntimeError(f"{expression}: {answer}")
        text = answer["data"]["text/plain"]
        assert isinstance(text, str)
        return text

    @property
    def shm(self) -> Path:
        """The kernel's /dev/shm."""
        return Path("/proc", str(self.kernel_pid), "root", "dev", "shm")

    def _wait(self, done: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            if time.monotonic() > deadline:
                raise RuntimeError(what)
            time.sleep(0.01)
