"""Measure the dashboard's cost in a browser (main thread and heap) with 16 GPUs and every metric selected.

Runs a real JupyterLab in Chromium, on 16 stand-in GPUs whose values change continuously. The browser's
counters cover the whole page, so they are also read with the dashboard closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import pages
from benchmarks.figures import Figure
from benchmarks.settings import Settings, environment
from benchmarks.standin import changing, machine
from tools import chromium

_GPUS = 16
_MAIN_THREAD_BAR_MS = 60.0
_HEAP_BAR_KIB = 1024.0
_FILL_S = 20.0
"""Seconds to wait after the time range is changed, until the charts have data for the new range."""
_CHART = ".jp-gpuwidget-dashboard .jp-gpuwidget-dashboard-chart canvas"


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure the page with the dashboard closed, open, open together with the panel, and hidden."""
    path = chromium.find()
    if path is None:
        yield Figure("dashboard", "main thread", "ms", not_measured=chromium.MISSING)
        return
    with TemporaryDirectory() as folder:
        standin = machine(Path(folder), _GPUS)
        variables = environment(standin.environment())
        with pages.notebook(path, Path(folder) / "lab", ["1"], variables) as notebook:
            yield from _figures(settings, notebook, pages.Page(notebook, standin, partial(changing, _GPUS)))


def _figures(settings: Settings, notebook: Any, page: pages.Page) -> Iterator[Figure]:
    windows = settings.pick(6, 1)
    closed = [page.window() for _ in range(windows)]
    yield Figure("dashboard", "main thread a second, dashboard closed", "ms", values=closed)
    notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
    notebook.page.wait_for_selector(_CHART)
    for seconds in ("1 min", "5 min", "1 h"):
        notebook.page.click(f".jp-gpuwidget-dashboard-ranges button:text-is('{seconds}')")
        page.window(_FILL_S)
        yield from _costs(page, windows, f"dashboard of {_GPUS} GPUs at 5 Hz, {seconds}")
    notebook.script("await app.commands.execute('gpuwidget:show-panel');")
    notebook.page.click(".jp-gpuwidget-dashboard-ranges button:text-is('5 min')")
    page.window(_FILL_S)
    yield from _costs(page, windows, f"dashboard of {_GPUS} GPUs at 5 Hz, 5 min, and the panel")
    notebook.script("app.shell.collapseRight(); app.shell.activateById(panel.id);")
    hidden, _ = page.windows(windows)
    yield Figure("dashboard", "main thread a second, dashboard behind another tab", "ms", values=hidden)


def _costs(page: pages.Page, windows: int, what: str) -> Iterator[Figure]:
    busy, grown = page.windows(windows)
    yield Figure(
        "dashboard",
        f"main thread a second, {what}",
        "ms",
        bar=_MAIN_THREAD_BAR_MS,
        values=busy,
    )
    yield Figure("dashboard", f"growth of the heap, {what}", "KiB", bar=_HEAP_BAR_KIB, values=[grown / 1024])
