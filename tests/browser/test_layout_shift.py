"""Nothing in the panel, the dashboard or a watched cell moves while values change: the layout shift is 0."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from browser.test_dashboard_view import CHART, DASHBOARD, open_dashboard
from helpers_lab import Lab, Notebook, runs_until
from helpers_ownership import FakeOwnershipStream, allocation, gpu, kernel
from helpers_panel import CARD, GIB, LOAD_BUTTON, PANEL, lab_with, machine, show, uuids, wait_for_text
from playwright.sync_api import BrowserContext

Open = Callable[..., Notebook]
UPDATES = 10
# A layout shift is reported in the frame after the change.
TWO_FRAMES = (
    "await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))));"
)


def test_the_panel(open_notebook: Open, tmp_path: Path) -> None:
    """In a panel of 300 px, while a recording plays and a cell runs, no element moves in the GPUs' cards and
    rows or in the list of cells. What applies to all GPUs of a recording is shown once."""
    end = tmp_path / "end"
    notebook = open_notebook(["%load_ext gpuwidget", runs_until(end)], height=1400)
    show(notebook, 300)
    notebook.run(0)
    notebook.wait_until_done()
    page = notebook.page
    page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-watch:enabled")
    page.wait_for_selector(f"{CARD} canvas")
    page.locator(f"{CARD} .jp-gpuwidget-gpu-row").nth(1).click()
    page.click(f"{PANEL} .jp-gpuwidget-cells-toggle")
    notebook.run(1)
    page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-busy:text('busy')")
    # Wait for the memory ownership, which arrives after the first samples and adds text to the cards.
    page.wait_for_selector(f"{PANEL} .jp-gpuwidget-panel-recording[title*='recorded processes']")
    notebook.record_layout_shifts(f"{CARD}, {PANEL} .jp-gpuwidget-cells-body")
    notebook.wait_for_changes(f"{PANEL} .jp-gpuwidget-gpu-list", UPDATES)
    notebook.wait_for_changes(f"{PANEL} .jp-gpuwidget-cells-running", UPDATES)
    assert notebook.layout_shifts() == []
    label = "Recording of 4 \u00d7 NVIDIA H200"
    assert page.inner_text(PANEL).count(label) == 1
    title = page.get_attribute(f"{PANEL} .jp-gpuwidget-panel-recording", "title")
    assert title == f"{label}\nThe recorded processes are not this machine's."
    end.touch()


@pytest.mark.parametrize("width", [240, 300, 420])
def test_a_holder_appears_and_disappears(two_gpu_lab: Lab, browser: BrowserContext, width: int) -> None:
    """When the only process or notebook on a GPU begins or ends to hold memory, its line appears or
    disappears, and nothing moves."""
    faked: list[FakeOwnershipStream] = []
    notebook = two_gpu_lab.open(
        browser,
        two_gpu_lab.write("process.ipynb", ["1"]),
        height=1400,
        prepare=lambda page: faked.append(FakeOwnershipStream(page)),
    )
    show(notebook, width)
    page = notebook.page
    page.wait_for_selector(LOAD_BUTTON)
    page.wait_for_selector(f"{CARD} canvas")
    known = uuids(two_gpu_lab)
    kernels = [kernel("k2", "train.ipynb")]
    holders = {
        "eval.py": allocation(30, pid=4711, program="python eval.py"),
        "train.ipynb": allocation(20, kernel="k2"),
    }

    def send(name: str | None) -> None:
        held = [] if name is None else [holders[name]]
        faked[0].send(kernels, [gpu(uuid, *held) for uuid in known])
        if name is None:
            page.wait_for_selector(f"{CARD} .jp-gpuwidget-holder", state="detached")
        else:
            wait_for_text(notebook, f"{CARD} .jp-gpuwidget-holder", name)
        notebook.script(TWO_FRAMES)

    send("eval.py")
    notebook.record_layout_shifts(PANEL)
    for name in (None, "train.ipynb", "eval.py", None):
        send(name)
        assert notebook.layout_shifts() == [], name


@pytest.mark.parametrize("height", [700, 1400])
def test_a_new_hint(two_gpu_lab: Lab, browser: BrowserContext, height: int) -> None:
    """When a hint appears and when it disappears, nothing in the panel moves: neither the GPUs nor the
    list of cells, whether or not the panel has free space. The hint is visible without scrolling.
    """
    faked: list[FakeOwnershipStream] = []
    notebook = two_gpu_lab.open(
        browser,
        two_gpu_lab.write("hints.ipynb", ["1"]),
        height=height,
        prepare=lambda page: faked.append(FakeOwnershipStream(page)),
    )
    show(notebook, 300)
    page = notebook.page
    page.wait_for_selector(LOAD_BUTTON)
    page.wait_for_selector(f"{CARD} canvas")
    known = uuids(two_gpu_lab)

    def send(idle_since: float) -> None:
        idle = kernel("k2", "eval.ipynb", idle_since=idle_since)
        faked[0].send([idle], [gpu(uuid, allocation(30, kernel="k2")) for uuid in known])

    send(time.time() - 5)
    wait_for_text(notebook, f"{CARD} .jp-gpuwidget-holder", "eval.ipynb")
    notebook.script(TWO_FRAMES)
    notebook.record_layout_shifts(PANEL)
    send(time.time() - 3 * 3600)
    page.wait_for_selector(f"{PANEL} .jp-gpuwidget-hint", state="visible")
    notebook.script(TWO_FRAMES)
    assert notebook.layout_shifts() == []
    hint = page.locator(f"{PANEL} .jp-gpuwidget-hint").bounding_box()
    assert hint is not None
    assert hint["y"] + hint["height"] <= height
    send(time.time() - 5)
    page.wait_for_selector(f"{PANEL} .jp-gpuwidget-hint", state="hidden")
    notebook.script(TWO_FRAMES)
    assert notebook.layout_shifts() == []
    notebook.close()


def test_the_dashboard(open_notebook: Open) -> None:
    """While a recording plays, neither the dashboard's legend, nor the texts above the charts, nor the charts
    move."""
    notebook = open_notebook(["1"], kernel=False)
    open_dashboard(notebook)
    values = f"{DASHBOARD} .jp-gpuwidget-dashboard-charts"
    notebook.wait_for_changes(values, 2)
    notebook.record_layout_shifts(DASHBOARD)
    notebook.wait_for_changes(values, UPDATES)
    assert notebook.layout_shifts() == []
    # The tooltip moves with the pointer but must not move any other element.
    box = notebook.page.locator(f"{CHART}[data-metric=utilization] .u-over").bounding_box()
    assert box is not None
    notebook.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    notebook.page.wait_for_selector(f"{DASHBOARD} .jp-gpuwidget-dashboard-tooltip", state="visible")
    notebook.wait_for_changes(values, UPDATES)
    assert notebook.layout_shifts() == []


WATCHED = """%%gpuwatch
import itertools, pathlib, time
for i in itertools.count(1):
    print(i, "steps", end="\\r", flush=True)
    time.sleep(0.2)
    if pathlib.Path({end!r}).exists(): break"""


def test_the_end_of_a_cell(browser: BrowserContext, tmp_path_factory: pytest.TempPathFactory) -> None:
    """While a cell on one GPU is watched, and when it ends and its chart becomes a card, nothing in the
    notebook moves: neither the cell's text below the chart nor the next cell."""
    # With multiprocessors in use, there is no advice, below which the card would grow.
    gpu = [*machine(1), f"gpu.0.compute=self:{20 * GIB}", "gpu.0.gpm.2=41.5"]
    folder = tmp_path_factory.mktemp("one")
    end = folder / "end"
    with lab_with(folder, *gpu) as (lab, _):
        cells = ["%load_ext gpuwidget", WATCHED.format(end=str(end)), "1"]
        notebook = lab.open(browser, lab.write("end.ipynb", cells))
        notebook.run(0)
        notebook.wait_until_done()
        notebook.run(1)
        notebook.page.wait_for_selector(".gpuwidget-live .bqplot path.line", state="attached")
        notebook.script(TWO_FRAMES)
        notebook.record_layout_shifts(".jp-Notebook")
        notebook.wait_for_changes(".gpuwidget-live", UPDATES)
        end.touch()
        notebook.wait_until_done()
        notebook.page.wait_for_selector(".jp-OutputArea-output svg[role=img]")
        notebook.script(TWO_FRAMES)
        assert notebook.layout_shifts() == []
        notebook.close()
