"""Check that memory does not grow over a day of a server and of a kernel, on a simulated clock."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.figures import Figure
from benchmarks.growth import size_figures
from benchmarks.kernels import require_live_chart
from benchmarks.programs import run_python
from benchmarks.settings import Settings, log_progress
from benchmarks.soak_kernel import PLAIN_CELLS, WATCHED_CELLS, kernel_day

_HOURS = 24.0
_WARM_UP_HOURS = 2.0
"""The server keeps an hour of history."""


def measure(settings: Settings) -> Iterator[Figure]:
    """Simulate a day of a server, of a kernel, and of a kernel without gpuwidget."""
    require_live_chart()
    hours = settings.pick(_HOURS, 1.0)
    with TemporaryDirectory() as folder:
        log_progress(f"  {hours:g} h of a server")
        rows = run_python("-m", "benchmarks.soak_server", str(hours), folder)
    yield from _figures(settings, "a server with all views", rows)
    for name, cells in (("a kernel", WATCHED_CELLS), ("a kernel without gpuwidget", PLAIN_CELLS)):
        log_progress(f"  {hours:g} h of {name}")
        yield from _figures(settings, name, kernel_day(cells, hours))


def _figures(settings: Settings, name: str, rows: list[dict[str, Any]]) -> Iterator[Figure]:
    settled = [row for row in rows if row["hours"] >= settings.pick(_WARM_UP_HOURS, 0.0)]
    yield from size_figures("soak", name, [row["hours"] for row in settled], settled)
