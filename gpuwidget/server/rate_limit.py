"""Who gets which of the samples: a client may have fewer than there are."""

from __future__ import annotations

from typing import Generic, TypeVar

_EARLY = 0.25
"""A sample that comes earlier by this share of the interval is not too early: else a late one would cost the
next. The labextension reckons with it (stream/streamModel.ts)."""

Client = TypeVar("Client")


class Pacing(Generic[Client]):
    """Leaves samples out for clients that want fewer than one every ``interval_s`` seconds."""

    def __init__(self, interval_s: float) -> None:
        self._early = _EARLY * interval_s
        self._wishes: dict[Client, float] = {}
        self._sent: dict[Client, float] = {}

    def wish(self, client: Client, interval_s: float) -> None:
        """From now on that client wants a sample every ``interval_s`` seconds, or each one with 0."""
        self.forget(client)
        if interval_s > 0:
            self._wishes[client] = interval_s

    def forget(self, client: Client) -> None:
        """That client has gone, or wants each one. Safe to call twice."""
        self._wishes.pop(client, None)
        self._sent.pop(client, None)

    def due(self, client: Client, now: float) -> bool:
        """Whether that client is to have the sample that came at the monotonic second ``now``."""
        wish = self._wishes.get(client)
        if wish is None:
            return True
        sent = self._sent.get(client)
        if sent is not None and now - sent < wish - self._early:
            return False
        self._sent[client] = now
        return True
