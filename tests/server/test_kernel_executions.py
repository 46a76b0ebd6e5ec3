"""Detecting whether a kernel is running code,
with the kernels of a real server and with sequences of status messages."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers_kernel_channels import Channels
from helpers_server import Server

from gpuwidget.server.kernel_executions import ExecutionTracker, KernelExecutions

WAITS = """
import pathlib, time
print("it runs", flush=True)
while not pathlib.Path({0!r}).exists(): time.sleep(0.01)
"""
"""Code of a cell that runs until the given file exists."""
USAGE = "usage_request"
"""A request that jupyter-resource-usage sends on the control channel.
Jupyter Server mistakes the ``idle`` status of this request for the kernel's state."""


class Cell:
    """A cell that runs until the test calls :meth:`end`."""

    def __init__(self, channels: Channels, end: Path, request: str) -> None:
        self._channels = channels
        self._end = end
        self._request = request

    @classmethod
    async def begin(cls, channels: Channels, end: Path, subshell: str | None = None) -> Cell:
        """Send the cell to the kernel, and return once the cell is running."""
        content: dict[str, object] = {"code": WAITS.format(str(end)), "silent": False}
        request = await channels.send("shell", "execute_request", content, subshell)
        await channels.until("stream", request, text="it runs\n")
        return cls(channels, end, request)

    async def end(self) -> None:
        """Let the cell end, and wait until the kernel has finished it."""
        self._end.touch()
        await self.wait_until_ended()

    async def wait_until_ended(self) -> None:
        """Wait until the kernel has finished the cell."""
        await self._channels.until("status", self._request, execution_state="idle")


class Kernel:
    """A kernel of the server under test, with a client connected to its channels."""

    def __init__(self, server: Server, identity: str, channels: Channels) -> None:
        self.server = server
        self.id = identity
        self.channels = channels

    @classmethod
    async def start(cls, server: Server) -> Kernel:
        """Start a kernel, wait until it is ready, and return it."""
        answer = await server.fetch("api", "kernels", method="POST", body=json.dumps({"name": "python3"}))
        channels = Channels(server, json.loads(answer.body)["id"])
        await channels.open()
        await channels.run("")
        return cls(server, json.loads(answer.body)["id"], channels)

    @property
    def manager(self) -> Any:
        """Return Jupyter's manager of this kernel."""
        return self.server.app.kernel_manager.get_kernel(self.id)

    async def mislead(self) -> None:
        """Send a request on the control channel, which makes Jupyter Server report a busy kernel as idle."""
        await self.channels.control(USAGE)
        await self.server.until(lambda: self.manager.execution_state == "idle")

    async def streamed_state(self) -> str:
        """Return the kernel's state as a new client of the stream receives it."""
        stream = await self.server.stream()
        usage = await stream.usage()
        stream.close()
        (state,) = (one["state"] for one in usage["kernels"] if one["id"] == self.id)
        assert isinstance(state, str)
        return state

    async def wait_for_state(self, state: str) -> None:
        """Wait until a client of the stream receives this state for the kernel."""
        stream = await self.server.stream()
        while all((one["id"], one["state"]) != (self.id, state) for one in (await stream.usage())["kernels"]):
            pass
        stream.close()


async def test_a_control_channel_request_keeps_the_kernel_busy(server: Server, tmp_path: Path) -> None:
    """A kernel that runs a cell is busy until the cell ends,
    even if it handles control messages in the meantime."""
    kernel = await Kernel.start(server)
    cell = await Cell.begin(kernel.channels, tmp_path / "end")
    await kernel.mislead()
    assert await kernel.streamed_state() == "busy"
    await cell.end()
    await kernel.wait_for_state("idle")


async def test_live_chart_subshells_keep_the_kernel_busy(server: Server, tmp_path: Path) -> None:
    """While a watched cell runs,
    the kernel stays busy even if JupyterLab creates and deletes a subshell for the live chart's widget."""
    kernel = await Kernel.start(server)
    cell = await Cell.begin(kernel.channels, tmp_path / "end")
    subshell = (await kernel.channels.control("create_subshell_request"))["content"]["subshell_id"]
    assert kernel.manager.execution_state == "busy"
    assert await kernel.streamed_state() == "busy"
    await kernel.channels.control("delete_subshell_request", subshell_id=subshell)
    assert kernel.manager.execution_state == "busy"
    await cell.end()
    await kernel.server.until(lambda: kernel.manager.execution_state == "idle")


async def test_a_cell_in_a_subshell_makes_the_kernel_busy(server: Server, tmp_path: Path) -> None:
    """If a cell runs in a subshell,
    the kernel stays busy even after the main shell has finished another cell."""
    kernel = await Kernel.start(server)
    subshell = (await kernel.channels.control("create_subshell_request"))["content"]["subshell_id"]
    cell = await Cell.begin(kernel.channels, tmp_path / "end", subshell)
    await kernel.channels.run("")
    await kernel.server.until(lambda: kernel.manager.execution_state == "idle")
    assert await kernel.streamed_state() == "busy"
    await cell.end()
    await kernel.wait_for_state("idle")


async def test_queued_cells_of_several_clients(server: Server, tmp_path: Path) -> None:
    """If several clients send cells, the kernel is busy
    until the last cell has finished or is interrupted."""
    kernel = await Kernel.start(server)
    other = Channels(kernel.server, kernel.id)
    await other.open()
    first = await Cell.begin(other, tmp_path / "first")
    endless: dict[str, object] = {"code": WAITS.format(str(tmp_path / "never")), "silent": False}
    second = await kernel.channels.send("shell", "execute_request", endless)
    await kernel.mislead()
    assert await kernel.streamed_state() == "busy"
    await first.end()
    await kernel.channels.until("stream", second, text="it runs\n")
    await kernel.mislead()
    await kernel.wait_for_state("busy")
    await kernel.server.fetch("api", "kernels", kernel.id, "interrupt", method="POST", body="{}")
    await kernel.channels.until("status", second, execution_state="idle")
    await kernel.wait_for_state("idle")
    other.close()


@pytest.mark.parametrize("how", ["restarted by the user", "killed"])
async def test_a_restarted_kernel_is_idle(server: Server, tmp_path: Path, how: str) -> None:
    """After a kernel restarts, the cells of its previous process no longer make it busy."""
    kernel = await Kernel.start(server)
    await Cell.begin(kernel.channels, tmp_path / "never")
    await kernel.mislead()
    if how == "killed":
        before = kernel.manager.provisioner.pid
        os.kill(before, signal.SIGKILL)
        await server.until(lambda: kernel.manager.provisioner.pid not in (before, None))
        # After the server has restarted a kernel, pages reconnect to it, so the test does that too.
        await Channels(server, kernel.id).open()
    else:
        await kernel.server.fetch("api", "kernels", kernel.id, "restart", method="POST", body="{}")
    await kernel.wait_for_state("idle")


def status(state: str, request: str, kind: str = "execute_request", **changes: Any) -> list[dict[str, Any]]:
    """Return the header, parent header and content of a status message;
    ``changes`` are applied to the header."""
    header = {"msg_type": "status", "session": "kernel", **changes}
    return [header, {"msg_id": request, "msg_type": kind, "session": "client"}, {"execution_state": state}]


@pytest.mark.parametrize(
    ("messages", "running"),
    [
        ([status("busy", "1")], True),
        ([status("busy", "1"), status("idle", "1")], False),
        ([status("busy", "1"), status("idle", "2", "comm_msg")], True),
        ([status("busy", "1"), status("idle", "2", "complete_request")], True),
        ([status("busy", "1", "comm_msg")], False),
        # The ``idle`` message of the first request was lost, so the second request ends the first one.
        ([status("busy", "1"), status("busy", "2"), status("idle", "2")], False),
        ([status("busy", "1"), status("idle", "0")], True),
        # In the next two cases, the kernel has restarted, so no request is running.
        ([status("busy", "1"), status("idle", "2", "kernel_info_request", session="new")], False),
        ([status("busy", "1", session="client"), status("starting", "", session="client")], False),
        # This kernel has no session id of its own, and sends the client's id. It has not restarted.
        ([status("busy", "1", session="client"), status("idle", "2", "comm_msg", session="client")], True),
        ([status("busy", "1"), [{"msg_type": "stream", "session": "new"}, {}, {"text": "status"}]], True),
    ],
)
def test_status_messages(messages: list[list[dict[str, Any]]], running: bool) -> None:
    """A request runs from its ``busy`` message until its ``idle`` message arrives.
    If that message is lost, the request ends with the next request or with a restart of the kernel."""
    execution_tracker = KernelExecutions()
    for message in messages:
        execution_tracker.receive(*message)
    assert execution_tracker.running is running


def test_other_kernel_managers() -> None:
    """If a kernel manager lacks Jupyter Server's activity hooks,
    its kernels start normally and keep the state that Jupyter reports."""
    execution_tracker = ExecutionTracker()
    execution_tracker.observe(SimpleNamespace())
    started: list[str] = []
    manager = SimpleNamespace(
        start_watching_activity=started.append,
        list_kernel_ids=lambda: ["a"],
        get_kernel=lambda _: SimpleNamespace(),
    )
    execution_tracker.observe(manager)
    manager.start_watching_activity("a")
    assert (started, execution_tracker.running("a")) == (["a"], False)
