"""The plugin that runs in each Dask worker.

The workers receive this module as source text and not by its name, because a worker that can't import a
plugin's module does not start. Therefore this module imports gpuwidget only inside a function, and a worker
without gpuwidget reports the reason.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distributed import WorkerPlugin

NAME = "gpuwidget"
"""The name of the plugin, of its entry in the worker's metrics, and of its message handler."""


class GpuWidgetPlugin(WorkerPlugin):
    """Measures a worker while a cell is watched. No method raises."""

    name = NAME
    idempotent = True

    def __init__(self) -> None:
        self._reporter: Any = None
        self._error: str | None = None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        source = inspect.getsource(sys.modules[__name__])
        names = {"__name__": "gpuwidget_worker_plugin"}
        return eval, (f"(lambda n: (exec({source!r}, n), n['GpuWidgetPlugin']())[1])({names!r})",)

    async def setup(self, worker: Any) -> None:
        """Add the plugin to a worker. gpuwidget is imported on another thread, since that takes a while."""
        worker.metrics[NAME] = self._metrics
        worker.handlers[NAME] = self._handle
        try:
            make_reporter = await _in_thread(_import_reporter)
            self._reporter = make_reporter(worker)
        except Exception as error:
            self._error = f"{type(error).__name__}: {error}"

    def teardown(self, worker: Any) -> None:
        """Remove the plugin's threads and its entries in the worker."""
        worker.metrics.pop(NAME, None)
        worker.handlers.pop(NAME, None)
        if self._reporter is not None:
            self._reporter.close()

    def _metrics(self, worker: Any) -> dict[str, Any]:
        """Return what the worker adds to its heartbeat."""
        return {"error": self._error} if self._reporter is None else self._reporter.runs()

    async def _handle(self, action: str, run: str, start: dict[str, Any]) -> dict[str, Any]:
        """Answer a message of a kernel about the run of a watched cell."""
        if self._reporter is None:
            return {"error": self._error}
        try:
            answer: dict[str, Any] = await self._reporter.handle(action, run, start)
        except Exception as error:
            # Dask would log it with a traceback, which a local cluster prints into the notebook.
            return {"error": f"{type(error).__name__}: {error}"}
        return answer


def _import_reporter() -> Any:
    from gpuwidget.dask.worker_reporter import WorkerReporter

    return WorkerReporter


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Return the result of ``function``, called on a thread that ends afterwards.

    A copy of :func:`gpuwidget.system.daemon_thread.run_in_daemon_thread`, because gpuwidget may be missing.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def finish(result: Any, error: Exception | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def call() -> None:
        try:
            result, error = function(), None
        except Exception as raised:
            result, error = None, raised
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=call, name="gpuwidget-import", daemon=True).start()
    return await done
