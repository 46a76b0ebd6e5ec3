"""Tests of the line profile of a cell whose thread holds the GIL, which makes stack samples late."""

from __future__ import annotations

import ctypes
import dis
import sys
import threading
import time
from typing import Any

import pytest
from helpers_frames import (
    CELL,
    KERNEL,
    NAMES,
    PRINTING,
    STEPPING,
    TRAIN,
    WAITING,
    FakeStreams,
    Frame,
    ProfiledRun,
    line_ranges,
    lines,
    report,
    stack,
    time_of,
)

from gpuwidget.model.messages import MessageId
from gpuwidget.model.report import CodeTime
from gpuwidget.profiler.code_locations import OUTSIDE, CodeLocation, CodeLocator
from gpuwidget.profiler.gil_waits import GilWaits
from gpuwidget.profiler.preemption import is_at_preemption_point
from gpuwidget.profiler.sample_counts import SampleCounts, StackSample
from gpuwidget.profiler.sampling_profiler import SamplingProfiler

SETS = """
for i in range(15):
    c = a & b
    time.sleep(.01)
    d = a | b; print(c)
"""


def at_call(line: int) -> Any:
    """Return the cell's frame at a call on this line, where Python may preempt the thread."""
    code = compile(SETS, CELL, "exec")
    (span,) = [(start, end) for start, end, number in code.co_lines() if number == line][:1]
    at = next(
        one.offset for one in dis.get_instructions(code) if one.opname == "CALL" and one.offset >= span[0]
    )
    return Frame(code, at, stack(KERNEL), {})


@pytest.mark.skipif(sys.version_info < (3, 11), reason="preempts after any operation")
def test_gil_blocked_lines_are_merged() -> None:
    """If one operation holds the GIL for long, all lines that may contain this operation are merged into one
    entry.
    """
    run = ProfiledRun(before=[KERNEL])
    for _ in range(30):
        run.sample(at_call(4), 0.13, late=0.13)
        run.sample(at_call(4), 0.01)
    time = time_of(run)
    assert line_ranges(time) == [(2, 4, 100.0)]
    assert gil_blocked(time) == pytest.approx(93, abs=0.5)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="preempts after any operation")
def test_a_gil_blocked_line_alone() -> None:
    """If only the sampled line can have held the GIL, that line is reported alone."""
    run = ProfiledRun(before=[KERNEL])
    for _ in range(30):
        run.sample(at_call(5), 0.13, late=0.13)
    time = time_of(run)
    assert line_ranges(time) == [(5, None, 100.0)]


def test_a_statement_that_blocked_the_gil_to_its_end() -> None:
    """If a statement holds the GIL until it ends, its time is attributed to the range of lines that may
    contain it.
    """
    run = ProfiledRun(before=[KERNEL])
    for _ in range(20):
        run.sample(WAITING)
    run.sample(stack(KERNEL), 0.7, late=0.7)
    for _ in range(10):
        run.sample(PRINTING)
    time = time_of(run)
    assert line_ranges(time) == [(1, 3, 100.0)]


def test_a_last_statement_that_blocked_the_gil() -> None:
    """If the statement that runs last in a cell holds the GIL until it ends, its time is attributed to the
    lines from the last sampled line to the end of the cell.
    """
    run = ProfiledRun(before=[KERNEL])
    for _ in range(20):
        run.sample(STEPPING)
    run.sample(stack(KERNEL), 0.7, late=0.7)
    time = time_of(run)
    assert line_ranges(time) == [(2, 3, 100.0)]


def test_an_operation_that_blocked_the_gil_to_the_runs_end() -> None:
    """If a stack sample is still waiting for the GIL when the run ends, the waiting time counts as time since
    the last sampled line of the cell.
    """
    counts = SampleCounts(0.005)
    location = CodeLocation(1, 2, 0, 0, 0)
    for number in range(30):
        counts.add(
            StackSample(0.01 * number, 0.0, 0.01, None),
            counts.at(location, lambda _: 3),
            0,
        )
    counts.end(StackSample(1.0, 0.7, 0.7, 0.7))
    assert counts.gil_blocked_at_end == (3, 0.7)
    assert counts.at(location, lambda _: 3).counts.seconds == pytest.approx(1.0)
    counts.add(StackSample(1.1, 0.0, 0.1, None), counts.at(CodeLocation(0, 0, 0, 0, 9), lambda _: None), 0)
    counts.end(StackSample(1.8, 0.7, 0.7, 0.7))  # After the cell's code, waiting is ignored.
    assert counts.gil_blocked_at_end == (3, 0.7)


def test_a_last_statement_after_a_sample_between_statements() -> None:
    """A stack sample between two statements is not mistaken for the end of the cell: the time after it still
    counts as time since the last sampled line of the cell.
    """
    counts = SampleCounts(0.005)
    location = CodeLocation(1, 2, 0, 0, 0)
    for number in range(30):
        counts.add(
            StackSample(0.01 * number, 0.0, 0.01, None),
            counts.at(location, lambda _: 3),
            0,
        )
    counts.add(StackSample(0.31, 0.002, 0.01, 0.002), counts.at(OUTSIDE, lambda _: None), 0)
    counts.end(StackSample(0.9, 0.59, 0.59, 0.59))
    assert counts.gil_blocked_at_end == (3, 0.59)
    assert counts.at(location, lambda _: 3).counts.seconds == pytest.approx(0.89)


def test_a_first_statement_that_blocked_the_gil() -> None:
    """If the cell's first statement holds the GIL, its time is attributed to the lines up to the first
    sampled line.
    """
    run = ProfiledRun(before=[KERNEL])
    run.sample(stack(KERNEL), 0.7, late=0.7)
    for _ in range(20):
        run.sample(STEPPING)
    time = time_of(run)
    assert line_ranges(time) == [(1, 2, 100.0)]


def test_a_late_sample_counts_for_the_preempted_line() -> None:
    """If a sample is late because a line holds the GIL, the delay is attributed to that line, not to the next
    line.
    """
    run = ProfiledRun()
    for _ in range(20):
        for _ in range(9):
            run.sample(STEPPING, late=0.0051)
        run.sample(WAITING, late=0.002)
        for _ in range(10):
            run.sample(WAITING)
    assert lines(time_of(run)) == [(2, 50.0, 0.0), (1, 50.0, 0.0)]


def test_lines_that_alternate_too_fast_are_merged() -> None:
    """If two lines alternate too fast for the samples to distinguish them, they are merged into one entry,
    and the reason explains this.
    """
    run = ProfiledRun()
    for _ in range(50):
        run.sample(STEPPING)
        run.sample(WAITING, late=0.003)
    time = time_of(run)
    assert [(one.line, one.until, one.share, one.gpu_busy) for one in time.lines] == [(1, 2, 100.0, 0.0)]
    assert time.reason_ids[0] == MessageId("lines-take-turns", {})
    assert time.resolution_s == 0.07


def test_lines_that_run_one_after_the_other_stay_apart() -> None:
    """If one line runs after another without alternating, the two lines are not merged, even if samples have
    to wait for the GIL.
    """
    run = ProfiledRun()
    for _ in range(30):
        run.sample(WAITING)
    for _ in range(30):
        run.sample(STEPPING, late=0.003)
    assert line_ranges(time_of(run)) == [(1, None, 50.0), (2, None, 50.0)]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="preempts after any operation")
def test_a_function_that_has_not_begun_counts_for_its_caller() -> None:
    """If a thread is preempted at a function's entry, the time is attributed to the line that calls the
    function.
    """
    step = stack((CELL, "<module>", 2), (TRAIN, "step", 31)).f_code
    entry = next(one.offset for one in dis.get_instructions(step) if one.opname == "RESUME")
    run = ProfiledRun()
    for _ in range(30):
        run.sample(Frame(step, entry, stack(KERNEL, (CELL, "<module>", 2)), {}), late=0.0051)
    (line,) = time_of(run).lines
    assert (line.line, line.share, line.frame) == (2, 100.0, None)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="preempts after any operation")
def test_a_sample_at_a_preemption_point_is_not_ambiguous() -> None:
    """A thread at a backward jump was preempted there, so its line is certain even if the sample was late."""
    compiled = compile("for x in y:\n    x\n", CELL, "exec")
    jump = next(one.offset for one in dis.get_instructions(compiled) if one.opname == "JUMP_BACKWARD")
    looping = Frame(compiled, jump, None, {})
    run = ProfiledRun()
    for _ in range(50):
        run.sample(looping, late=0.003)
        run.sample(PRINTING, late=0.0)
    assert lines(time_of(run)) == [(1, 50.0, 0.0), (3, 50.0, 0.0)]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="preempts after any operation")
def test_preemption_points_of_a_real_thread() -> None:
    """A thread that computes is always sampled at a preemption point. A thread that waits never is."""
    over = [threading.Event()]

    def compute() -> None:
        number = 0
        while over:
            number += 1

    def wait() -> None:
        over[0].wait()

    threads = [threading.Thread(target=compute), threading.Thread(target=wait)]
    found: list[set[bool]] = [set(), set()]
    for thread in threads:
        thread.start()
    within = {compute.__code__, threading.Condition.wait.__code__}
    samples = 0
    while samples < 20:
        frames = [sys._current_frames()[thread.ident or 0] for thread in threads]
        if {frame.f_code for frame in frames} == within:
            samples += 1
            for frame, seen in zip(frames, found, strict=True):
                seen.add(is_at_preemption_point(frame))
        time.sleep(0)
    over.pop().set()
    for thread in threads:
        thread.join()
    assert found == [{True}, {False}]


def test_a_gpu_that_alternates_quickly_has_no_activity() -> None:
    """If the GPU changes between busy and idle while samples wait for the GIL, no activity is reported."""
    run = ProfiledRun()
    for number in range(60):
        run.sample(STEPPING, late=0.003, busy=number % 2)
    time = time_of(run)
    assert lines(time) == [(2, 100.0, None)]
    assert time.reason_ids[0] == MessageId("gpu-flickers", {})


def test_a_busy_machine_makes_nothing_ambiguous() -> None:
    """If a sample is late although the thread used no CPU time, the machine was busy and no operation held
    the GIL.

    The sampled line is therefore certain, and no lines are merged.
    """
    run = ProfiledRun()
    run.profiler._thread_cpu = lambda: 0.0
    for _ in range(50):
        run.sample(STEPPING)
        run.sample(WAITING, late=0.003)
    assert lines(time_of(run)) == [(2, 50.0, 0.0), (1, 50.0, 0.0)]


@pytest.mark.parametrize(
    ("delay", "expected"),
    [(0.0, [(2, None, 50.0), (3, None, 25.0), (1, None, 25.0)]), (0.002, [(1, 2, 75.0), (3, None, 25.0)])],
)
def test_a_busy_machine_makes_preemptions_doubtful(
    delay: float, expected: list[tuple[int | None, int | None, float]]
) -> None:
    """If a busy machine delays many samples, a long delay does not prove that the sampled line held the GIL.
    The line is then merged with the line before it.
    """
    run = ProfiledRun()
    used = 0.0
    run.profiler._thread_cpu = lambda: used
    for _ in range(30):
        run.sample(PRINTING, late=delay)
        run.sample(WAITING)
        used += 0.02
        run.sample(STEPPING, 0.02, late=0.0051)
    assert line_ranges(time_of(run)) == expected


def waiting_run(*, queued_s: float = 0.0, others_s: float = 0.0) -> ProfiledRun:
    """Return a run whose thread uses no CPU time during delays.

    During each delay of 0.1 s, threads wait this long for a CPU core, and other threads compute this long.
    """
    run = ProfiledRun()
    queued = 0.0

    def queue_s(thread: int) -> float:
        nonlocal queued
        queued += queued_s
        return queued

    class Waits(GilWaits):
        def add(self, sampled_s: float) -> None:
            self._others_s = others_s

    run.profiler._thread_cpu = lambda: 0.0
    run.profiler._gil_waits = Waits(queue_s)
    run.profiler._gil_waits.begin(1)
    return run


def gil_blocked(time: CodeTime) -> float:
    """Return the percent of the time for which samples were delayed, and assert that it is the only
    reason."""
    (reason,) = time.reason_ids
    assert reason.id == "gil-blocked"
    return float(reason.params["percent"])


def test_an_operation_that_waits_and_holds_the_gil_is_ambiguous() -> None:
    """If code in C waits without releasing the GIL, samples find the line or the next one, because other
    threads may run first.

    The two lines are merged.
    """
    run = waiting_run()
    for number in range(30):
        run.sample(STEPPING if number % 2 else WAITING, 0.1, late=0.1)
        run.sample(WAITING)
    time = time_of(run)
    assert line_ranges(time) == [(1, 2, 100.0)]
    assert gil_blocked(time) == pytest.approx(91, abs=0.5)


@pytest.mark.parametrize("causes", [{"queued_s": 0.1}, {"others_s": 0.1}], ids=["machine", "threads"])
def test_a_delay_with_another_cause_is_not_ambiguous(causes: dict[str, float]) -> None:
    """If threads waited for a CPU core, or if other threads computed, the sampled line is certain."""
    run = waiting_run(**causes)
    for number in range(30):
        run.sample(STEPPING if number % 2 else WAITING, 0.1, late=0.1)
        run.sample(WAITING)
    assert line_ranges(time_of(run)) == [(1, None, 54.545455), (2, None, 45.454545)]


def test_a_single_wait_that_holds_the_gil_is_shown() -> None:
    """A single wait of seconds is shown with the lines that may contain it, although samples are few."""
    run = waiting_run()
    for _ in range(5):
        run.sample(WAITING)
    run.sample(PRINTING, 3.5, late=3.5)
    for _ in range(5):
        run.sample(PRINTING)
    time = time_of(run)
    assert line_ranges(time) == [(1, 3, 100.0)]
    assert gil_blocked(time) == pytest.approx(97, abs=0.5)


def test_reasons_of_lines_that_are_not_shown() -> None:
    """If no lines are shown because too much could not be sampled, the profile has only this reason."""
    run = waiting_run()
    run.sample(PRINTING, 4.0, late=4.0)
    profile = time_of(run, duration=8.0)
    assert profile.lines == ()
    assert profile.reason_ids == (MessageId("partly-not-sampled", {"percent": 50.0}),)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="preempts after any operation")
def test_an_iterator_that_waits_and_holds_the_gil() -> None:
    """If the sample finds a function that the next line has called, the line before the call is merged."""
    called = compile("for x in loader:\n    step()\n", CELL, "exec")
    call = next(one.offset for one in dis.get_instructions(called) if one.opname == "CALL")
    inside = next(one.offset for one in dis.get_instructions(called) if one.offset > call) - 2
    step = stack((TRAIN, "step", 31)).f_code
    run = waiting_run()
    for _ in range(30):
        run.sample(Frame(step, 40, Frame(called, inside, None, {}), {}), 0.1, late=0.1)
    assert line_ranges(time_of(run)) == [(1, 2, 100.0)]


def test_a_real_wait_at_the_start_of_a_run() -> None:
    """Time in which the run's first operation waits and holds the GIL is part of the profile, or the profile
    says why it is not: on a loaded machine, the sampling thread may have no turn until the run has ended."""
    program = "wait(1_500_000)\nx = 1\n"
    profiler = SamplingProfiler(
        CodeLocator(NAMES.__contains__, NAMES.get), lambda file, line: "", FakeStreams(0)
    )
    began = time.perf_counter()
    profiler.start()
    exec(compile(program, CELL, "exec"), {"wait": ctypes.PyDLL(None).usleep, "counts": profiler._counts})
    profiler.stop()
    profile = profiler.annotate(report(time.perf_counter() - began)).time
    assert profile is not None
    assert [(line.line, line.share) for line in profile.lines] in ([(1, 100.0)], [])
    reasons = ("gil-blocked",) if profile.lines else ("gil-blocked-throughout", "partly-not-sampled")
    assert profile.reason_ids[0].id in reasons
