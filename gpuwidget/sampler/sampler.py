"""The sampler: its subscribers, its threads, and who of them waits for what."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.samples import Activity, Gpu, Sample
from gpuwidget.sampler.fast_loop import FastLane
from gpuwidget.sampler.guarded_source import Driver
from gpuwidget.sampler.poll_threads import HUNG_AFTER_S, Worker, Workers
from gpuwidget.sampler.recent_memory import Recent
from gpuwidget.sampler.slow_loop import Round, SlowLane
from gpuwidget.sampler.subscriptions import INTERVAL_S, OnSample, Subscription, Subscriptions
from gpuwidget.sources import Source, Window, open_source

_WATCHDOG_EVERY_S = 0.25
_LOOK_UP_EVERY_S = 0.25
"""So often the slow lane looks whether somebody wants something new of it."""
_WARM_UP_SAMPLES = 10


class Sampler:
    """Reads one source for any number of subscribers.

    ``linger_s`` is how long source and threads stay after the last subscriber has gone, so that a cell run
    soon after does not pay for them again; nothing is read meanwhile, and the threads sleep.
    """

    def __init__(self, source: Source, clock: Clock = SYSTEM_CLOCK, *, linger_s: float = 0.0) -> None:
        self._source = source
        self._clock = clock
        self._linger_s = linger_s
        self._reset()
        reset_after_fork(self._reset)

    def _reset(self) -> None:
        # One lock; who waits for what is told apart, so that a short cell wakes only whom it needs.
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        """The fast lane waits here."""
        self._others = threading.Condition(lock)
        """The slow lane and the watchdog wait here; they also look up by themselves."""
        self._answers = threading.Condition(lock)
        """Who asked for something waits here."""
        self._subscriptions = Subscriptions()
        self._driver = Driver(self._source, self._clock, lock)
        self._fast = FastLane(self._driver, self._subscriptions, self._clock)
        self._slow = SlowLane(self._driver, self._subscriptions, self._clock)
        self._workers = Workers({"fast": self._run_fast, "slow": self._run_slow}, self._run_watchdog)
        self._stopping = False
        self._latest: Sample | None = None
        self.recent = Recent()
        """The last minute of memory."""

    # -- what subscribers call -----------------------------------------------------------------------

    @property
    def latest(self) -> Sample | None:
        """The newest sample, None before the first."""
        return self._latest

    @property
    def known_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs found when the source was last opened, lost ones included; empty before."""
        return self._driver.gpus

    def windows(self, uuid: str) -> tuple[Window, ...]:
        """One GPU's last windows of utilization, as far as a subscription's ``windows`` asked for them."""
        return next((state.windows for state in self._driver.states if state.gpu.uuid == uuid), ())

    def activities(self, uuid: str) -> tuple[Activity, ...]:
        """Return one GPU's last windows of the hardware counters, oldest first.

        Empty without GPM, and while no subscription asks for ``activity``.
        """
        return next((state.activities for state in self._driver.states if state.gpu.uuid == uuid), ())

    @property
    def wanted(self) -> bool:
        """Whether anybody subscribes."""
        return bool(self._subscriptions)

    @property
    def running(self) -> bool:
        """Whether any thread of this sampler is alive."""
        return any(thread.is_alive() for thread in self._workers.threads)

    def subscribe(
        self,
        on_sample: OnSample | None = None,
        *,
        interval_s: float = INTERVAL_S,
        memory_interval_s: float | None = None,
        activity: bool = False,
    ) -> Subscription:
        """Start handing samples to ``on_sample``, at most one every ``interval_s`` seconds.

        ``memory_interval_s`` asks for samples between these in which only ``memory_used`` is new;
        ``activity`` for the hardware counters. ``on_sample`` is called on the sampler's thread and must be
        quick; what it raises is logged and goes no further.
        """
        subscription = Subscription(self._unsubscribe, on_sample, interval_s, memory_interval_s, activity)
        with self._changed:
            if not self._subscriptions:
                # Not the slow calls: they hold the driver's lock for milliseconds, at a run's start.
                self._fast.restart()
            if activity:
                self._slow.want_activity()
            self._stopping = False
            self._subscriptions.add(subscription)
            self._fast.hasten(self._clock.monotonic() + interval_s)
            self._workers.start()
            self._changed.notify_all()
        return subscription

    def warm_up(self) -> Subscription:
        """Open the source and make the first slow calls in the background, for a run that may begin soon.

        The subscription that this takes ends by itself; who needs nothing any more may close it before.
        """
        subscription = self.subscribe()
        seen = 0

        def stop_when_known(sample: Sample) -> None:
            nonlocal seen
            seen += 1
            known = all(reading.utilization_window is not None for reading in sample.readings)
            if known or seen == _WARM_UP_SAMPLES:
                subscription.close()

        subscription.on_sample = stop_when_known
        return subscription

    def _unsubscribe(self, subscription: Subscription) -> None:
        with self._changed:
            self._subscriptions.remove(subscription)
            if not self._subscriptions and not self._linger_s:
                self._changed.notify_all()

    def read_now(self, timeout_s: float) -> Sample | None:
        """A sample whose every call was made after this one; needs a subscriber.

        After ``timeout_s`` seconds it is put together from what has come: a reading that is older shows it
        by its ``answered``. None where the source has not been opened by then.
        """
        with self._changed:
            if not self._subscriptions:
                return None
            ticket = self._fast.ask()
            self._changed.notify_all()
            self._await_answer(lambda: self._fast.answered(ticket), self._clock.monotonic() + timeout_s)
            return self._driver.sample() if self._driver.opened else None

    def wait_until_open(self, timeout_s: float) -> bool:
        """Wait until the source has been opened; needs a subscriber.

        At most until ``timeout_s`` seconds after the opening began: where it hangs, only the first to ask
        waits.
        """
        with self._changed:
            since = self._driver.opening_since
            began = self._clock.monotonic() if since is None else since
            self._await_answer(lambda: self._driver.opened or not self._subscriptions, began + timeout_s)
            return self._driver.opened

    def _await_answer(self, come: Callable[[], bool], deadline: float) -> None:
        while not come() and not self._stopping:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                break
            self._clock.wait(self._answers, left)

    def stop(self) -> None:
        """End all threads and let go of the source; a thread in a hung call is left behind.

        Subscriptions end. The sampler can be started again by a new one.
        """
        with self._changed:
            self._stopping = True
            self._subscriptions.clear()
            threads = self._workers.threads
            for condition in (self._changed, self._others, self._answers):
                condition.notify_all()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout=HUNG_AFTER_S)
        with self._changed:
            for worker in self._workers.present:
                if worker.thread.is_alive():
                    self._driver.leave_behind(worker)
                self._retire(worker)
            self._driver.opened = False

    # -- threads -------------------------------------------------------------------------------------

    def _retire(self, worker: Worker) -> None:
        # Under the lock: a subscriber who comes now must find the lane empty and start a new thread.
        if self._workers.retire(worker):
            self._others.notify_all()

    @property
    def _over(self) -> bool:
        """Whether the threads are to end: the fast one has, or all are told to."""
        return self._stopping or not self._workers.has("fast")

    def _run_fast(self, worker: Worker) -> None:
        idle_since: float | None = None
        while True:
            with self._changed:
                if worker.abandoned:
                    return
                now = self._clock.monotonic()
                if not self._subscriptions:
                    if idle_since is None:
                        idle_since = now
                    left = idle_since + self._linger_s - now
                    if left > 0 and not self._stopping:
                        self._clock.wait(self._changed, left)
                        continue
                    self._retire(worker)
                    self._driver.opened = False
                    break
                idle_since = None
                due = self._fast.due
                if due > now:
                    self._clock.wait(self._changed, due - now)
                    continue
            self._pass(worker)
        self._driver.close()

    def _pass(self, worker: Worker) -> None:
        if not self._open_if_due(worker):
            return
        with self._changed:
            now = self._fast.begin()
        read = partial(self._fast.read, now)
        for state in now.states:
            if state.reachable and not self._driver.call(worker, state, read):
                return
        with self._changed:
            ended = self._fast.finish(now)
            sample = self._latest = self._driver.sample()
            self.recent.add(sample)
            self._answers.notify_all()
            receivers = self._subscriptions.receivers(now.full, ended)
        for subscription in receivers:
            subscription.hand_over(sample)

    def _open_if_due(self, worker: Worker) -> bool:
        """Open the source where that is due; False where this pass can't be made."""
        with self._changed:
            if not self._driver.begin_opening():
                if not self._driver.opened:
                    self._fast.postpone()
                return self._driver.opened
        inventory = self._driver.open(worker)
        with self._changed:
            self._driver.take(inventory)
            self._answers.notify_all()
            self._others.notify_all()
            return not worker.abandoned

    def _run_slow(self, worker: Worker) -> None:
        while True:
            with self._changed:
                if worker.abandoned:
                    return
                if self._over:
                    self._retire(worker)
                    break
                now = self._clock.monotonic()
                due = self._slow.due
                if due > now:
                    self._clock.wait(self._others, min(due - now, _LOOK_UP_EVERY_S))
                    continue
                now_due = self._slow.begin()
            self._round(worker, now_due)
        self._driver.forget_activity()

    def _round(self, worker: Worker, now: Round) -> None:
        if now.forget:
            self._driver.forget_activity()
            for state in now.states:
                state.activity = None
        for read in now.reads:
            for state in now.states:
                if state.reachable and not self._driver.call(worker, state, read):
                    return

    def _run_watchdog(self) -> None:
        while True:
            with self._changed:
                if self._over:
                    self._workers.retire_watchdog()
                    return
                before = self._clock.monotonic()
                self._clock.wait(self._others, _WATCHDOG_EVERY_S)
                late = self._clock.monotonic() - before - _WATCHDOG_EVERY_S
                # Where this thread itself was kept from running (something held the GIL), a call that
                # looks long may have returned long ago: judge at the next look.
                if late < _WATCHDOG_EVERY_S:
                    self._abandon_hung_calls()

    def _abandon_hung_calls(self) -> None:
        now = self._clock.monotonic()
        for worker in self._workers.present:
            if worker.hangs(now):
                self._driver.leave_behind(worker)
                self._workers.replace(worker.lane)


_LINGER_S = 30.0

_lock = threading.Lock()
_sampler: Sampler | None = None


def process_sampler() -> Sampler:
    """Return this process's one sampler, which reads the source that GPUWIDGET_SOURCE selects.

    Raises OptionError where that names no source. A forked child gets another one.
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
