"""The doctor for the server's own environment: one examination at a time, its answer kept for a moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from gpuwidget.diagnostics import isolated_run
from gpuwidget.diagnostics.probe_process import ProbeEnvironment
from gpuwidget.model.clock import Clock
from gpuwidget.model.diagnosis import Diagnosis
from gpuwidget.model.to_json import plain
from gpuwidget.version import __version__

_KEPT_S = 10.0
"""Several pages that ask at once, or one that is reloaded, cost one examination."""


def _examine() -> Diagnosis:
    return isolated_run.run_in_subprocess("server", __version__, ProbeEnvironment.current())


class CachedDiagnosis:
    """Asked from the server's event loop, which it never holds up."""

    def __init__(self, clock: Clock, examine: Callable[[], Diagnosis] = _examine) -> None:
        self._clock = clock
        self._examine = examine
        self._under_way: asyncio.Task[Diagnosis] | None = None
        self._newest: tuple[bytes, float] | None = None

    async def doctor(self) -> bytes:
        """The newest diagnosis as JSON. Raises DoctorError where the examination comes to no end."""
        if self._newest is not None and self._clock.monotonic() - self._newest[1] < _KEPT_S:
            return self._newest[0]
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.ensure_future(isolated_run.run_in_thread(self._examine))
        # A page that is closed meanwhile does not end it for the others.
        doctor = await asyncio.shield(self._under_way)
        text = json.dumps(plain(doctor), allow_nan=False, separators=(",", ":")).encode()
        self._newest = (text, self._clock.monotonic())
        return text
