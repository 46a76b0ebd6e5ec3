"""The dashboard that %gpu shows below a cell: live charts and the device dropdown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_lab import Notebook
from helpers_panel import GIB, lab_with, machine
from playwright.sync_api import BrowserContext

STANDIN = Path(__file__).parent.parent / "torch_standin"
LOAD = (
    f"import sys\nsys.path.insert(0, {str(STANDIN)!r})\nimport torch\ntorch.cuda.init()\n%load_ext gpuwidget"
)
CHARTS = ".gpuwidget-live .bqplot path.line"
# JavaScript that returns the texts that are cut off or overlap with the text beside them. The numbers below a
# plot may reach beyond its edges.
CUT = """
const root = document.querySelector('.gpuwidget-dashboard');
const nodes = [...root.querySelectorAll('*')];
const shown = nodes.filter(node => node instanceof HTMLElement && node.checkVisibility());
const wide = shown.filter(node => !node.matches('.gpuwidget-plot') && node.clientWidth > 0 &&
    node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== 'inline');
const labels = shown.filter(node => node.matches('.gpuwidget-plot > span'));
const boxes = labels.map(node => [node.parentElement, node.getBoundingClientRect()]);
const overlapping = boxes.filter(([plot, box], place) =>
    place > 0 && boxes[place - 1][0] === plot && boxes[place - 1][1].right > box.left);
const select = root.querySelector('select');
const ruler = document.createElement('span');
ruler.style.font = getComputedStyle(select).font;
ruler.textContent = select.selectedOptions[0].text;
document.body.append(ruler);
const cut = ruler.getBoundingClientRect().width > select.clientWidth ? [ruler.textContent] : [];
ruler.remove();
return [...wide.map(node => `${node.className}: ${node.textContent.slice(-60)}`), ...cut,
    ...overlapping.map(([, box]) => `label at ${box.left}`)];
"""
DROPDOWN = ".jp-OutputArea .widget-dropdown select"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_dashboard(open_notebook: Callable[..., Notebook], theme: str) -> None:
    """%gpu shows a live chart of every GPU and a device dropdown. A device that the user chooses in the
    dropdown applies from the next cell."""
    notebook = open_notebook([LOAD, "%gpu", "str(torch.get_default_device())"], theme=theme)
    for cell in (0, 1):
        notebook.run(cell)
        notebook.wait_until_done()
    page = notebook.page
    page.wait_for_selector(CHARTS, state="attached")
    page.wait_for_function("s => document.querySelector(s)?.options.length === 4", arg=DROPDOWN)
    before = page.eval_on_selector_all(CHARTS, "lines => lines.map(line => line.getAttribute('d'))")
    page.wait_for_function(
        "([chart, before]) => [...document.querySelectorAll(chart)]"
        ".some((line, place) => line.getAttribute('d') !== before[place])",
        arg=[CHARTS, before],
    )
    assert page.locator(".gpuwidget-live .gpuwidget-block").count() == 4
    page.select_option(DROPDOWN, index=3)
    page.wait_for_function("() => document.body.innerText.includes('Default device: cuda:1')")
    notebook.run(2)
    notebook.wait_until_done()
    assert notebook.outputs(2)[0]["data"]["text/plain"] == "'cuda:1'"


@pytest.mark.parametrize("gpus", [2, 8])
def test_nothing_is_cut(browser: BrowserContext, tmp_path_factory: pytest.TempPathFactory, gpus: int) -> None:
    """However narrow the page is, no text of the dashboard is cut off, and none overlaps with another."""
    held = [f"gpu.{gpu}.compute=self:{(gpu + 12) * GIB}" for gpu in range(gpus)]
    with lab_with(tmp_path_factory.mktemp("machine"), *machine(gpus), *held) as (lab, _):
        notebook = lab.open(browser, lab.write("dashboard.ipynb", [LOAD, "%gpu"]))
        for cell in (0, 1):
            notebook.run(cell)
            notebook.wait_until_done()
        page = notebook.page
        page.wait_for_selector(".gpuwidget-live .gpuwidget-here")
        page.wait_for_function("s => document.querySelector(s)?.options.length === 4", arg=DROPDOWN)
        page.select_option(DROPDOWN, index=3)
        page.wait_for_function("() => document.body.innerText.includes('Default device: cuda:1')")
        for width in (1200, 700, 500, 420):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(1000)  # bqplot draws its lines anew 0.3 s after a page was resized
            assert notebook.script(CUT) == [], width
        notebook.close()
