"""The diagnosis of the server's own environment, cached for a few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpuwidget.diagnostics import isolated_run
from gpuwidget.diagnostics.probe_process import ProbeEnvironment
from gpuwidget.model.clock import Clock
from gpuwidget.model.diagnosis import Diagnosis
from gpuwidget.system.daemon_thread import run_in_daemon_thread
from gpuwidget.version import __version__

_MAX_AGE_S = 10.0
"""Seconds for which a diagnosis is reused, so that several pages, or a page that is reloaded, cause only one
run of the checks."""


def _diagnose() -> Diagnosis:
    return isolated_run.run_in_subprocess("server", __version__, ProbeEnvironment.current())


class CachedDiagnosis:
    """Runs the checks without blocking the server's event loop, one run at a time."""

    def __init__(self, clock: Clock, diagnose: Callable[[], Diagnosis] = _diagnose) -> None:
        self._clock = clock
        self._diagnose = diagnose
        self._running: asyncio.Task[Diagnosis] | None = None
        self._newest: tuple[Diagnosis, float] | None = None

    async def diagnosis(self) -> Diagnosis:
        """Return the newest diagnosis. Raises DoctorError if the checks do not finish."""
        if self._newest is not None and self._clock.monotonic() - self._newest[1] < _MAX_AGE_S:
            return self._newest[0]
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(run_in_daemon_thread(self._diagnose, "gpuwidget-doctor"))
        # The task is shielded, so that closing a page does not cancel it for other pages.
        diagnosis = await asyncio.shield(self._running)
        self._newest = (diagnosis, self._clock.monotonic())
        return diagnosis
