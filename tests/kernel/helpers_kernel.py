"""A real kernel in a process of its own, and everything it answers to a cell, kept as messages."""

from __future__ import annotations

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
"""The kernel's interpreter: its environment may have older packages than the tests' own."""
TORCH_STANDIN = str(Path(__file__).parent.parent / "torch_standin")
"""A folder for PYTHONPATH, in which torch is a stand-in with two GPUs."""
PATIENCE_S = 30.0
"""How long a test waits for what it expects of a kernel before it gives up."""


def skip_without_torch() -> None:
    """Skip the test where the kernels' Python has no torch."""
    done = subprocess.run([KERNEL_PYTHON, "-c", "import torch"], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("torch is not installed beside the kernel")


@dataclass(frozen=True)
class Ran:
    """What one executed cell sent: messages in order until it was idle, and the reply."""

    reply: dict[str, Any]
    reply_metadata: dict[str, Any]
    messages: list[Message]
    late: list[Message]
    """Messages of earlier requests that came while this one ran."""
    kernel: Kernel = field(repr=False)

    @property
    def text(self) -> str:
        """Everything printed."""
        return "".join(m.content["text"] for m in self.messages if m.type == "stream")

    @property
    def displayed(self) -> str:
        """The plain text of everything displayed."""
        found = [m.content["data"]["text/plain"] for m in self.messages if m.type == "display_data"]
        return "\n".join(found)

    @property
    def cards(self) -> list[dict[str, Any]]:
        """The mime bundles of the cards."""
        return cards(self.messages)

    @property
    def report(self) -> dict[str, Any]:
        """That of the one card."""
        (card,) = self.cards
        found = card[CARD]
        assert isinstance(found, dict)
        return found

    @property
    def result(self) -> str | None:
        """text/plain of Out[n]."""
        found = [m.content["data"]["text/plain"] for m in self.messages if m.type == "execute_result"]
        assert len(found) <= 1
        return found[0] if found else None

    @property
    def live(self) -> list[dict[str, Any]]:
        """The mime bundles of the live view, one each time it was put out or replaced."""
        return [m.content["data"] for m in self.messages if m.is_live]

    def as_seen(self) -> dict[str, Any]:
        """All that a user or a front end can tell one run from another by, without our own outputs."""
        clean = self.kernel.clean
        reply = {name: value for name, value in self.reply.items() if name not in ("engine_info",)}
        return {
            "reply": clean(reply),
            "status": self.reply_metadata.get("status"),
            "messages": clean(sequence(self.messages, self.kernel.our_models)),
            "outputs": clean(final_outputs(self.messages, self.kernel.our_models)),
        }


class Kernel:
    """One running kernel with a private home; used from one thread."""

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
        # Not TCP: a port that was free when it was chosen may be another program's when the kernel takes it.
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
        self.client.wait_for_ready(timeout=PATIENCE_S)
        self._poller = zmq.Poller()
        for channel in self._channels():
            self._poller.register(channel.socket, zmq.POLLIN)
        self._replies: dict[str, dict[str, Any]] = {}
        self._published: dict[str, list[Message]] = {}
        self._idle: set[str] = set()
        self._answers: dict[str, list[str]] = {}
        self._ids = ExpectedIds(str(root))
        self.our_models: set[str] = set()
        """Ids of the widget models that belong to live views."""

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
        """Whether its process still runs."""
        return bool(self._manager.is_alive())

    def clean(self, value: Any) -> Any:
        """``value`` without what differs from kernel to kernel and from run to run."""
        return self._ids.clean(value)

    # -- cells ---------------------------------------------------------------------------------------

    def send(self, code: str, *, answers: Iterable[str] = (), **options: Any) -> str:
        """Ask for ``code`` to be run; ``answers`` go to what it asks on stdin. Returns the request's id."""
        answers = list(answers)
        options.setdefault("allow_stdin", bool(answers))
        request = self.client.execute(code, **options)
        assert isinstance(request, str)
        self._answers[request] = answers
        return request

    def run(self, code: str, **options: Any) -> Ran:
        """Run ``code`` to its end."""
        return self.wait(self.send(code, **options))

    def ok(self, code: str, **options: Any) -> Ran:
        """Run ``code``, which must end well."""
        ran = self.run(code, **options)
        assert ran.reply["status"] == "ok", ran.reply
        return ran

    def wait(self, request: str) -> Ran:
        """Everything sent for ``request``, once the kernel has replied and is idle."""
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
            # Until it has looked through its queue, a kernel aborts what comes after a failed cell.
            self.ask(self.client.kernel_info())
        return ran

    def run_all(self, *cells: str) -> list[Ran]:
        """Run cells that all wait in the kernel's queue before the first of them begins."""
        go = self.folder / "begin"
        gate = self.send("import os, time\nwhile not os.path.exists('begin'): time.sleep(0.002)", silent=True)
        requests = [self.send(cell) for cell in cells]
        go.touch()
        self.wait(gate)
        go.unlink()
        return [self.wait(request) for request in requests]

    def setup(self, code: str) -> None:
        """Run ``code`` without a trace in history, counters or Out; it must succeed and stay quiet."""
        ran = self.ok(code, silent=True, store_history=False)
        assert ran.text == ""

    def value(self, expression: str) -> str:
        """repr of ``expression`` in the user's namespace, evaluated without running a cell's hooks."""
        ran = self.run("", silent=True, store_history=False, user_expressions={"value": expression})
        answer = ran.reply["user_expressions"]["value"]
        assert answer["status"] == "ok", answer
        text = answer["data"]["text/plain"]
        assert isinstance(text, str)
        return text

    def wait_for_message(self, request: str, wanted: Callable[[Message], bool]) -> Message | None:
        """The first message of ``request`` that is ``wanted``, once it has come; None if it ended without."""

        def found() -> Message | None:
            return next((m for m in self._published.get(request, []) if wanted(m)), None)

        self._take_until(lambda: found() is not None or (request in self._replies and request in self._idle))
        return found()

    def has_ended(self, request: str, within_s: float) -> bool:
        """Whether ``request`` ends within that time."""
        deadline = time.monotonic() + within_s
        while request not in self._replies and time.monotonic() < deadline:
            self._poll(20)
        return request in self._replies

    def idle_for(self, seconds: float) -> None:
        """Take messages for that long: between two looks at something that will come."""
        self._poll(round(seconds * 1000))

    def wait_for_file(self, name: str) -> None:
        """Wait until the cell has made a file of that name in its folder; the file is taken away."""
        path = self.folder / name
        deadline = time.monotonic() + PATIENCE_S
        while not path.exists():
            assert time.monotonic() < deadline, f"{name} did not come"
            self._poll(20)
        path.unlink()

    def interrupt(self) -> None:
        """What the stop button does."""
        self._manager.interrupt_kernel()

    # -- other questions -----------------------------------------------------------------------------

    def ask(self, request: str) -> dict[str, Any]:
        """The reply's content to a request that a method of ``client`` has sent."""
        self._answers[request] = []
        self._take_until(lambda: request in self._replies and request in self._idle)
        self._answers.pop(request)
        self._published.pop(request, None)
        content = self._replies.pop(request)["content"]
        assert isinstance(content, dict)
        return content

    def shutdown(self) -> None:
        """End the kernel. Safe to call twice."""
        if self._log.closed:
            return
        self.client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self._log.close()

    def answer_to(self, *, patience_s: float = PATIENCE_S, **question: Any) -> dict[str, Any]:
        """What a view, as the panel is, is answered to a question: on the control channel, also in a cell."""
        channel = self.client.control_channel
        message = self.client.session.msg("gpuwidget_request", {"schema": 1, **question})
        channel.send(message)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if channel.socket.poll(20):
                reply = channel.get_msg(timeout=0)
                if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                    self._published.pop(message["header"]["msg_id"], None)
                    answer = reply["content"]
                    assert isinstance(answer, dict)
                    return answer
        raise TimeoutError(f"no reply to {question}")

    # -- messages ------------------------------------------------------------------------------------

    def _take_until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            self._poll(200)
            assert self.alive, "the kernel died"
            assert time.monotonic() < deadline, f"it did not come; so far: {self._published}"[:5000]

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
