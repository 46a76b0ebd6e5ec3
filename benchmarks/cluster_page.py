"""Measure what the cluster view costs a browser: the first paint, updates and the heap.

Runs a real JupyterLab in Chromium. The page's requests for ``api/cluster`` are answered inside the page, with
nodes of 8 GPUs whose values change from one answer to the next. The 5 s between two requests pass at once, so
that two hours of updates take a minute or two. The cost of an update is the time that the page's main thread
is busy (Performance.getMetrics: TaskDuration), with layout, paint and everything else that the page does
meanwhile, without the time to make up the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import pages
from benchmarks.figures import Figure
from benchmarks.settings import Settings, environment
from benchmarks.standin import machine
from tools import chromium

_GPUS = 512
_MANY_GPUS = 4096
_UPDATES = 1440
"""Updates in two hours, at one every 5 s."""
_FILLED = 200
"""Updates before the first heap reading."""
_PAINT_BAR_MS = 300.0
_UPDATE_BAR_MS = 50.0
_MANY_UPDATE_BAR_MS = 200.0
_HEAP_BAR_KIB = 200.0
_PREPARE = """
let number = 0;
const any = (least, most) => least + Math.floor((most - least + 1) * Math.random());
const gib = 2 ** 30;
const snapshot = gpus => {
    const nodes = Array.from({length: gpus / 8}, (_, node) => `node${String(node).padStart(4, '0')}`);
    const time = 1.8e9 + 5 * number++;
    return {
        time, interval_s: 5, problem: null,
        nodes: nodes.map((name, node) => ({name, up: node % 50 !== 7, last_seen: time})),
        gpus: Array.from({length: gpus}, (_, gpu) => ({
            uuid: `GPU-${gpu}`, node: nodes[Math.floor(gpu / 8)], index: gpu % 8, model: 'NVIDIA H200',
            mig: null, exporters: ['dcgm', 'gpuwidget'], utilization: gpu % 97 === 3 ? null : any(0, 100),
            memory_used: any(0, 140) * gib, memory_total: 141 * gib, power_w: any(70, 700),
            power_limit_w: 700, temperature_c: any(25, 90), xid: gpu % 101 === 5 ? 79 : null,
            ecc_uncorrected: 0, lost: gpu % 211 === 9, idle_s: any(0, 1) * any(0, 3600),
            users: [`user${gpu % 11}`], notebooks: [`train-${gpu % 23}.ipynb`],
            job: String(4000 + Math.floor(gpu / 16))
        }))
    };
};
const request = window.fetch;
window.gpus = 0;
window.answered = 0;
window.making = 0;
window.updates = 0;
window.fetch = async (resource, ...others) => {
    if (!String(resource.url ?? resource).includes('/gpuwidget/api/cluster')) {
        return request(resource, ...others);
    }
    const start = performance.now();
    const text = JSON.stringify(snapshot(window.gpus));
    const response = new Response(text, {headers: {'Content-Type': 'application/json'}});
    window.making += performance.now() - start;
    response.json = () => {
        window.answered = performance.now();
        window.updates++;
        return Response.prototype.json.call(response);
    };
    return response;
};
// The time until the next request passes at once while `window.hurry` is set.
const later = window.setTimeout;
window.hurry = false;
window.setTimeout = (action, milliseconds, ...others) =>
    later(action, window.hurry && milliseconds === 5000 ? 0 : milliseconds, ...others);
"""
_OPEN = """
window.gpus = argument;
for (const widget of [...app.shell.widgets('main')]) {
    if (widget.id === 'gpuwidget-cluster') { widget.close(); }
}
await app.commands.execute('gpuwidget:open-cluster', {state: {}});
const cells = '.jp-gpuwidget-cluster .jp-gpuwidget-cluster-cell';
while (document.querySelectorAll(cells).length < argument) { await new Promise(requestAnimationFrame); }
await new Promise(done => requestAnimationFrame(() => setTimeout(done)));  // After the frame with the cells.
return performance.now() - window.answered;
"""
_UPDATE = """
const making = window.making;
const end = window.updates + argument;
window.hurry = true;
while (window.updates < end) {
    const seen = window.updates;
    while (window.updates === seen) { await new Promise(done => setTimeout(done, 1)); }
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
}
window.hurry = false;
return window.making - making;
"""


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure the wall with 512 and with 4,096 GPUs."""
    path = chromium.find()
    if path is None:
        yield Figure("cluster-page", "update of the wall", "ms", not_measured=chromium.MISSING)
        return
    with TemporaryDirectory() as folder:
        variables = environment(machine(Path(folder), 1).environment())
        options = ["--GpuWidget.prometheus_url=http://127.0.0.1:9"]
        with pages.jupyterlab(path, Path(folder) / "lab", variables, options=options) as open_notebook:
            yield from _figures(settings, partial(open_notebook, ["1"], prepare=_prepare))


def _prepare(page: Any) -> None:
    page.add_init_script(f"{{{_PREPARE}}}")


def _figures(settings: Settings, open_page: Callable[[], Any]) -> Iterator[Figure]:
    # A wall that is opened again in the same page shows the values that the page already has.
    paints = []
    for _ in range(settings.pick(10, 2)):
        notebook = open_page()
        paints.append(notebook.script(_OPEN, _GPUS))
        notebook.close()
    yield Figure(
        "cluster-page",
        f"first paint of the wall after its data, {_GPUS} GPUs",
        "ms",
        bar=_PAINT_BAR_MS,
        values=paints,
    )
    notebook = open_page()
    page = pages.Page(notebook, None, list)
    notebook.script(_OPEN, _GPUS)
    _update(notebook, settings.pick(_FILLED, 5))
    before = page.kept()
    yield _updates(page, notebook, settings.pick(_UPDATES, 10), _GPUS, _UPDATE_BAR_MS)
    yield Figure(
        "cluster-page",
        f"growth of the heap in 2 h of updates, {_GPUS} GPUs",
        "KiB",
        bar=_HEAP_BAR_KIB,
        values=[(page.kept() - before) / 1024],
    )
    notebook.script(_OPEN, _MANY_GPUS)
    yield _updates(page, notebook, settings.pick(30, 3), _MANY_GPUS, _MANY_UPDATE_BAR_MS)
    notebook.close()


def _updates(page: pages.Page, notebook: Any, count: int, gpus: int, bar_ms: float) -> Figure:
    """Measure the main thread's time per update: the page's whole task time, less that of making the data."""
    busy = page.busy_ms()
    making_ms = _update(notebook, count)
    return Figure(
        "cluster-page",
        f"main thread for an update of the wall, {gpus} GPUs",
        "ms",
        bar=bar_ms,
        values=[(page.busy_ms() - busy - making_ms) / count],
        details={"updates": count},
    )


def _update(notebook: Any, count: int) -> float:
    """Let the page receive this many answers. Return the milliseconds that it took to make their data."""
    return float(notebook.script(_UPDATE, count))
