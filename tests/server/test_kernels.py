"""Requests that the panel and JupyterLab send on a kernel's control channel change neither the kernel's state
nor its last activity."""

from __future__ import annotations

import json

from helpers_kernel_channels import ANSWERING, Channels
from helpers_server import Server

from gpuwidget.model.kernel_requests import REPLY, REQUEST

SUBSHELLS = ("create_subshell", "list_subshell", "delete_subshell")


async def test_control_channel_requests_keep_state_and_last_activity(server: Server) -> None:
    """A busy kernel stays busy while the panel queries it or JupyterLab opens a subshell for a live chart.

    The last activity of an idle kernel stays the same, so that the kernel can still be culled.
    """
    answer = await server.fetch("api", "kernels", method="POST", body=json.dumps({"name": "python3"}))
    kernel = json.loads(answer.body)["id"]

    async def shown() -> tuple[str, str]:
        model = json.loads((await server.fetch("api", "kernels", kernel)).body)
        return model["execution_state"], model["last_activity"]

    channels = Channels(server, kernel)

    async def send_requests() -> None:
        subshell = (await channels.control("create_subshell_request"))["content"]["subshell_id"]
        assert (await channels.control("list_subshell_request"))["content"]["subshell_id"] == [subshell]
        await channels.control("delete_subshell_request", subshell_id=subshell)
        await channels.request_state()

    await channels.open()
    try:
        loaded = await channels.send("shell", "execute_request", {"code": ANSWERING, "silent": False})
        await channels.until("status", loaded, execution_state="idle")
        # Every message of the cell updates the last activity. Once these requests have been answered, the
        # server has received all messages of the cell, so compare only from here on.
        await send_requests()
        idle = await shown()
        assert idle[0] == "idle"
        await send_requests()
        assert await shown() == idle

        cell = "print('it runs', flush=True); time.sleep(600)"
        runs = await channels.send("shell", "execute_request", {"code": cell, "silent": False})
        await channels.until("stream", runs, text="it runs\n")
        assert (await shown())[0] == "busy"
        await send_requests()
        # The last activity is not compared: Jupyter updates it for every message of a busy kernel.
        assert (await shown())[0] == "busy"
    finally:
        channels.close()
        await server.fetch("api", "kernels", kernel, method="DELETE")


def test_eight_message_types_become_untracked(server: Server) -> None:
    """gpuwidget adds eight message types to those that the server does not count as activity, and removes
    none."""
    manager = server.app.kernel_manager
    added = [REQUEST, REPLY, *(f"{name}_{end}" for name in SUBSHELLS for end in ("request", "reply"))]
    before = type(manager)().untracked_message_types
    assert sorted(manager.untracked_message_types) == sorted({*before, *added})
