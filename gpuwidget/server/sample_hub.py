"""Distributes the samples of one sampler to all clients of a server, as the history and as messages of the
stream."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple, Protocol

from gpuwidget.model.boundary import Boundary
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.installation import documentation
from gpuwidget.model.samples import Sample
from gpuwidget.sampler import Sampler, Subscription
from gpuwidget.server.client_limits import MAX_INITIAL_VALUES
from gpuwidget.server.encoded_samples import EncodedSample
from gpuwidget.server.encoding import encode, encode_at_once
from gpuwidget.server.gpu_use import GpuUseMonitor
from gpuwidget.server.history import HistoryStore
from gpuwidget.server.history_query import HistoryQuery
from gpuwidget.server.kernel_inventory import KernelInventory
from gpuwidget.server.memory_ownership import OwnershipMonitor
from gpuwidget.server.other_users import without_other_users
from gpuwidget.server.rate_limit import RateLimit
from gpuwidget.server.scrape_state import ScrapeState
from gpuwidget.server.slurm import SlurmMonitor
from gpuwidget.server.wire import STREAM_SCHEMA, MemoryOwnership
from gpuwidget.version import __version__

_LOG = logging.getLogger(__name__)

_MAX_ARRIVED = 64
"""The maximum number of samples that wait until the event loop is free. If there are more, the oldest are
dropped."""
_MIN_BATCH = 4
_BATCHES = 16
_BATCH_PAUSE_S = 0.002
"""Seconds between two batches of messages. Sending a hundred messages in one go would delay other requests by
milliseconds, so they are sent in batches. The messages for one sample are sent within ``_BATCHES`` pauses,
unless older messages are still in the queue.
"""
_TIME_SLICE_S = 0.001
"""Seconds for which a history query is encoded, or a recording read, before other requests run. A single part
may take a little longer. The encoding runs on the event loop: a thread would not help, because the JSON
encoder holds the GIL until it has finished."""
_WRITE_SIZE = 1 << 16
_PAST_S = 120.0
_PAST_INTERVAL_S = 0.5
"""When the first client arrives, the last two minutes of a recording are added to the history, in steps of
this length."""


class StreamClient(Protocol):
    """A client of the stream."""

    def send(self, message: bytes) -> bool:
        """Send a message without waiting. Return False if the client is gone or reads too slowly."""
        ...

    def drop(self) -> None:
        """Close the connection. After that, no messages are sent."""
        ...


class _Arrived(NamedTuple):
    """A sample that the event loop has not processed yet."""

    sample: Sample
    shown: Sample
    """The sample as clients receive it: the same object as ``sample`` unless other users are hidden."""
    arrived: float
    """Monotonic seconds."""
    encoded: EncodedSample | None


class SampleHub:
    """Takes samples while there are clients. Encodes each sample once, and sends it to all clients.

    A client that received the previous sample receives only the changes since then.

    All methods are called on the server's event loop. ``interval_s`` is the sampling interval in seconds,
    ``history_s`` is the length of the full-rate history in seconds, ``install`` is the command that installs
    gpuwidget, and ``hide_other_users`` is whether clients receive nothing about other users' processes except
    the sum of their memory.
    """

    def __init__(
        self,
        sampler: Sampler,
        inventory: KernelInventory,
        clock: Clock,
        *,
        interval_s: float,
        history_s: float,
        install: str | None = None,
        slurm: SlurmMonitor | None = None,
        hide_other_users: bool = False,
        allow_always_on: bool = False,
    ) -> None:
        self._install = install
        self._documentation = documentation()
        self.interval_s = interval_s
        self.history_s = history_s
        self._sampler = sampler
        self._clock = clock
        self._history = HistoryStore(history_s, interval_s)
        self.hide_other_users = hide_other_users
        self.allow_always_on = allow_always_on
        self._ownership = OwnershipMonitor(
            inventory,
            clock,
            self._history,
            self._broadcast,
            hide_other_users=hide_other_users,
        )
        self._ownership.slurm = slurm
        self._scrape_state = ScrapeState(clock, interval_s)
        self._clients: set[StreamClient] = set()
        self._waiting: set[asyncio.Future[EncodedSample]] = set()
        self._subscription: Subscription | None = None
        self._always_on = False
        self._counters_always_on = False
        self._gpu_use: GpuUseMonitor | None = None
        self._activity: Subscription | None = None
        self._activity_clients: set[StreamClient] = set()
        self._rate_limit: RateLimit[StreamClient] = RateLimit(interval_s)
        self._encoding = asyncio.Lock()
        self._reading_past = asyncio.Lock()
        self._newest: EncodedSample | None = None
        self._have_newest: set[StreamClient] = set()
        """Clients to which the newest sample was sent."""
        self._last_encoded: Sample | None = None
        """The sample that was encoded last. Only the sampler's thread uses it."""
        self._arrived: deque[_Arrived] = deque(maxlen=_MAX_ARRIVED)
        self._outgoing: deque[tuple[StreamClient, bytes]] = deque()

    # -- clients -------------------------------------------------------------------------------------

    async def read_past(self) -> None:
        """Add the last minutes of a recording to the history, for the first client that joins.

        Other requests can run between the samples. A client may join even if the past can't be read.
        """
        passing = (asyncio.CancelledError,)
        async with self._reading_past:
            if self._clients or self._always_on:
                return
            with Boundary(_LOG, "the past of a recording could not be read", passing=passing):
                since = max(self._history.newest + _PAST_INTERVAL_S, self.now - _PAST_S)
                started = SYSTEM_CLOCK.monotonic()
                for sample in self._sampler.recorded_past(since, _PAST_INTERVAL_S):
                    if sample.time <= self._history.newest:
                        break  # sampling has begun meanwhile
                    self._history.add(sample)
                    if SYSTEM_CLOCK.monotonic() - started >= _TIME_SLICE_S:
                        await asyncio.sleep(0)
                        started = SYSTEM_CLOCK.monotonic()

    def join(self, client: StreamClient, history_s: float) -> None:
        """Send the initial message with ``history_s`` seconds of history, then the owners of the memory.

        From then on, the client receives all samples. If the history is very large, the initial message
        contains only its newest part.
        """
        self._clients.add(client)
        self._update_subscription()
        if self._newest is not None:
            self._have_newest.add(client)
        self._send(client, self._initial_message(history_s))
        if self._ownership.newest is not None and client in self._clients:
            self._send(client, self._ownership.newest)

    def leave(self, client: StreamClient) -> None:
        """Remove a client. Safe to call twice."""
        self._clients.discard(client)
        self._have_newest.discard(client)
        self._activity_clients.discard(client)
        self._rate_limit.remove(client)
        self._update_activity()
        self._update_subscription()

    def set_activity(self, client: StreamClient, wanted: bool) -> None:
        """Set whether the client requests the hardware counters.

        The counters are read as long as any client requests them.
        """
        if wanted and client in self._clients:
            self._activity_clients.add(client)
        else:
            self._activity_clients.discard(client)
        self._update_activity()

    def set_interval(self, client: StreamClient, interval_s: float) -> None:
        """Limit a client to one sample per ``interval_s`` seconds; 0 removes the limit."""
        if client in self._clients:
            self._rate_limit.set_interval(client, interval_s)

    def monitor_use(self, monitor: GpuUseMonitor) -> None:
        """From now on, sample at a low rate even without clients, for ``monitor``."""
        self._ownership.gpu_use = self._gpu_use = monitor
        monitor.start(has_pages=lambda: bool(self._clients))
        self._update_subscription()

    def set_always_on(self, on: bool) -> None:
        """Set whether to sample even without clients, and tell the clients. The hardware counters are not
        read for that."""
        self._always_on = on
        self._update_subscription()
        self._broadcast(encode({"type": "always_on", "always_on": on}))

    def stay_on(self) -> None:
        """From now on, sample even without clients. The samples include the hardware counters."""
        self._always_on = self._counters_always_on = True
        self._update_subscription()
        self._update_activity()

    async def sample(self, timeout_s: float) -> EncodedSample | None:
        """Return the newest sample, at most one interval old; None if no sample arrives in time."""
        if self._newest is not None:
            return self._newest
        waiting: asyncio.Future[EncodedSample] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        self._update_subscription()
        try:
            return await asyncio.wait_for(waiting, timeout_s)
        except asyncio.TimeoutError:
            return None
        finally:
            self._waiting.discard(waiting)
            self._update_subscription()

    async def scrape(self, timeout_s: float) -> tuple[Sample, MemoryOwnership | None] | None:
        """Return the newest sample and the owners of memory for Prometheus; None if no sample arrives in
        time.

        Sampling continues for a while at a low rate, so that the next scrape has all values.
        """
        with self._scrape_state.scraping():
            self._update_subscription()
            sample = await self._scrape_state.wait_for_sample(timeout_s, lambda: self._ownership.ownership)
        self._update_subscription()
        return None if sample is None else (sample, self._ownership.ownership)

    @property
    def clients(self) -> int:
        """Number of clients of the stream."""
        return len(self._clients)

    @property
    def clock(self) -> Clock:
        """The clock that sets the times of samples."""
        return self._clock

    @property
    def gpu_use(self) -> GpuUseMonitor | None:
        """The monitor of how kernels use the GPUs; None if the administrator has not turned it on."""
        return self._gpu_use

    @property
    def now(self) -> float:
        """The current time in epoch seconds, from the clock that sets the times of samples."""
        return self._clock.time()

    def has_history(self, since: float, until: float) -> bool:
        """Return whether any sample between two times (epoch seconds) is stored."""
        return self._history.has_samples(since, until)

    def history(self, history_s: float, max_values: int | None = None) -> bytes:
        """Return the last ``history_s`` seconds of the history as JSON, with at most ``max_values``
        values."""
        return self._history.encode_recent(self.now - history_s, max_values)

    async def query_history(self, query: HistoryQuery) -> list[bytes]:
        """Return a part of the history as JSON, in pieces that the caller writes one by one.

        Only one query is encoded at a time. Other requests can run between the parts of a query.
        """
        pieces: list[bytes] = []
        async with self._encoding:
            started = SYSTEM_CLOCK.monotonic()
            piece = bytearray()
            for part in self._history.query(query):
                piece += part
                if len(piece) >= _WRITE_SIZE:
                    pieces.append(bytes(piece))
                    piece.clear()
                if SYSTEM_CLOCK.monotonic() - started >= _TIME_SLICE_S:
                    await asyncio.sleep(0)
                    started = SYSTEM_CLOCK.monotonic()
            pieces.append(bytes(piece))
        return pieces

    def close(self) -> None:
        """Close all connections and stop sampling."""
        self._always_on = self._counters_always_on = False
        if self._gpu_use is not None:
            self._gpu_use.stop()
            self._ownership.gpu_use = self._gpu_use = None
        for client in list(self._clients):
            self._drop(client)
        self._outgoing.clear()
        self._update_activity()
        self._scrape_state.stop()
        self._update_subscription()
        self._sampler.stop()

    # -- sampling ------------------------------------------------------------------------------------

    @property
    def _needs_encoded(self) -> bool:
        """Whether every sample must be encoded and stored in the history."""
        return bool(self._always_on or self._clients or self._waiting)

    def _update_activity(self) -> None:
        wanted = self._counters_always_on or bool(self._activity_clients)
        if wanted and self._activity is None:
            # This subscription only makes the sampler read the counters. The samples that the hub receives
            # from its other subscription then contain them.
            self._activity = self._sampler.subscribe(interval_s=self.interval_s, activity=True)
        elif not wanted and self._activity is not None:
            self._activity.close()
            self._activity = None

    def _update_subscription(self) -> None:
        """Sample at the rate that clients and scrapes need, or not at all."""
        self._ownership.enable(
            bool(self._clients) or self._scrape_state.needs_sampling or self._gpu_use is not None
        )
        if self._needs_encoded or self._scrape_state.is_waiting:
            self._sample_every(self.interval_s)
        elif self._scrape_state.needs_sampling:
            self._sample_every(self._scrape_state.interval_s)
        else:
            self._sample_every(None if self._gpu_use is None else self._gpu_use.interval_s)
            self._scrape_state.discard_sample()
        if not self._needs_encoded:
            self._newest = None

    def _sample_every(self, interval_s: float | None) -> None:
        before = self._subscription
        if interval_s == (before.interval_s if before is not None else None):
            return
        self._subscription = None if interval_s is None else self._subscribe(interval_s)
        if before is not None:
            # Close the old subscription after starting the new one, so that the driver stays open.
            before.close()

    def _subscribe(self, interval_s: float) -> Subscription:
        loop = asyncio.get_running_loop()

        def receive(sample: Sample) -> None:
            # Changes are encoded here, on the sampler's thread, so that the event loop only has to send them.
            arrived = self._clock.monotonic()
            shown = without_other_users(sample) if self.hide_other_users else sample
            encoded = EncodedSample(shown, self._last_encoded) if self._needs_encoded else None
            self._last_encoded = shown if encoded is not None else None
            self._arrived.append(_Arrived(sample, shown, arrived, encoded))
            if len(self._arrived) == 1:
                with suppress(RuntimeError):  # The event loop is closed, because the server ends.
                    loop.call_soon_threadsafe(self._process_arrived)

        return self._sampler.subscribe(receive, interval_s=interval_s)

    def _process_arrived(self) -> None:
        while self._arrived:
            self._process(*self._arrived.popleft())

    def _process(self, sample: Sample, shown: Sample, arrived: float, encoded: EncodedSample | None) -> None:
        if encoded is not None:
            if self._always_on or self._clients:
                # A sample for a single request is not stored. Pages whose views are closed request one every
                # few seconds, and charts would show them as isolated points.
                self._history.add(shown)
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_result(encoded)
            due = {client for client in self._clients if self._rate_limit.due(client, arrived)}
            self._send_sample(encoded, due)
            if self._needs_encoded:
                self._newest = encoded
        if self._gpu_use is not None:
            self._gpu_use.observe(sample)
        self._ownership.add_sample(sample)
        self._scrape_state.add_sample(shown)
        self._update_subscription()

    def _send_sample(self, encoded: EncodedSample, due: set[StreamClient]) -> None:
        """Send the changes to due clients that have the previous sample, and the whole sample to other due
        clients."""
        previous = None if self._newest is None else self._newest.sample
        # If the event loop was busy, the sample before this one may have been dropped. No client has it, so
        # the changes since then can't be applied.
        follows = encoded.changes is not None and encoded.previous is previous
        ready = due & self._have_newest if follows else set()
        self._have_newest = due.copy()
        if encoded.changes is not None and ready:
            self._broadcast(encoded.changes, ready)
        if due - ready:
            self._broadcast(encoded.message, due - ready)

    def _broadcast(self, message: bytes, clients: Collection[StreamClient] | None = None) -> None:
        """Append a message for these clients, by default for all clients, to the queue of outgoing
        messages."""
        is_sending = bool(self._outgoing)
        recipients = self._clients if clients is None else clients
        self._outgoing.extend((client, message) for client in recipients)
        if not is_sending:
            self._send_batch()

    def _send_batch(self) -> None:
        # The batch grows with the queue, because pauses are long on a busy event loop and messages must not
        # accumulate.
        size = max(_MIN_BATCH, -(-max(len(self._clients), len(self._outgoing)) // _BATCHES))
        for _ in range(min(size, len(self._outgoing))):
            client, message = self._outgoing.popleft()
            if client in self._clients:
                self._send(client, message)
        if self._outgoing:
            asyncio.get_running_loop().call_later(_BATCH_PAUSE_S, self._send_batch)

    # -- messages to single clients ------------------------------------------------------------------

    def _send(self, client: StreamClient, message: bytes) -> None:
        if not client.send(message):
            self._drop(client)

    def _drop(self, client: StreamClient) -> None:
        self.leave(client)
        client.drop()

    def _initial_message(self, history_s: float) -> bytes:
        return encode_at_once(
            {
                "type": "hello",
                "schema": STREAM_SCHEMA,
                "version": __version__,
                "interval_s": self.interval_s,
                "history_s": self.history_s,
                "install": self._install,
                "documentation": self._documentation,
                "always_on": self._always_on if self.allow_always_on else None,
                "sample": None if self._newest is None else self._newest.whole,
                "history": self.history(history_s, MAX_INITIAL_VALUES),
            }
        )
