"""The Python side of watching: ``with gpuwidget.watch()``, ``@gpuwidget.watch``, marks and past reports."""

from __future__ import annotations

import functools
import inspect
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from types import MethodType, TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, overload

from gpuwidget.kernel.cells.run_context import Around
from gpuwidget.kernel.shell.interrupts import hide_own_frames
from gpuwidget.measure.collector import Witness
from gpuwidget.measure.gpu_selection import choose
from gpuwidget.measure.run import OPEN_TIMEOUT_S, Run, RunOptions
from gpuwidget.model.errors import SourceError
from gpuwidget.model.report import Report, Status
from gpuwidget.model.samples import Sample
from gpuwidget.sampler import process_sampler
from gpuwidget.views.card import CardReport, Reports

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Label = str | float | None
"""What a run is called: text, or a number such as an epoch's."""

_MOST_REPORTS = 200
_reports: deque[Report] = deque(maxlen=_MOST_REPORTS)
_innermost: ContextVar[Run | None] = ContextVar("gpuwidget_run", default=None)
_cells: list[Run] = []


def new_run(
    options: RunOptions,
    label: str | None,
    execution_count: int | None,
    witnesses: Sequence[Witness] = (),
    cell: str | None = None,
) -> Run:
    """A run on the process's sampler whose report displays as a card; ``cell`` is the source of its cell."""
    return Run(
        process_sampler(),
        options,
        label=label,
        execution_count=execution_count,
        report_type=CardReport,
        witnesses=witnesses,
        surroundings=Around(cell),
    )


def check(options: RunOptions) -> None:
    """Raise OptionError, saying what is there, where ``options`` name a GPU that does not exist."""
    if not options.gpus:
        return
    sampler = process_sampler()
    if not sampler.known_gpus:
        with sampler.subscribe():
            sampler.wait_until_open(OPEN_TIMEOUT_S)
    choose(options.gpus, sampler.known_gpus)


def keep(report: Report | None) -> None:
    """Remember a report for :func:`reports`."""
    if report is not None:
        _reports.append(report)


def enter_cell(run: Run) -> None:
    """``run`` measures the cell that runs now: marks from any thread go to it."""
    _cells.append(run)


def leave_cell(run: Run) -> None:
    """The cell that ``run`` measures has ended."""
    if run in _cells:
        _cells.remove(run)


def status_of(error: BaseException | None) -> Status:
    """How a run ended that was left by ``error``."""
    if error is None:
        return "ok"
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "error"


def _text(label: object) -> str | None:
    # Whatever was given: a label that is no text would spoil every list that it comes into.
    return None if label is None else str(label)


class Watch:
    """Measures the body of a ``with`` statement, again each time it is entered.

    :attr:`report` is the last report, None before the first has ended.
    """

    def __init__(self, label: Label = None) -> None:
        self._label = _text(label)
        self._entered: dict[int, list[tuple[Run, Token[Run | None]]]] = {}
        """By thread: one watch may be entered by several at once, and by one again within itself."""
        self.report: Report | None = None

    def __enter__(self) -> Watch:
        run = new_run(RunOptions(), self._label, None)
        run.start()
        self._entered.setdefault(threading.get_ident(), []).append((run, _innermost.set(run)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run, token = self._leave()
        hide_own_frames(error)
        try:
            run.end(status_of(error))
            with suppress(ValueError):
                # Left in another context than it was entered in, as a generator may be: that one is gone.
                _innermost.reset(token)
            self.report = run.report()
        finally:
            run.abandon()
        keep(self.report)
        if run.wait_interrupted:
            raise KeyboardInterrupt

    def _leave(self) -> tuple[Run, Token[Run | None]]:
        # A generator may be left by another thread than entered it: then the last that is still open.
        here = threading.get_ident()
        thread = here if here in self._entered else next(reversed(self._entered))
        entries = self._entered[thread]
        entry = entries.pop()
        if not entries:
            del self._entered[thread]
        return entry

    def mark(self, text: str) -> None:
        """Put a mark on the timeline."""
        entries = self._entered.get(threading.get_ident()) or next(reversed(self._entered.values()), None)
        if entries:
            entries[-1][0].mark(text)

    def __call__(self, function: Callable[P, R]) -> WatchedFunction[P, R]:
        """Decorate ``function``: every call is measured, under the label or the function's name."""
        return WatchedFunction(function, self._label)


class WatchedFunction(Generic[P, R]):
    """A function whose every call is measured; :attr:`report` is the last call's.

    Coroutine functions are measured until they are done, generators until they are exhausted.
    """

    def __init__(self, function: Callable[P, R], label: Label) -> None:
        self._function = function
        self._label = _text(label if label is not None else getattr(function, "__qualname__", None))
        self.report: Report | None = None
        wrapper: Any = self
        functools.update_wrapper(wrapper, function)
        if inspect.iscoroutinefunction(function):
            # So that frameworks which ask still see a coroutine function.
            self._is_coroutine_marker()

    def _is_coroutine_marker(self) -> None:
        mark = getattr(inspect, "markcoroutinefunction", None)
        if mark is not None:
            mark(self)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, and measure that."""
        function: Any = self._function
        if inspect.iscoroutinefunction(function):
            return self._await(function, *args, **kwargs)  # type: ignore[return-value]
        if inspect.isgeneratorfunction(function):
            return self._iterate(function, *args, **kwargs)  # type: ignore[return-value]
        if inspect.isasyncgenfunction(function):
            return self._iterate_async(function, *args, **kwargs)  # type: ignore[return-value]
        with self._watching():
            result: R = function(*args, **kwargs)
            return result

    def _watching(self) -> _Recording:
        return _Recording(self, self._label)

    async def _await(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        with self._watching():
            return await function(*args, **kwargs)

    def _iterate(self, function: Any, *args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with self._watching():
            return (yield from function(*args, **kwargs))

    async def _iterate_async(self, function: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        with self._watching():
            async for item in function(*args, **kwargs):
                yield item


class _Recording:
    """One call of a watched function: its own watch, so that calls may overlap."""

    def __init__(self, function: WatchedFunction[Any, Any], label: str | None) -> None:
        self._function = function
        self._watch = Watch(label)

    def __enter__(self) -> None:
        self._watch.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A generator that nobody asks for more has not failed.
        left_early = isinstance(error, GeneratorExit)
        try:
            self._watch.__exit__(kind, None if left_early else error, trace)
        finally:
            self._function.report = self._watch.report


@overload
def watch(label: Callable[P, R]) -> WatchedFunction[P, R]: ...
@overload
def watch(label: Label = None) -> Watch: ...
def watch(label: Label | Callable[..., Any] = None) -> Any:
    """Measure what the GPUs do: ``with gpuwidget.watch("label") as w:``, then ``w.report``.

    Also a decorator, with or without a label: each call of the function is measured, and ``.report`` on the
    function is the last call's. Watches may be nested and may run in several threads at once; the GPUs they
    see are the same, and each counts all that happened in its time.
    """
    if callable(label):
        return WatchedFunction(label, None)
    return Watch(label)


def mark(text: str) -> None:
    """Put a mark on the timeline of the innermost watch around this code, or of the watched cell.

    Does nothing where nothing is watched, so that it may stay in code that also runs unwatched.
    """
    run = _innermost.get() or (_cells[-1] if _cells else None)
    if run is not None:
        run.mark(text)


def reports() -> Reports:
    """The last 200 reports of this process, oldest first; each displays as its card."""
    return Reports(_reports)


def sample() -> Sample:
    """What all GPUs read right now.

    Raises SourceError where the driver does not answer within 5 seconds.
    """
    sampler = process_sampler()
    with sampler.subscribe():
        sampler.wait_until_open(OPEN_TIMEOUT_S)
        taken = sampler.read_now(1.0)
    if taken is None:
        raise SourceError(
            f"The NVIDIA driver has not answered for {OPEN_TIMEOUT_S:.0f} s. Is nvidia-smi stuck too? If so, "
            "the machine's administrator has to look; if not, try again."
        )
    return taken
