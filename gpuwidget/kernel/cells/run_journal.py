"""Write this process's long runs to the journal, on a thread of their own.

The thread exists only while a run that is in the journal lasts. Nothing waits for it but the end of the
process, and that for two seconds at most.
"""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import re
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gpuwidget.journal.folder import new_id
from gpuwidget.journal.settings import JournalSettings
from gpuwidget.model.boundary import Boundary
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.errors import JournalError
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.sampler import process_sampler
from gpuwidget.system.processes import NOTEBOOK_VARIABLE

if TYPE_CHECKING:
    from gpuwidget.journal.records import RunXid
    from gpuwidget.journal.store import JournalStore
    from gpuwidget.measure.run import Run
    from gpuwidget.model.messages import Message
    from gpuwidget.model.report import Report

_LOG = logging.getLogger(__name__)

INTERVAL_S = 10.0
"""Seconds between two states of a run that lasts."""
_EXIT_TIMEOUT_S = 2.0
_MAX_ATTEMPTS = 6
"""How often the end of a run is written, each :data:`INTERVAL_S` after the last, if the disk is full."""
_CONNECTION_FILE = re.compile(r"kernel-(.+)\.json")
_SHUTDOWN = "shutdown_request"


@dataclass(frozen=True, slots=True)
class CellContext:
    """Where a run's code is."""

    notebook: str | None = None
    """Absolute path of the notebook."""
    cell_id: str | None = None
    code: str | None = None
    """CRC-32 of the cell's code; None outside a cell."""
    kernel_id: str | None = None

    @classmethod
    def of(cls, shell: Any, cell: tuple[object, str] | None) -> CellContext:
        """Return the context of a cell with this id and code, or of code outside a cell."""
        cell_id, code = (None, None) if cell is None else cell
        return cls(
            notebook=notebook_of(shell),
            cell_id=cell_id if isinstance(cell_id, str) else None,
            code=None if code is None else checksum(code),
            kernel_id=_kernel_id(shell),
        )


def checksum(code: str) -> str:
    """Return the CRC-32 of code in UTF-8 as 8 hexadecimal digits. A page can compute it without HTTPS."""
    return f"{zlib.crc32(code.encode(errors='surrogatepass')):08x}"


@dataclass(eq=False, slots=True)
class _OpenRun:
    run: Run
    context: CellContext
    id: str
    due: float = float("-inf")
    """When the next state or the end is written, in monotonic seconds."""
    is_new: bool = True
    """Whether no state was written yet."""
    last: Report | None = None
    """The report of the last run of the same cell, from the journal."""
    report: Report | None = None
    """The report of a run that has ended; None for a run without one."""
    oom: Any = None
    """The card of an out-of-memory error, with which the card begins."""
    attempts: int = 0
    """How often the end could not be written."""
    problem: str | None = None
    """Why the newest state could not be written."""


@dataclass(eq=False, slots=True)
class _State:
    open: dict[Run, _OpenRun] = field(default_factory=dict)
    ended: list[_OpenRun] = field(default_factory=list)
    """Runs that have ended, and whose end is not written yet."""
    thread: threading.Thread | None = None
    shutdown_requested: float | None = None
    restart_requested: bool = False


class RunJournal:
    """Writes the runs of this process. Methods may be called from any thread. Only :meth:`flush` waits."""

    def __init__(self, store: JournalStore | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        """``store`` is that of the user's journal by default."""
        self._store = store
        self._clock = clock
        self._changed = threading.Condition()
        self._state = _State()
        self._shell: Any = None
        self._next_prune = float("-inf")
        """When old runs are deleted next, in monotonic seconds."""
        self._noted_problem: str | None = None
        """The problem that a report has noted last."""
        reset_after_fork(self.reset_in_child)

    def reset_in_child(self) -> None:
        """Forget the runs, which belong to the parent."""
        self._changed = threading.Condition()
        self._state = _State()

    def add_run(self, run: Run, cell: tuple[object, str] | None = None) -> None:
        """Write a run that has not started yet, once it has taken long enough.

        ``cell`` is the id and the code of the watched cell; None for a run outside a cell.
        """
        settings = JournalSettings.of(os.environ)
        if settings.enabled:
            run.call_after(settings.seconds, partial(self._begin, run, cell))

    def end(self, run: Run, report: Report, oom: Any = None) -> None:
        """Write the report of a run that has ended, if the run is in the journal.

        ``oom`` is the card of an out-of-memory error, with which the card begins.
        """
        self._end(run, report, oom)

    def discard(self, run: Run) -> None:
        """Delete a run that has no report from the journal. Safe to call for any run."""
        self._end(run, None, None)

    def last_run(self, run: Run) -> Report | None:
        """Return the report of the last run of the same cell; None if the journal has none, or none yet."""
        found = self._state.open.get(run)
        return None if found is None else found.last

    def note(self, run: Run) -> Message | None:
        """Return why a run could not be written to the journal. The same problem is returned only once."""
        found = self._state.open.get(run)
        problem = None if found is None else found.problem
        if problem is None or problem == self._noted_problem:
            return None
        self._noted_problem = problem
        from gpuwidget.measure import notes

        return notes.NOT_IN_JOURNAL(reason=problem)

    def attach(self, shell: Any) -> Callable[[], None]:
        """Note the shell's notebook, and when Jupyter asks its kernel to shut down.

        Return a function that ends this.
        """
        self._shell = shell
        handlers = getattr(getattr(shell, "kernel", None), "control_handlers", None)
        original = handlers.get(_SHUTDOWN) if isinstance(handlers, dict) else None
        if handlers is None or original is None:
            return lambda: None

        async def handle(stream: Any, ident: Any, parent: Any) -> None:
            with Boundary(_LOG, "a request to shut down could not be noted"):
                self._note_shutdown(restart=parent["content"].get("restart") is True)
            answer = original(stream, ident, parent)
            if inspect.isawaitable(answer):
                await answer

        def detach() -> None:
            self._shell = None
            if handlers.get(_SHUTDOWN) is handle:
                handlers[_SHUTDOWN] = original

        handlers[_SHUTDOWN] = handle
        return detach

    def flush(self, timeout_s: float = _EXIT_TIMEOUT_S) -> bool:
        """Wait until all runs that have ended are written. Return whether they are.

        The state of a run that could not be ended is deleted, so that nobody takes the run for one that died.
        """
        deadline = self._clock.monotonic() + timeout_s
        with self._changed:
            for found in self._state.ended:
                found.due = float("-inf")
            self._changed.notify_all()
            while self._state.ended and (left := deadline - self._clock.monotonic()) > 0:
                self._clock.wait(self._changed, left)
            left_over = [found.id for found in self._state.ended]
        if left_over:
            from gpuwidget.journal.store import JournalStore

            for run_id in left_over:
                (self._store or JournalStore()).discard(run_id)
        return not left_over

    # -- any thread ------------------------------------------------------------------------------------------

    def _begin(self, run: Run, cell: tuple[object, str] | None) -> None:
        with self._changed, Boundary(_LOG, "a run could not be written to the journal"):
            found = _OpenRun(run, CellContext.of(self._shell, cell), new_id(run.started))
            self._state.open[run] = found
            if self._state.thread is None:
                found.problem = self._start_thread()
            self._changed.notify_all()

    def _start_thread(self) -> str | None:
        """Start the thread. Return why it could not be started, or None."""
        thread = threading.Thread(target=self._run, name="gpuwidget-journal", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return "The system allows this process no further thread."
        self._state.thread = thread
        atexit.register(self.flush)
        return None

    def _end(self, run: Run, report: Report | None, oom: Any) -> None:
        with self._changed:
            found = self._state.open.pop(run, None)
            if found is not None and self._state.thread is not None:
                found.report, found.oom, found.due = report, oom, float("-inf")
                self._state.ended.append(found)
                self._changed.notify_all()

    def _note_shutdown(self, *, restart: bool) -> None:
        with self._changed:
            self._state.shutdown_requested = self._clock.time()
            self._state.restart_requested = restart
            for found in self._state.open.values():
                found.due = float("-inf")
            self._changed.notify_all()

    # -- the journal's thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        state = self._state
        with Boundary(_LOG, "the journal of runs failed"):
            # Imported here, so that loading the extension does not take the time.
            from gpuwidget.journal.store import PRUNE_EVERY_S, JournalStore

            store = self._store or JournalStore()
            while self._wait(state):
                with self._changed:
                    now = self._clock.monotonic()
                    ended = [found for found in state.ended if found.due <= now]
                    due = [found for found in state.open.values() if found.due <= now]
                for found in due:
                    self._write_state(store, found)
                written = [found for found in ended if self._write_end(store, found)]
                with self._changed:
                    state.ended = [found for found in state.ended if found not in written]
                    self._changed.notify_all()
                if now >= self._next_prune:
                    self._next_prune = now + PRUNE_EVERY_S
                    with Boundary(_LOG, "old runs of the journal could not be deleted"):
                        store.prune()
            return
        with self._changed:  # Runs that are open are not written, and a later run starts another thread.
            self._end_thread(state)

    def _wait(self, state: _State) -> bool:
        """Wait until something is to be written. Return False if nothing will be: the thread then ends."""
        with self._changed:
            while True:
                waiting = (*state.open.values(), *state.ended)
                due = min((found.due for found in waiting), default=None)
                if due is None:
                    self._end_thread(state)
                    return False
                wait_s = due - self._clock.monotonic()
                if wait_s <= 0:
                    return True
                self._clock.wait(self._changed, wait_s)

    def _end_thread(self, state: _State) -> None:
        state.thread = None
        state.ended.clear()
        atexit.unregister(self.flush)

    def _write_state(self, store: JournalStore, found: _OpenRun) -> None:
        found.due = self._clock.monotonic() + INTERVAL_S
        with Boundary(_LOG, "the state of a run could not be written to the journal", _problem_of(found)):
            report = found.run.report_so_far()
            if report is not None:
                self._write(store, found, report, ended=False)
        if found.is_new:
            found.is_new = False
            with Boundary(_LOG, "the last run could not be found in the journal"):
                found.last = _last_run(store, found.context)

    def _write_end(self, store: JournalStore, found: _OpenRun) -> bool:
        """Write the end of a run. Return False if it is to be written again later.

        After the last attempt, the run's state is deleted: it would look like that of a run that died.
        """
        found.due = self._clock.monotonic() + INTERVAL_S
        found.attempts += 1
        with Boundary(_LOG, "the end of a run could not be written to the journal"):
            if found.report is not None:
                self._write(store, found, found.report, ended=True)
                if found.problem is None:
                    return True
                if found.attempts < _MAX_ATTEMPTS:
                    return False
        store.discard(found.id)
        return True

    def _write(self, store: JournalStore, found: _OpenRun, report: Report, *, ended: bool) -> None:
        from gpuwidget.journal.machine import machine_state, process_identity
        from gpuwidget.journal.records import JournaledRun
        from gpuwidget.journal.store import without_printed

        context, state = found.context, self._state
        run = JournaledRun(
            notebook=context.notebook,
            cell_id=context.cell_id,
            code=context.code,
            kernel_id=context.kernel_id,
            process=process_identity(),
            machine=machine_state(
                self._clock.time(),
                _xids(report),
                state.shutdown_requested,
                restart_requested=state.restart_requested,
            ),
            report=report if JournalSettings.of(os.environ).printed else without_printed(report),
            oom=found.oom,
        )
        try:
            store.write(found.id, run, "ended" if ended else "running")
        except JournalError as error:
            found.problem = str(error)
            _LOG.debug("%s", error)
        else:
            found.problem = None


def _problem_of(found: _OpenRun) -> Callable[[BaseException], None]:
    """Return a function that stores an error as the reason why a run is not in the journal."""

    def failed(error: BaseException) -> None:
        found.problem = f"{type(error).__name__}: {error}"

    return failed


def _last_run(store: JournalStore, context: CellContext) -> Report | None:
    """Return the report of the newest run of the same cell, or else of the same code in this notebook."""
    wanted = [text for text in (context.cell_id, context.code) if text is not None]
    if not wanted:
        return None
    rows = [row for row in store.rows("ended", containing=wanted) if row.notebook == context.notebook]
    same_cell = [row for row in rows if context.cell_id is not None and row.cell_id == context.cell_id]
    same = same_cell or [row for row in rows if row.code == context.code]
    found = store.read("ended", same[0].id) if same else None
    if found is None:
        return None
    report = found[1].report
    # In another kernel, its number is that of another cell.
    return replace(report, cell=replace(report.cell, execution_count=None))


def _xids(report: Report) -> tuple[RunXid, ...]:
    """Return the newest error of each GPU since the run's start."""
    from gpuwidget.journal.records import RunXid

    sample = process_sampler().latest
    readings = () if sample is None else sample.readings
    return tuple(
        RunXid(reading.uuid, reading.xid, reading.xid_time)
        for reading in readings
        if reading.xid is not None
        and reading.xid_time is not None
        and reading.xid_time >= report.cell.started
    )


def notebook_of(shell: Any) -> str | None:
    """Return the absolute path of the notebook; None if it is unknown."""
    path = os.environ.get(NOTEBOOK_VARIABLE, "")
    if path.endswith(".ipynb"):
        return os.path.abspath(path)
    # VS Code's name of a notebook
    found = getattr(shell, "user_ns", {}).get("__vsc_ipynb_file__")
    return found if isinstance(found, str) and os.path.isabs(found) else None


def _kernel_id(shell: Any) -> str | None:
    path = getattr(getattr(getattr(shell, "kernel", None), "parent", None), "connection_file", None)
    match = _CONNECTION_FILE.fullmatch(os.path.basename(path)) if isinstance(path, str) else None
    return None if match is None else match[1]


RUN_JOURNAL = RunJournal()
"""The only instance in the process."""
