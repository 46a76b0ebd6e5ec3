"""A question to a kernel, asked as the panel asks it: over the control channel of the kernel's websocket."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

from helpers_server import Server

from gpuwidget.kernel_messages import REPLY, REQUEST

ANSWERING = f"""
import time
def answer(stream, ident, parent):
    shell.kernel.session.send(stream, "{REPLY}", {{"status": "ok"}}, parent, ident=ident)
shell = get_ipython()
shell.kernel.control_handlers["{REQUEST}"] = answer
"""
"""Stands for ``%load_ext gpuwidget``: a kernel that answers."""
PATIENCE_S = 30.0


class Channels:
    """The websocket of one kernel."""

    def __init__(self, server: Server, kernel: str) -> None:
        self._server = server
        self._kernel = kernel
        self._socket: Any = None
        self._seen: list[Any] = []

    async def open(self) -> None:
        """Connect, as a notebook does."""
        self._socket = await self._server.ws_fetch("api", "kernels", self._kernel, "channels")

    async def send(self, channel: str, kind: str, content: dict[str, object]) -> str:
        """Send a message; its id."""
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "session": "tests",
            "username": "",
            "version": "5.3",
        }
        message = {
            "channel": channel,
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": content,
            "buffers": [],
        }
        await self._socket.write_message(json.dumps(message))
        return header["msg_id"]

    async def until(self, kind: str, parent: str, **content: object) -> None:
        """Read until that message in answer to ``parent`` has come; the channels are in no order."""

        def wanted(message: Any) -> bool:
            found = {name: message["content"].get(name) for name in content}
            answers = message["parent_header"].get("msg_id") == parent
            return message["msg_type"] == kind and answers and found == content

        while not any(map(wanted, self._seen)):
            message = json.loads(await asyncio.wait_for(self._socket.read_message(), PATIENCE_S))
            self._seen.append(message)

    async def ask(self) -> None:
        """The panel's question, to its answer and to what the kernel says of its own state meanwhile."""
        asked = await self.send("control", REQUEST, {"schema": 1, "ask": "state"})
        await self.until(REPLY, asked, status="ok")
        await self.until("status", asked, execution_state="idle")

    def close(self) -> None:
        """The notebook is closed."""
        self._socket.close()


async def test_a_question_changes_neither_state_nor_last_activity(server: Server) -> None:
    """A busy kernel still reads busy while the panel asks it, and an idle one may still be culled."""
    answer = await server.fetch("api", "kernels", method="POST", body=json.dumps({"name": "python3"}))
    kernel = json.loads(answer.body)["id"]

    async def shown() -> tuple[str, str]:
        model = json.loads((await server.fetch("api", "kernels", kernel)).body)
        return model["execution_state"], model["last_activity"]

    channels = Channels(server, kernel)
    await channels.open()
    try:
        loaded = await channels.send("shell", "execute_request", {"code": ANSWERING, "silent": False})
        await channels.until("status", loaded, execution_state="idle")
        # After a first question the server has heard all that the cell itself said.
        await channels.ask()
        idle = await shown()
        assert idle[0] == "idle"
        await channels.ask()
        assert await shown() == idle

        cell = "print('it runs', flush=True); time.sleep(600)"
        runs = await channels.send("shell", "execute_request", {"code": cell, "silent": False})
        await channels.until("stream", runs, text="it runs\n")
        assert (await shown())[0] == "busy"
        await channels.ask()
        # Its last activity is now in any case: Jupyter takes every message of a busy kernel for one.
        assert (await shown())[0] == "busy"
    finally:
        channels.close()
        await server.fetch("api", "kernels", kernel, method="DELETE")


def test_the_list_of_untracked_messages_grows_by_two(server: Server) -> None:
    """What the server left untracked before, it leaves untracked still; JupyterLab reads the same list."""
    manager = server.app.kernel_manager
    assert manager.untracked_message_types == [*type(manager)().untracked_message_types, REQUEST, REPLY]
