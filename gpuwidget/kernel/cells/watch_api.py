"""The Python API for watching: ``with gpuwidget.watch()``, ``@gpuwidget.watch``, marks and past reports."""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextvars import ContextVar
from types import MethodType, TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, overload

from gpuwidget.dask import clients as dask_clients
from gpuwidget.dask.collector import DaskCollector
from gpuwidget.kernel.cells.cell_outcome import status_of
from gpuwidget.kernel.cells.run_context import RunContextBuilder
from gpuwidget.kernel.cells.run_journal import RUN_JOURNAL
from gpuwidget.kernel.shell.interrupts import hide_own_frames
from gpuwidget.measure.collector import Collector
from gpuwidget.measure.gpu_selection import select_gpus
from gpuwidget.measure.run import START_TIMEOUT_S, Run
from gpuwidget.measure.run_options import RunOptions
from gpuwidget.model.boundary import Boundary
from gpuwidget.model.errors import SourceError
from gpuwidget.model.report import Report
from gpuwidget.model.samples import Sample
from gpuwidget.ranks import rank_listener
from gpuwidget.sampler import NO_THREAD, OPEN_TIMEOUT_S, process_sampler
from gpuwidget.views.card import CardReport, Reports

_LOG = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
Label = str | float | None
"""A label of a run: text, or a number such as the number of an epoch."""

_MAX_REPORTS = 200
_reports: deque[tuple[Report, tuple[object, str] | None]] = deque(maxlen=_MAX_REPORTS)
"""Each report with the id and the code of its cell; None for a run outside a cell. Threads may append at any
time, so iterate over a copy."""
_entered: ContextVar[tuple[Run, ...]] = ContextVar("gpuwidget_runs", default=())
"""The runs of the watches around this code, the innermost last. A run that ended in another context stays."""
_cells: list[Run] = []


def new_run(
    options: RunOptions,
    label: str | None,
    execution_count: int | None,
    collectors: Sequence[Collector] = (),
    cell: str | None = None,
) -> Run:
    """Return a run on the process's sampler whose report displays as a card.

    ``cell`` is the source of the watched cell; None for a run outside a cell.
    """
    rank_listener.listen()
    workers: DaskCollector | None = None
    with Boundary(_LOG, "the Dask workers can't be measured"):
        workers = dask_clients.collector()
    run = Run(
        process_sampler(),
        options,
        label=label,
        execution_count=execution_count,
        report_type=CardReport,
        # Workers begin to measure before the other collectors, since the run's start waits for them.
        collectors=collectors if workers is None else (workers, *collectors),
        run_context=RunContextBuilder(cell),
    )
    if workers is not None:
        workers.deliver = run.add_worker_update
    return run


def check(options: RunOptions) -> None:
    """Raise OptionError if ``options`` name a GPU that does not exist; the message lists the GPUs.

    Accept every name if the driver does not answer in time, because its GPUs are then unknown.
    """
    if not options.gpus:
        return
    sampler = process_sampler()
    if not sampler.known_gpus:
        with sampler.subscribe():
            if not sampler.wait_until_open(START_TIMEOUT_S):
                return
    select_gpus(options.gpus, sampler.known_gpus)


def keep(report: Report, cell: tuple[object, str] | None = None) -> None:
    """Store a report for :func:`reports`. ``cell`` is the id and the code of its cell."""
    _reports.append((report, cell))


def last_run(cell: tuple[object, str]) -> Report | None:
    """Return the report of the last run of the cell with this id, or else of this code.

    Return None if there is none, or if ``%gpu compare`` would find another run by the number of that run.
    """
    runs = tuple(_reports)
    (identity, code), newest = cell, [(report, other) for report, other in reversed(runs) if other]
    same_cell = [report for report, other in newest if identity is not None and other[0] == identity]
    same_code = [report for report, other in newest if other[1].strip() == code.strip()]
    last = next(iter(same_cell or same_code), None)
    if last is None:
        return None
    same = [report for report, _cell in runs if report.cell.execution_count == last.cell.execution_count]
    return last if len(same) == 1 else None


def enter_cell(run: Run) -> None:
    """Direct marks from all threads to ``run``, which measures the running cell."""
    _cells.append(run)


def leave_cell(run: Run) -> None:
    """Stop directing marks to ``run``, because its cell has ended."""
    if run in _cells:
        _cells.remove(run)


def _text(label: object) -> str | None:
    # Users may pass any object, but the label in a report must be text.
    return None if label is None else str(label)


class Watch:
    """Measures the body of a ``with`` statement each time the statement runs.

    :attr:`report` is the report of the last run; None before the first run has ended.
    """

    def __init__(self, label: Label = None) -> None:
        self._label = _text(label)
        self._entered: dict[int, list[Run]] = {}
        """Open runs by thread id: several threads may enter the same watch, and each of them repeatedly."""
        self.report: Report | None = None

    def __enter__(self) -> Watch:
        run = new_run(RunOptions(), self._label, None)
        RUN_JOURNAL.add_run(run)
        run.start()
        self._entered.setdefault(threading.get_ident(), []).append(run)
        _entered.set((*_entered.get(), run))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run = self._leave()
        hide_own_frames(error)
        try:
            run.end(status_of(error))
            # Watches may be closed in any order, and a generator may close one in another context.
            _entered.set(tuple(entered for entered in _entered.get() if entered is not run))
            self.report = run.report()
            if self.report is not None:
                RUN_JOURNAL.end(run, self.report)
        finally:
            RUN_JOURNAL.discard(run)
            run.abandon()
        if self.report is not None:
            keep(self.report)
        if run.wait_interrupted:
            raise KeyboardInterrupt

    def _leave(self) -> Run:
        # A generator may exit the watch on a different thread from the one on which it entered the watch. In
        # that case, end an open run of the thread that entered the watch last.
        here = threading.get_ident()
        thread = here if here in self._entered else next(reversed(self._entered))
        entries = self._entered[thread]
        run = entries.pop()
        if not entries:
            del self._entered[thread]
        return run

    def mark(self, text: str) -> None:
        """Add a mark to the timeline of this watch's innermost open run."""
        entries = self._entered.get(threading.get_ident()) or next(reversed(self._entered.values()), None)
        if entries:
            entries[-1].mark(text)

    def __call__(self, function: Callable[P, R]) -> WatchedFunction[P, R]:
        """Decorate ``function`` to measure each call.

        The label of these runs is the watch's label or, if the watch has none, the function's name.
        """
        return WatchedFunction(function, self._label)


class WatchedFunction(Generic[P, R]):
    """A function whose calls are measured; :attr:`report` is the report of the last call.

    A coroutine is measured until it is done, a generator until it is exhausted or closed.
    """

    def __init__(self, function: Callable[P, R], label: Label) -> None:
        self._function = function
        self._label = _text(label if label is not None else getattr(function, "__qualname__", None))
        self.report: Report | None = None
        wrapper: Any = self
        functools.update_wrapper(wrapper, function)
        if inspect.iscoroutinefunction(function):
            self._mark_as_coroutine_function()

    def _mark_as_coroutine_function(self) -> None:
        # Some frameworks await a function only if inspect.iscoroutinefunction() returns True for it.
        mark = getattr(inspect, "markcoroutinefunction", None)  # since Python 3.12
        if mark is not None:
            mark(self)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function and measure the call."""
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

    def _watching(self) -> _WatchedCall:
        return _WatchedCall(self, self._label)

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


class _WatchedCall:
    """Measures one call of a watched function with a separate watch, since calls may overlap."""

    def __init__(self, function: WatchedFunction[Any, Any], label: str | None) -> None:
        self._function = function
        self._watch = Watch(label)

    def __enter__(self) -> None:
        self._watch.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A generator that is closed early has not failed.
        closed_early = isinstance(error, GeneratorExit)
        try:
            self._watch.__exit__(kind, None if closed_early else error, trace)
        finally:
            self._function.report = self._watch.report


@overload
def watch(label: Callable[P, R]) -> WatchedFunction[P, R]: ...
@overload
def watch(label: Label = None) -> Watch: ...
def watch(label: Label | Callable[..., Any] = None) -> Any:
    """Measure what the GPUs do: ``with gpuwidget.watch("label") as w:``, then ``w.report``.

    ``watch`` is also a decorator, with or without a label: it measures each call of the function, and the
    function's ``.report`` is the report of the last call. Watches may be nested and may run in several
    threads at the same time; each measures everything that happens on the GPUs while it is open.
    """
    if callable(label):
        return WatchedFunction(label, None)
    return Watch(label)


def mark(text: str) -> None:
    """Add a mark to the timeline of the innermost watch around this code, or of the watched cell.

    Outside a watch, ``mark`` does nothing, so calls may stay in code that also runs unwatched.
    """
    run = next((run for run in reversed((*_cells[-1:], *_entered.get())) if run.running), None)
    if run is not None:
        run.mark(text)


def reports() -> Reports:
    """Return the last 200 reports of this process, oldest first; each displays as its card."""
    return Reports(report for report, _cell in tuple(_reports))


def sample() -> Sample:
    """Return the current readings of all GPUs.

    Raise SourceError if the driver does not answer within 5 seconds, or if no thread can be started.
    """
    sampler = process_sampler()
    with sampler.subscribe():
        sampler.wait_until_open(OPEN_TIMEOUT_S)
        taken = sampler.read_now(1.0)
        if sampler.has_no_thread:
            raise SourceError(NO_THREAD)
    if taken is None:
        raise SourceError(
            f"The NVIDIA driver has not answered for {OPEN_TIMEOUT_S:.0f} s. If nvidia-smi hangs too, "
            "ask the machine's administrator; otherwise try again."
        )
    return taken
