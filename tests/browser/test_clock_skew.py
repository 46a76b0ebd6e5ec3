"""The panel if the clocks of the kernel, the server and the browser differ."""

from __future__ import annotations

import re
from pathlib import Path

from browser.test_cells_list import CELLS, ROW, TIME
from browser.test_running import run_with_chart
from helpers_lab import Lab, Notebook, runs_until
from helpers_panel import CARD, PANEL, add_kernel, show, use_kernel
from playwright.sync_api import BrowserContext, Page, expect

LOAD = "%load_ext gpuwidget"
TWO_SECONDS = "%%gpuwatch --gpu 0\nimport time; time.sleep(2)"
LEGEND = f"{PANEL} .jp-gpuwidget-panel-legend > :last-child"
RUNNING = f"{CELLS} .jp-gpuwidget-cells-running"
READOUT = f"{CARD} .jp-gpuwidget-gpu-readout"
TEN_MINUTES_AHEAD = """
import datetime, time
from jupyter_client import session
clock, now = time.time, session.utcnow
time.time = lambda: clock() + 600
session.utcnow = lambda: now() + datetime.timedelta(seconds=600)
"""
"""Statements that set the clock of a kernel, and of the messages that it sends, ten minutes ahead."""
TWO_HOURS_OFF = """
const RealDate = Date;
Date = class extends RealDate {
    constructor(...given) { super(...(given.length > 0 ? given : [Date.now()])); }
    static now() { return RealDate.now() + OFFSET; }
};
"""
TWO_TO_FIVE = re.compile(r"^[2-5]\.\d s$")
NEGATIVE = r"(?<![\d-])[-\N{MINUS SIGN}]\d"


def open_and_run(lab: Lab, browser: BrowserContext, path: Path, script: str = "") -> Notebook:
    """Open the panel with its list of cells, and run the first two cells of the notebook."""

    def prepare(page: Page) -> None:
        if script:
            page.add_init_script(script)

    notebook = lab.open(browser, path, prepare=prepare)
    show(notebook, 300)
    for cell in (0, 1):
        notebook.run_to_the_end(cell)
    return notebook


def wait_for_seconds(notebook: Notebook) -> None:
    """Wait until the list shows that the running cell has run for some seconds, and less than a minute."""
    notebook.page.wait_for_function(
        "row => /\\b([3-9]|[1-5]\\d) s$/.test(document.querySelector(row).innerText.trim())", arg=RUNNING
    )


def point_at_newest(notebook: Notebook) -> str:
    """Move the pointer to the newest values of the first GPU's chart, and return what the chart shows."""
    box = notebook.page.locator(f"{CARD} .jp-gpuwidget-gpu-chart").first.bounding_box()
    assert box is not None
    notebook.page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 20)
    notebook.page.wait_for_selector(READOUT)
    return notebook.page.locator(READOUT).first.inner_text()


def test_a_kernel_whose_clock_is_ahead(two_gpu_lab: Lab, browser: BrowserContext, tmp_path: Path) -> None:
    """If the kernel's clock is ten minutes ahead of the server's, the charts show no runs, and a tooltip has
    the reason. Durations are right, and no time is negative."""
    end = tmp_path / "end"
    add_kernel(two_gpu_lab, "ahead", "python", TEN_MINUTES_AHEAD)
    running = f"%%gpuwatch --gpu 0\n{runs_until(end)}"
    path = two_gpu_lab.write("ahead.ipynb", [LOAD, TWO_SECONDS, running])
    use_kernel(path, "ahead", "python")
    notebook = open_and_run(two_gpu_lab, browser, path)
    page = notebook.page
    expect(page.locator(f"{ROW} {TIME}")).to_have_text(TWO_TO_FIVE)
    run_with_chart(notebook, 2)
    wait_for_seconds(notebook)
    title = page.get_attribute(LEGEND, "title") or ""
    sentence = "Cell runs are not shown: the clocks of the kernel and of the server differ by "
    assert title.startswith(sentence)
    # On a busy machine, messages arrive some seconds late.
    assert re.fullmatch(r"9 min 5[5-9] s\.|10 min 0[0-5] s\.", title.removeprefix(sentence))
    assert "[" not in point_at_newest(notebook)
    assert re.findall(NEGATIVE, page.inner_text(PANEL)) == []
    end.touch()
    notebook.wait_until_done()
    notebook.close()


def test_a_browser_whose_clock_is_wrong(two_gpu_lab: Lab, browser: BrowserContext, tmp_path: Path) -> None:
    """If only the browser's clock is wrong, by two hours, the charts show the runs, durations are right, and
    the dashboard shows the time of a run that has just ended."""
    end = tmp_path / "end"
    running = f"%%gpuwatch --gpu 0\n{runs_until(end)}"
    for sign in ("-", ""):
        path = two_gpu_lab.write(f"page{sign}.ipynb", [LOAD, TWO_SECONDS, running])
        script = TWO_HOURS_OFF.replace("OFFSET", f"{sign}2 * 3600_000")
        notebook = open_and_run(two_gpu_lab, browser, path, script)
        page = notebook.page
        expect(page.locator(f"{ROW} {TIME}")).to_have_text(TWO_TO_FIVE)
        show_run = page.get_by_role("button", name="Show in dashboard", exact=True)
        show_run.hover()
        assert [show_run.get_attribute("title"), show_run.get_attribute("aria-disabled")] == ["", None]
        end.unlink(missing_ok=True)
        run_with_chart(notebook, 2)
        wait_for_seconds(notebook)
        assert page.get_attribute(LEGEND, "title") is None
        assert point_at_newest(notebook).endswith("[3]")
        assert re.findall(NEGATIVE, page.inner_text(PANEL)) == []
        end.touch()
        notebook.wait_until_done()
        notebook.close()
