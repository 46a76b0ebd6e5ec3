"""One sampler for all of a server's clients, the past, and who gets which message."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Collection
from typing import Protocol

from gpuwidget.model.clock import Clock
from gpuwidget.model.installation import documentation
from gpuwidget.model.samples import Sample
from gpuwidget.sampler import Sampler, Subscription
from gpuwidget.server.encoded_samples import EncodedSample
from gpuwidget.server.history import Past
from gpuwidget.server.memory_ownership import UsageWatch
from gpuwidget.server.notebooks import Notebooks
from gpuwidget.server.rate_limit import Pacing
from gpuwidget.server.scrape_state import Scrapes
from gpuwidget.server.time_series import Asked
from gpuwidget.server.wire import SCHEMA, Usage
from gpuwidget.version import __version__

_MOST_ARRIVED = 64
"""Samples that wait for a busy event loop, at most; beyond that the oldest are let go of."""
_AT_ONCE = 4
_PORTIONS = 16
_REST_S = 0.002
"""A hundred messages in a row would keep other requests waiting for milliseconds. They go out a few at a
time, with a rest between, and all of a tick's within ``_PORTIONS`` rests where no older ones wait."""
_SLICE_S = 0.001
"""So long a course is encoded before other requests have their turn; a single piece may take a little longer.
On the loop and not on a thread: the JSON encoder keeps the interpreter to itself until it has done."""
_CHUNK = 1 << 16


class Listener(Protocol):
    """A client of the stream."""

    def send(self, message: bytes) -> bool:
        """Send a message without waiting; False where the client is gone or too far behind."""
        ...

    def drop(self) -> None:
        """End the connection: no further message will come."""
        ...


class Hub:
    """Samples while somebody listens, and hands each sample, encoded once, to all who do.

    A client that was sent the sample before is sent only what changed since then.

    All methods belong to the server's event loop. ``interval_s`` and ``history_s`` are seconds from sample
    to sample and of the past that is held at full rate. ``install`` is the command that installs gpuwidget.
    """

    def __init__(
        self,
        sampler: Sampler,
        notebooks: Notebooks,
        clock: Clock,
        *,
        interval_s: float,
        history_s: float,
        install: str | None = None,
    ) -> None:
        self._install = install
        self._documentation = documentation()
        self.interval_s = interval_s
        self.history_s = history_s
        self._sampler = sampler
        self._clock = clock
        self._past = Past(history_s, interval_s)
        self._usage = UsageWatch(notebooks, clock, interval_s, self._spread)
        self._scrapes = Scrapes(clock, interval_s)
        self._listeners: set[Listener] = set()
        self._waiting: set[asyncio.Future[bytes]] = set()
        self._subscription: Subscription | None = None
        self._always_on = False
        self._activity: Subscription | None = None
        self._activity_wanted: set[Listener] = set()
        self._pacing: Pacing[Listener] = Pacing(interval_s)
        self._encoding = asyncio.Lock()
        self._newest: EncodedSample | None = None
        self._have_newest: set[Listener] = set()
        """Clients that were sent the newest sample."""
        self._last_encoded: Sample | None = None
        """Used by the sampler's thread only."""
        self._arrived: deque[tuple[Sample, float, EncodedSample | None]] = deque(maxlen=_MOST_ARRIVED)
        self._outgoing: deque[tuple[Listener, bytes]] = deque()

    # -- clients -------------------------------------------------------------------------------------

    def join(self, listener: Listener, history_s: float) -> None:
        """Say hello with the past of ``history_s`` seconds, and who holds what; all that is new follows."""
        self._listeners.add(listener)
        self._adjust()
        if self._newest is not None:
            self._have_newest.add(listener)
        self._send(listener, self._hello(history_s))
        if self._usage.newest is not None and listener in self._listeners:
            self._send(listener, self._usage.newest)

    def leave(self, listener: Listener) -> None:
        """That client has gone. Safe to call twice."""
        self._listeners.discard(listener)
        self._have_newest.discard(listener)
        self._activity_wanted.discard(listener)
        self._pacing.forget(listener)
        self._look_at_activity()
        self._adjust()

    def want_activity(self, listener: Listener, wanted: bool) -> None:
        """That client looks at the hardware's counters, or does so no more; they are read while one does."""
        if wanted and listener in self._listeners:
            self._activity_wanted.add(listener)
        else:
            self._activity_wanted.discard(listener)
        self._look_at_activity()

    def want_interval(self, listener: Listener, interval_s: float) -> None:
        """That client has enough of a sample every ``interval_s`` seconds; 0 for each one."""
        if listener in self._listeners:
            self._pacing.wish(listener, interval_s)

    def stay_on(self) -> None:
        """Sample from now on whether or not anybody looks, the hardware's counters too."""
        self._always_on = True
        self._adjust()
        self._look_at_activity()

    async def sample(self, timeout_s: float) -> bytes | None:
        """The newest sample as JSON, at most one interval old; None where none comes in time."""
        if self._newest is not None:
            return self._newest.whole
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        self._adjust()
        try:
            return await asyncio.wait_for(waiting, timeout_s)
        except asyncio.TimeoutError:
            return None
        finally:
            self._waiting.discard(waiting)
            self._adjust()

    async def scrape(self, timeout_s: float) -> tuple[Sample, Usage | None] | None:
        """The newest sample and who holds what, for a Prometheus; None where no sample comes in time.

        Sampling goes on for a while, at a slow rate, so that the next scrape finds all that there is.
        """
        with self._scrapes.one():
            self._adjust()
            sample = await self._scrapes.whole(timeout_s, lambda: self._usage.told)
        self._adjust()
        return None if sample is None else (sample, self._usage.told)

    @property
    def now(self) -> float:
        """The time that samples are stamped with, epoch seconds."""
        return self._clock.time()

    def history(self, history_s: float) -> bytes:
        """The last ``history_s`` seconds of what is held, as JSON."""
        return self._past.encoded(self.now - history_s).encode()

    async def course(self, asked: Asked) -> list[bytes]:
        """A part of the past as JSON, in chunks; one at a time, and other requests go on meanwhile."""
        chunks: list[bytes] = []
        async with self._encoding:
            began = time.perf_counter()
            waiting: list[str] = []
            size = 0
            for part in self._past.course(asked):
                waiting.append(part)
                size += len(part)
                if size >= _CHUNK:
                    chunks.append("".join(waiting).encode())
                    waiting, size = [], 0
                if time.perf_counter() - began >= _SLICE_S:
                    await asyncio.sleep(0)
                    began = time.perf_counter()
            chunks.append("".join(waiting).encode())
        return chunks

    def close(self) -> None:
        """End all connections and the sampling."""
        self._always_on = False
        for listener in list(self._listeners):
            self._drop(listener)
        self._outgoing.clear()
        self._look_at_activity()
        self._scrapes.end()
        self._adjust()
        self._sampler.stop()

    # -- sampling ------------------------------------------------------------------------------------

    @property
    def _watched(self) -> bool:
        """Whether anybody wants every sample, encoded."""
        return bool(self._always_on or self._listeners or self._waiting)

    def _look_at_activity(self) -> None:
        wanted = self._always_on or bool(self._activity_wanted)
        if wanted and self._activity is None:
            # Takes no sample: those of the other subscription have the counters' figures in them.
            self._activity = self._sampler.subscribe(interval_s=self.interval_s, activity=True)
        elif not wanted and self._activity is not None:
            self._activity.close()
            self._activity = None

    def _adjust(self) -> None:
        """Sample as often as somebody wants it."""
        self._usage.listen(bool(self._listeners) or self._scrapes.go_on)
        if self._watched or self._scrapes.hurry:
            self._sample_every(self.interval_s)
        elif self._scrapes.go_on:
            self._sample_every(self._scrapes.interval_s)
        else:
            self._sample_every(None)
            self._scrapes.pause()
        if not self._watched:
            self._newest = None

    def _sample_every(self, interval_s: float | None) -> None:
        before = self._subscription
        if interval_s == (before.interval_s if before is not None else None):
            return
        self._subscription = None if interval_s is None else self._subscribe(interval_s)
        if before is not None:
            # After the new one has begun, so that the driver is not let go of in between.
            before.close()

    def _subscribe(self, interval_s: float) -> Subscription:
        loop = asyncio.get_running_loop()

        def arrive(sample: Sample) -> None:
            # Changes are encoded on the sampler's thread, so that the event loop only sends them.
            arrived = self._clock.monotonic()
            encoded = EncodedSample(sample, self._last_encoded) if self._watched else None
            self._last_encoded = sample if encoded is not None else None
            self._arrived.append((sample, arrived, encoded))
            if len(self._arrived) == 1:
                loop.call_soon_threadsafe(self._take)

        return self._sampler.subscribe(arrive, interval_s=interval_s)

    def _take(self) -> None:
        while self._arrived:
            self._tick(*self._arrived.popleft())

    def _tick(self, sample: Sample, arrived: float, encoded: EncodedSample | None) -> None:
        if encoded is not None:
            self._past.add(sample)
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_result(encoded.whole)
            self._send_sample(encoded, {each for each in self._listeners if self._pacing.due(each, arrived)})
            if self._watched:
                self._newest = encoded
        self._usage.see(sample, arrived)
        self._scrapes.see(sample)
        self._adjust()

    def _send_sample(self, encoded: EncodedSample, due: set[Listener]) -> None:
        """Send what changed to the due clients that were sent the sample before, the whole one to others."""
        previous = None if self._newest is None else self._newest.sample
        # Where the loop was busy, the sample before this one may have been dropped.
        follows = encoded.changes is not None and encoded.previous is previous
        ready = due & self._have_newest if follows else set()
        self._have_newest = due.copy()
        if encoded.changes is not None and ready:
            self._spread(encoded.changes, ready)
        if due - ready:
            self._spread(encoded.tick, due - ready)

    def _spread(self, message: bytes, listeners: Collection[Listener] | None = None) -> None:
        """Send a message to these clients, to all without any named, in the order of messages."""
        under_way = bool(self._outgoing)
        to = self._listeners if listeners is None else listeners
        self._outgoing.extend((listener, message) for listener in to)
        if not under_way:
            self._hand_out()

    def _hand_out(self) -> None:
        # Of all that waits: where the loop is busy a rest takes long, and messages must not pile up.
        share = max(_AT_ONCE, -(-max(len(self._listeners), len(self._outgoing)) // _PORTIONS))
        for _ in range(min(share, len(self._outgoing))):
            listener, message = self._outgoing.popleft()
            if listener in self._listeners:
                self._send(listener, message)
        if self._outgoing:
            asyncio.get_running_loop().call_later(_REST_S, self._hand_out)

    # -- messages ------------------------------------------------------------------------------------

    def _send(self, listener: Listener, message: bytes) -> None:
        if not listener.send(message):
            self._drop(listener)

    def _drop(self, listener: Listener) -> None:
        self.leave(listener)
        listener.drop()

    def _hello(self, history_s: float) -> bytes:
        head = {
            "type": "hello",
            "schema": SCHEMA,
            "version": __version__,
            "interval_s": self.interval_s,
            "history_s": self.history_s,
            "install": self._install,
            "documentation": self._documentation,
        }
        # The sample and the past are text already: put in place, not decoded and encoded again.
        begun = json.dumps(head, separators=(",", ":")).encode()[:-1]
        sample = b"null" if self._newest is None else self._newest.whole
        return begun + b',"sample":' + sample + b',"history":' + self.history(history_s) + b"}"
