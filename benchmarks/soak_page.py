"""Check that memory does not grow over two hours of a real JupyterLab in Chromium, with 16 stand-in GPUs.

The page shows the panel with all sections, the dashboard with all metrics, and a notebook that runs a watched
cell with the live chart every minute. A second notebook is idle. Once a minute, the memory, threads, file
descriptors and child processes of the kernels, the server and the page's renderer are sampled, and the page's
heap, DOM nodes and event listeners after a garbage collection.

A script in the page runs the cells, and Playwright is connected only while the page is prepared. While it is
connected, the renderer's memory grows by tens of MiB per hour.

JupyterLab's cell toolbar is disabled: JupyterLab 4.6 keeps the toolbar of each cell that was active, which
would hide what gpuwidget itself adds. Without gpuwidget, these toolbars add 12 MiB of heap and 47 MiB of
private memory per hour (measured once by hand).

For comparison, ``GPUWIDGET_BENCH_SOAK_WITHOUT`` leaves something out:

- ``gpuwidget``: the labextension is disabled, and the cells run without gpuwidget's magics. The server
  extension stays enabled.
- ``chart``: the watched cell has no live chart. What a run with the chart adds is from bqplot, ipywidgets and
  JupyterLab's comms.

``GPUWIDGET_BENCH_SOAK=FILE python -m benchmarks soak-page`` appends each sample to FILE, one JSON object per
line. ``python -m benchmarks.soak_page FILE [RESULTS]`` prints the figures of such a file, also of a run that
has not ended, and writes them to RESULTS.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from benchmarks import pages
from benchmarks.figures import Figure, table
from benchmarks.growth import growth
from benchmarks.settings import Settings, environment, log_progress
from benchmarks.standin import changing, machine
from tools import chromium

SAMPLES_VARIABLE = "GPUWIDGET_BENCH_SOAK"
WITHOUT_VARIABLE = "GPUWIDGET_BENCH_SOAK_WITHOUT"
_WITHOUT = {None: "", "gpuwidget": " without gpuwidget", "chart": " without the live chart"}
"""What can be left out, and what this adds to the benchmark's name."""
_GPUS = 16
_HOURS = 130 / 60
_PERIOD_S = 60.0
"""Seconds between two samples, and between two starts of the page's cells."""
_SAMPLE_AT_S = 50.0
"""Seconds from the start of the page's cells to a sample. The cells have finished by then."""
_CHANGES_S = 1.0
"""Seconds between two changes of the stand-in GPUs' values."""
_WARM_UP_S = 600.0
_FULL_S = {"server": 3900.0, "kernel": 2400.0}
"""Seconds after which a process stores as much as it ever does: the server stores an hour of history, and a
kernel the reports of the last 200 watched cells, which takes half an hour here."""
_SIZE = (2200, 1500)
"""Width and height of the browser's window in pixels."""
_GIB = 1 << 30
_OPTIONS = ("--GpuWidget.gpu_hours=True", "--GpuWidget.gpu_activity=True")
_CELLS = (
    "%load_ext gpuwidget",
    "%gpu watch on",
    "%%gpuwatch\nimport time\nfor step in range(100):\n"
    "    print('step', step)\n    sum(number * number for number in range(20_000))\n    time.sleep(0.2)",
    "time.sleep(2)",
)
_OPEN_IDLE = """
const idle = await app.commands.execute('notebook:create-new', {kernelName: 'python3'});
await idle.context.ready;
await idle.sessionContext.ready;
await idle.sessionContext.session.kernel.requestExecute({code: argument}).done;
app.shell.activateById(panel.id);
"""
_OPEN_VIEWS = """
await app.commands.execute('gpuwidget:show-panel');
await app.commands.execute('gpuwidget:open-dashboard');
const dashboard = [...app.shell.widgets('main')].find(({id}) => id === 'gpuwidget-dashboard');
app.shell.add(dashboard, 'main', {mode: 'split-right', ref: panel.id});
app.shell.activateById(panel.id);
"""
_EXPAND = """
const root = document.querySelector('.jp-gpuwidget-panel');
root?.querySelectorAll('details').forEach(section => { section.open = true; });
root?.querySelectorAll('[aria-expanded=false]').forEach(button => button.click());
"""
_CHART = ".jp-gpuwidget-dashboard .jp-gpuwidget-dashboard-chart canvas"
_RUN_CELLS = """
// In each period, the long cell and six times the short cell.
window.cellRuns = window.hiddenRuns = 0;
const run = async () => {
    for (;;) {
        const start = Date.now();
        for (const cell of [2, 3, 3, 3, 3, 3, 3]) {
            panel.content.activeCellIndex = cell;
            panel.content.deselectAll();
            await app.commands.execute('notebook:run-cell');
            window.cellRuns++;
            if (document.hidden) { window.hiddenRuns++; }
        }
        await new Promise(done => setTimeout(done, argument - (Date.now() - start)));
    }
};
run();
"""
_VISIBLE = """
const isVisible = node => node.checkVisibility();
const count = selector => [...document.querySelectorAll(selector)].filter(isVisible).length;
return {
    'GPUs in the panel': count('.jp-gpuwidget-panel [data-gpu-uuid]'),
    'expanded GPUs': count('.jp-gpuwidget-panel [data-gpu-uuid][data-open=true]'),
    'charts in the dashboard': count('.jp-gpuwidget-dashboard .jp-gpuwidget-dashboard-chart canvas'),
    'cell toolbars': document.querySelectorAll('.jp-cell-toolbar').length,
    'cell runs': window.cellRuns,
    'cell runs in a hidden page': window.hiddenRuns
};
"""


def measure(settings: Settings) -> Iterator[Figure]:
    """Sample a page, its server and its kernels every minute, and return the slope of each quantity."""
    path = chromium.find()
    if path is None:
        yield Figure("soak-page", "growth", "MiB/h", not_measured=chromium.MISSING)
        return
    chosen = os.environ.get(SAMPLES_VARIABLE)
    with TemporaryDirectory() as folder:
        samples = Path(chosen) if chosen else Path(folder) / "samples.jsonl"
        _run(path, Path(folder), samples, settings)
        yield from figures(_read(samples), settings)


def figures(samples: Sequence[Mapping[str, Any]], settings: Settings) -> Iterator[Figure]:
    """Return the slope of each quantity after the warm-up."""
    (without,) = {sample["without"] for sample in samples}
    benchmark = f"soak-page{_WITHOUT[without]}"
    warm_up = settings.pick(_WARM_UP_S, 0.0)
    for name in ("kernel", "idle kernel", "server", "renderer"):
        full = settings.pick(_FULL_S.get(name, _WARM_UP_S), 0.0)
        chosen = [sample for sample in samples if sample["seconds"] >= full]
        hours = [sample["seconds"] / 3600 for sample in chosen]
        what = {"renderer": "the page's renderer"}.get(name, f"the {name}")
        held = [sample[name]["private"] / 1024 for sample in chosen]
        yield growth(benchmark, f"private memory of {what}", "MiB/h", hours, held)
        for count in ("threads", "descriptors", "children"):
            values = [sample[name][count] for sample in chosen]
            yield growth(benchmark, f"number of {count} of {what}", "/h", hours, values)
    chosen = [sample for sample in samples if sample["seconds"] >= warm_up]
    hours = [sample["seconds"] / 3600 for sample in chosen]
    heap = [sample["page"]["heap"] / 2**20 for sample in chosen]
    yield growth(benchmark, "the page's JavaScript heap after a garbage collection", "MiB/h", hours, heap)
    for count in ("Nodes", "JSEventListeners", "Documents"):
        values = [sample["page"][count] for sample in chosen]
        yield growth(benchmark, f"number of {count} of the page", "/h", hours, values)


def _run(path: str, folder: Path, samples: Path, settings: Settings) -> None:
    without = os.environ.get(WITHOUT_VARIABLE) or None
    if without not in _WITHOUT:
        raise ValueError(f"{WITHOUT_VARIABLE} is {without!r}, not one of {', '.join(filter(None, _WITHOUT))}")
    bare = without == "gpuwidget"
    standin = machine(folder, _GPUS)
    page_config = folder / "config" / "labconfig" / "page_config.json"
    page_config.parent.mkdir(parents=True)
    disabled = {"@jupyterlab/cell-toolbar-extension": True, "jupyterlab-gpuwidget": bare}
    page_config.write_text(json.dumps({"disabledExtensions": disabled}), encoding="utf-8")
    variables = environment({**standin.environment(), "JUPYTER_CONFIG_PATH": str(folder / "config")})
    cells = _cells(without)
    processes: dict[str, psutil.Process] = {}
    held: list[int] = []

    def prepare(notebook: Any) -> None:
        notebook.script(_OPEN_IDLE, cells[0])
        if not bare:
            notebook.script(_OPEN_VIEWS)
            notebook.page.wait_for_selector(_CHART)
        for cell in (0, 1):
            notebook.run(cell)
            notebook.wait_until_done()
        processes.update(_processes())
        held.extend(processes[name].pid for name in ("kernel", "idle kernel"))
        _change_readings(standin, held, 5.0)
        notebook.script(_EXPAND)
        notebook.script(_RUN_CELLS, 1000 * _PERIOD_S)
        _change_readings(standin, held, _SAMPLE_AT_S)
        notebook.script(_EXPAND)  # Some sections appear only after a cell has run.

    opened = pages.detached_notebook(
        path, folder / "lab", cells, variables, prepare, size=_SIZE, options=_OPTIONS
    )
    with opened as page:
        visible = page.script(_VISIBLE)
        log_progress(f"  {visible}")
        due = began = time.monotonic()
        until = began + 3600 * settings.pick(_HOURS, 0.05)
        while due < until:
            # Each sample is taken at the same second of the period, when the page shows the same.
            due += _PERIOD_S
            _change_readings(standin, held, due - time.monotonic())
            seconds, before = time.monotonic() - began, visible["cell runs"]
            counts, visible = page.counts(), page.script(_VISIBLE)
            if visible["cell runs"] == before:
                raise RuntimeError("The page ran no cells in the last period.")
            sample = {
                "time": time.time(),
                "without": without,
                "seconds": round(seconds, 1),
                "page": counts,
                **{name: _process(process) for name, process in processes.items()},
                **visible,
            }
            with samples.open("a", encoding="utf-8") as file:
                file.write(json.dumps(sample) + "\n")


def _cells(without: str | None) -> Sequence[str]:
    """Return the cells of the notebook, without what is left out."""
    if without == "gpuwidget":
        return [_without_magics(cell) for cell in _CELLS]
    if without == "chart":
        return [cell.replace("%%gpuwatch\n", "%%gpuwatch --no-live\n") for cell in _CELLS]
    return _CELLS


def _without_magics(cell: str) -> str:
    """Return a cell's code without gpuwidget's magics."""
    return "\n".join(line for line in cell.splitlines() if not line.startswith("%")) or "pass"


def _change_readings(standin: Any, held: Sequence[int], seconds: float) -> None:
    """Change the stand-in GPUs' readings every second, for ``seconds``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        standin.scenario(*_scenario(held))
        time.sleep(_CHANGES_S)


def _scenario(pids: Sequence[int]) -> list[str]:
    """Return random readings, and memory that both kernels and an unrelated process hold on each GPU."""
    kernel, idle = pids
    holders = [
        f"gpu.{gpu}.compute={kernel}:{random.randint(1, 40) * _GIB} {idle}:{2 * _GIB} 1:{_GIB}"
        for gpu in range(_GPUS)
    ]
    return [*changing(_GPUS), *holders]


def _processes() -> dict[str, psutil.Process]:
    """Return the processes whose memory is sampled: the two kernels in the order of their start, the server
    and the largest renderer."""
    ours = psutil.Process().children(recursive=True)
    commands = {process: process.cmdline() for process in ours}
    (server,) = (process for process, command in commands.items() if "jupyterlab" in command)
    kernels = [process for process, command in commands.items() if "ipykernel_launcher" in command]
    kernel, idle = sorted(kernels, key=psutil.Process.create_time)
    renderers = [process for process, command in commands.items() if "--type=renderer" in command]
    renderer = max(renderers, key=lambda process: process.memory_info().rss)
    return {"kernel": kernel, "idle kernel": idle, "server": server, "renderer": renderer}


def _process(process: psutil.Process) -> dict[str, int]:
    """Return a process's memory in KiB, and the number of its threads, file descriptors and children."""
    memory = process.memory_full_info()
    return {
        "pss": memory.pss // 1024,
        "rss": memory.rss // 1024,
        "private": memory.uss // 1024,
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
        "children": len(process.children()),
    }


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _main(path: str, results: str | None = None) -> None:
    from benchmarks.__main__ import machine_info, save

    found = list(figures(_read(Path(path)), Settings()))
    print(table(found))
    if results is not None:
        save(Path(results), found, machine_info(), quick=False)


if __name__ == "__main__":
    _main(*sys.argv[1:])
