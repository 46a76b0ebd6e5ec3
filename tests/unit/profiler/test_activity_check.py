"""Tests of the check of GPU activity per line: activity is reported only if the GPU's own counters confirm
it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes import EPOCH
from helpers_frames import PRINTING, STEPPING, WAITING, ProfiledRun, lines, time_of

from gpuwidget.model.messages import MessageId, message
from gpuwidget.profiler.counter_windows import WindowMean
from gpuwidget.sources import UtilizationWindow

UNCHECKED = MessageId("activity-unchecked", {})


def now(run: ProfiledRun) -> float:
    """Return a time just after the last sample, in epoch seconds."""
    return EPOCH + run.clock.monotonic() + 0.0001


def run_windows(
    run: ProfiledRun, count: int, percent: Callable[[int], float], samples: Callable[[int], None]
) -> None:
    """Record ``count`` windows of the hardware counters. ``samples`` takes the stack samples of each
    window.
    """
    for number in range(count):
        since = now(run)
        samples(number)
        run.windows.counted.setdefault(0, []).append(WindowMean(since, now(run), percent(number)))
    run.profiler.open()


def stepping(run: ProfiledRun, count: int = 50, *, busy: int = 0) -> None:
    """Take ``count`` stack samples on line 2, 10 ms apart."""
    for _ in range(count):
        run.sample(STEPPING, busy=busy)


def contradiction(queried: float, counters: float, cause: str) -> MessageId:
    """Return the reason that queries of the stream and the counters of GPU 0 disagree, with their percents of
    the time."""
    return MessageId(
        "queries-contradict-counters",
        {"gpu": "GPU 0", "queried": queried, "counters": counters, "cause": cause},
    )


def test_kernels_too_short_for_queries() -> None:
    """A launch-bound loop that is 17 % busy according to the counters is not reported as 0 % busy.

    Queries of the CUDA stream miss the loop's short kernels. The line's activity is therefore computed by
    regression over the driver's utilization windows, and the report's reason mentions short kernels.
    """
    run = ProfiledRun()
    stepping(run)
    driver = [UtilizationWindow(now(run), 17.0)]
    for _ in range(20):
        stepping(run, 20)
        driver.append(UtilizationWindow(now(run), 17.0))
    run.windows.windows = driver
    run.profiler.open()
    time = time_of(run, utilization=17.0)
    assert lines(time) == [(2, 100.0, 17.0)]
    assert time.reason_ids == (
        contradiction(0.0, 17.0, "short-kernels"),
        MessageId("activity-by-windows", {}),
    )


def run_with_both_counters(count: int, percent: Callable[[int], float], driver_percent: float) -> ProfiledRun:
    """Return a run on line 2 with ``count`` windows of the hardware counters. The driver's windows cover only
    the first twelve of them, each with ``driver_percent``."""
    run = ProfiledRun()
    stepping(run, 10)
    driver = [UtilizationWindow(now(run), driver_percent)]

    def samples(number: int) -> None:
        stepping(run, 20)
        if number < 12:
            driver.append(UtilizationWindow(now(run), driver_percent))

    run.windows.windows = driver
    run_windows(run, count, percent, samples)
    return run


def test_activity_from_the_counter_that_covers_more_of_the_run() -> None:
    """The regression uses the hardware counters' windows if they cover more of the run than the driver's.

    The driver's windows cover only the first half of the run, with 38 %. The hardware counters cover the
    whole run, with a mean of 40 %.
    """
    run = run_with_both_counters(24, lambda number: 38.0 if number < 12 else 42.0, 38.0)
    assert lines(time_of(run, utilization=40.0)) == [(2, 100.0, 40.0)]


def test_activity_from_the_other_counter() -> None:
    """If the hardware counters vary too much for a result, the regression uses the driver's windows."""
    run = run_with_both_counters(14, lambda number: 80.0 * (number % 2), 40.0)
    assert lines(time_of(run, utilization=40.0)) == [(2, 100.0, 40.0)]


def test_the_drain_counts_for_the_runs_mean() -> None:
    """The driver's mean includes the time after the code's end in which the GPU still worked.

    The line's activity is 40 % in 2 s, and the GPU then works for 2 s, so the driver's mean is 70 %.
    """
    run = ProfiledRun()
    run_windows(run, 10, lambda number: 40.0, lambda number: stepping(run, 20))
    assert lines(time_of(run, utilization=70.0, tail=2.0)) == [(2, 100.0, 40.0)]


def test_another_gpus_windows_give_no_activity() -> None:
    """If the process also used a second GPU, or if the report lacks the GPU of the windows, no activity is
    estimated."""
    for devices, uuid in (((0, 1), None), ((0,), "GPU-of-another-run")):
        run = ProfiledRun()
        run.streams.devices = devices
        run.windows.uuid = uuid or run.windows.uuid
        stepping(run, 10)
        driver = [UtilizationWindow(now(run), 40.0)]
        for _ in range(12):
            stepping(run, 20)
            driver.append(UtilizationWindow(now(run), 40.0))
        run.windows.windows = driver
        run.profiler.open()
        assert lines(time_of(run, utilization=40.0)) == [(2, 100.0, None)]


def test_windows_that_do_not_represent_the_run_give_no_activity() -> None:
    """If the driver's windows cover only part of a run and the load varies, no activity is estimated from
    them.

    The windows have a mean of 37 %, but the mean over the whole run is 42 %. With a mean of 39 %, the
    activity is shown.
    """
    for mean, shown in ((42.0, None), (39.0, 37.0)):
        run = ProfiledRun()
        stepping(run, 10)
        driver = [UtilizationWindow(now(run), 37.0)]
        for _ in range(12):
            stepping(run, 20)
            driver.append(UtilizationWindow(now(run), 37.0))
        run.windows.windows = driver
        run.profiler.open()
        stepping(run, 100)
        assert lines(time_of(run, utilization=mean)) == [(2, 100.0, shown)]


def test_the_hardware_counters_come_before_the_drivers_utilization() -> None:
    """If hardware counters (GPM) and the driver's mean utilization differ, the stream queries are compared
    with the counters.

    The counters measured 16 %. A line for which the queries found 0 % therefore gets no activity, although
    the driver's mean utilization of 3 % would confirm the 0 %.
    """
    run = ProfiledRun()
    run_windows(run, 8, lambda number: 16.0, lambda number: stepping(run))
    time = time_of(run, utilization=3.0)
    assert lines(time) == [(2, 100.0, None)]
    assert time.reason_ids == (contradiction(0.0, 16.0, "short-kernels"),)


def test_only_matching_windows_are_compared() -> None:
    """Time without counter windows, such as a second of set-up, is not part of the comparison with the
    counters.
    """
    run = ProfiledRun()
    stepping(run, 100)
    run_windows(run, 8, lambda number: 97.0, lambda number: stepping(run, busy=1))
    time = time_of(run, utilization=97.0)
    assert (lines(time), time.reason) == ([(2, 100.0, 80.0)], None)


def test_the_drivers_windows_where_there_is_no_gpm() -> None:
    """On GPUs without GPM (before Hopper), each of the driver's utilization windows is compared with the
    stream queries made during that window.
    """
    run = ProfiledRun()
    driver = [UtilizationWindow(now(run), 0.0)]
    for number in range(10):
        stepping(run, 20, busy=number % 2)
        driver.append(UtilizationWindow(now(run), 100.0 * (number % 2)))
    run.windows.windows = driver
    run.profiler.open()
    time = time_of(run, utilization=20.0)
    assert (lines(time), time.reason) == ([(2, 100.0, 50.0)], None)


def test_a_line_that_hidden_work_could_change_has_no_activity() -> None:
    """If a line's activity could change noticeably because of work that the queries missed, no activity is
    reported for the line.

    Here, the GPU could have been busy for 8 % of the time of the line that seems idle, so this line's
    activity is unknown. The line with 100 % keeps its activity.
    """
    run = ProfiledRun()

    def samples(number: int) -> None:
        for at in range(50):
            run.sample(WAITING if at < 37 else STEPPING, busy=int(at < 37))

    run_windows(run, 8, lambda number: 78.0, samples)
    time = time_of(run)
    assert lines(time) == [(1, 74.0, 100.0), (2, 26.0, None)]
    (reason,) = time.reason_ids
    assert (reason.id, reason.params["percent"]) == ("hidden-work", pytest.approx(2.0, abs=0.05))


def test_agreement_within_the_counters_noise() -> None:
    """If counters and queries differ by only two percentage points, the difference is noise, and every line
    keeps its activity.
    """
    for counters in (78.0, 82.0):
        run = ProfiledRun()

        def samples(number: int, run: ProfiledRun = run) -> None:
            for at in range(50):
                run.sample((WAITING, STEPPING, PRINTING)[at % 3], busy=int(at % 5 < 4))

        run_windows(run, 9, lambda number, counters=counters: counters, samples)  # type: ignore[misc]
        assert all(busy is not None for _, _, busy in lines(time_of(run)))


def test_work_on_other_streams() -> None:
    """If queries and counters disagree and the process used almost no CPU time, short kernels can't be the
    cause, because the process can't have launched many.

    The reason for the missing activity then names other streams, libraries and processes as the cause.
    """
    run = ProfiledRun()
    run_windows(run, 8, lambda number: 48.0, lambda number: stepping(run))
    run.set_cpu(4.0)
    time = time_of(run)
    assert lines(time) == [(2, 100.0, None)]
    assert time.reason_ids == (contradiction(0.0, 48.0, "other-streams"),)


def test_copies_are_not_gpu_activity() -> None:
    """A stream that only copies is busy, but the GPU's compute engines are idle. The activity of
    a line whose stream only copies is therefore unknown (None).
    """
    run = ProfiledRun()
    run_windows(run, 8, lambda number: 0.0, lambda number: stepping(run, busy=1))
    time = time_of(run)
    assert lines(time) == [(2, 100.0, None)]
    assert time.reason_ids == (contradiction(100.0, 0.0, "stream-work"),)


def test_the_drivers_mean_covers_the_gpu_drain() -> None:
    """The driver's mean utilization covers the whole run, including the GPU drain: the time in which the GPU
    finishes its queued work after the code has ended.

    The GPU was idle for 4 s of code and busy for 10 s of drain, so a driver's mean of 71 % over the 14 s
    confirms an activity of 0 % for the code.
    """
    run = ProfiledRun()
    stepping(run, 400)
    time = time_of(run, utilization=100 * 10 / 14, tail=10.0)
    assert (lines(time), time.reason) == ([(2, 100.0, 0.0)], None)


def test_a_short_run_is_compared_too() -> None:
    """Even a run of 1.5 s is checked: a driver's mean of 100 % contradicts the 0 % of the stream queries."""
    run = ProfiledRun()
    stepping(run, 150)
    assert lines(time_of(run, utilization=100.0)) == [(2, 100.0, None)]


def test_a_difference_that_a_short_runs_edges_explain() -> None:
    """In a short run, the driver's mean may include work just before the run or omit work at the run's end. A
    small difference between the driver's mean and the stream queries therefore proves nothing.

    Here, the stream queries found no work in the first 0.05 s of 0.6 s, and the driver's mean is 100 %. The
    activity is reported as unknown. The reason for this does not mention short kernels.
    """
    run = ProfiledRun()
    for number in range(60):
        run.sample(STEPPING, busy=int(number >= 5))
    time = time_of(run, utilization=100.0)
    assert (lines(time), time.reason_ids) == ([(2, 100.0, None)], (UNCHECKED,))


def test_without_counters_there_is_no_activity() -> None:
    """If there are neither hardware counters nor a driver's mean that could confirm the queries, no activity
    is reported, and the reason explains this.
    """
    for busy in (0, 1):
        run = ProfiledRun()
        stepping(run, 30, busy=busy)
        time = time_of(run, utilization=None)
        assert (lines(time), time.reason_ids) == ([(2, 100.0, None)], (UNCHECKED,))


def test_windows_that_cover_half_the_run_do_not_count() -> None:
    """If the counters' windows cover less than 60 % of the run, the queries are compared with the driver's
    mean instead.
    """
    run = ProfiledRun()
    stepping(run, 300)
    run_windows(run, 6, lambda number: 0.0, lambda number: stepping(run))
    assert lines(time_of(run, utilization=40.0)) == [(2, 100.0, None)]
    assert lines(time_of(run, utilization=1.0)) == [(2, 100.0, 0.0)]


def test_streams_that_failed_near_the_end_are_compared() -> None:
    """If stream queries fail near the end of the run, the earlier queries are compared with the counters. If
    they disagree, the reason for the missing activity mentions the failure too.
    """
    run = ProfiledRun()
    for number in range(1000):
        run.sample(STEPPING, busy=0 if number < 950 else None)
    run.streams.reason = message("test", "CUDA reported an error")
    time = time_of(run, utilization=100.0)
    assert lines(time) == [(2, 100.0, None)]
    failed, contradicting = time.reason_ids
    assert failed == MessageId("test", {})
    assert contradicting == contradiction(0.0, 100.0, "short-kernels")


@pytest.mark.parametrize("edge", ["since", "until"])
def test_a_window_at_the_edge_of_the_run_is_left_out(edge: str) -> None:
    """A counter window that begins before the run or ends after it is ignored, since it also measures other
    work.
    """
    run = ProfiledRun()
    began = EPOCH + run.began
    stepping(run, 100)
    window = (
        WindowMean(began - 0.5, began + 1.0, 90.0)
        if edge == "since"
        else WindowMean(began + 0.0001, began + 1.5, 90.0)
    )
    run.windows.counted[0] = [window]
    run.profiler.open()
    assert lines(time_of(run, utilization=0.0)) == [(2, 100.0, 0.0)]
