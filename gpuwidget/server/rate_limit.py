"""Rate limits of the stream's clients: a client may request fewer samples than the server takes."""

from __future__ import annotations

from typing import Generic, TypeVar

_TOLERANCE = 0.25
"""A sample may come early by this share of the interval, or a late sample would cost the next one. The
labextension expects it (stream/streamModel.ts)."""

Client = TypeVar("Client")


class RateLimit(Generic[Client]):
    """Selects which clients receive a sample; without a limit that is every one of each ``interval_s``."""

    def __init__(self, interval_s: float) -> None:
        self._tolerance_s = _TOLERANCE * interval_s
        self._intervals: dict[Client, float] = {}
        self._sent: dict[Client, float] = {}

    def set_interval(self, client: Client, interval_s: float) -> None:
        """Send the client a sample every ``interval_s`` seconds, or every sample for 0."""
        self.remove(client)
        if interval_s > 0:
            self._intervals[client] = interval_s

    def remove(self, client: Client) -> None:
        """Remove the client's limit. Safe to call twice."""
        self._intervals.pop(client, None)
        self._sent.pop(client, None)

    def due(self, client: Client, now: float) -> bool:
        """Return whether to send the client the sample that came at the monotonic second ``now``."""
        interval_s = self._intervals.get(client)
        if interval_s is None:
            return True
        sent = self._sent.get(client)
        if sent is not None and now - sent < interval_s - self._tolerance_s:
            return False
        self._sent[client] = now
        return True
