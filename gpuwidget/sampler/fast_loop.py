"""The fast lane: when a pass over the GPUs' cheap calls is due, and what it reads."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwidget.model.clock import Clock
from gpuwidget.sampler.gpu_state import GpuState
from gpuwidget.sampler.guarded_source import Driver
from gpuwidget.sampler.subscriptions import INTERVAL_S, Subscriptions

_NOW = float("-inf")
_STEADY_EVERY_S = 2.0
_PROCESSES_EVERY_S = 1.0
_PROCESSES_HOLD_S = 10.0
"""So long a list of processes holds for a pass that somebody waits for, while not a byte has moved."""
_EMPTY_EVERY_S = 1.0
_SHARE_OF_TIME = 0.1
"""At most this share of the fast thread's time goes into memory-only passes, however slow the driver."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One round over the GPUs."""

    ticket: int
    """Its number, or that of the last full one."""
    began: float
    """Monotonic seconds."""
    full: bool
    """Whether it reads more than memory."""
    asked: bool
    """Whether somebody waits for it."""
    states: list[GpuState]


class FastLane:
    """The passes of the fast thread. :meth:`read` is called without the sampler's lock, the rest hold it.

    A full pass reads everything cheap, one between two full ones only memory. Passes have numbers, so that
    who asks for one can wait for one that began after the question.
    """

    def __init__(self, driver: Driver, subscriptions: Subscriptions, clock: Clock) -> None:
        self._driver = driver
        self._subscriptions = subscriptions
        self._clock = clock
        self._next_full = _NOW
        self._next_memory = _NOW
        self._wanted = 0
        self._begun = 0
        self._done = 0

    # -- when ----------------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        """When the next pass is due, monotonic seconds."""
        if self._wanted > self._begun:
            return _NOW
        if self._subscriptions.memory_interval_s is None:
            return self._next_full
        return min(self._next_full, self._next_memory)

    def restart(self) -> None:
        """The first subscriber has come: begin at once."""
        self._next_full = self._next_memory = _NOW

    def hasten(self, at: float) -> None:
        """A full pass by ``at`` at the latest."""
        self._next_full = min(self._next_full, at)

    def ask(self) -> int:
        """Ask for a full pass that begins from now on; its number, for :meth:`answered`."""
        ticket = self._begun + 1
        self._wanted = max(self._wanted, ticket)
        return ticket

    def answered(self, ticket: int) -> bool:
        """Whether the pass of that number, or a later one, is done."""
        return self._done >= ticket

    def postpone(self) -> None:
        """No pass can be made: the source hangs in being opened. Who waits for one waits in vain."""
        self._next_full = self._clock.monotonic() + _EMPTY_EVERY_S
        self._begun = self._wanted

    # -- one pass ------------------------------------------------------------------------------------

    def begin(self) -> Pass:
        """The pass that is due now."""
        now = self._clock.monotonic()
        asked = self._wanted > self._begun
        full = asked or now >= self._next_full
        if full:
            self._begun += 1
        return Pass(self._begun, now, full, asked, self._driver.states)

    def finish(self, done: Pass) -> float:
        """Plan the next; the moment at which this one ended."""
        ended = self._clock.monotonic()
        if done.full:
            self._done = max(self._done, done.ticket)
            wanted = self._subscriptions.interval_s
            step = wanted if done.states else max(wanted, _EMPTY_EVERY_S)
            # By the grid, not by the end of the pass, so that the rate holds; a pass that takes longer
            # than its interval is followed by the next one at once, never by several.
            on_grid = self._next_full if not done.asked and self._next_full > _NOW else done.began
            self._next_full = max(on_grid + step, ended)
        took = ended - done.began
        rest = took * (1 / _SHARE_OF_TIME - 1)
        interval = self._subscriptions.memory_interval_s
        self._next_memory = ended + max((INTERVAL_S if interval is None else interval) - took, rest)
        return ended

    def read(self, done: Pass, state: GpuState) -> None:
        """The calls of one GPU in that pass; raises what the source raises."""
        if done.full:
            self._read_all(state, done.asked)
        else:
            state.memory_used = self._driver.source.read_memory(state.gpu)

    def _read_all(self, state: GpuState, asked: bool) -> None:
        source, gpu = self._driver.source, state.gpu
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
