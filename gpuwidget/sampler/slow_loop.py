"""The slow lane: when the slow calls and the hardware counters' are due, and what they read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuwidget.model.clock import Clock
from gpuwidget.sampler.gpu_state import GpuState
from gpuwidget.sampler.guarded_source import Driver
from gpuwidget.sampler.subscriptions import Subscriptions

_NOW = float("-inf")
_SLOW_EVERY_S = 60.0
_ACTIVITY_EVERY_S = 0.5
_ACTIVITY_AFTER_S = 0.1
"""Short cells, which have no whole window of the counters anyway, don't pay for them."""
_ACTIVITY_SLOWS_AFTER_S = 5.0
_ACTIVITY_LATER_EVERY_S = 1.0
"""Later windows are longer: a run of many seconds has enough of them, and each costs 0.2 ms a GPU."""
_WINDOWS_EVERY_S = 2.0
_ACTIVITY_HOLDS_S = 2.5
"""So long a window of the counters is shown when no new one comes."""


@dataclass(frozen=True, slots=True)
class Round:
    """What the slow thread does now."""

    reads: tuple[Callable[[GpuState], None], ...]
    """Each is called for each GPU; raises what the source raises."""
    forget: bool
    """Whether nobody wants the counters any more: they are to be let go of first."""
    states: list[GpuState]


class SlowLane:
    """The rounds of the slow thread. The reads of a round are made without the sampler's lock."""

    def __init__(self, driver: Driver, subscriptions: Subscriptions, clock: Clock) -> None:
        self._driver = driver
        self._subscriptions = subscriptions
        self._clock = clock
        self._next_activity = _NOW
        self._next_slow = _NOW
        self._activity_since = _NOW
        self._counters_on = False
        self._next_windows = _NOW

    @property
    def due(self) -> float:
        """When the next round is due, monotonic seconds."""
        if not self._driver.opened or not (self._subscriptions or self._counters_on):
            return float("inf")
        due = min(self._next_slow, self._next_windows if self._subscriptions.windows else float("inf"))
        if self._subscriptions.activity:
            return min(self._next_activity, due)
        return _NOW if self._counters_on else due

    def want_activity(self) -> None:
        """Somebody new wants the hardware counters."""
        self._activity_since = self._clock.monotonic()
        self._next_activity = self._activity_since + _ACTIVITY_AFTER_S

    def begin(self) -> Round:
        """The round that is due now."""
        now = self._clock.monotonic()
        wants = self._subscriptions.activity
        forget = self._counters_on and not wants
        self._counters_on = wants
        reads = []
        if wants and now >= self._next_activity:
            young = now - self._activity_since < _ACTIVITY_SLOWS_AFTER_S
            self._next_activity = now + (_ACTIVITY_EVERY_S if young else _ACTIVITY_LATER_EVERY_S)
            reads.append(self._read_activity)
        if self._subscriptions.windows and now >= self._next_windows:
            self._next_windows = now + _WINDOWS_EVERY_S
            reads.append(self._read_windows)
        if now >= self._next_slow:
            self._next_slow = now + _SLOW_EVERY_S
            reads.append(self._read_slow)
        return Round(tuple(reads), forget, self._driver.states)

    def _read_activity(self, state: GpuState) -> None:
        window = self._driver.source.read_activity(state.gpu)
        held = state.activity
        if window is not None:
            state.add_activity(window)
        elif held is None or self._clock.time() - held.until >= _ACTIVITY_HOLDS_S:
            state.activity = None

    def _read_windows(self, state: GpuState) -> None:
        if state.gpu.uuid in self._subscriptions.windows:
            state.windows = self._driver.source.read_windows(state.gpu)

    def _read_slow(self, state: GpuState) -> None:
        state.take_slow(self._driver.source.read_slow(state.gpu))
