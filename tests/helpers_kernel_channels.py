"""A websocket connection to a kernel's channels, which tests use as a notebook does."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

from helpers_server import Server

from gpuwidget.model.kernel_requests import REPLY, REQUEST

ANSWERING = f"""
import time
def answer(stream, ident, parent):
    shell.kernel.session.send(stream, "{REPLY}", {{"status": "ok"}}, parent, ident=ident)
shell = get_ipython()
shell.kernel.control_handlers["{REQUEST}"] = answer
"""
"""Code that makes a kernel reply to the panel's requests. Tests run it instead of ``%load_ext gpuwidget``."""
PATIENCE_S = 30.0


class Channels:
    """A websocket connection to one kernel."""

    def __init__(self, server: Server, kernel: str) -> None:
        self._server = server
        self._kernel = kernel
        self._socket: Any = None
        self._seen: list[Any] = []

    async def open(self) -> None:
        """Open the websocket, as a notebook does."""
        self._socket = await self._server.ws_fetch("api", "kernels", self._kernel, "channels")

    async def send(
        self, channel: str, kind: str, content: dict[str, object], subshell: str | None = None
    ) -> str:
        """Send a message, to a subshell if one is given, and return the message's id."""
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "session": "tests",
            "username": "",
            "version": "5.3",
            **({} if subshell is None else {"subshell_id": subshell}),
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

    async def until(self, kind: str, parent: str, **content: object) -> Any:
        """Wait for a message of type ``kind`` that answers ``parent`` and has this content, and return it.

        Messages of different channels can arrive in any order, so messages that were read earlier count too.
        """

        def wanted(message: Any) -> bool:
            found = {name: message["content"].get(name) for name in content}
            answers = message["parent_header"].get("msg_id") == parent
            return message["msg_type"] == kind and answers and found == content

        while not any(map(wanted, self._seen)):
            message = json.loads(await asyncio.wait_for(self._socket.read_message(), PATIENCE_S))
            self._seen.append(message)
        return next(filter(wanted, self._seen))

    async def run(self, code: str) -> str:
        """Run a cell until it ends, assert that it raises no error, and return what it printed."""
        request = await self.send("shell", "execute_request", {"code": code, "silent": False})
        await self.until("status", request, execution_state="idle")
        printed = ""
        for message in self._seen:
            if message["parent_header"].get("msg_id") == request:
                assert message["msg_type"] != "error", message["content"]
                printed += message["content"]["text"] if message["msg_type"] == "stream" else ""
        return printed

    async def request_state(self) -> None:
        """Request the kernel's state as the panel does,
        and return once the kernel has replied and is idle."""
        request = await self.send("control", REQUEST, {"schema": 1, "ask": "state"})
        await self.until(REPLY, request, status="ok")
        await self.until("status", request, execution_state="idle")

    async def control(self, kind: str, **content: object) -> Any:
        """Send a request on the control channel, wait for the kernel's ``idle`` status,
        and return the reply."""
        request = await self.send("control", kind, content)
        await self.until("status", request, execution_state="idle")
        return await self.until(kind.replace("_request", "_reply"), request)

    def close(self) -> None:
        """Close the websocket, as closing the notebook does."""
        self._socket.close()
