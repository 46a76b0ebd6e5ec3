"""Where a cell's time went: exact shares from looks whose moments and stacks are given."""

from __future__ import annotations

import ast
import asyncio
import threading
from dataclasses import replace
from typing import Any

import helpers_reports as reports
import pytest
from fakes import EPOCH
from helpers_frames import CELL, LOADER, OTHER_CELL, TRAIN, FakeStreams, Watched, stack

from gpuwidget.measure.observer import CodeWitness
from gpuwidget.measure.places import Places
from gpuwidget.measure.report import CodeTime, Level, LineTime
from gpuwidget.sources import Window

KERNEL = ("/lib/site-packages/ipykernel/kernelapp.py", "start", 3)
WAITING = stack(
    KERNEL,
    (CELL, "<module>", 1),
    (LOADER, "_BaseDataLoaderIter.__next__", 9),
    (LOADER, "_MultiProcessingDataLoaderIter._next_data", 12),
    ("/lib/site-packages/torch/multiprocessing/queue.py", "get", 5),
)
STEPPING = stack(KERNEL, (CELL, "<module>", 2), (TRAIN, "step", 31))
PRINTING = stack(KERNEL, (CELL, "<module>", 3))


def report(duration: float = 10.0, utilization: float | None = None) -> Any:
    level = None if utilization is None else Level(utilization, 100.0)
    made = reports.report(reports.gpu(0, utilization=level), duration=duration, marks=())
    return replace(made, cell=reports.cell(duration), timeline=None)


def said(watched: Watched, **options: Any) -> CodeTime:
    time = watched.witness.testify(report(**options)).time
    assert time is not None
    return time


def lines(time: CodeTime) -> list[tuple[int | None, float, float | None]]:
    return [
        (one.line, round(one.share, 6), None if one.gpu_busy is None else round(one.gpu_busy, 6))
        for one in time.lines
    ]


def test_shares_and_activity_of_each_line() -> None:
    """A line has its share of the time, and the part of that in which the GPU was busy."""
    watched = Watched()
    for number in range(100):
        watched.look(WAITING if number < 60 else STEPPING, busy=int(number < 6 or number >= 65))
    time = said(watched)
    assert lines(time) == [(1, 60.0, 10.0), (2, 40.0, 87.5)]
    assert (time.samples, time.reason) == (100, None)


def test_the_call_and_the_users_own_frame() -> None:
    """A line says the call it was in, by the name people know, and the user's deepest frame below it."""
    watched = Watched()
    for top, times in ((WAITING, 60), (STEPPING, 40)):
        for _ in range(times):
            watched.look(top)
    first, second = said(watched).lines
    assert (first.source, first.call, first.frame) == ("for x, y in loader:", "DataLoader._next_data", None)
    assert (second.source, second.call, second.frame) == ("loss = step(x, y)", None, "train.py:31 step")
    assert [(one.frame, one.share, one.gpu_busy) for one in second.frames] == [
        ("train.py:31 step", 40.0, 0.0)
    ]


def test_functions_of_other_cells_are_named_by_them() -> None:
    """A function that another cell defined is In[2]'s; one of the cell itself is a line of the cell."""
    watched = Watched()
    for number in range(40):
        own = stack(KERNEL, (CELL, "<module>", 9), (CELL, "epoch", 5))
        other = stack(KERNEL, (CELL, "<module>", 9), (OTHER_CELL, "epoch", 4))
        watched.look(own if number % 4 else other)
    time = said(watched)
    assert [(one.line, round(one.share, 6), one.frame) for one in time.lines] == [
        (5, 75.0, None),
        (9, 25.0, "In[2]:4 epoch"),
    ]


def test_a_look_stands_for_the_time_since_the_one_before() -> None:
    """Seldom looks count for more: shares are of time, not of looks."""
    watched = Watched()
    for _ in range(20):
        watched.look(WAITING, 0.03)
        watched.look(STEPPING, 0.01)
    assert lines(said(watched)) == [(1, 75.0, 0.0), (2, 25.0, 0.0)]


def test_what_is_no_line_of_the_cell_says_so() -> None:
    """Time in none of the cell's lines is a row without a line, never charged to one."""
    watched = Watched()
    for number in range(40):
        watched.look(stack(KERNEL) if number % 4 == 0 else PRINTING)
    assert [(one.line, round(one.share, 6), one.source) for one in said(watched).lines] == [
        (3, 75.0, "print(loss)"),
        (None, 25.0, ""),
    ]


def test_a_watched_cell_within_a_cell() -> None:
    """The lines are the watched cell's, not those of the one that runs it."""
    watched = Watched()
    watched.witness.observe(stack(KERNEL, (OTHER_CELL, "<module>", 5)))
    for _ in range(30):
        watched.look(stack(KERNEL, (OTHER_CELL, "<module>", 5), (CELL, "<module>", 2)))
    assert [one.line for one in said(watched).lines] == [2]


def test_a_late_look_belongs_to_where_the_thread_was_made_to_let_go() -> None:
    """Time that Python kept the interpreter is not charged to the line that then lets it go."""
    watched = Watched()
    for _ in range(20):
        for _ in range(9):
            watched.look(STEPPING, late=0.0051)
        watched.look(WAITING, late=0.002)
        for _ in range(10):
            watched.look(WAITING)
    assert lines(said(watched)) == [(2, 50.0, 0.0), (1, 50.0, 0.0)]


def test_lines_that_take_turns_too_fast_are_shown_as_one() -> None:
    """Where a look can't tell two lines apart there is one row for both, and the reason."""
    watched = Watched()
    for _ in range(50):
        watched.look(STEPPING)
        watched.look(WAITING, late=0.003)
    time = said(watched)
    assert [(one.line, one.until, one.share, one.gpu_busy) for one in time.lines] == [(1, 2, 100.0, 0.0)]
    assert time.reason is not None
    assert time.reason.startswith("Some lines take turns faster than can be told")
    assert time.resolution_s == 0.07


def test_a_gpu_that_flickers_has_no_figure() -> None:
    """Where the GPU's state changes while looks wait for the interpreter, its activity is not told."""
    watched = Watched()
    for number in range(60):
        watched.look(STEPPING, late=0.003, busy=number % 2)
    time = said(watched)
    assert lines(time) == [(2, 100.0, None)]
    assert time.reason is not None
    assert time.reason.startswith("The GPU's state changes faster")


def test_a_busy_machine_spoils_nothing() -> None:
    """A look that is late while the thread did not run waited for the machine: what it saw is right."""
    watched = Watched()
    watched.witness._thread_cpu = lambda: 0.0
    for _ in range(50):
        watched.look(STEPPING)
        watched.look(WAITING, late=0.003)
    assert lines(said(watched)) == [(2, 50.0, 0.0), (1, 50.0, 0.0)]


def test_the_driver_has_the_last_word() -> None:
    """Where the driver saw another activity than the streams, there is a sentence instead of figures."""
    watched = Watched()
    for number in range(100):
        watched.look(WAITING if number < 60 else STEPPING, busy=0)
    time = said(watched, utilization=80.0)
    assert lines(time) == [(1, 60.0, None), (2, 40.0, None)]
    assert time.reason == (
        "GPU 0: its default stream had work 0 % of the time and the driver saw it busy 80 %, so that other "
        "streams, libraries or processes worked on it."
    )


def test_agreement_within_the_drivers_windows() -> None:
    """A few points more or less are the windows' own, and leave the figures."""
    watched = Watched()
    for number in range(100):
        watched.look(STEPPING, busy=int(number < 80))
    assert lines(said(watched, utilization=88.0)) == [(2, 100.0, 80.0)]


def test_without_streams_the_drivers_windows_tell() -> None:
    """Where the streams can't be asked, windows that hold different mixtures give each line its activity."""
    watched = Watched(bits=None, reason="torch is not loaded")
    parts = [0.1, 0.9, 0.5, 0.2, 0.8, 0.0, 1.0, 0.3, 0.7, 0.4, 0.6, 1.0, 0.0]
    windows = [Window(EPOCH + 0.0001, 0.0)]
    for part in parts:
        for number in range(20):
            watched.look(STEPPING if number < 20 * part else WAITING, busy=None)
        windows.append(Window(EPOCH + watched.clock.monotonic() + 0.0001, 100 * part))
    watched.windows.windows = windows
    watched.witness.open()
    time = said(watched)
    assert lines(time) == [(2, 50.0, 100.0), (1, 50.0, 0.0)]
    assert time.reason == "Torch is not loaded. The GPU's activity is told from the driver's windows instead."


def test_windows_that_are_all_alike_tell_nothing() -> None:
    """Loops shorter than a window give no figure: any would fit."""
    watched = Watched(bits=None, reason="torch is not loaded")
    windows = [Window(EPOCH + 0.0001, 0.0)]
    for _ in range(20):
        for number in range(20):
            watched.look(STEPPING if number % 2 else WAITING, busy=None)
        windows.append(Window(EPOCH + watched.clock.monotonic() + 0.0001, 50.0))
    watched.windows.windows = windows
    watched.witness.open()
    time = said(watched)
    assert lines(time) == [(1, 50.0, None), (2, 50.0, None)]
    assert time.reason == "Torch is not loaded."


def test_too_few_looks_tell_nothing() -> None:
    """A run of a few looks has no lines, and says why."""
    watched = Watched()
    for _ in range(19):
        watched.look(STEPPING)
    time = said(watched)
    assert (time.lines, time.samples) == ((), 19)
    assert time.reason == "The run was too short to tell where its time went."


def test_a_run_nobody_looked_at_has_no_time() -> None:
    """Without a look there is nothing to report, and the report stays as it was."""
    made = report()
    assert Watched().witness.testify(made) is made


def test_so_far() -> None:
    """While the cell runs, what is known by then can be asked for."""
    watched = Watched()
    assert watched.witness.so_far() is None
    for _ in range(30):
        watched.look(WAITING)
    so_far = watched.witness.so_far()
    assert so_far is not None
    assert lines(so_far) == [(1, 100.0, 0.0)]


def test_cuda_that_came_up_halfway_has_no_figure_before() -> None:
    """A line most of whose time the streams could not be asked in has no activity; the others have."""
    watched = Watched()
    for _ in range(40):
        watched.look(STEPPING, busy=None)
    for number in range(40):
        watched.look(WAITING, busy=int(number < 10))
    assert lines(said(watched)) == [(2, 50.0, None), (1, 50.0, 25.0)]


@pytest.mark.parametrize("name", ["line", "source", "share", "gpu_busy", "call", "frame"])
def test_the_report_has_what_its_readers_know(name: str) -> None:
    """The JSON of a line has the documented names."""
    line = LineTime(1, "f()", 100.0, None, None, None)
    assert name in replace(report(), time=replace(_time(), lines=(line,))).to_dict()["time"]["lines"][0]


def test_a_real_thread_is_looked_at_until_it_stops() -> None:
    """The witness of a real run sees its lines, and its thread ends with it."""
    source = "import time\nuntil = time.perf_counter() + 0.6\nwhile time.perf_counter() < until:\n    pass\n"
    witness = CodeWitness(Places({CELL: "In[7]"}.get), lambda file, line: "", FakeStreams(1))
    witness.start()
    exec(compile(source, CELL, "exec"), {})
    witness.stop()
    time = witness.testify(report()).time
    assert time is not None
    assert {one.line for one in time.lines} <= {3, 4}
    assert sum(one.share for one in time.lines) == pytest.approx(100.0)
    assert all(one.gpu_busy == pytest.approx(100.0) for one in time.lines)
    assert "gpuwidget-code" not in {thread.name for thread in threading.enumerate()}
    witness.abandon()
    witness.abandon()


def test_an_await_is_charged_to_its_line() -> None:
    """While the loop waits, the time is the awaiting line's, with the call it awaits."""
    source = "import asyncio\nawait asyncio.sleep(0.6)\n"
    witness = CodeWitness(Places({CELL: "In[7]"}.get), lambda file, line: "", FakeStreams(0))
    body = compile(source, CELL, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def run() -> None:
        witness.start()
        await eval(body, {})
        witness.stop()

    asyncio.run(run())
    time = witness.testify(report()).time
    assert time is not None
    (line,) = time.lines
    assert (line.line, line.call, line.frame) == (2, "asyncio.tasks.sleep", None)
    assert line.share == pytest.approx(100.0)


def _time() -> CodeTime:
    watched = Watched()
    for _ in range(30):
        watched.look(WAITING)
    return said(watched)
