"""Run cells in a real kernel, and measure the time from each request to its reply."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import zmq
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

from benchmarks.settings import environment

_PATIENCE_S = 180.0
_REST_S = 0.05
_LOST_AFTER_S = 10.0
"""An interrupt is lost if the cell still runs after this time."""
_INTERRUPTS = 3
"""The number of interrupts after which a cell that still runs is given up."""
CARD_MIME = "application/vnd.gpuwidget.report+json"


@dataclass(frozen=True)
class Ran:
    """The result of one request: the time until its reply, requested values, and the kernel's outputs."""

    seconds: float
    """Time from just before the request is sent until the reply arrives."""
    values: Mapping[str, str]
    """The repr of each requested expression, evaluated after the cell has run."""
    bundles: Sequence[Mapping[str, Any]]
    """Mime bundles of the displayed outputs, including updates."""

    @property
    def cards(self) -> list[Mapping[str, Any]]:
        return [bundle for bundle in self.bundles if CARD_MIME in bundle]


class KernelLost(RuntimeError):
    """The kernel died, or no interrupt ends its cell."""


@dataclass(frozen=True)
class Interrupted:
    """The result of an interrupted request."""

    seconds: float
    """Time from the first interrupt until the reply arrives."""
    interrupts: int
    """Number of interrupts until the reply; more than 1 if the first was lost."""
    error: str | None
    """The name of the error that ended the cell; None if the cell ended without one."""
    traceback: Sequence[str]
    """The error's traceback, as the notebook shows it, and what the cell wrote to stderr."""


def require_live_chart() -> None:
    """Raise RuntimeError if the live chart's libraries can't be imported, because cells would have no
    chart."""
    command = [sys.executable, "-c", "import gpuwidget.kernel.live.live_chart"]
    done = subprocess.run(command, env=environment(), stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"no live chart here: {done.stderr.strip().splitlines()[-1]}")


class Kernel:
    """One running kernel. Use it as a context manager, and from one thread only."""

    def __init__(self, variables: Mapping[str, str], python: str = sys.executable) -> None:
        """Start ipykernel with the interpreter ``python`` and the environment ``variables``, and wait until
        the kernel is ready."""
        self._folder = TemporaryDirectory()
        root = Path(self._folder.name)
        self._manager = KernelManager()
        self._manager.connection_file = str(root / "connection.json")
        # Ignore the kernel specs that are installed on this machine. IPYTHONDIR, below, does the same for
        # IPython profiles.
        self._manager._kernel_spec = KernelSpec(
            argv=[python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            display_name="benchmark",
            language="python",
        )
        self._log = (root / "kernel.log").open("w")
        variables = {**variables, "IPYTHONDIR": str(root / "ipython"), "JUPYTER_RUNTIME_DIR": str(root)}
        self._manager.start_kernel(env=variables, cwd=str(root), stdout=self._log, stderr=self._log)
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=_PATIENCE_S)
        self._shell = self._client.shell_channel
        self._iopub = self._client.iopub_channel
        self._poller = zmq.Poller()
        self._poller.register(self._shell.socket, zmq.POLLIN)
        self._poller.register(self._iopub.socket, zmq.POLLIN)

    def __enter__(self) -> Kernel:
        """Return this kernel."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the kernel."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self._log.close()
        self._folder.cleanup()

    def run(self, code: str, values: Mapping[str, str] | None = None, *, rest_s: float = _REST_S) -> Ran:
        """Run ``code`` as a notebook would, and return the result.

        The request is sent ``rest_s`` seconds after the previous run ended. Raises RuntimeError if the cell
        fails.
        """
        if rest_s:
            time.sleep(rest_s)
        began = time.perf_counter()
        request = self._client.execute(code, user_expressions=dict(values or {}), allow_stdin=True)
        ended: float | None = None
        reply: dict[str, Any] = {}
        bundles = []
        idle = False
        while ended is None or not idle:
            ready = dict(self._poller.poll(1000))
            if self._shell.socket in ready:
                now = time.perf_counter()
                message = self._shell.get_msg(timeout=0)
                if message["parent_header"].get("msg_id") == request:
                    ended, reply = now, message["content"]
            if self._iopub.socket in ready:
                message = self._iopub.get_msg(timeout=0)
                ours = message["parent_header"].get("msg_id") == request
                kind, content = message["header"]["msg_type"], message["content"]
                if ours and kind in ("display_data", "update_display_data"):
                    bundles.append(content["data"])
                idle = idle or (ours and kind == "status" and content["execution_state"] == "idle")
            if time.perf_counter() - began > _PATIENCE_S or not self._manager.is_alive():
                raise RuntimeError("the kernel died or fell silent")
        if reply["status"] != "ok":
            raise RuntimeError(f"a cell failed: {reply.get('ename')}: {reply.get('evalue')}")
        asked = reply["user_expressions"]
        return Ran(
            ended - began, {name: value["data"]["text/plain"] for name, value in asked.items()}, bundles
        )

    def interrupt(self, code: str, delay_s: float) -> Interrupted:
        """Run ``code``, interrupt it ``delay_s`` seconds after the kernel has started it, and return the
        result. If the cell goes on for ten seconds, interrupt it again. Raises KernelLost."""
        request = self._client.execute(code, allow_stdin=True)
        started: float | None = None
        sent: list[float] = []
        ended: float | None = None
        reply: dict[str, Any] = {}
        shown: list[str] = []
        idle = False
        while ended is None or not idle:
            now = time.perf_counter()
            due = None
            if started is not None and ended is None:
                due = sent[-1] + _LOST_AFTER_S if sent else started + delay_s
                if now >= due:
                    self._manager.interrupt_kernel()
                    sent.append(time.perf_counter())
                    continue
            wait_s = 1.0 if due is None else min(1.0, due - now)
            ready = dict(self._poller.poll(max(0, round(wait_s * 1000))))
            if self._shell.socket in ready:
                message = self._shell.get_msg(timeout=0)
                if message["parent_header"].get("msg_id") == request:
                    ended, reply = time.perf_counter(), message["content"]
            if self._iopub.socket in ready:
                message = self._iopub.get_msg(timeout=0)
                ours = message["parent_header"].get("msg_id") == request
                kind, content = message["header"]["msg_type"], message["content"]
                if ours and kind == "execute_input":
                    started = time.perf_counter()
                if kind == "error":
                    shown += content["traceback"]
                if kind == "stream" and content["name"] == "stderr":
                    shown.append(content["text"])
                idle = idle or (ours and kind == "status" and content["execution_state"] == "idle")
            if not self._manager.is_alive():
                raise KernelLost(f"the kernel died: {self._end_of_log()}")
            if len(sent) > _INTERRUPTS:
                raise KernelLost(f"the kernel does not end the cell: {self._end_of_log()}")
        first = sent[0] if sent else ended
        return Interrupted(ended - first, len(sent), reply.get("ename"), shown)

    def _end_of_log(self) -> str:
        """Return the end of what the kernel process wrote."""
        self._log.flush()
        return Path(self._log.name).read_text(errors="replace")[-1000:]
