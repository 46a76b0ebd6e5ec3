"""The sampling of a process: who wants samples, and the threads that fetch them.

Three daemon threads, started by the first subscriber and ended with the last:

- *fast* makes the cheap calls, several times a second, and hands each sample to the subscribers;
- *slow* makes the calls that take milliseconds, and the hardware counters' ones while somebody wants them;
- *watchdog* only sleeps and looks at the clock. A call into the driver can hang in the kernel, and
  nothing interrupts it: the watchdog then gives up the thread that made it and starts another, which goes
  on with the other GPUs and leaves that one alone until the call returns after all.

Nobody else calls the driver, and nobody waits for these threads without a bound.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from gpuwidget.clock import SYSTEM_CLOCK, Clock
from gpuwidget.errors import GpuLostError, SourceLostError
from gpuwidget.samples import SCHEMA, Gpu, Origin, Sample
from gpuwidget.sources import Inventory, Source, open_source
from gpuwidget.states import GpuState

log = logging.getLogger("gpuwidget")

INTERVAL_S = 0.2
"""The usual interval: the driver itself refreshes utilization every 200 ms (H200) or less often."""
MIN_INTERVAL_S = 0.05
MAX_INTERVAL_S = 60.0

_STEADY_EVERY_S = 2.0
_PROCESSES_EVERY_S = 1.0
_PROCESSES_HOLD_S = 10.0
"""So long a list of processes holds for a pass that somebody waits for, while not a byte has moved."""
_ACTIVITY_EVERY_S = 0.5
_ACTIVITY_AFTER_S = 0.1
"""Short cells, which have no whole window of the counters anyway, don't pay for them."""
_ACTIVITY_SLOWS_AFTER_S = 5.0
_ACTIVITY_LATER_EVERY_S = 1.0
"""Later windows are longer: a run of many seconds has enough of them, and each costs 0.2 ms a GPU."""
_SLOW_EVERY_S = 60.0
_REOPEN_AFTER_S = 1.0
_LOOK_FOR_LOST_EVERY_S = 5.0
_LOOK_FOR_DRIVER_EVERY_S = 30.0
_EMPTY_EVERY_S = 1.0
_ACTIVITY_HOLDS_S = 2.5
"""So long a window of the counters is shown when no new one comes."""
_HUNG_AFTER_S = 1.0
_OPEN_HUNG_AFTER_S = 10.0
_WATCHDOG_EVERY_S = 0.25
_LOOK_UP_EVERY_S = 0.25
"""So often the slow lane looks whether somebody wants something new of it."""
_LINGER_S = 30.0
_WARM_UP_SAMPLES = 10
_SHARE_OF_TIME = 0.1
"""At most this share of the fast thread's time goes into memory-only passes, however slow the driver."""

_OPENING = "(open)"


class Subscription:
    """One subscriber; :meth:`close` ends it, also as a context manager."""

    def __init__(
        self,
        sampler: Sampler,
        on_sample: Callable[[Sample], None] | None,
        interval_s: float,
        memory_interval_s: float | None,
        activity: bool,
    ) -> None:
        self._sampler = sampler
        self.on_sample = on_sample
        self.interval_s = interval_s
        self.memory_interval_s = memory_interval_s
        self.activity = activity
        self.next_due = float("-inf")

    def close(self) -> None:
        """No further sample will be handed over, save one that is under way. Safe to call twice."""
        self._sampler.unsubscribe(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Worker:
    """One thread of a lane, and the call it is in: what the watchdog looks at."""

    def __init__(self, lane: str, run: Callable[[_Worker], None]) -> None:
        self.lane = lane
        self.call: tuple[str, float] | None = None
        self.abandoned = False
        self.thread = threading.Thread(target=run, args=(self,), name=f"gpuwidget-{lane}", daemon=True)


class Sampler:
    """Reads one source for any number of subscribers.

    ``linger_s`` is how long source and threads stay after the last subscriber has gone, so that a cell run
    soon after does not pay for them again; nothing is read meanwhile, and the threads sleep.
    """

    def __init__(self, source: Source, clock: Clock = SYSTEM_CLOCK, *, linger_s: float = 0.0) -> None:
        self._source = source
        self._clock = clock
        self._linger_s = linger_s
        self._forget_everything()
        _samplers.add(self)

    def _forget_everything(self) -> None:
        # One lock; who waits for what is told apart, so that a short cell wakes only whom it needs.
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        """The fast lane waits here."""
        self._others = threading.Condition(lock)
        """The slow lane and the watchdog wait here; they also look up by themselves."""
        self._answers = threading.Condition(lock)
        """Who asked for something waits here."""
        self._subscriptions: list[Subscription] = []
        self._workers: dict[str, _Worker] = {}
        self._watchdog: threading.Thread | None = None
        self._stopping = False
        self._origin: Origin | None = None
        self._states: dict[str, GpuState] = {}
        self._latest: Sample | None = None
        self._opened = False
        self._open_due = float("-inf")
        self._opened_at = float("-inf")
        self._opening_since: float | None = None
        self._stuck_opening: set[_Worker] = set()
        self._opening = threading.Lock()
        self._next_full = float("-inf")
        self._next_memory = float("-inf")
        self._wanted_pass = 0
        self._begun_pass = 0
        self._done_pass = 0
        self._next_activity = float("-inf")
        self._next_slow = float("-inf")
        self._activity_since = float("-inf")
        self._counters_on = False

    # -- what subscribers call -----------------------------------------------------------------------

    @property
    def latest(self) -> Sample | None:
        """The newest sample, None before the first."""
        return self._latest

    @property
    def known_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs found when the source was last opened, lost ones included; empty before."""
        return tuple(state.gpu for state in self._states.values())

    @property
    def wanted(self) -> bool:
        """Whether anybody subscribes."""
        return bool(self._subscriptions)

    @property
    def running(self) -> bool:
        """Whether any thread of this sampler is alive."""
        threads = [worker.thread for worker in self._workers.values()]
        if self._watchdog is not None:
            threads.append(self._watchdog)
        return any(thread.is_alive() for thread in threads)

    def subscribe(
        self,
        on_sample: Callable[[Sample], None] | None = None,
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
        subscription = Subscription(self, on_sample, interval_s, memory_interval_s, activity)
        with self._changed:
            if not self._subscriptions:
                # Not the slow calls: they hold the driver's lock for milliseconds, at a run's start.
                self._next_full = self._next_memory = float("-inf")
            if activity:
                self._activity_since = self._clock.monotonic()
                self._next_activity = self._activity_since + _ACTIVITY_AFTER_S
            self._stopping = False
            self._subscriptions.append(subscription)
            self._next_full = min(self._next_full, self._clock.monotonic() + interval_s)
            self._start_threads()
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

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; the last one's end stops the threads."""
        with self._changed:
            if subscription in self._subscriptions:
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
            ticket = self._begun_pass + 1
            self._wanted_pass = max(self._wanted_pass, ticket)
            self._changed.notify_all()
            deadline = self._clock.monotonic() + timeout_s
            while self._done_pass < ticket and not self._stopping:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    break
                self._clock.wait(self._answers, left)
            return self._compose() if self._opened else None

    def wait_until_open(self, timeout_s: float) -> bool:
        """Wait until the source has been opened; needs a subscriber.

        At most until ``timeout_s`` seconds after the opening began: where it hangs, only the first to ask
        waits.
        """
        with self._changed:
            began = self._clock.monotonic() if self._opening_since is None else self._opening_since
            deadline = began + timeout_s
            while not self._opened and self._subscriptions and not self._stopping:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    break
                self._clock.wait(self._answers, left)
            return self._opened

    def stop(self) -> None:
        """End all threads and let go of the source; a thread in a hung call is left behind.

        Subscriptions end. The sampler can be started again by a new one.
        """
        with self._changed:
            self._stopping = True
            self._subscriptions.clear()
            threads = [worker.thread for worker in self._workers.values()]
            if self._watchdog is not None:
                threads.append(self._watchdog)
            for condition in (self._changed, self._others, self._answers):
                condition.notify_all()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout=_HUNG_AFTER_S)
        with self._changed:
            for worker in list(self._workers.values()):
                if worker.thread.is_alive():
                    self._abandon(worker)
                self._retire(worker)
            self._opened = False

    # -- threads -------------------------------------------------------------------------------------

    def _start_threads(self) -> None:
        for lane, run in (("fast", self._run_fast), ("slow", self._run_slow)):
            worker = self._workers.get(lane)
            if worker is None or not worker.thread.is_alive():
                self._start_worker(lane, run)
        if self._watchdog is None or not self._watchdog.is_alive():
            self._watchdog = threading.Thread(
                target=self._run_watchdog, name="gpuwidget-watchdog", daemon=True
            )
            self._watchdog.start()

    def _start_worker(self, lane: str, run: Callable[[_Worker], None]) -> None:
        worker = _Worker(lane, run)
        self._workers[lane] = worker
        worker.thread.start()

    def _retire(self, worker: _Worker) -> None:
        # Under the lock: a subscriber who comes now must find the lane empty and start a new thread.
        if self._workers.get(worker.lane) is worker:
            del self._workers[worker.lane]
            self._others.notify_all()

    def _run_fast(self, worker: _Worker) -> None:
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
                    self._opened = False
                    break
                idle_since = None
                due = self._fast_due()
                if due > now:
                    self._clock.wait(self._changed, due - now)
                    continue
            self._fast_round(worker)
        with self._opening:
            try:
                self._source.close()
            except Exception:
                log.debug("the source could not be closed", exc_info=True)

    def _run_slow(self, worker: _Worker) -> None:
        while True:
            with self._changed:
                if worker.abandoned:
                    return
                if self._over:
                    self._retire(worker)
                    break
                now = self._clock.monotonic()
                due = self._slow_due()
                if due > now:
                    self._clock.wait(self._others, min(due - now, _LOOK_UP_EVERY_S))
                    continue
            self._slow_round(worker)
        self._forget_activity()

    @property
    def _over(self) -> bool:
        """Whether the threads are to end: the fast one has, or all are told to."""
        return self._stopping or "fast" not in self._workers

    def _forget_activity(self) -> None:
        try:
            self._source.forget_activity()
        except Exception:
            log.debug("the hardware counters could not be let go of", exc_info=True)

    def _run_watchdog(self) -> None:
        while True:
            with self._changed:
                if self._over:
                    self._watchdog = None
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
        for lane, run in (("fast", self._run_fast), ("slow", self._run_slow)):
            worker = self._workers.get(lane)
            call = worker.call if worker is not None else None
            if worker is None or call is None:
                continue
            uuid, since = call
            if now - since >= (_OPEN_HUNG_AFTER_S if uuid == _OPENING else _HUNG_AFTER_S):
                self._abandon(worker)
                self._start_worker(lane, run)

    def _abandon(self, worker: _Worker) -> None:
        worker.abandoned = True
        if worker.call is None:
            return
        uuid, since = worker.call
        if uuid == _OPENING:
            self._stuck_opening.add(worker)
        elif uuid in self._states:
            self._states[uuid].hang(worker, self._clock.time() - (self._clock.monotonic() - since))

    # -- the fast lane -------------------------------------------------------------------------------

    def _fast_due(self) -> float:
        if self._wanted_pass > self._begun_pass:
            return float("-inf")
        due = self._next_full
        if any(subscription.memory_interval_s is not None for subscription in self._subscriptions):
            due = min(due, self._next_memory)
        return due

    def _fast_round(self, worker: _Worker) -> None:
        if not self._open_if_due(worker):
            return
        now = self._clock.monotonic()
        with self._changed:
            asked = self._wanted_pass > self._begun_pass
            full = asked or now >= self._next_full
            if full:
                self._begun_pass += 1
            ticket = self._begun_pass
            states = list(self._states.values())
        for state in states:
            if not state.reachable:
                continue
            if not self._call(worker, state, self._read_all if full else self._read_memory, asked):
                return
        ended = self._clock.monotonic()
        with self._changed:
            if full:
                self._done_pass = max(self._done_pass, ticket)
                wanted = min((s.interval_s for s in self._subscriptions), default=INTERVAL_S)
                step = wanted if states else max(wanted, _EMPTY_EVERY_S)
                # By the grid, not by the end of the pass, so that the rate holds; a pass that takes longer
                # than its interval is followed by the next one at once, never by several.
                on_grid = self._next_full if not asked and self._next_full > float("-inf") else now
                self._next_full = max(on_grid + step, ended)
            rest = (ended - now) * (1 / _SHARE_OF_TIME - 1)
            memory_interval = min(
                (s.memory_interval_s for s in self._subscriptions if s.memory_interval_s is not None),
                default=INTERVAL_S,
            )
            self._next_memory = ended + max(memory_interval - (ended - now), rest)
            sample = self._compose()
            self._latest = sample
            self._answers.notify_all()
            receivers = [s for s in self._subscriptions if self._takes(s, full, ended)]
        for subscription in receivers:
            if subscription.on_sample is not None:
                try:
                    subscription.on_sample(sample)
                except Exception:
                    log.debug("a subscriber to GPU samples failed", exc_info=True)

    @staticmethod
    def _takes(subscription: Subscription, full: bool, now: float) -> bool:
        if subscription.memory_interval_s is not None:
            return True
        # A tenth of grace, since the passes of a faster subscriber do not meet this one's grid.
        if not full or now < subscription.next_due - subscription.interval_s / 10:
            return False
        subscription.next_due = now + subscription.interval_s
        return True

    def _read_all(self, state: GpuState, asked: bool) -> None:
        source, gpu = self._source, state.gpu
        now = self._clock.monotonic()
        fast = source.read_fast(gpu)
        moved = fast.memory_used is None or fast.memory_used != state.memory_at_processes
        hold = _PROCESSES_HOLD_S if asked else _PROCESSES_EVERY_S
        if moved or now - state.processes_read >= hold:
            # Who holds the memory changes where the amount does; otherwise a look now and then is enough.
            processes = source.read_processes(gpu)
            state.processes_read = now
            state.memory_at_processes = fast.memory_used
        else:
            processes = state.processes
        # Somebody waits for a pass that was asked for: what changes slowly can wait for the next.
        if now - state.steady_read >= _STEADY_EVERY_S and not (asked and state.steady_known):
            state.steady = source.read_steady(gpu)
            state.steady_read = now
        state.fast = fast
        state.measured = self._clock.time()
        state.memory_used = fast.memory_used
        state.processes = processes

    def _read_memory(self, state: GpuState, asked: bool) -> None:
        state.memory_used = self._source.read_memory(state.gpu)

    def _call(
        self,
        worker: _Worker,
        state: GpuState,
        read: Callable[[GpuState, bool], None],
        asked: bool = False,
    ) -> bool:
        """Make the calls of one GPU; False where this thread was given up meanwhile or must begin anew."""
        worker.call = (state.gpu.uuid, self._clock.monotonic())
        try:
            read(state, asked)
        except GpuLostError:
            state.lose(self._clock.time())
            return not worker.abandoned
        except SourceLostError:
            with self._changed:
                for other in self._states.values():
                    other.lose(self._clock.time())
                self._open_due = min(self._open_due, self._opened_at + _REOPEN_AFTER_S)
            return False
        except Exception as error:
            # A source raises nothing else; should it do so all the same, that must not end the sampling.
            log.debug("a GPU could not be read", exc_info=True)
            state.fail(_unforeseen(error))
            return not worker.abandoned
        else:
            state.answer(self._clock.time())
            return not worker.abandoned
        finally:
            worker.call = None
            state.returned(worker)

    # -- opening the source --------------------------------------------------------------------------

    def _open_if_due(self, worker: _Worker) -> bool:
        """Open the source where that is due; False where this round can't go on."""
        with self._changed:
            now = self._clock.monotonic()
            due = not self._opened or (self._must_look_again() and now >= self._open_due)
            if self._stuck_opening:
                # Another thread still hangs in open(): a second call would hang beside it.
                if not self._opened:
                    self._next_full = now + _EMPTY_EVERY_S
                    self._begun_pass = self._wanted_pass
                return self._opened
            if not due:
                return True
            self._opening_since = now
        worker.call = (_OPENING, now)
        try:
            with self._opening:
                inventory = self._source.open()
        except Exception as error:
            log.debug("the source could not be opened", exc_info=True)
            nothing = Origin(
                kind="none", reason=_unforeseen(error), recording=None, driver=None, cuda_driver=None
            )
            inventory = Inventory(nothing, ())
        finally:
            worker.call = None
            self._stuck_opening.discard(worker)
        with self._changed:
            self._take_inventory(inventory.origin, inventory.gpus)
            self._opened = True
            self._opening_since = None
            self._opened_at = self._clock.monotonic()
            wait = _LOOK_FOR_LOST_EVERY_S if self._states else _LOOK_FOR_DRIVER_EVERY_S
            self._open_due = self._opened_at + wait
            self._answers.notify_all()
            self._others.notify_all()
            return not worker.abandoned

    def _must_look_again(self) -> bool:
        if not self._states:
            return self._origin is not None and self._origin.kind != "replay"
        return any(state.lost_since is not None for state in self._states.values())

    def _take_inventory(self, origin: Origin, gpus: tuple[Gpu, ...]) -> None:
        for gpu in gpus:
            self._states.setdefault(gpu.uuid, GpuState(gpu)).found(gpu)
        found = {gpu.uuid for gpu in gpus}
        for uuid, state in self._states.items():
            if uuid not in found:
                state.lose(self._clock.time())
        self._states = dict(sorted(self._states.items(), key=lambda item: item[1].order))
        if gpus or self._origin is None or not self._states:
            self._origin = origin
        else:
            # The driver went away: the GPUs it had are shown as lost, with what it says now.
            self._origin = replace(self._origin, reason=origin.reason)

    # -- the slow lane -------------------------------------------------------------------------------

    def _slow_due(self) -> float:
        if not self._opened or not (self._subscriptions or self._counters_on):
            return float("inf")
        if self._wants_activity():
            return min(self._next_activity, self._next_slow)
        return float("-inf") if self._counters_on else self._next_slow

    def _wants_activity(self) -> bool:
        return any(subscription.activity for subscription in self._subscriptions)

    def _slow_round(self, worker: _Worker) -> None:
        with self._changed:
            now = self._clock.monotonic()
            wants = self._wants_activity()
            activity = wants and now >= self._next_activity
            slow = now >= self._next_slow
            forget = self._counters_on and not wants
            self._counters_on = wants
            if activity:
                young = now - self._activity_since < _ACTIVITY_SLOWS_AFTER_S
                self._next_activity = now + (_ACTIVITY_EVERY_S if young else _ACTIVITY_LATER_EVERY_S)
            if slow:
                self._next_slow = now + _SLOW_EVERY_S
            states = [state for state in self._states.values() if state.reachable]
        if forget:
            self._forget_activity()
            for state in states:
                state.activity = None
        if activity:
            for state in states:
                if not self._call(worker, state, self._read_activity):
                    return
        if slow:
            for state in states:
                if state.reachable and not self._call(worker, state, self._read_slow):
                    return

    def _read_activity(self, state: GpuState, asked: bool) -> None:
        window = self._source.read_activity(state.gpu)
        held = state.activity
        if window is None and held is not None and self._clock.time() - held.until < _ACTIVITY_HOLDS_S:
            window = held
        state.activity = window

    def _read_slow(self, state: GpuState, asked: bool) -> None:
        state.slow = self._source.read_slow(state.gpu)

    # -- the sample ----------------------------------------------------------------------------------

    def _compose(self) -> Sample:
        origin = self._origin
        assert origin is not None
        states = self._states.values()
        return Sample(
            schema=SCHEMA,
            time=self._clock.time(),
            origin=origin,
            gpus=tuple(state.gpu for state in states),
            readings=tuple(state.reading() for state in states),
        )


def _unforeseen(error: Exception) -> str:
    return f"gpuwidget met an error it did not foresee ({type(error).__name__}: {error}); please report it."


_samplers: weakref.WeakSet[Sampler] = weakref.WeakSet()
_process_lock = threading.Lock()
_process_sampler: Sampler | None = None


def process_sampler() -> Sampler:
    """This process's one sampler, of the source that GPUWIDGET_SOURCE chooses.

    Raises OptionError where that names no source. A forked child gets one of its own.
    """
    global _process_sampler
    with _process_lock:
        if _process_sampler is None:
            _process_sampler = Sampler(open_source(), linger_s=_LINGER_S)
        return _process_sampler


def _begin_anew_in_child() -> None:
    # No thread survives a fork, and a lock that one of them held stays locked for ever in the child.
    global _process_lock, _process_sampler
    _process_lock = threading.Lock()
    _process_sampler = None
    for sampler in list(_samplers):
        sampler._forget_everything()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_in_child)
