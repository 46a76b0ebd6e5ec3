"""What the panel costs a browser: main thread and heap; whether anything moves; how long a question takes.

Chromium with a real JupyterLab, on eight stand-in GPUs whose every value changes all the time. The browser's
own accounts are read (Performance.getMetrics), of the whole page: what it takes without the panel stands
beside.
"""

from __future__ import annotations

from collections.abc import Iterator
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

_GPUS = 8
_MAIN_THREAD_BAR_MS = 20.0
_HEAP_BAR_KIB = 200.0
_QUESTION_BAR_MS = 200.0
_SIZE_BAR_KIB = 100.0
_UNFOLD = """
document.querySelectorAll('.jp-gpuwidget-gpu[data-open=false] .jp-gpuwidget-row').forEach(row => row.click());
"""
_ASK = """
const watch = document.querySelector('.jp-gpuwidget-watch');
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
    """The size of the labextension, the page with the panel closed, in rows and unfolded, and questions."""
    yield _size()
    path = chromium.find()
    if path is None:
        yield Figure("panel", "main thread", "ms", not_measured=chromium.MISSING)
        return
    with TemporaryDirectory() as folder:
        standin = machine(Path(folder), _GPUS)
        cells = ["%load_ext gpuwidget", _BUSY]
        variables = environment(standin.environment())
        with pages.notebook(path, Path(folder) / "lab", cells, variables) as notebook:
            yield from _figures(settings, notebook, pages.Page(notebook, standin, partial(changing, _GPUS)))


def _figures(settings: Settings, notebook: Any, page: pages.Page) -> Iterator[Figure]:
    windows, questions = settings.pick(6, 1), settings.pick(20, 3)
    closed = [page.window()["busy"] for _ in range(windows)]
    yield Figure("panel", "main thread a second, panel closed", "ms", values=closed)
    notebook.script("await app.commands.execute('gpuwidget:show-panel');")
    # Until it knows what to say of the kernel, which is a sentence more.
    notebook.page.wait_for_selector(".jp-gpuwidget-kernel .jp-gpuwidget-act", state="visible")
    notebook.page.wait_for_timeout(1000)
    notebook.watch_shifts()
    for layout in ("as it opens", "all unfolded"):
        if layout == "all unfolded":
            notebook.script(_UNFOLD)
            notebook.page.wait_for_timeout(3000)
            notebook.shifts()
        seen = [page.window() for _ in range(windows)]
        shifts = notebook.shifts()
        yield Figure(
            "panel",
            f"main thread a second, {_GPUS} GPUs at 5 Hz, {layout}",
            "ms",
            bar=_MAIN_THREAD_BAR_MS,
            values=[each["busy"] for each in seen],
            conditions={"nothing shifts": not shifts},
            details={"what shifted": shifts[:8]} if shifts else {},
        )
        grown = (seen[-1]["heap"] - seen[0]["heap"]) / 1024
        yield Figure("panel", f"growth of the heap, {layout}", "KiB", bar=_HEAP_BAR_KIB, values=[grown])
    notebook.run(0)
    notebook.wait_until_done()
    notebook.page.wait_for_selector(".jp-gpuwidget-watch:enabled")
    notebook.run(1)
    notebook.page.wait_for_timeout(1000)
    asked = notebook.script(_ASK, questions)
    what = "a question to a kernel busy in pure Python"
    yield Figure("panel", what, "ms", bar=_QUESTION_BAR_MS, values=asked)
    notebook.script("await panel.sessionContext.session.kernel.interrupt();")


def _size() -> Figure:
    what = "labextension, compressed"
    size = compressed_kib(ROOT / "gpuwidget" / "labextension")
    if size is None:
        return Figure("panel", what, "KiB", not_measured="it is not built: make demo, or make test-browser")
    return Figure("panel", what, "KiB", bar=_SIZE_BAR_KIB, values=[size])
