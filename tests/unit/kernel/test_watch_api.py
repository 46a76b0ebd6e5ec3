"""Tests of watching from Python: in scripts, in nested calls, in threads, and for all kinds of functions."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import helpers_reports as reports
import pytest
from fakes import FakeClock, FakeSource

import gpuwidget
from gpuwidget.kernel.cells import watch_api
from gpuwidget.kernel.commands.compare_command import compare
from gpuwidget.measure.run_options import RunOptions
from gpuwidget.model.errors import OptionError, SourceError
from gpuwidget.model.report import Report
from gpuwidget.sampler import NO_THREAD, Sampler


@pytest.fixture(autouse=True)
def sampler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sampler]:
    sampler = Sampler(FakeSource(gpus=1))
    monkeypatch.setattr(watch_api, "process_sampler", lambda: sampler)
    monkeypatch.setattr(watch_api, "_reports", type(watch_api._reports)(maxlen=200))
    yield sampler
    sampler.stop()


def labels(report: Report | None) -> list[str]:
    assert report is not None
    assert report.timeline is not None
    return [mark.label for mark in report.timeline.marks if mark.kind == "mark"]


def test_a_with_statement_gives_a_report() -> None:
    """When the with block ends, the watch has a report with its label, marks and status.

    ``gpuwidget.reports()`` contains the same report.
    """
    with gpuwidget.watch("epoch 1") as w:
        assert w.report is None
        w.mark("half")
    assert w.report is not None
    assert (w.report.cell.label, w.report.cell.status, labels(w.report)) == ("epoch 1", "ok", ["half"])
    assert list(gpuwidget.reports()) == [w.report]


def test_a_number_is_a_label_too() -> None:
    """A label may be any object. Reports contain the object's text."""
    for epoch in range(2):
        with gpuwidget.watch(epoch) as w:
            pass
    assert w.report is not None
    assert w.report.cell.label == "1"
    given: Any = ("a", 1)
    named = gpuwidget.watch(given)(len)
    named([])
    assert [report.cell.label for report in gpuwidget.reports()] == ["0", "1", "('a', 1)"]
    assert "('a', 1)" in repr(gpuwidget.reports())
    assert compare(0, "1").names == ("0", "1")


def test_an_error_passes_through() -> None:
    """An exception in the body is raised unchanged, and the watch still has a report."""
    w = gpuwidget.watch()
    with pytest.raises(ZeroDivisionError), w:
        1 / 0  # noqa: B018
    assert w.report is not None
    assert w.report.cell.status == "error"


def test_an_interrupt_passes_through() -> None:
    """If the user interrupts the body, the report's status is "interrupted", not "error"."""
    w = gpuwidget.watch()
    with pytest.raises(KeyboardInterrupt), w:
        raise KeyboardInterrupt
    assert w.report is not None
    assert w.report.cell.status == "interrupted"


def test_a_watch_is_reentrant() -> None:
    """Each time a watch is entered, a new run starts. The watch has the report of the run that ended last."""
    w = gpuwidget.watch("again")
    with w, w:
        w.mark("inner")
    assert labels(w.report) == []
    assert [labels(report) for report in gpuwidget.reports()] == [["inner"], []]


def test_marks_go_to_the_innermost_watch() -> None:
    """gpuwidget.mark() adds a mark to the innermost watch, and does nothing outside a watch."""
    gpuwidget.mark("nowhere")
    with gpuwidget.watch() as outer:
        gpuwidget.mark("out")
        with gpuwidget.watch() as inner:
            gpuwidget.mark("in")
    gpuwidget.mark("nowhere")
    assert (labels(outer.report), labels(inner.report)) == (["out"], ["in"])


def test_marks_while_watches_close_out_of_order() -> None:
    """gpuwidget.mark() adds a mark to the innermost watch that is open, in whatever order watches close."""
    first, second, third = gpuwidget.watch(), gpuwidget.watch(), gpuwidget.watch()
    for each in (first, second, third):
        each.__enter__()
    first.__exit__(None, None, None)
    gpuwidget.mark("third")
    third.__exit__(None, None, None)
    gpuwidget.mark("second")
    second.__exit__(None, None, None)
    gpuwidget.mark("nowhere")
    assert [labels(each.report) for each in (first, second, third)] == [[], ["second"], ["third"]]


def test_marks_of_several_threads() -> None:
    """If several threads use watches, gpuwidget.mark() adds a mark to the watch of the calling thread."""
    both = threading.Barrier(2)
    found: dict[str, list[str]] = {}

    def work(name: str) -> None:
        with gpuwidget.watch(name) as w:
            both.wait(10)
            gpuwidget.mark(name)
            both.wait(10)
        found[name] = labels(w.report)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"a": ["a"], "b": ["b"]}


def test_a_decorated_function() -> None:
    """A decorated function keeps its return value, name and docstring.

    A label may be given to the decorator.
    """

    @gpuwidget.watch
    def double(x: int) -> int:
        """Twice."""
        return 2 * x

    @gpuwidget.watch("named")
    def nothing() -> None:
        return None

    assert double.report is None
    assert double(21) == 42
    nothing()
    assert double.report is not None
    assert double.report.cell.label == "test_a_decorated_function.<locals>.double"
    assert (double.__name__, double.__doc__) == ("double", "Twice.")
    assert nothing.report is not None
    assert nothing.report.cell.label == "named"


def test_a_decorated_method() -> None:
    """A decorated method receives its instance as ``self``."""

    class Model:
        size = 3

        @gpuwidget.watch
        def step(self, n: int) -> int:
            return self.size * n

    assert Model().step(2) == 6
    assert Model.step.report is not None


def test_a_decorated_coroutine_is_measured_to_its_end() -> None:
    """The run of a decorated coroutine function lasts until the coroutine has finished."""

    @gpuwidget.watch
    async def answer() -> int:
        await asyncio.sleep(0)
        gpuwidget.mark("awaited")
        return 42

    assert asyncio.run(answer()) == 42
    assert labels(answer.report) == ["awaited"]


def test_decorated_generators_are_measured_to_their_end() -> None:
    """The run of a decorated generator function, synchronous or asynchronous, lasts until the generator is
    exhausted."""

    @gpuwidget.watch
    def count() -> Iterator[int]:
        yield 1
        gpuwidget.mark("between")
        yield 2

    @gpuwidget.watch
    async def count_async() -> AsyncIterator[int]:
        yield 1
        gpuwidget.mark("between")
        yield 2

    async def collect() -> list[int]:
        return [item async for item in count_async()]

    assert list(count()) == [1, 2]
    assert asyncio.run(collect()) == [1, 2]
    assert labels(count.report) == labels(count_async.report) == ["between"]


def test_a_generator_that_is_closed_early() -> None:
    """If a loop breaks out of a decorated generator early, the report's status is "ok"."""

    @gpuwidget.watch
    def count() -> Iterator[int]:
        yield 1
        yield 2

    for _ in count():
        break
    assert count.report is not None
    assert count.report.cell.status == "ok"


def test_a_generator_may_be_advanced_in_several_contexts() -> None:
    """A decorated generator yields all its items even if they are requested in different contextvars
    contexts."""

    @gpuwidget.watch
    def count() -> Iterator[int]:
        yield 1
        yield 2

    items = count()
    assert [contextvars.copy_context().run(next, items, None) for _ in range(3)] == [1, 2, None]
    assert count.report is not None


def test_one_watch_in_two_threads_at_once(sampler: Sampler) -> None:
    """If two threads enter the same watch at the same time, each thread ends the run that it started."""
    w = gpuwidget.watch("shared")
    both = threading.Barrier(2)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with w:
                both.wait(10)
                both.wait(10)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(gpuwidget.reports()) == 2
    assert not sampler.wanted


def test_an_interrupt_while_it_starts_leaves_nothing_running(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the user interrupts a watch while it starts, sampling stops, and the body does not run."""

    def interrupt(timeout_s: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sampler, "read_now", interrupt)
    with pytest.raises(KeyboardInterrupt), gpuwidget.watch():
        raise AssertionError("the body must not run")
    assert not sampler.wanted
    gpuwidget.mark("goes nowhere")


def test_a_decorated_coroutine_function_is_still_one() -> None:
    """inspect.iscoroutinefunction() is true for a decorated coroutine function, if this Python version allows
    it."""

    @gpuwidget.watch
    async def answer() -> int:
        return 42

    if hasattr(inspect, "markcoroutinefunction"):
        assert inspect.iscoroutinefunction(answer)


def test_the_last_200_reports_are_kept() -> None:
    """reports() returns the last 200 reports. Older reports are dropped."""
    for number in range(205):
        with gpuwidget.watch(str(number)):
            pass
    kept = [report.cell.label for report in gpuwidget.reports()]
    assert (len(kept), kept[0], kept[-1]) == (200, "5", "204")


def test_one_sample() -> None:
    """gpuwidget.sample() returns one reading of each GPU."""
    sample = gpuwidget.sample()
    assert [reading.memory_used for reading in sample.readings] == [1_000_000]


def test_no_sample_without_threads(no_threads: None) -> None:
    """If no thread can be started, the error names that reason, and does not blame the driver."""
    with pytest.raises(SourceError) as raised:
        gpuwidget.sample()
    assert str(raised.value) == NO_THREAD


def test_gpus_are_accepted_if_the_driver_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the driver hangs, any GPU can be selected, since it is unknown which GPUs exist. If the driver
    answers, a GPU that does not exist is an error."""
    clock = FakeClock()
    source = FakeSource(gpus=1)
    source.hang_in_open = threading.Event()
    sampler = Sampler(source, clock)
    monkeypatch.setattr(watch_api, "process_sampler", lambda: sampler)
    with sampler.subscribe():
        clock.until(lambda: source.calls["open"] > 0)
        _, took = clock.timed(lambda: watch_api.check(RunOptions(gpus=("7",))))
    assert took == pytest.approx(0.5)
    source.hang_in_open.set()
    with sampler.subscribe():
        clock.until(lambda: sampler.known_gpus != ())
        with pytest.raises(OptionError):
            watch_api.check(RunOptions(gpus=("7",)))
    sampler.stop()


def test_threads_keep_reports_with_their_cells() -> None:
    """Watches may end on several threads at once. Each report is still found as the last run of its cell."""

    def keep(first: int) -> None:
        for number in range(first, first + 40):
            watch_api.keep(reports.report(cell=reports.cell(execution_count=number)), (number, "code"))

    threads = [threading.Thread(target=keep, args=(40 * number,)) for number in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    last = [watch_api.last_run((number, "code")) for number in range(160)]
    assert [report and report.cell.execution_count for report in last] == list(range(160))
