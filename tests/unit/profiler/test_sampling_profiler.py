"""Tests of the line profile of a cell: exact shares, computed from stack samples with given times and
stacks.
"""

from __future__ import annotations

import ast
import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from fakes import EPOCH, FakeClock
from helpers_frames import (
    CELL,
    KERNEL,
    NAMES,
    OTHER_CELL,
    PRINTING,
    STEPPING,
    WAITING,
    FakeStreams,
    ProfiledRun,
    lines,
    report,
    stack,
    time_of,
)

from gpuwidget.model.messages import MessageId, message
from gpuwidget.model.report import CodeTime, LineTime
from gpuwidget.profiler.code_locations import CodeLocator
from gpuwidget.profiler.counter_windows import WindowMean
from gpuwidget.profiler.sampling_profiler import SamplingProfiler
from gpuwidget.sources import UtilizationWindow


def real_profiler(streams: Any) -> SamplingProfiler:
    """Return a profiler for code that the test actually runs."""
    return SamplingProfiler(CodeLocator(NAMES.__contains__, NAMES.get), lambda file, line: "", streams)


def profile_until_sampled(profiler: SamplingProfiler) -> CodeTime:
    """Run code until the profiler has taken 30 samples of it, and return the profile."""

    def sampled() -> bool:
        return profiler._counts.samples >= 30

    profiler.start()
    began = time.perf_counter()
    exec(compile("while not sampled():\n    pass\n", CELL, "exec"), {"sampled": sampled})
    seconds = time.perf_counter() - began
    profiler.stop()
    profile = profiler.annotate(report(seconds)).time
    assert profile is not None
    return profile


def test_shares_and_activity_of_each_line() -> None:
    """Each line is reported with its share of the time, and with the percentage of that time in which the GPU
    was busy.
    """
    run = ProfiledRun()
    for number in range(100):
        run.sample(WAITING if number < 60 else STEPPING, busy=int(number < 6 or number >= 65))
    time = time_of(run, utilization=41.0)
    assert lines(time) == [(1, 60.0, 10.0), (2, 40.0, 87.5)]
    assert (time.samples, time.reason) == (100, None)


def test_the_call_and_the_users_frame() -> None:
    """Each line is reported with the public name of its most frequent call, and with the deepest frame in the
    user's files.
    """
    run = ProfiledRun()
    for top, times in ((WAITING, 60), (STEPPING, 40)):
        for _ in range(times):
            run.sample(top)
    first, second = time_of(run).lines
    assert (first.call_share, second.call_share) == (60.0, None)
    assert (first.source, first.call, first.frame) == ("for x, y in loader:", "DataLoader._next_data", None)
    assert (second.source, second.call, second.frame) == ("loss = step(x, y)", None, "train.py:31 step")
    assert (first.indent, second.indent) == (0, 4)
    assert [(one.frame, one.share, one.gpu_busy) for one in second.frames] == [
        ("train.py:31 step", 40.0, 0.0)
    ]


def test_functions_of_other_cells() -> None:
    """Time in a function that another cell defines is attributed to the calling line, and the frame names the
    other cell.

    Time in a function that this cell defines is attributed to the line in that function.
    """
    run = ProfiledRun()
    for number in range(40):
        own = stack(KERNEL, (CELL, "<module>", 9), (CELL, "epoch", 5))
        other = stack(KERNEL, (CELL, "<module>", 9), (OTHER_CELL, "epoch", 4))
        run.sample(own if number % 4 else other)
    time = time_of(run)
    assert [(one.line, round(one.share, 6), one.frame) for one in time.lines] == [
        (5, 75.0, None),
        (9, 25.0, "In[2]:4 epoch"),
    ]


def test_a_sample_stands_for_the_time_since_the_previous_one() -> None:
    """Each sample is weighted with the time since the previous sample, so that shares are shares of time."""
    run = ProfiledRun()
    for _ in range(20):
        run.sample(WAITING, 0.03)
        run.sample(STEPPING, 0.01)
    assert lines(time_of(run)) == [(1, 75.0, 0.0), (2, 25.0, 0.0)]


def test_time_in_no_line_of_the_cell() -> None:
    """Time outside the cell's lines is a separate entry without a line number."""
    run = ProfiledRun()
    for number in range(40):
        run.sample(stack(KERNEL) if number % 4 == 2 else PRINTING)
    assert [(one.line, round(one.share, 6), one.source) for one in time_of(run).lines] == [
        (3, 75.0, "print(loss)"),
        (None, 25.0, ""),
    ]


def test_time_before_and_after_the_cells_code_does_not_count() -> None:
    """Time in which IPython compiles the cell or formats its traceback is not part of the profile."""
    run = ProfiledRun(before=[KERNEL])
    compiling = stack(KERNEL, ("/lib/site-packages/IPython/core/compilerop.py", "ast_parse", 4))
    traceback = stack(KERNEL, ("/home/me/tools/stack_data/core.py", "<module>", 15))
    for top, times in ((compiling, 10), (STEPPING, 30), (traceback, 60)):
        for _ in range(times):
            run.sample(top)
    time = time_of(run)
    assert (lines(time), time.samples) == ([(2, 100.0, 0.0)], 30)


def test_a_cell_that_was_never_sampled() -> None:
    """If no sample was taken in the cell's own code, the profile has no lines, and the reason explains
    this.
    """
    run = ProfiledRun(before=[KERNEL])
    for _ in range(300):
        run.sample(stack(KERNEL))
    time = time_of(run)
    assert (time.lines, time.samples) == ((), 0)
    assert time.reason_ids == (MessageId("cell-not-seen", {}),)


def test_the_call_outside_the_cell() -> None:
    """Time in IPython's own code during the cell is shown with the name of the function that runs, but not
    with the name of the kernel's main loop.
    """
    run = ProfiledRun(before=[KERNEL])
    showing = stack(KERNEL, ("/lib/site-packages/IPython/core/displayhook.py", "DisplayHook.show", 4))
    for top in (PRINTING, showing, stack(KERNEL), PRINTING):
        for _ in range(10 if top is not PRINTING else 20):
            run.sample(top)
    assert [(one.line, one.call, one.call_share) for one in time_of(run).lines] == [
        (3, None, None),
        (None, "DisplayHook.show", pytest.approx(100 / 6)),
    ]


def test_failed_samples_count_for_no_line() -> None:
    """If sampling fails for part of the run, the report states the percentage of the run for which it failed.

    If it failed for much of the run, no lines are reported.
    """
    for duration, told, percent in ((8.5, [(1, 100.0, 0.0)], 5.9), (10.0, [], 20.0)):
        run = ProfiledRun()
        for _ in range(800):
            run.sample(WAITING)
        time = time_of(run, duration=duration, utilization=0.0)
        assert lines(time) == told
        (reason,) = time.reason_ids
        assert (reason.id, reason.params["percent"]) == (
            "partly-not-sampled",
            pytest.approx(percent, abs=0.05),
        )


@pytest.mark.stops_errors
def test_a_failed_sample_does_not_end_the_profiler() -> None:
    """If taking one sample raises an exception, the profiler continues with the next sample."""
    failures = iter([RuntimeError("odd")])

    class Odd(FakeStreams):
        def busy(self) -> int | None:
            for error in failures:
                raise error
            return 0

    profiler = real_profiler(Odd(0))
    time = profile_until_sampled(profiler)
    assert {one.line for one in time.lines} <= {1, 2}
    assert time.samples > 1


def test_awaited_objects_run_no_user_code() -> None:
    """The profiler finds the line of an ``await`` without reading any attribute of the awaited object."""
    asked: list[str] = []
    source = "await Odd()\nawait Odd()\n"

    async def sampled() -> None:
        enough = profiler._counts.samples + 30
        while profiler._counts.samples < enough:
            await asyncio.sleep(0.01)

    class Steps:
        def __init__(self) -> None:
            self.steps = sampled().__await__()

        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            raise RuntimeError(name)

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            return next(self.steps)

    class Odd:
        def __await__(self) -> Any:
            return Steps()

    profiler = real_profiler(FakeStreams(0))
    body = compile(source, CELL, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def run() -> None:
        profiler.start()
        await eval(body, {"Odd": Odd})
        profiler.stop()

    began = time.perf_counter()
    asyncio.run(run())
    profile = profiler.annotate(report(time.perf_counter() - began)).time
    assert profile is not None
    assert [one.line for one in sorted(profile.lines, key=lambda one: one.line or 0)] == [1, 2]
    assert asked in (
        [],
        ["send", "send"],
    )  # If the iterator is not a generator, CPython itself reads its attribute 'send', which is harmless.


def test_a_watched_cell_within_a_cell() -> None:
    """If a watched cell runs inside another cell, the profile has the lines of the watched cell only."""
    run = ProfiledRun()
    run.profiler.attach(stack(KERNEL, (OTHER_CELL, "<module>", 5)))
    for _ in range(30):
        run.sample(stack(KERNEL, (OTHER_CELL, "<module>", 5), (CELL, "<module>", 2)))
    assert [one.line for one in time_of(run).lines] == [2]


def test_without_streams_the_regression_gives_activities() -> None:
    """If streams can't be queried, GPU activity is computed by regression over the driver's utilization
    windows.
    """
    run = ProfiledRun(bits=None, reason=message("test", "torch is not loaded"))
    parts = [0.1, 0.9, 0.5, 0.2, 0.8, 0.0, 1.0, 0.3, 0.7, 0.4, 0.6, 1.0, 0.0]
    windows = [UtilizationWindow(EPOCH + 0.0001, 0.0)]
    for part in parts:
        for number in range(20):
            run.sample(STEPPING if number < 20 * part else WAITING, busy=None)
        windows.append(UtilizationWindow(EPOCH + run.clock.monotonic() + 0.0001, 100 * part))
    run.windows.windows = windows
    run.profiler.open()
    time = time_of(run, utilization=50.0)
    assert lines(time) == [(2, 50.0, 100.0), (1, 50.0, 0.0)]
    assert time.reason_ids == (MessageId("test", {}), MessageId("activity-by-windows", {}))


def test_windows_that_are_all_alike_give_no_activity() -> None:
    """If all windows have the same mixture of lines, as in a fast loop, no activity is reported."""
    run = ProfiledRun(bits=None, reason=message("test", "torch is not loaded"))
    windows = [UtilizationWindow(EPOCH + 0.0001, 0.0)]
    for _ in range(20):
        for number in range(20):
            run.sample(STEPPING if number % 2 else WAITING, busy=None)
        windows.append(UtilizationWindow(EPOCH + run.clock.monotonic() + 0.0001, 50.0))
    run.windows.windows = windows
    run.profiler.open()
    time = time_of(run)
    assert lines(time) == [(1, 50.0, None), (2, 50.0, None)]
    assert time.reason_ids == (MessageId("test", {}),)
    assert time.reason == "Torch is not loaded."


def test_too_few_samples_give_no_lines() -> None:
    """A run with fewer than twenty samples has no lines, and the reason explains this."""
    run = ProfiledRun()
    for _ in range(19):
        run.sample(STEPPING)
    time = time_of(run)
    assert (time.lines, time.samples) == ((), 19)
    assert time.reason_ids == (MessageId("too-short-for-lines", {}),)


def test_a_run_without_samples_has_no_time() -> None:
    """If the profiler took no sample in a short run, it returns the report unchanged."""
    made = report(0.1)
    assert ProfiledRun().profiler.annotate(made) is made


def test_a_longer_run_without_samples() -> None:
    """If a longer run has no sample, as after a failure of the sampling thread, the profile has no lines and
    the reason."""
    time = ProfiledRun().profiler.annotate(report(12.0)).time
    assert time is not None
    assert (time.lines, time.samples) == ((), 0)
    assert time.reason_ids == (MessageId("partly-not-sampled", {"percent": 100.0}),)


def test_snapshot() -> None:
    """While the cell runs, a snapshot contains the lines that have been sampled so far."""
    run = ProfiledRun()
    assert run.profiler.snapshot() is None
    for _ in range(30):
        run.sample(WAITING)
    so_far = run.profiler.snapshot()
    assert so_far is not None
    assert lines(so_far) == [(1, 100.0, 0.0)]


def test_cuda_that_is_initialized_halfway() -> None:
    """If CUDA was not initialized yet for most of a line's samples, the line's streams could not be queried,
    so its activity is unknown.

    Lines that ran later have an activity.
    """
    run = ProfiledRun()
    for _ in range(40):
        run.sample(STEPPING, busy=None)
    for number in range(40):
        if number % 10 == 0:
            began = EPOCH + run.clock.monotonic() + 0.0001
        run.sample(WAITING, busy=int(number < 10))
        if number % 10 == 9:
            window = WindowMean(began, began + 0.1, 100.0 if number < 10 else 0.0)
            run.windows.counted.setdefault(0, []).append(window)
    run.profiler.open()
    assert lines(time_of(run)) == [(2, 50.0, None), (1, 50.0, 25.0)]


@pytest.mark.parametrize("name", ["line", "source", "share", "gpu_busy", "call", "frame"])
def test_the_report_has_the_documented_names(name: str) -> None:
    """In a report's JSON, the fields of a line have the documented names."""
    line = LineTime(1, "f()", 100.0, None, None, None)
    assert name in replace(report(), time=replace(_time(), lines=(line,))).to_dict()["time"]["lines"][0]


def test_a_real_thread_is_sampled_until_it_stops() -> None:
    """The profiler samples a thread that really runs, and the profiler's own thread ends with the run."""
    profiler = real_profiler(FakeStreams(1))
    time = profile_until_sampled(profiler)
    assert {one.line for one in time.lines} <= {1, 2}
    # On a busy machine, too many samples may be missing to report lines, or too few to report an activity.
    assert sum(one.share for one in time.lines) == pytest.approx(100.0) or (time.lines == () and time.reason)
    assert {one.gpu_busy for one in time.lines} <= {None, 100.0}
    assert "gpuwidget-profiler" not in {thread.name for thread in threading.enumerate()}
    profiler.abandon()
    profiler.abandon()


class HurryingClock(FakeClock):
    """A clock that advances with every reading by more than the sampling interval, so that the profiler never
    waits.
    """

    def monotonic(self) -> float:
        self.advance(0.1)
        return super().monotonic()


class SlowToOpen(FakeStreams):
    """Streams that take 30 s to open, as happens while pure Python code in the cell holds the GIL."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(0)
        self.clock = clock
        self.opened = 0

    def open(self) -> bool:
        self.clock.advance(30.0)
        self.opened += 1
        return True


def test_opening_the_streams_does_not_delay_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that opening the streams takes does not make a sample count as late, since the cell did not
    cause that delay.
    """
    clock = HurryingClock()
    streams = SlowToOpen(clock)
    names = CodeLocator(NAMES.__contains__, NAMES.get)
    profiler = SamplingProfiler(names, lambda file, line: "", streams, clock=clock)
    samples: list[tuple[float, float]] = []
    over = threading.Event()

    def take_sample(t: float, late: float, seconds: float) -> None:
        samples.append((late, seconds))
        if len(samples) == 200:
            profiler.stop()
            over.set()

    monkeypatch.setattr(profiler, "take_sample", take_sample)
    profiler.start()
    over.wait()
    profiler.abandon()
    assert max(late for late, _ in samples) < 1.0
    # The time of opening is still counted as time since the previous sample.
    assert sum(seconds for _, seconds in samples) > 30.0 * (streams.opened - 1) > 0


def test_an_await_counts_for_its_line() -> None:
    """While a cell awaits something, the time is attributed to the line of the ``await`` and to the awaited
    call.
    """
    source = "import asyncio\nwhile not sampled(): await asyncio.sleep(0.2)\n"
    profiler = real_profiler(FakeStreams(0))
    body = compile(source, CELL, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def run() -> None:
        profiler.start()
        await eval(body, {"sampled": lambda: profiler._counts.samples >= 30})
        profiler.stop()

    began = time.perf_counter()
    asyncio.run(run())
    profile = profiler.annotate(report(time.perf_counter() - began)).time
    assert profile is not None
    (line,) = profile.lines
    assert (line.line, line.call, line.frame) == (2, "asyncio.tasks.sleep", None)
    assert line.share == pytest.approx(100.0)


def _time() -> CodeTime:
    run = ProfiledRun()
    for _ in range(30):
        run.sample(WAITING)
    return time_of(run)
