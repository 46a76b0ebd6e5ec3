"""The sampler, which manages subscriptions, the sampling threads, and callers that wait for a sample."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.readings import Activity
from gpuwidget.model.samples import Gpu, Sample
from gpuwidget.model.thread_frames import caller_of, frames_of_threads
from gpuwidget.sampler.guarded_source import GuardedSource
from gpuwidget.sampler.poll_loops import FastPollLoop, SlowPoll, SlowPollLoop
from gpuwidget.sampler.poll_threads import HUNG_AFTER_S, PollThread, PollThreads
from gpuwidget.sampler.recorded_past import recorded_past
from gpuwidget.sampler.subscriptions import INTERVAL_S, OnSample, Subscription, Subscriptions
from gpuwidget.sources import PowerRecord, Source, UtilizationWindow, WorkingProcesses, open_source

OPEN_TIMEOUT_S = 5.0
"""Seconds to wait until the driver is open, for a caller that can't continue without readings."""
_WATCHDOG_MAX_LATE_S = 0.25
"""If the watchdog wakes up this many seconds late, it waits for its next check to decide which calls hang."""
_SLOW_CHECK_INTERVAL_S = 0.25
"""Maximum seconds until the slow thread checks again whether subscriptions have changed."""
_MAX_WARM_UP_SAMPLES = 10
_LINGER_S = 30.0
_RECENT_S = 60.0
_RECENT_SPACING_S = 0.25


class RecentMemory:
    """The memory in use on every GPU over the last minute, from the samples that the sampler has taken."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float, dict[str, int | None]]] = deque(
            maxlen=round(_RECENT_S / _RECENT_SPACING_S)
        )

    def add(self, sample: Sample, now: float) -> None:
        """Store a sample's memory readings, at most four times per second. Times are in monotonic seconds."""
        if self._rows and now - self._rows[-1][0] < _RECENT_SPACING_S:
            return
        self._rows.append((now, {reading.uuid: reading.memory_used for reading in sample.readings}))

    def memory(self, uuid: str, now: float) -> tuple[tuple[float, int | None], ...]:
        """Return one GPU's readings, oldest first: their age in seconds at ``now``, and the bytes in use."""
        return tuple(
            (now - time, row.get(uuid)) for time, row in tuple(self._rows) if 0 <= now - time <= _RECENT_S
        )


class Sampler:
    """Reads one source for any number of subscriptions.

    The source stays open and the threads stay alive for ``linger_s`` seconds after the last subscription has
    ended, so that a cell that runs soon afterwards starts without delay. Meanwhile the threads only sleep.
    With ``hide_errors``, neither a log nor a reading contains the text of an unexpected error, which may name
    a process.
    """

    def __init__(
        self,
        source: Source,
        clock: Clock = SYSTEM_CLOCK,
        *,
        linger_s: float = 0.0,
        hide_errors: bool = False,
    ) -> None:
        self._source = source
        self._clock = clock
        self._linger_s = linger_s
        self._hide_errors = hide_errors
        self._reset()
        reset_after_fork(self._reset)

    def _reset(self) -> None:
        # The conditions share one lock. There are three of them, so that a short cell wakes only the threads
        # it needs.
        lock = threading.Lock()
        self._wake_fast = threading.Condition(lock)
        """The fast thread waits here."""
        self._wake_others = threading.Condition(lock)
        """The slow thread and the watchdog wait here, with a timeout."""
        self._answered = threading.Condition(lock)
        """Callers that wait for a sample or for the opening wait here."""
        self._subscriptions = Subscriptions()
        self._guarded = GuardedSource(self._source, self._clock, lock, hide_errors=self._hide_errors)
        self._fast = FastPollLoop(self._guarded, self._subscriptions, self._clock)
        self._slow = SlowPollLoop(self._guarded, self._subscriptions, self._clock)
        self._threads = PollThreads({"fast": self._run_fast, "slow": self._run_slow}, self._run_watchdog)
        self._stopping = False
        self._latest: Sample | None = None
        self.recent = RecentMemory()

    # -- subscribers ---------------------------------------------------------------------------------

    @property
    def latest(self) -> Sample | None:
        """The newest sample, or None before the first sample."""
        return self._latest

    @property
    def known_gpus(self) -> tuple[Gpu, ...]:
        """All GPUs found so far, including lost ones; empty before the source is first opened."""
        return self._guarded.gpus

    def windows(self, uuid: str) -> tuple[UtilizationWindow, ...]:
        """Return one GPU's latest utilization windows, which are read only while a subscription's ``windows``
        contains the GPU."""
        return next((state.windows for state in self._guarded.states if state.gpu.uuid == uuid), ())

    def power_records(self) -> dict[str, PowerRecord]:
        """Return what the driver has recorded about the power of each GPU, by UUID.

        The records are read only during a run.
        """
        return {state.gpu.uuid: state.power_record for state in self._guarded.states}

    def working_processes(self, uuid: str) -> tuple[WorkingProcesses, ...]:
        """Return which processes have worked on one GPU, in the latest intervals, oldest first.

        They are read only while a subscription's ``working_processes`` contains the GPU.
        """
        return next((state.working_processes for state in self._guarded.states if state.gpu.uuid == uuid), ())

    def activities(self, uuid: str) -> tuple[Activity, ...]:
        """Return one GPU's latest measurements of the hardware counters, oldest first.

        The result is empty if the GPU has no GPM or no subscription has requested ``activity``.
        """
        return next((state.activities for state in self._guarded.states if state.gpu.uuid == uuid), ())

    @property
    def wanted(self) -> bool:
        """Whether the sampler has at least one subscription."""
        return bool(self._subscriptions)

    @property
    def running(self) -> bool:
        """Whether any thread of this sampler is alive."""
        return any(thread.is_alive() for thread in self._threads.threads)

    @property
    def has_no_thread(self) -> bool:
        """Whether a subscription gets no samples because its thread could not be started."""
        with self._wake_fast:
            return self.wanted and not self._threads.has("fast")

    def subscribe(
        self,
        on_sample: OnSample | None = None,
        *,
        interval_s: float = INTERVAL_S,
        memory_interval_s: float | None = None,
        activity: bool = False,
    ) -> Subscription:
        """Start passing samples to ``on_sample``, at most one per ``interval_s`` seconds.

        ``memory_interval_s`` adds samples in between, in which only ``memory_used`` is new. ``activity`` adds
        the hardware counters. ``on_sample`` runs on the sampler's thread and must return quickly. If it
        raises, the exception is logged.
        """
        subscription = Subscription(
            self._unsubscribe, on_sample, interval_s, memory_interval_s, activity, self._hide_errors
        )
        with self._wake_fast:
            if not self._subscriptions:
                # The slow calls are not made again for a new subscription: they hold the driver's lock for
                # milliseconds, which would delay the start of a run.
                self._fast.restart()
            if activity:
                self._slow.start_activity()
            if memory_interval_s is not None:
                self._fast.start_run()
            self._stopping = False
            self._subscriptions.add(subscription)
            self._fast.poll_by(self._clock.monotonic() + interval_s)
            self._threads.start()
            self._wake_fast.notify_all()
        return subscription

    def warm_up(self) -> Subscription:
        """Open the source and make the first slow calls in the background, for a run that may start soon.

        The returned subscription ends by itself, but a caller that no longer needs it may close it earlier.
        """
        subscription = self.subscribe()
        seen = 0

        def close_when_warm(sample: Sample) -> None:
            nonlocal seen
            seen += 1
            warm = all(reading.utilization_window is not None for reading in sample.readings)
            if warm or seen == _MAX_WARM_UP_SAMPLES:
                subscription.close()

        subscription.on_sample = close_when_warm
        return subscription

    def _unsubscribe(self, subscription: Subscription) -> None:
        with self._wake_fast:
            self._subscriptions.remove(subscription)
            if not self._subscriptions and not self._linger_s:
                self._wake_fast.notify_all()

    def recorded_past(self, since: float, interval_s: float) -> Iterator[Sample]:
        """Yield what a recording has shown since ``since`` (epoch seconds); nothing if the GPUs are live."""
        return recorded_past(self._source, since, self._clock.time(), interval_s)

    def read_now(self, timeout_s: float) -> Sample | None:
        """Return a sample that was read after this method was called. Needs a subscription.

        If there is none after ``timeout_s`` seconds, return the latest readings instead. ``measured`` is None
        in those from before the call, and their ``answered`` shows how old they are. Returns None if the
        source has not been opened by then. The timeout counts from the start of the opening, as in
        :meth:`wait_until_open`.
        """
        with self._wake_fast:
            if not self._subscriptions:
                return None
            number, requested = self._fast.request(), self._clock.monotonic()
            self._wake_fast.notify_all()
            self._wait_for(lambda: self._fast.is_done(number), self._waiting_since() + timeout_s)
            if self._fast.is_done(number):
                return self._latest
            return self._guarded.sample(requested) if self._guarded.opened else None

    def wait_until_open(self, timeout_s: float) -> bool:
        """Wait until the source is open, and return whether it is. Needs a subscription.

        The timeout counts from the start of the opening. If the opening hangs, only the first caller
        therefore waits for the whole timeout.
        """
        with self._wake_fast:
            deadline = self._waiting_since() + timeout_s
            self._wait_for(lambda: self._guarded.opened or not self._subscriptions, deadline)
            return self._guarded.opened

    def current_call(self) -> str | None:
        """Return the NVML function that a thread of the sampler is calling; None if there is none."""
        frames = frames_of_threads()
        with self._wake_fast:
            threads = self._threads.threads
        for thread in threads:
            frame = frames.get(thread.ident or 0)
            while frame is not None:
                if frame.f_code.co_name.startswith("nvml"):
                    return frame.f_code.co_name
                frame = caller_of(frame)
        return None

    def _waiting_since(self) -> float:
        """Return the time from which a caller's timeout counts, in monotonic seconds.

        It is now or, as long as the source has never been open, the start of its opening.
        """
        since = self._guarded.opening_since
        return self._clock.monotonic() if since is None or self._guarded.opened else since

    def _wait_for(self, predicate: Callable[[], bool], deadline: float) -> None:
        while not predicate() and not self._stopping and self._threads.has("fast"):
            left = deadline - self._clock.monotonic()
            if left <= 0:
                break
            self._clock.wait(self._answered, left)

    def stop(self) -> None:
        """End all subscriptions and threads, and close the source. A thread in a hung call is abandoned.

        A new subscription restarts the sampler.
        """
        with self._wake_fast:
            self._stopping = True
            self._subscriptions.clear()
            threads = self._threads.threads
            for condition in (self._wake_fast, self._wake_others, self._answered):
                condition.notify_all()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout=HUNG_AFTER_S)
        with self._wake_fast:
            for poll_thread in self._threads.current:
                if poll_thread.is_alive():
                    self._guarded.abandon(poll_thread)
                self._remove(poll_thread)
            self._guarded.opened = False

    # -- threads -------------------------------------------------------------------------------------

    def _remove(self, thread: PollThread) -> None:
        # The caller holds the lock. A subscription added later therefore finds no thread and starts a new
        # one.
        if self._threads.remove(thread):
            self._wake_others.notify_all()

    @property
    def _ending(self) -> bool:
        """Whether the slow thread and the watchdog must end: the fast thread has ended, or all must stop."""
        return self._stopping or not self._threads.has("fast")

    def _run_fast(self, thread: PollThread) -> None:
        idle_since: float | None = None
        while True:
            with self._wake_fast:
                if thread.abandoned:
                    return
                now = self._clock.monotonic()
                if not self._subscriptions:
                    if idle_since is None:
                        idle_since = now
                    left = idle_since + self._linger_s - now
                    if left > 0 and not self._stopping:
                        self._clock.wait(self._wake_fast, left)
                        continue
                    self._remove(thread)
                    self._guarded.opened = False
                    break
                idle_since = None
                due = self._fast.due
                if due > now:
                    self._clock.wait(self._wake_fast, due - now)
                    continue
            self._poll_fast(thread)
        self._guarded.close()

    def _poll_fast(self, thread: PollThread) -> None:
        if not self._open_if_due(thread):
            return
        with self._wake_fast:
            poll = self._fast.start_poll()
        read = partial(self._fast.read, poll)
        for state in poll.states:
            if state.callable and not self._guarded.call(thread, state, read):
                return
        with self._wake_fast:
            ended = self._fast.end_poll(poll)
            sample = self._latest = self._guarded.sample()
            self.recent.add(sample, ended)
            self._answered.notify_all()
            due = self._subscriptions.due(poll.full, ended)
        for subscription in due:
            subscription.deliver(sample)

    def _open_if_due(self, thread: PollThread) -> bool:
        """Open the source if that is due. Returns False if the poll can't be made."""
        with self._wake_fast:
            if not self._guarded.begin_opening():
                if not self._guarded.opened:
                    self._fast.skip()
                return self._guarded.opened
        inventory = self._guarded.open(thread)
        with self._wake_fast:
            self._guarded.end_opening(inventory)
            self._answered.notify_all()
            self._wake_others.notify_all()
            return not thread.abandoned

    def _run_slow(self, thread: PollThread) -> None:
        while True:
            with self._wake_fast:
                if thread.abandoned:
                    return
                if self._ending:
                    self._remove(thread)
                    break
                now = self._clock.monotonic()
                due = self._slow.due
                if due > now:
                    self._clock.wait(self._wake_others, min(due - now, _SLOW_CHECK_INTERVAL_S))
                    continue
                poll = self._slow.start_poll()
            self._poll_slow(thread, poll)
        self._guarded.stop_activity()

    def _poll_slow(self, thread: PollThread, poll: SlowPoll) -> None:
        if poll.stop_activity:
            self._guarded.stop_activity()
            for state in poll.states:
                state.drop_activity()
        for read in poll.reads:
            for state in poll.states:
                if state.callable and not self._guarded.call(thread, state, read):
                    return

    def _run_watchdog(self) -> None:
        late = 0.0
        while True:
            with self._wake_fast:
                if self._ending:
                    self._threads.remove_watchdog()
                    return
                now = self._clock.monotonic()
                due = self._threads.next_hang(now)
                if late >= _WATCHDOG_MAX_LATE_S:
                    due = min(due, now + _WATCHDOG_MAX_LATE_S)
                self._clock.wait(self._wake_others, due - now)
                late = self._clock.monotonic() - due
                # If something held the GIL, the watchdog itself woke up late. A call that seems to hang may
                # then be about to return, so the next check decides.
                if late < _WATCHDOG_MAX_LATE_S:
                    self._abandon_hung_calls()

    def _abandon_hung_calls(self) -> None:
        now = self._clock.monotonic()
        for thread in self._threads.current:
            if thread.is_hung(now):
                self._guarded.abandon(thread)
                self._threads.replace(thread.loop)


_lock = threading.Lock()
_sampler: Sampler | None = None


def process_sampler() -> Sampler:
    """Return the only sampler of this process, which reads the source that GPUWIDGET_SOURCE selects.

    Raises OptionError if the value of GPUWIDGET_SOURCE is invalid. A forked child gets a separate sampler.
    """
    global _sampler
    with _lock:
        if _sampler is None:
            _sampler = Sampler(open_source(), linger_s=_LINGER_S)
        return _sampler


def _reset_in_child() -> None:
    global _lock, _sampler
    _lock = threading.Lock()
    _sampler = None


reset_after_fork(_reset_in_child)
