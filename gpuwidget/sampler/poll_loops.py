"""The fast and the slow poll loop, which determine when the next poll is due and what it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuwidget.model.clock import Clock
from gpuwidget.sampler.gpu_state import GpuState
from gpuwidget.sampler.guarded_source import GuardedSource
from gpuwidget.sampler.subscriptions import INTERVAL_S, Subscriptions
from gpuwidget.sources import WorkingProcesses

_NOW = float("-inf")
_NEVER = float("inf")

_STATUS_INTERVAL_S = 2.0
_PROCESSES_INTERVAL_S = 1.0
_PROCESSES_MAX_AGE_S = 10.0
"""Maximum age, in seconds, of a list of processes that is reused if a caller waits for the poll or if other
code holds the GIL. In all other polls, the maximum age is _PROCESSES_INTERVAL_S. A list is reused only while
the memory in use does not change."""
_DELAYED_S = 0.003
"""If a poll starts at least this many seconds late, other code is assumed to hold the GIL. Python makes such
code release the GIL after 5 ms."""
_DELAYED_MEMORY_INTERVAL_S = 0.5
"""While other code holds the GIL, a memory-only poll starts at least this many seconds after the previous
poll, because each poll interrupts that code. Full polls at the default interval usually come sooner, so
memory-only polls are then rare."""
_DELAYED_INTERVAL_PER_GPU_S = 0.05
"""Interval between full polls while other code holds the GIL, in seconds per GPU. Four GPUs are still read
five times per second, eight GPUs 2.5 times."""
_SAME_MOMENT_S = 0.001
_NO_GPU_INTERVAL_S = 1.0
_MAX_TIME_SHARE = 0.1
"""Maximum fraction of the fast thread's time for memory-only polls. If the driver is slow, there are fewer of
them."""
_MAX_FULL_TIME_SHARE = 0.2
"""Maximum fraction of the fast thread's time for full polls. If full polls are slow, there are fewer of them.

While a cell holds the GIL, each driver call waits 5 ms for the GIL and then interrupts the cell. With eight
GPUs, five polls per second would take one percent of the cell's time.
"""
_MAX_SAMPLE_GAP_S = 0.9
"""If full polls take long, they are made less often, but each should end at most this many seconds after the
previous full poll.

The limit is below one second, because a run counts longer gaps between samples as unknown time.
"""

_SLOW_INTERVAL_S = 60.0
_ACTIVITY_INTERVAL_S = 0.5
_ACTIVITY_DELAY_S = 0.1
"""Delay before the first read of the hardware counters, so that short cells do not pay for reading them."""
_ACTIVITY_LATER_AFTER_S = 5.0
_ACTIVITY_LATER_INTERVAL_S = 1.0
"""Interval between reads of the hardware counters after the first seconds. It is longer than at the start
because a long run has enough measurements and each read costs 0.2 ms per GPU."""
_COSTLY_ACTIVITY_S = 0.02
"""If reading the counters of all GPUs takes longer than this, because each call waits for the GIL, the longer
interval is used from the start."""
_COUNTER_DELAY_S = 0.1
"""Delay before the first read of the energy counter in a run, which takes milliseconds."""
_COUNTER_MAX_INTERVAL_S = 10.0
_COUNTER_SHARE = 0.25
"""Time between two reads of the energy counter in a run, as a fraction of the run so far. Its last part, for
which only the power is known, is therefore short compared with the run."""
_COUNTER_MAX_READ_S = 0.1
"""If a read of the slow values takes longer, a run does not use the counter's value, because it is unknown
when the driver returned it. The thread probably waited for the GIL, which a cell can hold for seconds."""
_POWER_INTERVAL_S = 1.0
"""Seconds between two reads of the driver's samples of the power in a run, of which it keeps two seconds. A
shorter run does not pay for them."""
_MIN_POWER_INTERVAL_S = 0.1
"""The same if a caller waits for the poll: at the run's end, the samples since the last read are needed."""
_ACTIVITY_MAX_AGE_S = 2.5
"""Seconds for which a measurement of the hardware counters is shown if there is no newer one."""


@dataclass(frozen=True, slots=True)
class FastPoll:
    """One poll of the fast loop over all GPUs."""

    number: int
    """The number of this poll if it is a full poll, otherwise the number of the last full poll."""
    started: float
    """When the poll started, in monotonic seconds."""
    full: bool
    """Whether this is a full poll, which reads more than memory."""
    requested: bool
    """Whether a caller waits for the poll."""
    states: list[GpuState]


class FastPollLoop:
    """Schedules and makes the fast polls. Call all methods except :meth:`read` with the sampler's lock held.

    A full poll makes all cheap calls; a poll between two full polls reads memory only. Full polls are
    numbered, so that a caller can wait for a poll that started after its request.
    """

    def __init__(self, guarded: GuardedSource, subscriptions: Subscriptions, clock: Clock) -> None:
        self._guarded = guarded
        self._subscriptions = subscriptions
        self._clock = clock
        self._next_full = _NOW
        self._next_memory = _NOW
        self._slowest = 0.0
        """Seconds that the slowest full poll has taken."""
        self._delayed = False
        """Whether a run is in progress and the last scheduled poll was late, because other code held the
        GIL."""
        self._requested = 0
        self._started = 0
        self._done = 0
        self._run_since = _NOW

    # -- schedule ------------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        """When the next fast poll is due, in monotonic seconds."""
        if self._requested > self._started:
            return _NOW
        if self._subscriptions.memory_interval_s is None or not self._guarded.states:
            return self._next_full
        return min(self._next_full, self._next_memory)

    def restart(self) -> None:
        """Make a poll due immediately. Called when the first subscription is added."""
        self._slowest = 0.0
        self._next_full = self._next_memory = _NOW

    def start_run(self) -> None:
        """Store that a run starts. Called when a subscription of a run is added."""
        self._run_since = self._clock.monotonic()

    def poll_by(self, deadline: float) -> None:
        """Schedule the next full poll no later than ``deadline`` (monotonic seconds)."""
        self._next_full = min(self._next_full, deadline)

    def request(self) -> int:
        """Request a full poll that starts after this call, and return its number for :meth:`is_done`."""
        number = self._started + 1
        self._requested = max(self._requested, number)
        return number

    def is_done(self, number: int) -> bool:
        """Return whether the full poll with this number, or a later one, has ended."""
        return self._done >= number

    def skip(self) -> None:
        """Skip the poll that is due, because the source can't be opened now. A caller that waits for it times
        out."""
        self._next_full = self._clock.monotonic() + _NO_GPU_INTERVAL_S
        self._started = self._requested

    def start_poll(self) -> FastPoll:
        """Return the fast poll that is due now, and count it as started if it is a full poll."""
        now = self._clock.monotonic()
        requested = self._requested > self._started
        # A full poll that is due at the same moment replaces the memory-only poll.
        full = requested or now >= self._next_full - _SAME_MOMENT_S
        if not requested and self.due > _NOW:
            in_run = self._subscriptions.memory_interval_s is not None
            self._delayed = in_run and now - self.due >= _DELAYED_S
        if full:
            self._started += 1
        return FastPoll(self._started, now, full, requested, self._guarded.states)

    def end_poll(self, poll: FastPoll) -> float:
        """Schedule the next poll, and return when ``poll`` ended, in monotonic seconds."""
        ended = self._clock.monotonic()
        took = ended - poll.started
        if poll.full:
            self._done = max(self._done, poll.number)
            interval = self._subscriptions.interval_s
            # The next poll may take as long as the slowest poll so far.
            self._slowest = max(self._slowest, took)
            longest = _MAX_SAMPLE_GAP_S - (self._slowest - took)
            if self._delayed:
                interval = max(interval, min(len(poll.states) * _DELAYED_INTERVAL_PER_GPU_S, longest))
            interval = max(interval, min(took / _MAX_FULL_TIME_SHARE, longest))
            wanted = poll.states or self._subscriptions.memory_interval_s is not None
            step = interval if wanted else max(interval, _NO_GPU_INTERVAL_S)
            # To keep the rate, the next poll is due one interval after this poll was due, not one interval
            # after it ended. If a poll took longer than the interval, the next poll follows immediately.
            on_grid = self._next_full if not poll.requested and self._next_full > _NOW else poll.started
            self._next_full = max(on_grid + step, ended)
        rest = took * (1 / _MAX_TIME_SHARE - 1)
        memory_interval = self._subscriptions.memory_interval_s
        self._next_memory = ended + max(
            (INTERVAL_S if memory_interval is None else memory_interval) - took, rest
        )
        if self._delayed:
            self._next_memory = max(self._next_memory, ended + _DELAYED_MEMORY_INTERVAL_S)
        return ended

    # -- calls ---------------------------------------------------------------------------------------

    def read(self, poll: FastPoll, state: GpuState) -> None:
        """Read one GPU's values for ``poll``, and store them in ``state``. Raises what the source raises."""
        if poll.full:
            self._read_all(state, poll.requested)
        else:
            state.store("memory", self._guarded.source.read(state.gpu, "memory"))

    def _read_all(self, state: GpuState, requested: bool) -> None:
        source, gpu = self._guarded.source, state.gpu
        now, measured = self._clock.monotonic(), self._clock.time()
        fast, processes = source.read(gpu, "fast"), None
        memory_used = fast.values["memory_used"]
        changed = memory_used is None or memory_used != state.memory_at_processes
        max_age = _PROCESSES_MAX_AGE_S if requested or self._delayed else _PROCESSES_INTERVAL_S
        if changed or now - state.processes_read_at >= max_age:
            # The list of processes usually changes only together with the memory in use, so it is read then,
            # and otherwise only occasionally.
            processes = source.read(gpu, "processes")
            state.processes_read_at = now
            state.memory_at_processes = memory_used
        # A caller waits for a requested poll, so that poll reads the status only if it is still unknown. The
        # status changes slowly, so the next poll can read it.
        if now - state.status_read_at >= _STATUS_INTERVAL_S and not (requested and state.has_status):
            state.store("status", source.read(gpu, "status"))
            state.status_read_at = now
        state.store("fast", fast)
        state.measured, state.read_at = measured, now
        if processes is not None:
            state.store("processes", processes)
        if self._needs_power_samples(state, now, requested):
            state.power_samples = source.read(gpu, "power_samples").values["power_samples"] or ()
            state.power_read_at = now

    def _needs_power_samples(self, state: GpuState, now: float, requested: bool) -> bool:
        if self._subscriptions.memory_interval_s is None or now - self._run_since < _POWER_INTERVAL_S:
            return False
        interval = _MIN_POWER_INTERVAL_S if requested else _POWER_INTERVAL_S
        return now - state.power_read_at >= interval


@dataclass(frozen=True, slots=True)
class SlowPoll:
    """One poll of the slow loop over all GPUs."""

    reads: tuple[Callable[[GpuState], None], ...]
    """Functions to call for each GPU. They raise what the source raises."""
    stop_activity: bool
    """Whether to free the samples of the hardware counters first, because no subscription needs them."""
    states: list[GpuState]


class SlowPollLoop:
    """Schedules and makes the slow polls. The reads of a poll run without the sampler's lock."""

    def __init__(self, guarded: GuardedSource, subscriptions: Subscriptions, clock: Clock) -> None:
        self._guarded = guarded
        self._subscriptions = subscriptions
        self._clock = clock
        self._next_slow = _NOW
        self._next_windows = _NOW
        self._activity_since = _NOW
        self._last_activity = _NOW
        self._last_counter = _NOW
        self._activity_took = 0.0
        self._activity_on = False

    @property
    def due(self) -> float:
        """When the next slow poll is due, in monotonic seconds."""
        if not self._guarded.opened or not (self._subscriptions or self._activity_on):
            return _NEVER
        due = min(self._next_slow, self._next_counter, self._next_windows if self._needs_windows else _NEVER)
        if self._subscriptions.activity:
            return min(self._next_activity, due)
        return _NOW if self._activity_on else due

    @property
    def _needs_windows(self) -> bool:
        return bool(self._subscriptions.windows or self._subscriptions.working_processes)

    def start_activity(self) -> None:
        """Schedule a read of the hardware counters soon. Called when a new subscription needs them."""
        self._activity_since = self._clock.monotonic()
        self._last_activity = _NOW

    @property
    def _costly(self) -> bool:
        return self._activity_took > _COSTLY_ACTIVITY_S

    @property
    def _next_counter(self) -> float:
        """When the next read of the energy counter for a run is due, in monotonic seconds."""
        if self._subscriptions.memory_interval_s is None:
            return _NEVER
        if self._last_counter < self._activity_since:
            return self._activity_since + _COUNTER_DELAY_S
        shortest = _ACTIVITY_LATER_INTERVAL_S if self._costly else _ACTIVITY_INTERVAL_S
        wait = _COUNTER_SHARE * (self._last_counter - self._activity_since)
        return self._last_counter + min(max(wait, shortest), _COUNTER_MAX_INTERVAL_S)

    @property
    def _next_activity(self) -> float:
        """When the next read of the hardware counters is due, in monotonic seconds."""
        if self._last_activity < self._activity_since:
            return self._activity_since + _ACTIVITY_DELAY_S
        early = self._last_activity - self._activity_since < _ACTIVITY_LATER_AFTER_S and not self._costly
        return self._last_activity + (_ACTIVITY_INTERVAL_S if early else _ACTIVITY_LATER_INTERVAL_S)

    def start_poll(self) -> SlowPoll:
        """Return the slow poll that is due now, and schedule the next one."""
        now = self._clock.monotonic()
        wanted = self._subscriptions.activity
        stop_activity = self._activity_on and not wanted
        self._activity_on = wanted
        reads = []
        if wanted and now >= self._next_activity:
            self._last_activity = now
            self._activity_took = 0.0
            reads.append(self._read_activity)
        if self._needs_windows and now >= self._next_windows:
            self._next_windows = now + self._subscriptions.windows_interval_s
            reads.append(self._read_windows)
        if now >= min(self._next_slow, self._next_counter):
            self._next_slow = now + _SLOW_INTERVAL_S
            self._last_counter = now
            reads.append(self._read_slow)
        return SlowPoll(tuple(reads), stop_activity, self._guarded.states)

    def _read_activity(self, state: GpuState) -> None:
        began = self._clock.monotonic()
        reading = self._guarded.source.read(state.gpu, "activity")
        self._activity_took += self._clock.monotonic() - began
        shown = state.activity
        if reading.values["activity"] is not None:
            state.add_activity(reading)
        elif shown is None or abs(self._clock.time() - shown.until) >= _ACTIVITY_MAX_AGE_S:
            state.store("activity", reading)

    def _read_windows(self, state: GpuState) -> None:
        if state.gpu.uuid in self._subscriptions.windows:
            state.windows = self._guarded.source.read(state.gpu, "windows").values["windows"] or ()
        if state.gpu.uuid in self._subscriptions.working_processes:
            working = self._guarded.source.read(state.gpu, "working_processes")
            pids = working.values["working_processes"]
            state.add_working_processes(WorkingProcesses(self._clock.time(), pids))

    def _read_slow(self, state: GpuState) -> None:
        began = self._clock.monotonic()
        slow = self._guarded.source.read(state.gpu, "slow")
        ended = self._clock.monotonic()
        state.store("slow", slow)
        energy_j = slow.values["energy_j"]
        if energy_j is not None and ended - began <= _COUNTER_MAX_READ_S:
            state.counter = ((began + ended) / 2, energy_j)
