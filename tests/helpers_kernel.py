"""A real kernel in a subprocess, and the messages that it sends for each cell."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import zmq
from helpers_outputs import CARD, ExpectedIds, Message, cards, final_outputs, sequence
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

KERNEL_PYTHON = os.environ.get("GPUWIDGET_TEST_PYTHON", sys.executable)
"""The Python interpreter of the kernels.
Its environment may have older packages than the environment of the tests."""
TORCH_STANDIN = str(Path(__file__).parent / "torch_standin")
"""A folder for PYTHONPATH that contains a stand-in for torch with two GPUs."""
NOTEBOOK_CELL = {"cellId": "cell"}
"""The metadata of a request that runs a notebook's cell. A console's request has none."""
TIMEOUT_S = 120.0
"""The number of seconds for which a test waits for an expected message."""


@functools.cache
def _has_torch() -> bool:
    # Importing torch would take 2.5 s of CPU time.
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return subprocess.run([KERNEL_PYTHON, "-c", code], capture_output=True, check=False).returncode == 0


def skip_without_torch() -> None:
    """Skip the test if the kernel's Python interpreter has no torch."""
    if not _has_torch():
        pytest.skip("torch is not installed beside the kernel")


@dataclass(frozen=True)
class Ran:
    """The reply to one cell, and all messages that the kernel sent for it, in order."""

    reply: dict[str, Any]
    reply_metadata: dict[str, Any]
    messages: list[Message]
    late: list[Message]
    """Messages of earlier requests that arrived while this cell ran."""
    kernel: Kernel = field(repr=False)

    @property
    def text(self) -> str:
        """All text that the cell printed."""
        return "".join(m.content["text"] for m in self.messages if m.type == "stream")

    @property
    def message_types(self) -> list[str]:
        """The types of the cell's messages, without widget messages and ``execute_input``.

        Consecutive ``stream`` messages count as one,
        since ipykernel's timer may send a printed line in two pieces."""
        types: list[str] = []
        for message in self.messages:
            if message.type.startswith("comm_") or message.type == "execute_input":
                continue
            if message.type != "stream" or types[-1:] != ["stream"]:
                types.append(message.type)
        return types

    @property
    def displayed(self) -> str:
        """The plain text of all outputs that the cell displayed."""
        found = [m.content["data"]["text/plain"] for m in self.messages if m.type == "display_data"]
        return "\n".join(found)

    @property
    def cards(self) -> list[dict[str, Any]]:
        """The MIME bundles of the cell's cards."""
        return cards(self.messages)

    @property
    def report(self) -> dict[str, Any]:
        """The report in the cell's card. The cell must have exactly one card."""
        (card,) = self.cards
        found = card[CARD]
        assert isinstance(found, dict)
        return found

    @property
    def result(self) -> str | None:
        """The ``text/plain`` of the cell's result, Out[n]."""
        found = [m.content["data"]["text/plain"] for m in self.messages if m.type == "execute_result"]
        assert len(found) <= 1
        return found[0] if found else None

    @property
    def live(self) -> list[dict[str, Any]]:
        """The MIME bundles of the live chart's output, one for each time that it was displayed or updated."""
        return [m.content["data"] for m in self.messages if m.is_live]

    def as_seen(self) -> dict[str, Any]:
        """Return everything that a user or a front end receives for the cell, without gpuwidget's outputs."""
        clean = self.kernel.clean
        reply = {name: value for name, value in self.reply.items() if name not in ("engine_info",)}
        return {
            "reply": clean(reply),
            "status": self.reply_metadata.get("status"),
            "messages": clean(sequence(self.messages, self.kernel.our_models)),
            "outputs": clean(final_outputs(self.messages, self.kernel.our_models)),
        }


class Kernel:
    """A running kernel with an empty home directory. A test may use it from a single thread only."""

    def __init__(self, root: Path, environment: Mapping[str, str | None] | None = None) -> None:
        self.folder = root / "notebooks"
        self.folder.mkdir(parents=True)
        homes = {name: str(root / name.lower()) for name in ("HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR")}
        variables = {**os.environ, **homes, "PYTHONHASHSEED": "0", "GPUWIDGET_SOURCE": "replay"}
        for name in ("PYTEST_CURRENT_TEST", "PYTHONPATH", "COLUMNS"):
            variables.pop(name, None)
        for name, value in (environment or {}).items():
            if value is None:
                variables.pop(name, None)
            else:
                variables[name] = value
        for folder in homes.values():
            Path(folder).mkdir()
        # TCP is not used, because another program could take the chosen port before the kernel does.
        self._manager = KernelManager(transport="ipc")
        self._manager.connection_file = str(root / "connection.json")
        self._manager._kernel_spec = KernelSpec(
            argv=[KERNEL_PYTHON, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            display_name="test",
            language="python",
        )
        self._log = (root / "kernel.log").open("w")
        self._manager.start_kernel(env=variables, cwd=str(self.folder), stdout=self._log, stderr=self._log)
        self.client = self._manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=TIMEOUT_S)
        self._poller = zmq.Poller()
        for channel in self._channels():
            self._poller.register(channel.socket, zmq.POLLIN)
        self._replies: dict[str, dict[str, Any]] = {}
        self._published: dict[str, list[Message]] = {}
        self._idle: set[str] = set()
        self._answers: dict[str, list[str]] = {}
        self._ids = ExpectedIds(str(root))
        self.our_models: set[str] = set()
        """The ids of the widget models that belong to live charts."""

    def _channels(self) -> Iterable[Any]:
        return (self.client.shell_channel, self.client.iopub_channel, self.client.stdin_channel)

    @property
    def process_id(self) -> int:
        """The kernel's process id."""
        provisioner: Any = self._manager.provisioner
        pid = provisioner.pid
        assert isinstance(pid, int)
        return pid

    @property
    def alive(self) -> bool:
        """Whether the kernel's process is running."""
        return bool(self._manager.is_alive())

    def clean(self, value: Any) -> Any:
        """Return ``value`` without parts that differ between kernels and between runs."""
        return self._ids.clean(value)

    # -- running cells -------------------------------------------------------------------------------

    def send(
        self,
        code: str,
        *,
        answers: Iterable[str] = (),
        metadata: Mapping[str, str] = NOTEBOOK_CELL,
        **options: Any,
    ) -> str:
        """Send a request to execute ``code``, and return the request's id.
        ``answers`` are the replies to the code's ``input()`` calls."""
        answers = list(answers)
        # As a front end does. A program that executes a notebook allows no input.
        content = {
            "silent": False,
            "allow_stdin": True,
            "user_expressions": {},
            "stop_on_error": True,
            **options,
        }
        content.setdefault("store_history", not content["silent"])
        session = self.client.session
        message = session.msg("execute_request", {"code": code, **content}, metadata=metadata)
        self.client.shell_channel.send(message)
        request = message["header"]["msg_id"]
        assert isinstance(request, str)
        self._answers[request] = answers
        return request

    def run(self, code: str, **options: Any) -> Ran:
        """Run ``code``, and return what the kernel sent for it."""
        return self.wait(self.send(code, **options))

    def ok(self, code: str, **options: Any) -> Ran:
        """Run ``code``, assert that it succeeds, and return what the kernel sent for it."""
        ran = self.run(code, **options)
        assert ran.reply["status"] == "ok", ran.reply
        return ran

    def wait(self, request: str) -> Ran:
        """Wait until the kernel has replied to ``request`` and is idle,
        and return everything that it sent."""
        self._take_until(lambda: request in self._replies and request in self._idle)
        reply = self._replies.pop(request)
        messages = self._published.pop(request, [])
        late = [
            message
            for parent in list(self._published)
            if parent not in self._answers
            for message in self._published.pop(parent)
        ]
        self._answers.pop(request, None)
        ran = Ran(reply["content"], reply["metadata"], messages, late, self)
        self._ids.note_models(messages, self.our_models)
        if ran.reply["status"] == "error":
            # After a cell has failed, the kernel aborts the requests in its queue.
            # Wait for the end of this phase, so that the test's next request is not aborted.
            self.reply_to(self.client.kernel_info())
        return ran

    def run_all(self, *cells: str) -> list[Ran]:
        """Put all cells into the kernel's queue before the first one starts.
        Wait for all of them, and return what the kernel sent for each."""
        go = self.folder / "begin"
        gate = self.send("import os, time\nwhile not os.path.exists('begin'): time.sleep(0.002)", silent=True)
        requests = [self.send(cell) for cell in cells]
        go.touch()
        self.wait(gate)
        go.unlink()
        return [self.wait(request) for request in requests]

    def setup(self, code: str) -> None:
        """Run ``code`` without changing the history, the execution count or Out.
        The code must succeed and print nothing."""
        ran = self.ok(code, silent=True, store_history=False)
        assert ran.text == "", ran.text

    def value(self, expression: str) -> str:
        """Return the repr of ``expression`` in the user's namespace,
        without triggering the hooks that a cell triggers."""
        ran = self.run("", silent=True, store_history=False, user_expressions={"value": expression})
        answer = ran.reply["user_expressions"]["value"]
        assert answer["status"] == "ok", answer
        text = answer["data"]["text/plain"]
        assert isinstance(text, str)
        return text

    def wait_for_message(self, request: str, wanted: Callable[[Message], bool]) -> Message | None:
        """Return the first ``wanted`` message of ``request``, or None if the request ends without one."""

        def found() -> Message | None:
            return next((m for m in self._published.get(request, []) if wanted(m)), None)

        self._take_until(lambda: found() is not None or (request in self._replies and request in self._idle))
        return found()

    def has_ended(self, request: str, within_s: float) -> bool:
        """Wait at most this many seconds for ``request`` to end, and return whether it has ended."""
        deadline = time.monotonic() + within_s
        while request not in self._replies and time.monotonic() < deadline:
            self._poll(20)
        return request in self._replies

    def idle_for(self, seconds: float) -> None:
        """Receive messages for this many seconds."""
        self._poll(round(seconds * 1000))

    def wait_for_file(self, name: str) -> None:
        """Wait until a cell has created this file in the kernel's folder, and delete the file."""
        path = self.folder / name
        deadline = time.monotonic() + TIMEOUT_S
        while not path.exists():
            assert time.monotonic() < deadline, f"{name} was not created"
            self._poll(20)
        path.unlink()

    def interrupt(self) -> None:
        """Interrupt the kernel, as the notebook's stop button does."""
        self._manager.interrupt_kernel()

    # -- other requests -----------------------------------------------------------------------------

    def reply_to(self, request: str) -> dict[str, Any]:
        """Return the content of the reply to a request that was sent with a method of ``client``."""
        self._answers[request] = []
        self._take_until(lambda: request in self._replies and request in self._idle)
        self._answers.pop(request)
        self._published.pop(request, None)
        content = self._replies.pop(request)["content"]
        assert isinstance(content, dict)
        return content

    def shutdown(self) -> None:
        """Stop the kernel; a second call does nothing."""
        if self._log.closed:
            return
        self.client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self._log.close()

    def answer_to(self, *, timeout_s: float = TIMEOUT_S, **request: Any) -> dict[str, Any]:
        """Send a request of the panel on the control channel, and return the kernel's reply.
        The kernel replies even while a cell runs."""
        channel = self.client.control_channel
        message = self.client.session.msg("gpuwidget_request", {"schema": 1, **request})
        channel.send(message)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if channel.socket.poll(20):
                reply = channel.get_msg(timeout=0)
                if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                    self._published.pop(message["header"]["msg_id"], None)
                    answer = reply["content"]
                    assert isinstance(answer, dict)
                    return answer
        raise TimeoutError(f"no reply to {request}")

    # -- receiving messages --------------------------------------------------------------------------

    def _take_until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not done():
            self._poll(200)
            assert self.alive, "the kernel died"
            assert time.monotonic() < deadline, f"timeout; received so far: {self._published}"[:5000]

    def _poll(self, milliseconds: int) -> bool:
        ready = dict(self._poller.poll(milliseconds))
        for channel in self._channels():
            if channel.socket in ready:
                self._take(channel, channel.get_msg(timeout=0))
        return bool(ready)

    def _take(self, channel: Any, message: dict[str, Any]) -> None:
        kind, parent = message["header"]["msg_type"], message["parent_header"].get("msg_id", "")
        if channel is self.client.shell_channel:
            self._replies[parent] = message
        elif channel is self.client.stdin_channel:
            published = self._published.setdefault(parent, [])
            published.append(Message(kind, message["content"]))
            if self._answers[parent]:
                self.client.input(self._answers[parent].pop(0))
        elif kind == "status":
            if message["content"]["execution_state"] == "idle":
                self._idle.add(parent)
        elif kind != "iopub_welcome":
            self._published.setdefault(parent, []).append(Message(kind, message["content"]))
