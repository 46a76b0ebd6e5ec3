"""Tests of the sampler: how often it samples, who receives the samples, and what happens if a GPU or the
driver is lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from fakes import EPOCH, FakeClock, FakeSource

from gpuwidget.model.errors import GpuLostError, SliceRemovedError, SourceLostError
from gpuwidget.model.messages import MessageId, message
from gpuwidget.model.metrics import Group
from gpuwidget.model.samples import Gpu, Sample, unopened_gpu
from gpuwidget.sampler import Sampler
from gpuwidget.sources import GroupReading, Inventory, LostGpu, UtilizationWindow, Xid

FAST = "gpuwidget-fast"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def source() -> FakeSource:
    return FakeSource(gpus=2)


@pytest.fixture
def sampler(source: FakeSource, clock: FakeClock) -> Iterator[Sampler]:
    sampler = Sampler(source, clock)
    yield sampler
    for event in source.hanging.values():
        event.set()
    if source.hang_in_open is not None:
        source.hang_in_open.set()
    sampler.stop()


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("gpuwidget-")}


def test_the_first_subscriber_starts_the_threads_and_the_last_one_ends_them(
    sampler: Sampler, source: FakeSource, clock: FakeClock
) -> None:
    """The sampler's threads run only while there is a subscription. After the last subscription has ended,
    the driver is closed."""
    assert threads() == set()
    first, second = sampler.subscribe(), sampler.subscribe()
    assert threads() == {"gpuwidget-fast", "gpuwidget-slow", "gpuwidget-watchdog"}
    clock.until(lambda: sampler.latest is not None)
    first.close()
    assert sampler.running
    second.close()
    second.close()
    clock.until(lambda: threads() == set())
    assert source.closed == 1


def test_the_sampler_can_be_started_again(sampler: Sampler, source: FakeSource, clock: FakeClock) -> None:
    """After the last subscription has ended, a new subscription starts the sampler again."""
    for opened in (1, 2):
        taken: list[Sample] = []
        with sampler.subscribe(taken.append):
            clock.until(lambda: bool(taken))  # noqa: B023
        clock.until(lambda: threads() == set())
        assert source.calls["open"] == opened


def test_the_source_stays_open_for_a_while(source: FakeSource, clock: FakeClock) -> None:
    """With `linger_s`, the source stays open for that time after the last subscription has ended, so that the
    next cell need not wait for the driver. Meanwhile, the source is not read."""
    sampler = Sampler(source, clock, linger_s=30)
    for number in (1, 2):
        with sampler.subscribe():
            # The clock advances only while the threads wait. Otherwise, a call could seem to hang.
            clock.until(lambda: clock.is_awaited(0.2, FAST) and source.calls["slow"] == 2)
        clock.advance(0.2)
        clock.until(lambda: clock.is_awaited(30, FAST))
        clock.advance(29)
        assert clock.is_awaited(1, FAST)
        assert (source.calls["fast"], source.calls["open"], source.closed) == (2 * number, 1, 0)
    clock.advance(1)
    clock.until(lambda: threads() == set())
    assert source.closed == 1


def test_warming_up_opens_the_source_and_ends_by_itself(source: FakeSource, clock: FakeClock) -> None:
    """`warm_up()`, which %load_ext calls, opens the driver and reads the slow values once. Then polling
    ends."""
    sampler = Sampler(source, clock, linger_s=30)
    sampler.warm_up()
    clock.until(lambda: source.calls["slow"] == 2)
    clock.until(lambda: not sampler.wanted, step=0.1)
    assert sampler.known_gpus == tuple(source.gpus)
    with sampler.subscribe():
        sample = sampler.read_now(1.0)
    assert sample is not None
    assert sample.readings[0].utilization_window == 0.2
    assert (source.calls["open"], source.calls["slow"]) == (1, 2)
    sampler.stop()


def test_five_samples_a_second(sampler: Sampler, source: FakeSource, clock: FakeClock) -> None:
    """By default, every GPU is read five times per second."""
    taken: list[Sample] = []
    with sampler.subscribe(taken.append):
        clock.until(lambda: len(taken) == 1)
        for number in range(2, 12):
            clock.advance(0.2)
            clock.until(lambda: len(taken) == number)  # noqa: B023
    assert [round(sample.time - EPOCH, 3) for sample in taken] == [round(0.2 * n, 3) for n in range(11)]
    assert source.calls["fast 0"] == source.calls["fast 1"] == 11


def test_memory_is_read_faster_on_request(sampler: Sampler, source: FakeSource, clock: FakeClock) -> None:
    """A subscription with `memory_interval_s` receives additional memory readings between the regular
    samples. Other subscriptions don't."""
    fast: list[Sample] = []
    usual: list[Sample] = []
    with sampler.subscribe(usual.append), sampler.subscribe(fast.append, memory_interval_s=0.05):
        sampler.read_now(1.0)
        clock.until(lambda: len(fast) >= 1 and len(usual) >= 1)
        source.memory[0] = 7_000_000
        seen = len(usual)
        clock.until(lambda: fast[-1].readings[0].memory_used == 7_000_000, step=0.05)
        assert fast[-1].readings[0].utilization == 50.0
        assert len(usual) == seen
    assert source.calls["memory 0"] >= 1


def test_counters_are_read_only_on_request(sampler: Sampler, source: FakeSource, clock: FakeClock) -> None:
    """Hardware counters are read only while a subscription requests them. Afterwards, they are released,
    because other tools may need them."""
    with sampler.subscribe():
        clock.until(lambda: source.calls["slow"] == 2)
        assert source.calls["activity"] == 0
        watching = sampler.subscribe(activity=True)
        clock.until(lambda: source.calls["activity"] == 2, step=0.05)
        clock.until(lambda: source.calls["activity"] == 4, step=0.1)
        watching.close()
        clock.until(lambda: source.calls["forget"] == 1, step=0.05)
        read = source.calls["activity"]
        for _ in range(10):
            clock.advance(0.5)
        assert source.calls["activity"] == read


def test_windows_are_read_only_of_requested_gpus(
    sampler: Sampler, source: FakeSource, clock: FakeClock
) -> None:
    """The driver's utilization windows are read every two seconds, and only for the GPUs for which a
    subscription requests them."""
    held = (UtilizationWindow(EPOCH - 0.2, 40.0), UtilizationWindow(EPOCH, 60.0))
    source.windows = {0: (), 1: held}
    uuid = source.gpus[1].uuid
    with sampler.subscribe() as subscription:
        clock.until(lambda: sampler.latest is not None)
        clock.until(lambda: source.calls["slow"] == 2)
        assert (source.calls["windows"], sampler.windows(uuid)) == (0, ())
        subscription.windows = frozenset({uuid})
        clock.until(lambda: sampler.windows(uuid) == held, step=0.1)
        assert (source.calls["windows 0"], source.calls["windows 1"]) == (0, 1)
        clock.until(lambda: source.calls["windows 1"] == 2, step=0.1)
        assert sampler.windows(source.gpus[0].uuid) == ()


def test_working_processes_are_read_only_of_requested_gpus(
    sampler: Sampler, source: FakeSource, clock: FakeClock
) -> None:
    """Which processes have worked is read only for the GPUs for which a subscription requests it, as often as
    that subscription requests windows."""
    source.working = {0: None, 1: frozenset({11})}
    uuid = source.gpus[1].uuid
    with sampler.subscribe(interval_s=10.0) as subscription:
        subscription.windows_interval_s = 10.0
        clock.until(lambda: source.calls["slow"] == 2)
        assert (source.calls["working_processes"], sampler.working_processes(uuid)) == (0, ())
        subscription.working_processes = frozenset({uuid})
        clock.until(lambda: sampler.working_processes(uuid) != (), step=0.1)
        first = sampler.working_processes(uuid)
        clock.until(lambda: len(sampler.working_processes(uuid)) == 2, step=0.1)
        (earlier, later) = sampler.working_processes(uuid)
        assert first == (earlier,)
        assert earlier.pids == later.pids == frozenset({11})
        assert 10.0 <= later.time - earlier.time < 11.0
        assert (source.calls["working_processes 0"], source.calls["windows"]) == (0, 0)


def test_read_now_is_newer_than_the_call(sampler: Sampler, source: FakeSource, clock: FakeClock) -> None:
    """`read_now()` returns values that are read after the call, not the latest sample."""
    with sampler.subscribe():
        clock.until(lambda: sampler.latest is not None)
        source.memory[1] = 5_000_000
        sample = sampler.read_now(1.0)
    assert sample is not None
    assert [reading.memory_used for reading in sample.readings] == [1_000_000, 5_000_000]


def test_read_now_without_a_subscriber_is_none(sampler: Sampler) -> None:
    """If there is no subscription, `read_now()` returns None at once, because no thread is polling."""
    assert sampler.read_now(1.0) is None


def test_one_lost_gpu_leaves_the_others_alone(sampler: Sampler, source: FakeSource, clock: FakeClock) -> None:
    """Until a lost GPU returns, its readings contain the time of the loss and a reason for each missing
    value. Other GPUs are still read."""
    taken: list[Sample] = []
    with sampler.subscribe(taken.append):
        clock.until(lambda: len(taken) == 1)
        source.failing[0] = GpuLostError("lost")
        clock.until(lambda: taken[-1].readings[0].lost_since is not None, step=0.2)
        lost, other = taken[-1].readings
        assert lost.utilization is None
        assert lost.missing["utilization"] == "the GPU is lost"
        assert lost.missing_ids["utilization"] == MessageId("gpu-lost", {})
        assert other.utilization == 50.0
        since = lost.lost_since
        source.present = [source.gpus[1]]
        clock.until(lambda: source.calls["open"] >= 2, step=0.2)
        assert taken[-1].gpus == tuple(source.gpus)
        assert taken[-1].readings[0].lost_since == since
        source.present = list(source.gpus)
        source.failing.clear()
        clock.until(lambda: taken[-1].readings[0].lost_since is None, step=0.2)
        assert taken[-1].readings[0].utilization == 50.0


def test_a_found_but_still_lost_gpu_keeps_its_time(
    sampler: Sampler, source: FakeSource, clock: FakeClock
) -> None:
    """If the driver lists a lost GPU again but reading it still fails, the GPU keeps the original time of its
    loss."""
    taken: list[Sample] = []
    with sampler.subscribe(taken.append):
        clock.until(lambda: len(taken) == 1)
        source.failing[0] = GpuLostError("lost")
        clock.until(lambda: taken[-1].readings[0].lost_since is not None, step=0.2)
        since = taken[-1].readings[0].lost_since
        clock.until(lambda: source.calls["open"] >= 3, step=0.2)
        assert taken[-1].readings[0].lost_since == since


def test_a_gpu_that_is_lost_at_the_start_is_a_row_until_it_returns(
    sampler: Sampler, source: FakeSource, clock: FakeClock
) -> None:
    """A GPU that can't be opened when sampling starts has a row that is lost, with the reason. When the GPU
    comes back, its own row replaces that one."""
    reason = message("gpu-lost", "the GPU fell off the bus")
    source.present, source.lost = [source.gpus[0]], (LostGpu(unopened_gpu(1), reason),)
    taken: list[Sample] = []
    with sampler.subscribe(taken.append):
        clock.until(lambda: len(taken) >= 1)
        assert taken[-1].gpus == (source.gpus[0], unopened_gpu(1))
        answers, lost = taken[-1].readings
        assert (answers.lost_since, answers.utilization) == (None, 50.0)
        since = lost.lost_since
        assert since is not None
        assert set(lost.missing.values()) == {reason}
        clock.until(lambda: source.calls["open"] >= 3, step=0.2)
        assert taken[-1].readings[1].lost_since == since
        source.present, source.lost = list(source.gpus), ()
        clock.until(lambda: taken[-1].gpus == tuple(source.gpus), step=0.2)
        clock.until(lambda: taken[-1].readings[1].utilization == 50.0, step=0.2)
        assert [reading.lost_since for reading in taken[-1].readings] == [None, None]


def test_a_known_gpu_that_can_no_longer_be_opened_keeps_its_row(
    sampler: Sampler, source: FakeSource, clock: FakeClock
) -> None:
    """If a GPU is lost and reopening the source fails for it, its row keeps its name and UUID and gets the
    reason. There is no second row."""
    taken: list[Sample] = []
    with sampler.subscribe(taken.append):
        clock.until(lambda: len(taken) == 1)
        source.failing[1] = GpuLostError("lost")
        reason = message("gpu-lost", "the GPU needs a reset")
        source.present, source.lost = [source.gpus[0]], (LostGpu(unopened_gpu(1), reason),)
        clock.until(lambda: taken[-1].readings[1].missing.get("power_w") == reason, step=0.2)
        assert taken[-1].gpus == tuple(source.gpus)


def test_a_source_with_a_lost_gpu_is_opened_less_and_less_often(
    sampler: Sampler, source: FakeSource, clock: FakeClock
) -> None:
    """While the same GPU stays lost, the time between two openings of the driver doubles up to 30 s, so that
    one broken GPU does not disturb the measurement of the others for ever."""
    source.present = [source.gpus[0]]
    source.lost = (LostGpu(unopened_gpu(1), message("gpu-lost", "the GPU needs a reset")),)
    opened: list[float] = []
    original = source.open

    def open_source() -> Inventory:
        opened.append(clock.monotonic())
        return original()

    source.open = open_source  # type: ignore[method-assign]
    with sampler.subscribe():
        clock.until(lambda: len(opened) == 6, step=0.2)
    assert [round((later - earlier) / 5) for earlier, later in pairwise(opened)] == [1, 2, 4, 6, 6]


def test_a_removed_slice_is_gone(sampler: Sampler, source: FakeSource, clock: FakeClock) -> None:
    """A MIG slice that an administrator removed is in no later sample, and is never shown as lost. Its GPU
    and the other slice are still read."""
    whole, left = source.gpus
    slices = [
        replace(left, uuid=f"MIG-{index}", index=0, mig_index=index, mig_parent=whole.uuid)
        for index in (0, 1)
    ]
    source.present = [whole, *slices]
    taken: list[Sample] = []
    with sampler.subscribe(taken.append):
        clock.until(lambda: bool(taken) and taken[-1].gpus == (whole, *slices))
        read = source.read

        def read_present(one: Gpu, group: Group) -> GroupReading:
            if one == slices[1]:
                raise SliceRemovedError("MIG slice 1 of GPU 0 no longer exists.")
            return read(one, group)

        source.read = read_present  # type: ignore[method-assign]
        source.present = [whole, slices[0]]
        clock.until(lambda: taken[-1].gpus == (whole, slices[0]), step=0.2)
        clock.until(lambda: source.calls["open"] >= 2, step=0.2)
        count = len(taken)
        clock.until(lambda: len(taken) > count + 2, step=0.2)
        assert taken[-1].gpus == sampler.known_gpus == (whole, slices[0])
        assert all(reading.lost_since is None for sample in taken for reading in sample.readings)


@pytest.mark.parametrize("unknown", [True, False])
def test_slices_of_a_lost_gpu_are_lost_too(
    sampler: Sampler, source: FakeSource, clock: FakeClock, unknown: bool
) -> None:
    """If a slice is missing because its GPU is lost, or because the driver can't list slices for now, the
    slice is lost, not removed."""
    whole, other = source.gpus
    slice_ = replace(whole, uuid="MIG-0", mig_index=0, mig_parent=whole.uuid)
    source.present = [whole, slice_, other]
    taken: list[Sample] = []
    with sampler.subscribe(taken.append):
        clock.until(lambda: bool(taken) and taken[-1].gpus == (whole, slice_, other))
        source.present = [whole, other] if unknown else [other]
        source.slices_unknown = frozenset({whole.uuid})
        source.failing[1] = GpuLostError("lost")  # makes the sampler open the source again
        clock.until(lambda: source.calls["open"] >= 2, step=0.2)
        clock.until(lambda: taken[-1].readings[1].lost_since is not None, step=0.2)
        assert taken[-1].gpus == (whole, slice_, other)


def test_errors_of_a_gpu_that_is_lost(sampler: Sampler, source: FakeSource, clock: FakeClock) -> None:
    """The readings of a lost GPU contain its last XID, even if the driver reported the XID only after the
    loss."""
    taken: list[Sample] = []
    first, second = source.gpus
    with sampler.subscribe(taken.append):
        source.xids[second.uuid] = Xid(31, EPOCH)
        clock.until(lambda: bool(taken) and taken[-1].readings[1].xid == 31, step=0.2)
        source.failing = {0: GpuLostError("lost"), 1: GpuLostError("lost")}
        source.present = []
        clock.until(lambda: taken[-1].readings[1].lost_since is not None, step=0.2)
        lost = taken[-1].readings[1]
        assert (lost.xid, lost.xid_time, "xid" in lost.missing) == (31, EPOCH, False)
        assert (lost.energy_j, lost.missing["energy_j"]) == (None, "the GPU is lost")
        assert taken[-1].readings[0].missing["xid"] == "the GPU is lost"
        source.xids[first.uuid] = Xid(79, EPOCH + 1.0)
        clock.until(lambda: taken[-1].readings[0].xid == 79, step=0.2)
        assert taken[-1].readings[0].xid_time == EPOCH + 1.0
        source.failing, source.present = {}, list(source.gpus)
        clock.until(lambda: all(one.lost_since is None for one in taken[-1].readings), step=0.2)
        assert [one.xid for one in taken[-1].readings] == [79, 31]


def test_values_that_were_not_read_yet(sampler: Sampler, source: FakeSource, clock: FakeClock) -> None:
    """Until the XIDs of a GPU have been read for the first time, its XID is None with the reason "not read
    yet". None without a reason means that there was no XID."""
    taken: list[Sample] = []
    go_on = threading.Event()
    read = source.read

    def read_late(one: Gpu, group: Group) -> GroupReading:
        if group == "slow":
            go_on.wait(20.0)
        return read(one, group)

    source.read = read_late  # type: ignore[method-assign]
    with sampler.subscribe(taken.append):
        clock.until(lambda: bool(taken))
        reading = taken[-1].readings[0]
        assert (reading.xid, reading.missing["xid"]) == (None, "not read yet")
        assert reading.missing_ids["xid"] == MessageId("not-read-yet", {})
        go_on.set()
        clock.until(lambda: "xid" not in taken[-1].readings[0].missing, step=0.2)
        assert "xid" not in taken[-1].readings[0].missing_ids


def test_a_driver_that_goes_away_is_opened_again(
    sampler: Sampler, source: FakeSource, clock: FakeClock
) -> None:
    """While the driver is being reloaded, samples contain the reason why there are no values. Once the driver
    is back, the sampler reopens the source by itself."""
    taken: list[Sample] = []
    with sampler.subscribe(taken.append):
        clock.until(lambda: len(taken) == 1)
        source.failing = {0: SourceLostError("gone"), 1: SourceLostError("gone")}
        source.present, source.reason = [], "The driver is being reloaded."
        clock.until(lambda: source.calls["open"] >= 2, step=0.2)
        clock.until(lambda: taken[-1].origin.reason == "The driver is being reloaded.", step=0.2)
        assert all(reading.lost_since is not None for reading in taken[-1].readings)
        source.failing, source.present, source.reason = {}, list(source.gpus), None
        clock.until(lambda: all(r.lost_since is None for r in taken[-1].readings), step=0.2)
        assert taken[-1].origin.reason is None


def test_a_hung_call_is_abandoned(sampler: Sampler, source: FakeSource, clock: FakeClock) -> None:
    """If a call to one GPU hangs, the other GPUs are still read. The readings of the GPU that does not answer
    contain the time at which it stopped answering."""
    taken: list[Sample] = []
    with sampler.subscribe(taken.append):
        clock.until(lambda: len(taken) == 1)
        source.hanging[0] = threading.Event()
        clock.until(lambda: taken[-1].readings[0].silent_since is not None, step=0.1)
        silent, other = taken[-1].readings
        assert silent.memory_used is None
        assert silent.missing["memory_used"] == "the GPU does not answer"
        assert other.silent_since is None
        seen = len(taken)
        clock.until(lambda: len(taken) > seen + 3, step=0.1)
        calls = source.calls["fast 0"]
        clock.until(lambda: len(taken) > seen + 6, step=0.1)
        assert source.calls["fast 0"] == calls
        hang = source.hanging.pop(0)
        hang.set()
        clock.until(lambda: taken[-1].readings[0].silent_since is None, step=0.1)
        assert taken[-1].readings[0].memory_used == 1_000_000


def test_reading_beside_a_hung_call_has_a_timeout(
    sampler: Sampler, source: FakeSource, clock: FakeClock
) -> None:
    """If a call to a GPU hangs, `read_now()` returns after its timeout. The reading of that GPU contains the
    time of its last answer. It is not taken for a new one, even if the system's clock was set back."""
    with sampler.subscribe():
        clock.until(lambda: sampler.latest is not None)
        source.hanging[0] = threading.Event()
        clock.advance(0.05)
        answers: list[Sample | None] = []
        asked = clock.time()
        waiting = threading.Thread(target=lambda: answers.append(sampler.read_now(0.25)))
        waiting.start()
        clock.until(lambda: bool(answers), step=0.05)
        waiting.join()
    assert answers[0] is not None
    assert answers[0].readings[0].answered == EPOCH
    assert answers[0].readings[0].measured is None
    assert asked == EPOCH + 0.05


def test_a_driver_that_hangs_while_it_is_opened(
    sampler: Sampler, source: FakeSource, clock: FakeClock
) -> None:
    """If opening the source hangs, callers wait no longer than their timeout, and the sampler does not try to
    open the source again meanwhile."""
    source.hang_in_open = threading.Event()
    with sampler.subscribe():
        answers: list[bool] = []
        waiting = threading.Thread(target=lambda: answers.append(sampler.wait_until_open(5.0)))
        waiting.start()
        clock.until(lambda: answers == [False], step=0.25)
        for _ in range(100):
            clock.advance(0.25)
        assert source.calls["open"] == 1
        source.hang_in_open.set()
        clock.until(lambda: sampler.latest is not None, step=0.25)


def test_a_missing_driver_is_tried_again_slowly(clock: FakeClock) -> None:
    """On a machine without a GPU, samples contain the reason, and the sampler tries to open the driver again
    every 30 s."""
    source = FakeSource(gpus=0, kind="none")
    source.reason = "No NVIDIA driver."
    sampler = Sampler(source, clock)
    taken: list[Sample] = []
    with sampler.subscribe(taken.append):
        for second in range(30):
            # The clock advances only while the thread waits. Otherwise, a call could seem to hang.
            clock.until(lambda: len(taken) == second + 1 and clock.is_awaited(1, FAST))  # noqa: B023
            assert source.calls["open"] == 1
            clock.advance(1)
        assert taken[0].origin.reason == "No NVIDIA driver."
        assert taken[0].gpus == ()
        clock.until(lambda: source.calls["open"] == 2)
    clock.until(lambda: threads() == set())


@pytest.mark.stops_errors
def test_a_failing_subscriber_does_not_affect_others(sampler: Sampler, clock: FakeClock) -> None:
    """If one subscriber raises an exception, the other subscribers still receive samples."""
    taken: list[Sample] = []

    def fail(sample: Sample) -> None:
        raise RuntimeError("a broken view")

    with sampler.subscribe(fail), sampler.subscribe(taken.append):
        clock.until(lambda: len(taken) >= 2, step=0.2)


@pytest.mark.stops_errors
def test_the_text_of_an_error_can_be_hidden(
    source: FakeSource, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """With `hide_errors`, the log contains the type and the traceback of a subscriber's error, but no text,
    and a GPU's missing values have a reason without the source's text."""
    caplog.set_level("DEBUG")
    source.failing[0] = ZeroDivisionError("secret")
    taken: list[Sample] = []

    def fail(sample: Sample) -> None:
        taken.append(sample)
        raise ValueError("secret") from KeyError("secret")

    sampler = Sampler(source, clock, hide_errors=True)
    with sampler.subscribe(fail):
        clock.until(lambda: "A subscriber to GPU samples failed." in caplog.messages)
    clock.until(lambda: threads() == set())
    assert taken[0].readings[0].missing["memory_used"] == (
        "gpuwidget failed with an unexpected error (ZeroDivisionError); please report it."
    )
    assert "secret" not in caplog.text.replace('ValueError("secret") from KeyError("secret")', "")
    assert "RuntimeError: ValueError" in caplog.text
    assert "in fail\n" in caplog.text


def test_an_unexpected_error_of_a_source(sampler: Sampler, source: FakeSource, clock: FakeClock) -> None:
    """If reading a GPU raises an unexpected exception, the reason for the GPU's missing values contains the
    exception. Other GPUs are still read."""
    raised = "ZeroDivisionError: {'a': 1} / {}"
    taken: list[Sample] = []
    with sampler.subscribe(taken.append):
        clock.until(lambda: len(taken) == 1)
        source.failing[0] = ZeroDivisionError("{'a': 1} / {}")
        clock.until(lambda: taken[-1].readings[0].memory_used is None, step=0.2)
        assert taken[-1].readings[0].missing["memory_used"] == (
            f"gpuwidget failed with an unexpected error ({raised}); please report it."
        )
        assert taken[-1].readings[1].memory_used == 1_000_000
        source.failing.clear()
        clock.until(lambda: taken[-1].readings[0].memory_used == 1_000_000, step=0.2)


def test_only_the_first_waits_for_a_driver_that_hangs(
    sampler: Sampler, source: FakeSource, clock: FakeClock
) -> None:
    """If opening the source has already taken longer than the timeout when `wait_until_open()` is called, the
    call returns False at once."""
    source.hang_in_open = threading.Event()
    with sampler.subscribe():
        clock.until(lambda: source.calls["open"] == 1)
        clock.advance(6.0)
        assert sampler.wait_until_open(5.0) is False


def test_processes_are_read_when_the_memory_changed(
    sampler: Sampler, source: FakeSource, clock: FakeClock
) -> None:
    """The processes on a GPU are read when its memory in use has changed. If the memory does not change, they
    are read once per second."""
    taken: list[Sample] = []
    with sampler.subscribe(taken.append):
        clock.until(lambda: len(taken) == 1)
        assert source.calls["processes 0"] == 1
        clock.advance(0.2)
        clock.until(lambda: len(taken) == 2)
        assert source.calls["processes 0"] == 1
        source.memory[0] = 2_000_000
        clock.advance(0.2)
        clock.until(lambda: len(taken) == 3)
        assert (source.calls["processes 0"], source.calls["processes 1"]) == (2, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_starts_its_own(source: FakeSource) -> None:
    """A forked child process has none of its parent's sampler threads, and can start its own threads."""
    sampler = Sampler(source)
    taken: list[Sample] = []
    with sampler.subscribe(taken.append):
        assert sampler.read_now(10.0) is not None
        child = os.fork()
        if child == 0:
            code = 1
            try:
                alone = not sampler.running
                with sampler.subscribe():
                    code = 0 if alone and sampler.read_now(10.0) is not None else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert sampler.read_now(10.0) is not None
    sampler.stop()


def test_no_thread_can_be_started(
    sampler: Sampler, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If no thread can be started, there are no samples and nobody waits. One line says so, and the next
    subscription tries again."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        first = sampler.subscribe()
        assert not sampler.wait_until_open(1e9)
        assert sampler.read_now(1e9) is None
        assert sampler.has_no_thread
    (record,) = caplog.records
    assert record.getMessage().endswith("can't start new thread (gpuwidget-fast)")
    with sampler.subscribe():
        clock.until(lambda: sampler.latest is not None)
        assert not sampler.has_no_thread
    first.close()
