"""The journal of runs for the pages, and what the server knows about the ends of its kernels."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from pathlib import Path, PurePath
from typing import Any, TypeVar

from gpuwidget.journal.conclude import conclude, explain_interrupted, newest_runs
from gpuwidget.journal.records import EndRequest, JournaledRun, KernelEnd
from gpuwidget.journal.store import PRUNE_EVERY_S, JournalRow, JournalStore, death_of
from gpuwidget.model.boundary import Boundary
from gpuwidget.model.clock import Clock
from gpuwidget.model.report import Report
from gpuwidget.model.to_json import to_json
from gpuwidget.model.translation import _, find_language, use_language
from gpuwidget.server.encoding import encode
from gpuwidget.server.kernel_inventory import KernelInventory, local_process
from gpuwidget.server.wire import JournalCard, JournalGpu, JournalRun, JournalRuns, RunDeath
from gpuwidget.system.daemon_thread import run_in_daemon_thread
from gpuwidget.views import journal_view

_LOG = logging.getLogger(__name__)

_reason: ContextVar[EndRequest | None] = ContextVar("gpuwidget_end_reason", default=None)
"""Why this task shuts kernels down, if not because somebody asked for it."""
MAX_RUNS = 200
"""Maximum number of runs in a response, besides those that are running."""
_MAX_ENDS = 1000
_STOP_TIMEOUT_S = 3.0
"""Maximum seconds for which the end of the server waits for the journal."""
_Result = TypeVar("_Result")
_Process = tuple[str, int]
"""The id of a kernel, and its process id: a restarted kernel has another process."""


class RunJournal:
    """Answers the pages' requests. All methods are called on the server's event loop."""

    def __init__(
        self, folder: Path, root: str, kernel_manager: Any, inventory: KernelInventory, clock: Clock
    ) -> None:
        """``folder`` is that of the journal, and ``root`` that to which the server's paths are relative."""
        self._store = JournalStore(folder, clock)
        self._root = root
        self._kernel_manager = kernel_manager
        self._inventory = inventory
        self._clock = clock
        self._next_prune = float("-inf")
        self._ends: dict[_Process, KernelEnd] = {}
        self._running: asyncio.Future[Any] | None = None
        self._tasks: set[asyncio.Future[None]] = set()

    # -- requests --------------------------------------------------------------------------------------------

    async def runs(self, locale: str) -> bytes:
        """Return the JSON of the newest runs as :class:`~gpuwidget.server.wire.JournalRuns`."""
        rows = await self._in_thread(partial(self._rows, self._known_ends()))
        folder = self._store.folder
        is_readable = not folder.exists() or (folder.is_dir() and os.access(folder, os.R_OK | os.X_OK))
        with use_language(find_language(locale)):
            runs = tuple(map(self._run, rows))
            problem = (
                None if is_readable else _("Runs are missing, because {folder} can't be read.", folder=folder)
            )
        return encode(to_json(JournalRuns(problem=problem, runs=runs)))

    async def card(self, run_id: str, locale: str) -> bytes | None:
        """Return the JSON of a run as :class:`~gpuwidget.server.wire.JournalCard`; None if there is none."""
        rows = await self._in_thread(partial(self._rows, self._known_ends()))
        listed = next((row for row in rows if row.id == run_id), None)
        return await self._in_thread(partial(self._card, run_id, listed, find_language(locale)))

    async def _in_thread(self, function: Callable[[], _Result]) -> _Result:
        # One after the other, because the store may be used by one thread at a time.
        while self._running is not None:
            await asyncio.wait([self._running])
        self._running = running = asyncio.ensure_future(run_in_daemon_thread(function, "gpuwidget-journal"))
        try:
            return await running
        finally:
            if self._running is running:
                self._running = None

    def _rows(self, ends: dict[_Process, KernelEnd]) -> list[JournalRow]:
        if self._clock.monotonic() >= self._next_prune:
            self._next_prune = self._clock.monotonic() + PRUNE_EVERY_S
            self._store.prune()
        running = conclude(self._store, partial(_end_of, ends), clock=self._clock)
        return newest_runs(self._store, running, MAX_RUNS)

    def _card(self, run_id: str, listed: JournalRow | None, language: str) -> bytes | None:
        found = self._store.find(run_id)
        if found is None:
            return None
        row, run = listed or found[0], found[1]
        with use_language(language):
            data = None if row.state == "running" else journal_view.bundle(row, run)
            t, gpus = _time_series(run.report)
            return encode(to_json(JournalCard(run=self._run(row), data=data, t=t, gpus=gpus)))

    def _run(self, row: JournalRow) -> JournalRun:
        why = death_of(row)
        return JournalRun(
            id=row.id,
            state=row.state,
            status=None if row.state == "running" else row.status,
            path=self._path(row),
            name=None if row.notebook is None else PurePath(row.notebook).name,
            kernel=row.kernel_id,
            cell=row.cell_id,
            code=row.code,
            execution_count=row.execution_count,
            label=row.label,
            started=row.started,
            seconds=row.duration_s,
            peak=row.peak,
            peak_kind=row.peak_kind,
            death=None if why is None else RunDeath(why.cause, why.certainty, journal_view.reason(why)),
        )

    def _path(self, row: JournalRow) -> str | None:
        if row.notebook is None:
            return None
        path = os.path.relpath(row.notebook, self._root)
        return None if path.startswith(os.pardir) else path.replace(os.sep, "/")

    # -- the ends of kernels ---------------------------------------------------------------------------------

    def observe(self) -> None:
        """From now on, note why the server's kernels end. No kernel is asked, and no connection is opened."""
        manager = self._kernel_manager
        self._note_before(manager, "shutdown_kernel", "shut_down")
        self._note_before(manager, "restart_kernel", "restarted")
        self._note_reason(manager, "cull_kernel_if_idle", "culled")
        self._note_all_before(manager, "shutdown_all")
        start = getattr(manager, "start_watching_activity", None)
        if callable(start):

            def start_watching_activity(kernel_id: str) -> None:
                start(kernel_id)
                with Boundary(_LOG, "the end of a kernel is not observed", foreign=True):
                    self._observe(kernel_id, manager.get_kernel(kernel_id))

            manager.start_watching_activity = start_watching_activity

    def _observe(self, kernel_id: str, manager: Any) -> None:
        def died() -> None:
            self._note(kernel_id, None)
            self._conclude_soon()

        for event in ("restart", "dead"):
            manager.add_restart_callback(died, event)

    def _note_before(self, manager: Any, name: str, reason: EndRequest) -> None:
        """Note the reason before Jupyter ends a kernel, and conclude its runs after that."""
        original = getattr(manager, name, None)
        if callable(original):

            def end_kernel(kernel_id: str, *args: Any, **kwargs: Any) -> Any:
                self._note(kernel_id, _reason.get() or reason)
                return self._then_conclude(original(kernel_id, *args, **kwargs), kernel_id)

            setattr(manager, name, end_kernel)

    def _note_reason(self, manager: Any, name: str, reason: EndRequest) -> None:
        """Note that kernels that are shut down during this call are so for ``reason``."""
        original = getattr(manager, name, None)
        if callable(original):

            async def end_kernels(*args: Any, **kwargs: Any) -> Any:
                token = _reason.set(reason)
                try:
                    found = original(*args, **kwargs)
                    return await found if inspect.isawaitable(found) else found
                finally:
                    _reason.reset(token)

            setattr(manager, name, end_kernels)

    def _note_all_before(self, manager: Any, name: str) -> None:
        original = getattr(manager, name, None)
        if callable(original):

            def end_all(*args: Any, **kwargs: Any) -> Any:
                kernel_ids = list(manager.list_kernel_ids())
                for kernel_id in kernel_ids:
                    self._note(kernel_id, "server_stopped")
                return self._then_conclude(original(*args, **kwargs), *kernel_ids, wait_s=_STOP_TIMEOUT_S)

            setattr(manager, name, end_all)

    def _then_conclude(self, ending: Any, *kernel_ids: str, wait_s: float = 0.0) -> Any:
        """Return what Jupyter's function returned. Once that is done, conclude the runs of these kernels.

        Wait at most ``wait_s`` seconds for it: the files may be slow, and somebody waits for Jupyter.
        """
        if not inspect.isawaitable(ending):
            self._conclude_soon(*kernel_ids)
            return ending

        async def end() -> Any:
            try:
                return await ending
            finally:
                concluded = self._conclude_soon(*kernel_ids)
                if wait_s:
                    await asyncio.wait([concluded], timeout=wait_s)

        return end()

    def _note(self, kernel_id: str, requested: EndRequest | None) -> None:
        with Boundary(_LOG, "the end of a kernel could not be noted", foreign=True):
            process = local_process(self._inventory.manager(kernel_id))
            if process is None:
                return
            if len(self._ends) >= _MAX_ENDS:
                del self._ends[next(iter(self._ends))]
            exit_code = process.poll()
            end = KernelEnd(self._clock.time(), exit_code, requested if exit_code is None else None)
            known = self._ends.setdefault((kernel_id, process.pid), end)
            # Keep the first reason if the process has already died, or if the server is stopping:
            # jupyter_client 7 then also requests a shutdown of each kernel.
            if exit_code is None and known.requested != "server_stopped":
                self._ends[kernel_id, process.pid] = end

    def _known_ends(self) -> dict[_Process, KernelEnd]:
        """Return the ends of kernels, including those that nobody has noticed yet."""
        for kernel_id in self._kernel_manager.list_kernel_ids():
            with Boundary(_LOG, "a kernel could not be checked", foreign=True):
                process = local_process(self._inventory.manager(kernel_id))
                if process is not None and process.poll() is not None:
                    self._ends.setdefault((kernel_id, process.pid), KernelEnd(None, process.poll(), None))
        return dict(self._ends)

    def _conclude_soon(self, *kernel_ids: str) -> asyncio.Future[None]:
        task = asyncio.ensure_future(self._conclude(*kernel_ids))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _conclude(self, *kernel_ids: str) -> None:
        """Store why the runs of kernels ended that have ended; ``kernel_ids`` are those of a request."""
        ends = self._known_ends()
        requested = {kernel_id: end for (kernel_id, _pid), end in ends.items() if kernel_id in kernel_ids}

        def conclude_all() -> None:
            self._rows(ends)
            for kernel_id, end in requested.items():
                explain_interrupted(self._store, kernel_id, end)

        with Boundary(_LOG, "the runs of a kernel could not be concluded"):
            await self._in_thread(conclude_all)


def _end_of(ends: Mapping[_Process, KernelEnd], run: JournaledRun) -> KernelEnd | None:
    return None if run.kernel_id is None else ends.get((run.kernel_id, run.process.pid))


def _time_series(report: Report) -> tuple[tuple[float, ...], tuple[JournalGpu, ...]]:
    timeline = report.timeline
    if timeline is None:
        return (), ()
    indices = {gpu.uuid: gpu.index for gpu in report.gpus}
    return timeline.t, tuple(
        JournalGpu(gpu.uuid, indices[gpu.uuid], gpu.utilization, gpu.device_memory)
        for gpu in timeline.gpus
        if gpu.uuid in indices
    )
