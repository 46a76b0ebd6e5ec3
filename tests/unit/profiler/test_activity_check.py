"""The GPU activity of lines agrees with the GPU's own counters, or there is none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes import EPOCH
from helpers_frames import PRINTING, STEPPING, WAITING, ProfiledRun, lines, time_of

from gpuwidget.profiler.counter_windows import WindowMean
from gpuwidget.profiler.messages import UNCHECKED
from gpuwidget.sources import UtilizationWindow

SHORT_KERNELS = (
    "kernels of a few microseconds end before a query sees them, or the work ran on other streams or in "
    "other processes."
)


def now(run: ProfiledRun) -> float:
    """Return the time just after the last sample, epoch seconds."""
    return EPOCH + run.clock.monotonic() + 0.0001


def run_windows(
    run: ProfiledRun, count: int, percent: Callable[[int], float], samples: Callable[[int], None]
) -> None:
    """Take ``count`` windows of the hardware counters, with the stack samples that ``samples`` makes."""
    for number in range(count):
        since = now(run)
        samples(number)
        run.windows.counted.setdefault(0, []).append(WindowMean(since, now(run), percent(number)))
    run.profiler.open()


def stepping(run: ProfiledRun, count: int = 50, *, busy: int = 0) -> None:
    """Take ``count`` samples on line 2, 10 ms apart."""
    for _ in range(count):
        run.sample(STEPPING, busy=busy)


def test_kernels_too_short_for_queries() -> None:
    """Four seconds of launch-bound code, 17 % busy by the counters, are never 0 % busy.

    The regression gives the one line its activity, and the reason names short kernels first.
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
    assert time.reason == (
        "GPU 0: its default stream had work in 0 % of the queries and the GPU's counters say 17 % busy: "
        f"{SHORT_KERNELS} The GPU's activity is told from the driver's windows instead."
    )


def test_the_hardware_counters_come_before_the_drivers_utilization() -> None:
    """Where GPM shows 16 % and the driver's mean is 3 %, lines of 3 % activity are withheld."""
    run = ProfiledRun()
    run_windows(run, 8, lambda number: 16.0, lambda number: stepping(run))
    time = time_of(run, utilization=3.0)
    assert lines(time) == [(2, 100.0, None)]
    assert time.reason == (
        "GPU 0: its default stream had work in 0 % of the queries and the GPU's counters say 16 % busy: "
        + SHORT_KERNELS
    )


def test_only_matching_windows_are_compared() -> None:
    """A second of set-up that no window covers is no disagreement."""
    run = ProfiledRun()
    stepping(run, 100)
    run_windows(run, 8, lambda number: 97.0, lambda number: stepping(run, busy=1))
    time = time_of(run, utilization=97.0)
    assert (lines(time), time.reason) == ([(2, 100.0, 80.0)], None)


def test_the_drivers_windows_where_there_is_no_gpm() -> None:
    """Before Hopper the driver's windows are compared with the queries in each of them."""
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
    """Counters 4 points above the queries could make an idle line 8 % busy, and the busy line no busier."""
    run = ProfiledRun()

    def samples(number: int) -> None:
        for at in range(50):
            run.sample(WAITING if at < 37 else STEPPING, busy=int(at < 37))

    run_windows(run, 8, lambda number: 78.0, samples)
    time = time_of(run)
    assert lines(time) == [(1, 74.0, 100.0), (2, 26.0, None)]
    assert time.reason == (
        "The GPU's counters show work in up to 2.0 % of the run that queries of its stream did not see: "
        "no activity is given for lines that this work could change."
    )


def test_agreement_within_the_counters_noise() -> None:
    """Two points more or less leave every activity as it is."""
    for counters in (78.0, 82.0):
        run = ProfiledRun()

        def samples(number: int, run: ProfiledRun = run) -> None:
            for at in range(50):
                run.sample((WAITING, STEPPING, PRINTING)[at % 3], busy=int(at % 5 < 4))

        run_windows(run, 9, lambda number, counters=counters: counters, samples)  # type: ignore[misc]
        assert all(busy is not None for _, _, busy in lines(time_of(run)))


def test_work_on_other_streams() -> None:
    """A process that used no CPU launched no short kernels: the work was on other streams or not its own."""
    run = ProfiledRun()
    run_windows(run, 8, lambda number: 48.0, lambda number: stepping(run))
    run.set_cpu(4.0)
    time = time_of(run)
    assert lines(time) == [(2, 100.0, None)]
    assert time.reason == (
        "GPU 0: its default stream had work in 0 % of the queries and the GPU's counters say 48 % busy: "
        "other streams, libraries or processes worked on it."
    )


def test_copies_are_not_gpu_activity() -> None:
    """A stream that only copies has work all the time, but the GPU's compute engines have none."""
    run = ProfiledRun()
    run_windows(run, 8, lambda number: 0.0, lambda number: stepping(run, busy=1))
    time = time_of(run)
    assert lines(time) == [(2, 100.0, None)]
    assert time.reason == (
        "GPU 0: its default stream had work in 100 % of the queries and the GPU's counters say 0 % busy: "
        "copies and waits for other streams are work of a stream, but not of the GPU's compute engines."
    )


def test_the_drivers_mean_covers_the_gpu_drain() -> None:
    """Four seconds of code with an idle GPU and ten of GPU drain: both figures are right, and agree."""
    run = ProfiledRun()
    stepping(run, 400)
    time = time_of(run, utilization=100 * 10 / 14, tail=10.0)
    assert (lines(time), time.reason) == ([(2, 100.0, 0.0)], None)


def test_a_short_run_is_compared_too() -> None:
    """In a run of 1.5 s on a side stream the driver's 100 % contradicts 0 %."""
    run = ProfiledRun()
    stepping(run, 150)
    assert lines(time_of(run, utilization=100.0)) == [(2, 100.0, None)]


def test_a_difference_that_a_short_runs_edges_explain() -> None:
    """In 0.6 s of work the queries missed 0.05 s at the start: no activity, and no guess at short kernels."""
    run = ProfiledRun()
    for number in range(60):
        run.sample(STEPPING, busy=int(number >= 5))
    time = time_of(run, utilization=100.0)
    assert (lines(time), time.reason) == ([(2, 100.0, None)], UNCHECKED)


def test_without_counters_there_is_no_activity() -> None:
    """Queries that nothing confirms give no activity, and there is a reason."""
    for busy in (0, 1):
        run = ProfiledRun()
        stepping(run, 30, busy=busy)
        time = time_of(run, utilization=None)
        assert (lines(time), time.reason) == ([(2, 100.0, None)], UNCHECKED)


def test_windows_that_cover_half_the_run_do_not_count() -> None:
    """Where windows cover less than six tenths, the driver's mean of the run decides."""
    run = ProfiledRun()
    stepping(run, 300)
    run_windows(run, 6, lambda number: 0.0, lambda number: stepping(run))
    assert lines(time_of(run, utilization=40.0)) == [(2, 100.0, None)]
    assert lines(time_of(run, utilization=1.0)) == [(2, 100.0, 0.0)]


def test_streams_that_failed_near_the_end_are_compared() -> None:
    """The queries before the failure are compared with the driver's mean; the reason has the failure."""
    run = ProfiledRun()
    for number in range(1000):
        run.sample(STEPPING, busy=0 if number < 950 else None)
    run.streams.reason = "CUDA reported an error"
    time = time_of(run, utilization=100.0)
    assert lines(time) == [(2, 100.0, None)]
    assert time.reason == (
        "CUDA reported an error. GPU 0: its default stream had work in 0 % of the queries and the GPU's "
        f"counters say 100 % busy: {SHORT_KERNELS}"
    )


@pytest.mark.parametrize("edge", ["since", "until"])
def test_a_window_at_the_edge_of_the_run_is_left_out(edge: str) -> None:
    """A window of which a third lies before or after the run contains work that is not the run's."""
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
