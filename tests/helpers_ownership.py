"""Send fake memory ownership to one page in place of the server's. All other messages from the server are
passed on unchanged, except for changes that the test requests."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from playwright.sync_api import Page, WebSocketRoute

GIB = 1024**3


class FakeOwnershipStream:
    """A proxy between a page and the server's sample stream. It must be created before the page loads."""

    def __init__(self, page: Page) -> None:
        self._routes: list[WebSocketRoute] = []
        self._message: str | None = None
        self.interval: float | None = None
        """The sampling interval in seconds in the initial message of the next stream. None stands for the
        server's interval."""
        self.ahead = 0.0
        """Seconds to add to the time of each sample."""
        self.opened = 0
        """Number of streams that have begun since :meth:`reopen`."""
        page.route_web_socket(re.compile("gpuwidget/api/stream"), self._opened)

    def send(
        self,
        kernels: list[dict[str, Any]],
        gpus: list[dict[str, Any]],
        job: dict[str, Any] | None = None,
    ) -> None:
        """Send the memory ownership to the page now, and again whenever a new stream starts."""
        usage = {"type": "usage", "time": time.time(), "kernels": kernels, "gpus": gpus, "job": job}
        self._message = json.dumps(usage)
        for route in self._routes:
            route.send(self._message)

    def reopen(self) -> None:
        """Close the stream, after which the page reconnects."""
        self.opened = 0
        for route in self._routes:
            route.close()

    def _opened(self, route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        self._routes = [route]

        def from_server(message: str | bytes) -> None:
            content = json.loads(message)
            if content["type"] == "hello":
                self.opened += 1
                if self.interval is not None:
                    content["interval_s"] = self.interval
            if content["type"] == "sample":
                content["sample"]["time"] += self.ahead
            if content["type"] == "changes":
                content["time"] += self.ahead
            if content["type"] != "usage":
                route.send(json.dumps(content))
            if content["type"] == "hello" and self._message is not None:
                route.send(self._message)

        server.on_message(from_server)


def kernel(identity: str, name: str, **changes: Any) -> dict[str, Any]:
    """Return the entry of a notebook's kernel that became idle 5 seconds ago. ``name`` is the notebook's name
    and path."""
    return {
        "id": identity,
        "spec": "python3",
        "state": "idle",
        "idle_since": time.time() - 5,
        "session": f"session-{identity}",
        "kind": "notebook",
        "path": name,
        "name": name,
        "gpu_hours": None,
        "idle_holder": None,
    } | changes


def allocation(memory: float | None, **changes: Any) -> dict[str, Any]:
    """Return an allocation of ``memory`` GiB as the driver reports it."""
    return {
        **dict.fromkeys(("kernel", "terminal", "pid", "user", "program")),
        "memory": None if memory is None else round(memory * GIB),
        "source": "driver",
        "other_users": False,
    } | changes


def gpu(uuid: str, *allocations: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the memory ownership of one GPU. By default, none of its memory is unattributed, and its memory
    in use is what its holders hold."""
    held = sum(each["memory"] or 0 for each in allocations)
    return {
        "uuid": uuid,
        "holdings": list(allocations),
        "unattributed": 0,
        "reason": None,
        "means": [{"seconds": seconds, "utilization": None} for seconds in (600, 1800, 3600)],
        "memory_used": held + (changes.get("unattributed") or 0),
        "older": False,
    } | changes
