"""Who holds what, said to one page in the server's place: the rest of its stream is the server's own."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from playwright.sync_api import Page, WebSocketRoute

GIB = 1024**3


class FakedUsage:
    """Stands between a page and the server's stream; to be made before the page is loaded."""

    def __init__(self, page: Page) -> None:
        self._routes: list[WebSocketRoute] = []
        self._message: str | None = None
        self.interval: float | None = None
        """Seconds between samples that the next stream tells; None for the server's own."""
        self.ahead = 0.0
        """How much later than they are samples are said to be."""
        page.route_web_socket(re.compile("gpuwidget/api/stream"), self._opened)

    def say(self, kernels: list[dict[str, Any]], gpus: list[dict[str, Any]]) -> None:
        """Say it now, and first of all to a stream that is opened anew."""
        usage = {"type": "usage", "time": time.time(), "kernels": kernels, "gpus": gpus}
        self._message = json.dumps(usage)
        for route in self._routes:
            route.send(self._message)

    def reopen(self) -> None:
        """Break the stream off; the page opens it anew."""
        for route in self._routes:
            route.close()

    def _opened(self, route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        self._routes = [route]

        def from_server(message: str | bytes) -> None:
            said = json.loads(message)
            if said["type"] == "hello" and self.interval is not None:
                said["interval_s"] = self.interval
            if said["type"] == "sample":
                said["sample"]["time"] += self.ahead
            if said["type"] == "changes":
                said["time"] += self.ahead
            if said["type"] != "usage":
                route.send(json.dumps(said))
            if said["type"] == "hello" and self._message is not None:
                route.send(self._message)

        server.on_message(from_server)


def kernel(identity: str, name: str, **changes: Any) -> dict[str, Any]:
    """A notebook's kernel that has been idle for a moment; its path is its name."""
    return {
        "id": identity,
        "spec": "python3",
        "state": "idle",
        "idle_since": time.time() - 5,
        "session": f"session-{identity}",
        "kind": "notebook",
        "path": name,
        "name": name,
    } | changes


def holding(memory: float | None, **changes: Any) -> dict[str, Any]:
    """Somebody who holds so many GiB, as the driver says."""
    return {
        **dict.fromkeys(("kernel", "terminal", "pid", "user", "program", "arguments")),
        "memory": None if memory is None else round(memory * GIB),
        "source": "driver",
    } | changes


def gpu(uuid: str, *holdings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Who holds the memory of one GPU, nothing of it unattributed."""
    means = [{"seconds": seconds, "utilization": None} for seconds in (600, 1800, 3600)]
    return {
        "uuid": uuid,
        "holdings": list(holdings),
        "unattributed": 0,
        "reason": None,
        "means": means,
    } | changes
