"""Tests of how often the sampler polls. If polls are slow, for example while a cell holds the GIL, the
sampler makes fewer of them."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from fakes import FakeClock, FakeSource

from gpuwidget.model.metrics import Group
from gpuwidget.model.samples import Gpu
from gpuwidget.sampler.guarded_source import GuardedSource
from gpuwidget.sampler.poll_loops import FastPollLoop, SlowPollLoop
from gpuwidget.sampler.poll_threads import OPENING, PollThread, PollThreads
from gpuwidget.sampler.subscriptions import Subscription, Subscriptions
from gpuwidget.sources import GroupReading


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def subscribed(clock: FakeClock, gpus: int) -> tuple[GuardedSource, Subscriptions]:
    """Return an opened source with this number of GPUs, and subscriptions like those during a watched
    cell."""
    subscriptions = Subscriptions()
    subscriptions.add(Subscription(subscriptions.remove, None, 0.2, 0.1, activity=True))
    guarded = GuardedSource(FakeSource(gpus), clock, threading.Lock())
    guarded.end_opening(guarded.source.open())
    return guarded, subscriptions


def gap(loop: FastPollLoop, clock: FakeClock, took: float) -> float:
    """Make a full poll that takes ``took`` seconds. Return the seconds between the start of this poll and the
    start of the next one."""
    poll = loop.start_poll()
    assert poll.full
    clock.advance(took)
    loop.end_poll(poll)
    due = loop.due
    clock.advance(max(0.0, due - clock.monotonic()))
    return round(clock.monotonic() - poll.started, 6)


@pytest.mark.parametrize(("took", "expected"), [(0.11, 0.55), (0.16, 0.8), (0.3, 0.9)])
def test_slow_polls_are_made_less_often(clock: FakeClock, took: float, expected: float) -> None:
    """If polls are slow, they are made less often, so that they take at most a fifth of the time. They may
    take more if samples would otherwise be a second or more apart."""
    loop = FastPollLoop(*subscribed(clock, 2), clock)
    loop.restart()
    assert gap(loop, clock, took) == expected


def test_samples_stay_less_than_a_second_apart(clock: FakeClock) -> None:
    """When the sampler schedules a poll, it assumes that the poll will take as long as the slowest poll so
    far. Samples are therefore less than a second apart, even if a slow poll follows a fast one."""
    loop = FastPollLoop(*subscribed(clock, 2), clock)
    loop.restart()
    assert gap(loop, clock, 0.5) == 0.9
    # This poll takes only 0.2 s. The next one starts 0.4 s later. If it takes 0.5 s, the samples are 0.9 s
    # apart.
    assert gap(loop, clock, 0.2) == 0.6
    assert gap(loop, clock, 0.5) == 0.9


def test_without_gpus_there_are_no_polls_of_memory(clock: FakeClock) -> None:
    """On a machine without GPUs, a watched cell causes only five polls per second, which read the resident
    memory of the process."""
    loop = FastPollLoop(*subscribed(clock, 0), clock)
    loop.restart()
    assert [gap(loop, clock, 0.0) for _ in range(3)] == [0.2, 0.2, 0.2]


@pytest.mark.parametrize(("late", "full"), [(0.0, False), (0.002, False), (0.005, True)])
def test_no_polls_of_memory_while_other_code_holds_the_gil(clock: FakeClock, late: float, full: bool) -> None:
    """Between two full polls, there are polls that read only memory, unless the last poll started late
    because other code held the GIL."""
    loop = FastPollLoop(*subscribed(clock, 2), clock)
    loop.restart()
    gap(loop, clock, 0.0)
    loop.end_poll(loop.start_poll())
    clock.advance(loop.due - clock.monotonic() + late)
    poll = loop.start_poll()
    assert poll.full
    loop.end_poll(poll)
    clock.advance(loop.due - clock.monotonic())
    assert loop.start_poll().full == full


@pytest.mark.parametrize(("gpus", "expected"), [(4, 0.2), (8, 0.4)])
def test_many_gpus_are_read_less_often_while_other_code_holds_the_gil(
    clock: FakeClock, gpus: int, expected: float
) -> None:
    """While a cell holds the GIL, the sampler polls many GPUs less often than a few, because each poll
    interrupts the cell, and the interruption is longer with more GPUs."""
    loop = FastPollLoop(*subscribed(clock, gpus), clock)
    loop.restart()
    gap(loop, clock, 0.0)
    loop.end_poll(loop.start_poll())
    clock.advance(loop.due - clock.monotonic() + 0.005)
    assert gap(loop, clock, 0.0) == pytest.approx(expected - 0.005)


@pytest.mark.parametrize(
    ("took", "since", "expected"), [(0.01, 0.1, 0.5), (0.01, 5.1, 1.0), (0.011, 0.1, 1.0)]
)
def test_costly_counters_have_longer_windows_from_the_start(
    clock: FakeClock, took: float, since: float, expected: float
) -> None:
    """The hardware counters are read every 0.5 s in the first five seconds, and every second after that. If
    reading the counters of all GPUs takes more than 20 ms, because the cell holds the GIL, they are read
    every second from the start."""
    guarded, subscriptions = subscribed(clock, 2)
    read = guarded.source.read

    def read_slowly(gpu: Gpu, group: Group) -> GroupReading:
        clock.advance(took)
        return read(gpu, group)

    guarded.source.read = read_slowly  # type: ignore[method-assign]
    loop = SlowPollLoop(guarded, subscriptions, clock)
    loop.start_activity()
    clock.advance(since)
    started = clock.monotonic()
    poll = loop.start_poll()
    for state in poll.states:
        poll.reads[0](state)
    assert loop.due - started == pytest.approx(expected)


def test_the_energy_counter_is_read_less_and_less_often(clock: FakeClock) -> None:
    """In a run, the energy counter is first read after 0.1 s, so that short cells don't pay for it, and then
    less and less often."""
    loop = SlowPollLoop(*subscribed(clock, 1), clock)
    loop.start_poll()
    clock.advance(1.0)
    began = clock.monotonic()
    loop.start_activity()
    read: list[float] = []
    while len(read) < 9:
        clock.advance(loop.due - clock.monotonic())
        if loop._read_slow in loop.start_poll().reads:
            read.append(clock.monotonic() - began)
    assert read == pytest.approx([0.1, 0.6, 1.1, 1.6, 2.1, 2.625, 3.281, 4.102, 5.127], abs=0.001)


def test_a_counter_value_of_an_unknown_time_is_not_used(clock: FakeClock) -> None:
    """If a read of the energy counter took seconds, because the cell held the GIL meanwhile, it is unknown
    when the driver returned the value. The energy of the run therefore doesn't use it."""
    guarded, subscriptions = subscribed(clock, 1)
    raw = guarded.source
    assert isinstance(raw, FakeSource)
    (state,) = guarded.states
    loop = SlowPollLoop(guarded, subscriptions, clock)

    def read(joules: float, seconds: float) -> float:
        clock.advance(seconds)
        return joules

    for joules, seconds in ((1000.0, 0.05), (1100.0, 3.0)):
        raw.energy[0] = partial(read, joules, seconds)
        loop._read_slow(state)
    assert state.reading().energy_j == 1100.0
    assert state.counter is not None
    assert state.counter == pytest.approx((0.025, 1000.0))


def test_the_watchdog_wakes_up_when_a_call_may_hang() -> None:
    """The watchdog thread sleeps until the oldest call in progress would count as hung. If no call is in
    progress, it sleeps for one second."""
    threads = PollThreads({}, lambda: None)
    assert threads.next_hang(10.0) == 11.0
    fast, slow = PollThread("fast", lambda thread: None), PollThread("slow", lambda thread: None)
    threads._poll_threads.update({"fast": fast, "slow": slow})
    fast.begin_call("GPU-0", 9.75)
    slow.begin_call(OPENING, 9.0)
    assert threads.next_hang(10.0) == 10.75
    assert (fast.is_hung(10.74), fast.is_hung(10.75)) == (False, True)
    assert threads.next_hang(10.75) == 11.75  # a call that starts at 10.75 counts as hung from 11.75 on
    assert (slow.is_hung(18.9), slow.is_hung(19.0)) == (False, True)
