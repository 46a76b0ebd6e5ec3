"""A running cell: until it ends, the panel and its dialogs show it as running, and the server reports its
kernel as busy."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path

from helpers_lab import Lab, Notebook, runs_until
from helpers_panel import CARD, PANEL, hide, lab_with, machine, record_streams, show, wait_for_text
from playwright.sync_api import BrowserContext

GIB = 1024**3
BUSY = f"{PANEL} .jp-gpuwidget-device-section .jp-gpuwidget-device-busy"
RUNNING = f"{PANEL} .jp-gpuwidget-cells-running"
SESSION = "[data-context^='gpuwidget:kernel:']"
"""An item of the section "GPU memory" in the Running panel."""
HOLDER = f"{CARD} .jp-gpuwidget-holder"
DIALOG = ".jp-Dialog-content"
LOAD = "%load_ext gpuwidget\nimport os; os.getpid()"
CHART = ".jp-OutputArea path.line"
BUSY_TITLE = "The kernel is running a cell. A choice takes effect in the next cell"
USAGE_REQUEST = """
const kernel = panel.sessionContext.session.kernel;
const header = {
    msg_id: crypto.randomUUID(), msg_type: 'usage_request', session: kernel.clientId,
    username: '', date: new Date().toISOString(), version: '5.3'
};
const message = {channel: 'control', header, parent_header: {}, metadata: {}, content: {}, buffers: []};
await kernel.sendControlMessage(message, true, true).done;
"""
"""JavaScript that sends the request of jupyter-resource-usage on the control channel. The kernel publishes
``idle`` for the request while the cell is still running."""


def run_with_chart(notebook: Notebook, cell: int) -> None:
    """Start a watched cell, and wait until its chart is drawn."""
    notebook.run(cell)
    notebook.page.wait_for_selector(CHART, state="attached")


def state_on_server(lab: Lab) -> str:
    """Return the execution state that Jupyter Server reports for its only kernel."""
    with urllib.request.urlopen(f"{lab.url}/api/kernels?token={lab.token}", timeout=30) as answer:
        (kernel,) = json.load(answer)
    state: str = kernel["execution_state"]
    return state


def wait_for_holder(notebook: Notebook, row: str) -> None:
    """Wait until the row of the first holder on the first GPU has this text."""
    notebook.page.wait_for_function(
        "([row, text]) => document.querySelector(row)?.innerText.replace(/\\s+/g, ' ').trim() === text",
        arg=[HOLDER, row],
    )


def test_a_watched_cell_runs_while_its_chart_is_shown(browser: BrowserContext, tmp_path: Path) -> None:
    """While a watched cell runs, all parts of the panel show it as running, and Jupyter Server reports its
    kernel as busy. The Running panel lists the memory that the notebook holds."""
    with lab_with(tmp_path, *machine(1)) as (lab, standin):
        end = tmp_path / "end"
        notebook = lab.open(browser, lab.write("train.ipynb", [LOAD, f"%%gpuwatch\n{runs_until(end)}"]))
        page = notebook.page
        notebook.run(0)
        notebook.wait_until_done()
        pid = notebook.outputs(0)[0]["data"]["text/plain"]
        standin.scenario(*machine(1), f"gpu.0.compute={pid}:{14 * GIB}")
        show(notebook, 300)
        wait_for_holder(notebook, "train.ipynb idle 14.0 GiB")

        run_with_chart(notebook, 1)
        wait_for_holder(notebook, "train.ipynb busy 14.0 GiB")
        assert state_on_server(lab) == "busy"
        notebook.script(USAGE_REQUEST)
        page.click(f"{PANEL} .jp-gpuwidget-cells-toggle")
        wait_for_text(notebook, RUNNING, "2 s")
        assert "[2]" in page.inner_text(RUNNING)
        assert page.inner_text(BUSY) == "busy"
        assert page.get_attribute(BUSY, "title") == BUSY_TITLE
        wait_for_holder(notebook, "train.ipynb busy 14.0 GiB")
        box = page.locator(f"{CARD} .jp-gpuwidget-gpu-chart").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 20)
        page.wait_for_selector(f"{CARD} .jp-gpuwidget-gpu-readout:text(' · [2]')")
        page.click(f"{PANEL} [aria-label='Actions for train.ipynb']")
        page.click(".lm-Menu-item:has-text('Shut Down Kernel')")
        assert "the running cell and the cells in the queue" in page.inner_text(DIALOG)
        page.keyboard.press("Escape")

        end.touch()
        notebook.wait_until_done()
        wait_for_holder(notebook, "train.ipynb idle 14.0 GiB")
        page.wait_for_selector(RUNNING, state="hidden")
        assert page.inner_text(BUSY) == ""
        assert state_on_server(lab) == "idle"
        check_running_panels(lab, notebook)
        notebook.close()


def check_running_panels(lab: Lab, notebook: Notebook) -> None:
    """Check that the Running panels of JupyterLab and Notebook 7 list the notebook's GPU memory with actions,
    and that they need samples only while they are visible."""
    page = notebook.page
    hide(notebook)
    streams = record_streams(page)
    notebook.script("await app.commands.execute('running:show-panel');")
    wait_for_text(notebook, SESSION, "14.0 GiB · GPU 0")
    page.click(SESSION, button="right")
    actions = [text.strip() for text in page.locator(".lm-Menu-item").all_inner_texts()]
    assert actions[:2] == ["Open Notebook", "Interrupt Kernel"]
    page.click(".lm-Menu-item:has-text('Shut Down Kernel')")
    assert "GPU memory: 14.0 GiB on GPU 0" in page.inner_text(DIALOG)
    page.keyboard.press("Escape")
    notebook.script("app.shell.collapseLeft();")
    page.wait_for_selector(SESSION, state="hidden")
    notebook.wait_for(lambda: streams == ["open", "closed"])
    page.goto(f"{lab.url}/tree?token={lab.token}")
    page.click(".lm-TabBar-tab:has-text('Running')")
    wait_for_text(notebook, SESSION, "14.0 GiB · GPU 0")
    page.goto(f"{lab.url}/lab/tree/{notebook.path.name}?token={lab.token}")
    notebook.wait_until_open(kernel=True)


def wait_for_busy(notebook: Notebook, busy: bool) -> None:
    """Wait until the panel shows the kernel as busy or, if ``busy`` is false, as not busy."""
    notebook.page.wait_for_function(
        "([busy, text]) => document.querySelector(busy)?.innerText === text",
        arg=[BUSY, "busy" if busy else ""],
    )


def test_a_cell_that_began_before_the_page(
    open_notebook: Callable[..., Notebook], lab: Lab, browser: BrowserContext, tmp_path: Path
) -> None:
    """If a page is loaded while a cell is running, it shows the cell as running and, later, that the cell has
    ended."""
    end = tmp_path / "end"
    notebook = open_notebook([LOAD, f"%%gpuwatch\n{runs_until(end)}"])
    show(notebook)
    notebook.run(0)
    notebook.wait_until_done()
    run_with_chart(notebook, 1)
    notebook.save()
    notebook.page.reload()
    notebook.wait_until_open(kernel=False)
    show(notebook)
    wait_for_busy(notebook, True)
    other = lab.open(browser, notebook.path, kernel=False)
    show(other)
    wait_for_busy(other, True)
    for each in (notebook, other):
        each.script(USAGE_REQUEST)
        wait_for_text(each, f"{PANEL} .jp-gpuwidget-device-section", "busy")
    end.touch()
    wait_for_busy(notebook, False)
    wait_for_busy(other, False)
    other.page.close(run_before_unload=False)


def test_a_cell_that_ends_while_another_notebook_is_active(
    open_notebook: Callable[..., Notebook], lab: Lab, tmp_path: Path
) -> None:
    """If a cell ends while another notebook is active, the panel shows the kernel as idle when the cell's
    notebook becomes active again."""
    end = tmp_path / "end"
    notebook = open_notebook([LOAD, f"%%gpuwatch\n{runs_until(end)}"])
    show(notebook)
    notebook.run(0)
    notebook.wait_until_done()
    run_with_chart(notebook, 1)
    behind = lab.write("front.ipynb", ["1"])
    notebook.script("await app.commands.execute('docmanager:open', {path: argument});", behind.name)
    wait_for_busy(notebook, False)
    notebook.script("app.shell.activateById(panel.id);")
    wait_for_busy(notebook, True)
    notebook.script(
        "const other = [...app.shell.widgets('main')].find(w => w.context?.path === argument);"
        "app.shell.activateById(other.id);",
        behind.name,
    )
    wait_for_busy(notebook, False)
    end.touch()
    notebook.wait_until_done()
    notebook.script("app.shell.activateById(panel.id);")
    wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-device-notebook", notebook.path.name)
    wait_for_busy(notebook, False)
