"""What the panel costs a browser: main thread and heap; whether anything moves; how long a question takes.

Chromium with a real JupyterLab, on eight stand-in GPUs whose every value changes all the time. The browser's
own accounts are read (Performance.getMetrics), of the whole page: what it takes without the panel stands
beside.
"""

from __future__ import annotations

import gzip
import importlib
import random
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.figures import Figure
from benchmarks.settings import ROOT, Settings, environment
from benchmarks.standin import machine
from tools import chromium

_GPUS = 8
_MAIN_THREAD_BAR_MS = 20.0
_HEAP_BAR_KIB = 200.0
_QUESTION_BAR_MS = 200.0
_SIZE_BAR_KIB = 100.0
_GIB = 1 << 30
_SHIFTS = """
window.shifts = [];
new PerformanceObserver(list => {
    for (const { node } of list.getEntries().flatMap(entry => entry.sources)) {
        const moved = node instanceof Element ? node : node?.parentElement;
        if (moved?.closest('.jp-gpuwidget-panel')) { window.shifts.push(moved.className); }
    }
}).observe({type: 'layout-shift'});
"""
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
    helpers, playwright = _browser_helpers(), importlib.import_module("playwright.sync_api")
    with TemporaryDirectory() as folder, playwright.sync_playwright() as started:
        standin = machine(Path(folder), _GPUS)
        browser = started.chromium.launch(executable_path=path, args=list(helpers.CHROMIUM_ARGUMENTS))
        place = Path(folder) / "lab"
        place.mkdir()
        lab = helpers.Lab(place, "nvml", variables=environment(standin.environment()))
        try:
            lab.wait_until_ready()
            yield from _figures(settings, lab, browser, standin)
        finally:
            lab.stop()


def _figures(settings: Settings, lab: Any, browser: Any, standin: Any) -> Iterator[Figure]:
    windows, questions = settings.pick(6, 1), settings.pick(20, 3)
    notebook = lab.open(browser, lab.write("panel.ipynb", ["%load_ext gpuwidget", _BUSY]), height=1500)
    page = _Page(notebook, standin)
    closed = [page.window()["busy"] for _ in range(windows)]
    yield Figure("panel", "main thread a second, panel closed", "ms", values=closed)
    notebook.script("await app.commands.execute('gpuwidget:show-panel');")
    # Until it knows what to say of the kernel, which is a sentence more.
    notebook.page.wait_for_selector(".jp-gpuwidget-kernel .jp-gpuwidget-act", state="visible")
    notebook.page.wait_for_timeout(1000)
    notebook.script(_SHIFTS)
    for layout in ("as it opens", "all unfolded"):
        if layout == "all unfolded":
            notebook.script(_UNFOLD)
            notebook.page.wait_for_timeout(3000)
            notebook.script("window.shifts = [];")
        seen = [page.window() for _ in range(windows)]
        shifts = notebook.script("return window.shifts;")
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
    notebook.close()


class _Page:
    """One page's accounts while the machine's values change."""

    def __init__(self, notebook: Any, standin: Any) -> None:
        self._standin = standin
        self._session = notebook.page.context.new_cdp_session(notebook.page)
        self._session.send("Performance.enable")

    def window(self, seconds: float = 10.0) -> Mapping[str, float]:
        """Milliseconds a second that the main thread was busy, and the bytes of heap that are left then."""
        before = self._metrics()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._standin.scenario(*_machine())
            time.sleep(0.2)
        after = self._metrics()
        self._session.send("HeapProfiler.collectGarbage")
        busy = (after["TaskDuration"] - before["TaskDuration"]) / (after["Timestamp"] - before["Timestamp"])
        return {"busy": 1e3 * busy, "heap": self._metrics()["JSHeapUsedSize"]}

    def _metrics(self) -> dict[str, float]:
        told = self._session.send("Performance.getMetrics")["metrics"]
        return {metric["name"]: metric["value"] for metric in told}


def _machine() -> list[str]:
    lines = [f"gpus={_GPUS}", "latency=h200", f"gpu.*.memory_total={140 * _GIB}", "gpu.*.power_limit=700"]
    for gpu in range(_GPUS):
        lines += [
            f"gpu.{gpu}.util={random.randint(0, 100)}",
            f"gpu.{gpu}.memory_used={random.randint(0, 140) * _GIB}",
            f"gpu.{gpu}.power={random.randint(60, 1000)}",
            f"gpu.{gpu}.temperature={random.randint(9, 101)}",
            f"gpu.{gpu}.sm_clock={random.randint(300, 1980)}",
            f"gpu.{gpu}.throttle={random.choice((0, 4))}",
        ]
    return lines


def _size() -> Figure:
    what = "labextension, compressed"
    scripts = sorted((ROOT / "gpuwidget" / "labextension" / "static").glob("*.js"))
    if not scripts:
        return Figure("panel", what, "KiB", not_measured="it is not built: make demo, or make test-browser")
    size = sum(len(gzip.compress(script.read_bytes())) for script in scripts) / 1024
    return Figure("panel", what, "KiB", bar=_SIZE_BAR_KIB, values=[size])


def _browser_helpers() -> Any:
    sys.path.insert(0, str(ROOT / "tests" / "browser"))
    return importlib.import_module("helpers_lab")
