"""Rate limits for the stream's clients: a client may request fewer samples than the server takes."""

from __future__ import annotations

from typing import Generic, TypeVar

_TOLERANCE = 0.25
"""A client receives a sample even if it arrives too early for the client's interval, by up to this fraction
of the server's interval. Without this tolerance, one late sample would cause the next one, which is on time,
to be skipped. The labextension relies on the tolerance (stream/streamModel.ts)."""

Client = TypeVar("Client")


class RateLimit(Generic[Client]):
    """Decides which clients receive a sample. A client without a limit receives every sample."""

    def __init__(self, interval_s: float) -> None:
        self._tolerance_s = _TOLERANCE * interval_s
        self._intervals: dict[Client, float] = {}
        self._sent: dict[Client, float] = {}

    def set_interval(self, client: Client, interval_s: float) -> None:
        """Limit the client to one sample per ``interval_s`` seconds; 0 removes the limit."""
        self.remove(client)
        if interval_s > 0:
            self._intervals[client] = interval_s

    def remove(self, client: Client) -> None:
        """Remove the client's limit, if any. Safe to call twice."""
        self._intervals.pop(client, None)
        self._sent.pop(client, None)

    def due(self, client: Client, now: float) -> bool:
        """Return whether the client should receive the sample that arrived at ``now`` in monotonic
        seconds."""
        interval_s = self._intervals.get(client)
        if interval_s is None:
            return True
        sent = self._sent.get(client)
        if sent is not None and now - sent < interval_s - self._tolerance_s:
            return False
        self._sent[client] = now
        return True
