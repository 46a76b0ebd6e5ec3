"""Measure the panel's cost in a browser: main thread and heap, layout shifts, and response times.

Runs a real JupyterLab in Chromium, on 8 and on 16 stand-in GPUs whose values change continuously. The
browser's counters (Performance.getMetrics) cover the whole page, so the page without the panel is also
measured, for comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import pages
from benchmarks.figures import Figure
from benchmarks.labextensions import compressed_kib
from benchmarks.settings import ROOT, Settings, environment
from benchmarks.standin import changing, machine
from tools import chromium

_GPUS = (8, 16)
_INITIAL_BAR_MS = 12.0
"""Main thread with 8 GPUs, of which the initial panel expands one."""
_MAIN_THREAD_BAR_MS = 20.0
_HEAP_BAR_KIB = 200.0
_REQUEST_BAR_MS = 200.0
_PAINT_BAR_MS = 300.0
_SIZE_BAR_KIB = 95.0
_SAMPLES = 100_000
_FILLED = 50_000
"""Number of samples that fill the history and the browser's caches before the measurement starts."""
_OPEN = """
const start = performance.now();
app.commands.execute('gpuwidget:show-panel');
while (document.querySelectorAll('.jp-gpuwidget-gpu-card').length < argument) {
    await new Promise(requestAnimationFrame);
}
await new Promise(requestAnimationFrame);
return performance.now() - start;
"""
_UNFOLD = """
const rows = '.jp-gpuwidget-gpu-card[data-open=false] .jp-gpuwidget-gpu-row';
document.querySelectorAll(rows).forEach(row => row.click());
"""
_ASK = """
const watch = document.querySelector('.jp-gpuwidget-device-watch');
const times = [];
for (let turn = 0; turn < argument; turn++) {
    const before = watch.getAttribute('aria-pressed');
    const start = performance.now();
    watch.click();
    while (watch.getAttribute('aria-pressed') === before) { await new Promise(done => setTimeout(done, 2)); }
    times.push(performance.now() - start);
}
return times;
"""
_BUSY = "while True:\n    sum(i * i for i in range(1000))"


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure the labextension's size, the page with the panel closed and open, and requests to a kernel."""
    yield from _sizes()
    path = chromium.find()
    if path is None:
        yield Figure("panel", "main thread", "ms", not_measured=chromium.MISSING)
        return
    for gpus in _GPUS:
        with TemporaryDirectory() as folder:
            standin = machine(Path(folder), gpus)
            variables = environment(standin.environment())
            with pages.jupyterlab(path, Path(folder) / "lab", variables) as open_notebook:
                yield _first_paint(settings, open_notebook, gpus)
                notebook = open_notebook(["%load_ext gpuwidget", _BUSY])
                page = pages.Page(notebook, standin, partial(changing, gpus))
                yield from _figures(settings, notebook, page, gpus)
                if gpus == _GPUS[0]:
                    yield _request_times(settings, notebook)
                notebook.close()
                if gpus == _GPUS[0]:
                    yield _flooded(settings, open_notebook, standin, gpus)


def _first_paint(settings: Settings, open_notebook: Callable[..., Any], gpus: int) -> Figure:
    values = []
    for _ in range(settings.pick(10, 2)):
        notebook = open_notebook(["1"])
        notebook.page.wait_for_timeout(1000)
        values.append(notebook.script(_OPEN, gpus))
        notebook.close()
    what = f"from opening the panel until {gpus} GPUs are shown, in a page that never had it"
    return Figure("panel", what, "ms", bar=_PAINT_BAR_MS, values=values)


def _flooded(settings: Settings, open_notebook: Callable[..., Any], standin: Any, gpus: int) -> Figure:
    floods: list[pages.Flood] = []
    notebook = open_notebook(["1"], prepare=lambda page: floods.append(pages.Flood(page)))
    page = pages.Page(notebook, standin, partial(changing, gpus))
    notebook.script(_OPEN, gpus)
    notebook.script(_UNFOLD)
    page.window(2.0)
    (flood,) = floods
    flood.send(settings.pick(_FILLED, 1000))
    before = page.kept()
    flood.send(settings.pick(_SAMPLES, 1000))
    grown = (page.kept() - before) / 1024
    notebook.close()
    what = f"growth of the heap without compiled code over {_SAMPLES:,} samples of {gpus} GPUs, all unfolded"
    return Figure("panel", what, "KiB", bar=_HEAP_BAR_KIB, values=[grown])


def _figures(settings: Settings, notebook: Any, page: pages.Page, gpus: int) -> Iterator[Figure]:
    windows = settings.pick(6, 1)
    closed = [page.window() for _ in range(windows)]
    yield Figure("panel", f"main thread a second, {gpus} GPUs, panel closed", "ms", values=closed)
    notebook.script("await app.commands.execute('gpuwidget:show-panel');")
    # Wait for the kernel's state, because its arrival adds a sentence to the panel.
    notebook.page.wait_for_selector(
        ".jp-gpuwidget-device-section .jp-gpuwidget-notice-action", state="visible"
    )
    notebook.page.wait_for_timeout(1000)
    notebook.record_layout_shifts(".jp-gpuwidget-panel")
    for layout in ("as it opens", "all unfolded"):
        if layout == "all unfolded":
            notebook.script(_UNFOLD)
            notebook.page.wait_for_timeout(3000)
            notebook.layout_shifts()
        busy, grown = page.windows(windows)
        shifts = notebook.layout_shifts()
        yield Figure(
            "panel",
            f"main thread a second, {gpus} GPUs at 5 Hz, {layout}",
            "ms",
            bar=_INITIAL_BAR_MS if (gpus, layout) == (8, "as it opens") else _MAIN_THREAD_BAR_MS,
            values=busy,
            conditions={"nothing shifts": not shifts},
            details={"what shifted": shifts[:8]} if shifts else {},
        )
        what = f"growth of the heap over 90 s, {gpus} GPUs, {layout}"
        yield Figure("panel", what, "KiB", values=[grown / 1024])


def _request_times(settings: Settings, notebook: Any) -> Figure:
    notebook.run(0)
    notebook.wait_until_done()
    notebook.page.wait_for_selector(".jp-gpuwidget-device-watch:enabled")
    notebook.run(1)
    notebook.page.wait_for_timeout(1000)
    asked = notebook.script(_ASK, settings.pick(20, 3))
    notebook.script("await panel.sessionContext.session.kernel.interrupt();")
    what = "a question to a kernel busy in pure Python"
    return Figure("panel", what, "ms", bar=_REQUEST_BAR_MS, values=asked)


def _sizes() -> Iterator[Figure]:
    what = "labextension, compressed"
    sizes = compressed_kib(ROOT / "gpuwidget" / "labextension")
    if sizes is None:
        yield Figure("panel", what, "KiB", not_measured="it is not built: make demo, or make test-browser")
        return
    yield Figure("panel", f"{what}, at the start", "KiB", bar=_SIZE_BAR_KIB, values=[sizes.at_start])
    yield Figure("panel", f"{what}, loaded when needed", "KiB", values=[sizes.later])
