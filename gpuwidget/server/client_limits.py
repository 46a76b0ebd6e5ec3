"""Limits on what clients can make the server do: connections, messages and history requests.

Pages and programs of the server's users can send anything at any rate, by mistake or on purpose. The limits
are far above what open pages need, and keep the server's memory bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tornado.web import HTTPError

from gpuwidget.model.clock import Clock

MAX_STREAMS = 256
"""The maximum number of clients of the stream. Each open page with a visible panel or dashboard is one."""
MAX_MESSAGE_BYTES = 4096
"""The maximum size of a client's message. Valid messages take less than 100 bytes."""
MAX_HISTORY_REQUESTS = 16
"""The maximum number of history requests that are being answered. A dashboard has at most one."""
MAX_INITIAL_VALUES = 200_000
"""The maximum number of values in the history of a stream's first message, which then takes about 2 MB. The
full history of 16 GPUs with the default settings has about 150,000."""

STREAM_RETRY_S = 30
HISTORY_RETRY_S = 5
"""Seconds after which a refused client should try again, as in the header ``Retry-After``."""

_BURST = 30
_MESSAGES_PER_S = 5.0

TOO_MANY_STREAMS = (
    f"{MAX_STREAMS} clients already receive this server's GPU data, the maximum. Close pages or programs "
    "that receive it, then try again."
)
TOO_MANY_MESSAGES = f"too many messages: more than {_MESSAGES_PER_S:g} per second"
"""A websocket's close reason, which may take up to 123 bytes."""
_TOO_MANY_HISTORY_REQUESTS = (
    f"This server is already answering {MAX_HISTORY_REQUESTS} history requests, the maximum. Try again in "
    f"{HISTORY_RETRY_S} seconds."
)


class MessageLimit:
    """Limits the rate of one client's messages with a token bucket.

    A client may send a burst of messages, and after that as many per second as the rate allows.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens = float(_BURST)
        self._updated = clock.monotonic()

    def allows(self) -> bool:
        """Count a message, and return whether it is within the limit."""
        now = self._clock.monotonic()
        gained = (now - self._updated) * _MESSAGES_PER_S
        self._tokens, self._updated = min(_BURST, self._tokens + gained), now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class HistoryLimit:
    """Limits how many history requests a server answers at the same time."""

    def __init__(self) -> None:
        self._running = 0

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request until the end of the ``with`` block. Raise HTTPError 429 if there are too many."""
        if self._running >= MAX_HISTORY_REQUESTS:
            raise TooManyRequests(_TOO_MANY_HISTORY_REQUESTS, HISTORY_RETRY_S)
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1


class TooManyRequests(HTTPError):
    """Status 429 with a sentence, and the number of seconds after which the client should try again."""

    def __init__(self, sentence: str, retry_s: int) -> None:
        super().__init__(429, sentence)
        self.retry_s = retry_s
