"""Where a cell's time went while its thread keeps Python's interpreter, and looks come when it lets them."""

from __future__ import annotations

import dis
import sys
import threading
import time
from typing import Any

import pytest
from helpers_frames import (
    CELL,
    KERNEL,
    PRINTING,
    STEPPING,
    WAITING,
    Frame,
    ProfiledRun,
    lines,
    rows,
    said,
    stack,
)

from gpuwidget.profiler.code_locations import CodeLocation
from gpuwidget.profiler.preemption import is_at_preemption_point
from gpuwidget.profiler.sample_counts import SampleCounts, StackSample

SETS = """
for i in range(15):
    c = a & b
    time.sleep(.01)
    d = a | b; print(c)
"""


def at_call(line: int) -> Any:
    """The cell at the call on that line, where Python lets go of its interpreter."""
    code = compile(SETS, CELL, "exec")
    (span,) = [(start, end) for start, end, number in code.co_lines() if number == line][:1]
    at = next(
        one.offset for one in dis.get_instructions(code) if one.opname == "CALL" and one.offset >= span[0]
    )
    return Frame(code, at, stack(KERNEL), {})


@pytest.mark.skipif(sys.version_info < (3, 11), reason="which may let go after any operation")
def test_an_operation_that_keeps_the_interpreter_is_not_the_next_lines() -> None:
    """Where one operation keeps Python's interpreter, all lines that may hold it are shown as one."""
    run = ProfiledRun(before=[KERNEL])
    for _ in range(30):
        run.sample(at_call(4), 0.13, late=0.13)
        run.sample(at_call(4), 0.01)
    time = said(run)
    assert rows(time) == [(2, 4, 100.0)]
    assert time.reason == (
        "93 % of the time looks had to wait long, for one operation that kept Python's interpreter or for "
        "this machine: it may be that of what ran just before."
    )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="which may let go after any operation")
def test_an_operation_that_keeps_the_interpreter_within_its_line() -> None:
    """Where nothing else can have kept it, the line stands alone."""
    run = ProfiledRun(before=[KERNEL])
    for _ in range(30):
        run.sample(at_call(5), 0.13, late=0.13)
    time = said(run)
    assert rows(time) == [(5, None, 100.0)]


def test_a_statement_that_kept_the_interpreter_to_its_end() -> None:
    """Seen only when it is over, its time is the cell's: of the lines it may have been, shown as one."""
    run = ProfiledRun(before=[KERNEL])
    for _ in range(20):
        run.sample(WAITING)
    run.sample(stack(KERNEL), 0.7, late=0.7)
    for _ in range(10):
        run.sample(PRINTING)
    time = said(run)
    assert rows(time) == [(1, 3, 100.0)]


def test_a_last_statement_that_kept_the_interpreter() -> None:
    """The same at the cell's end: the lines from the one last seen to the last."""
    run = ProfiledRun(before=[KERNEL])
    for _ in range(20):
        run.sample(STEPPING)
    run.sample(stack(KERNEL), 0.7, late=0.7)
    time = said(run)
    assert rows(time) == [(2, 3, 100.0)]


def test_an_operation_that_kept_the_interpreter_to_the_runs_end() -> None:
    """A look that was still waiting when the run ended is the last statement's."""
    counts = SampleCounts(0.005)
    location = CodeLocation(1, 2, 0, 0, 0)
    for number in range(30):
        counts.add(
            StackSample(0.01 * number, 0.0, 0.01, None),
            counts.find(location) or counts.add_location(location, 3),
            0,
        )
    counts.end(StackSample(1.0, 0.7, 0.7, 0.7))
    assert counts.gil_blocked_at_end == (3, 0.7)
    assert counts.by_location[location].counts.seconds == pytest.approx(1.0)
    counts.add(StackSample(1.1, 0.0, 0.1, None), counts.add_location(CodeLocation(0, 0, 0, 0, 9), None), 0)
    counts.end(StackSample(1.8, 0.7, 0.7, 0.7))  # the cell's code was over before
    assert counts.gil_blocked_at_end == (3, 0.7)


def test_a_last_statement_after_a_sample_between_statements() -> None:
    """A stack sample between two statements does not end the cell: the last statement still counts."""
    counts = SampleCounts(0.005)
    location = CodeLocation(1, 2, 0, 0, 0)
    for number in range(30):
        counts.add(
            StackSample(0.01 * number, 0.0, 0.01, None),
            counts.find(location) or counts.add_location(location, 3),
            0,
        )
    counts.add(
        StackSample(0.31, 0.002, 0.01, 0.002), counts.add_location(CodeLocation(0, 0, 0, 0, 0), None), 0
    )
    counts.end(StackSample(0.9, 0.59, 0.59, 0.59))
    assert counts.gil_blocked_at_end == (3, 0.59)
    assert counts.by_location[location].counts.seconds == pytest.approx(0.89)


def test_a_first_statement_that_kept_the_interpreter() -> None:
    """And at its beginning: the lines from the first to the one seen next."""
    run = ProfiledRun(before=[KERNEL])
    run.sample(stack(KERNEL), 0.7, late=0.7)
    for _ in range(20):
        run.sample(STEPPING)
    time = said(run)
    assert rows(time) == [(1, 2, 100.0)]


def test_a_late_look_belongs_to_where_the_thread_was_made_to_let_go() -> None:
    """Time that Python kept the interpreter is not charged to the line that then lets it go."""
    run = ProfiledRun()
    for _ in range(20):
        for _ in range(9):
            run.sample(STEPPING, late=0.0051)
        run.sample(WAITING, late=0.002)
        for _ in range(10):
            run.sample(WAITING)
    assert lines(said(run)) == [(2, 50.0, 0.0), (1, 50.0, 0.0)]


def test_lines_that_take_turns_too_fast_are_shown_as_one() -> None:
    """Where a look can't tell two lines apart there is one row for both, and the reason."""
    run = ProfiledRun()
    for _ in range(50):
        run.sample(STEPPING)
        run.sample(WAITING, late=0.003)
    time = said(run)
    assert [(one.line, one.until, one.share, one.gpu_busy) for one in time.lines] == [(1, 2, 100.0, 0.0)]
    assert time.reason is not None
    assert time.reason.startswith("Some lines take turns faster than can be told")
    assert time.resolution_s == 0.07


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a thread may let go after every operation there")
def test_a_look_that_others_made_way_for_is_no_doubt() -> None:
    """Found where a loop begins anew it was made to let go, for another thread before: it was there."""
    compiled = compile("for x in y:\n    x\n", CELL, "exec")
    jump = next(one.offset for one in dis.get_instructions(compiled) if one.opname == "JUMP_BACKWARD")
    looping = Frame(compiled, jump, None, {})
    run = ProfiledRun()
    for _ in range(50):
        run.sample(looping, late=0.003)
        run.sample(PRINTING, late=0.0)
    assert lines(said(run)) == [(1, 50.0, 0.0), (3, 50.0, 0.0)]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a thread may let go after every operation there")
def test_where_a_real_thread_is_made_to_let_go() -> None:
    """One that only computes is always found there, one that waits is not."""
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
    looks = 0
    while looks < 20:
        frames = [sys._current_frames()[thread.ident or 0] for thread in threads]
        if {frame.f_code for frame in frames} == within:
            looks += 1
            for frame, seen in zip(frames, found, strict=True):
                seen.add(is_at_preemption_point(frame))
        time.sleep(0)
    over.pop().set()
    for thread in threads:
        thread.join()
    assert found == [{True}, {False}]


def test_a_gpu_that_flickers_has_no_figure() -> None:
    """Where the GPU's state changes while looks wait for the interpreter, its activity is not told."""
    run = ProfiledRun()
    for number in range(60):
        run.sample(STEPPING, late=0.003, busy=number % 2)
    time = said(run)
    assert lines(time) == [(2, 100.0, None)]
    assert time.reason is not None
    assert time.reason.startswith("The GPU's state changes faster")


def test_a_busy_machine_spoils_nothing() -> None:
    """A look that is late while the thread did not run waited for the machine: what it saw is right."""
    run = ProfiledRun()
    run.profiler._thread_cpu = lambda: 0.0
    for _ in range(50):
        run.sample(STEPPING)
        run.sample(WAITING, late=0.003)
    assert lines(said(run)) == [(2, 50.0, 0.0), (1, 50.0, 0.0)]
