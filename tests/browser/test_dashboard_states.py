"""The dashboard where there is nothing to draw: a sentence, and what helps."""

from __future__ import annotations

from pathlib import Path

from helpers_axe import violations
from helpers_panel import lab_with, machine, wait_for_text
from playwright.sync_api import Browser, Route
from test_dashboard_view import CHART, CHIP, DASHBOARD, choose, open_dashboard, shown

BLANK = f"{DASHBOARD} .jp-gpuwidget-dashboard-empty"
TOOLS = f"{DASHBOARD} .jp-gpuwidget-dashboard-toolbar"
NOTICE = f"{DASHBOARD} > .jp-gpuwidget-dashboard-notice"
CSV = f"{DASHBOARD} .jp-gpuwidget-dashboard-csv"
BUTTON = f"{BLANK} button"
ON_THE_CHARTS = "() => document.activeElement?.matches('.jp-gpuwidget-dashboard-charts')"


def test_without_a_gpu(browser: Browser, tmp_path: Path) -> None:
    """One sentence says why, with no axes, no toolbar and no second sentence; with a GPU the charts come."""
    with lab_with(tmp_path, "nvmlInitWithFlags=error 9") as (lab, standin):
        notebook = lab.open(browser, lab.write("none.ipynb", ["1"]), kernel=False)
        page = notebook.page
        notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
        wait_for_text(notebook, BLANK, "driver")
        for gone in (CHART, TOOLS, NOTICE, BUTTON, CHIP):
            assert not page.locator(gone).first.is_visible(), gone
        assert violations(notebook, DASHBOARD) == []
        standin.scenario(*machine(1))
        lab.stop()
        wait_for_text(notebook, NOTICE, "The server does not answer.")
        assert "driver" in page.inner_text(BLANK)
        lab.start()
        lab.wait_until_ready()
        page.wait_for_selector(f"{CHART} canvas", state="visible", timeout=60_000)
        assert page.is_hidden(BLANK)
        assert page.is_visible(TOOLS)
        page.close(run_before_unload=False)


def test_nothing_chosen(browser: Browser, tmp_path: Path) -> None:
    """With no metric, or no GPU, a button brings all back, and the keyboard is on the charts again."""
    with lab_with(tmp_path, *machine(2)) as (lab, _):
        notebook = lab.open(browser, lab.write("nothing.ipynb", ["1"]), kernel=False)
        page = notebook.page
        open_dashboard(notebook)
        page.wait_for_function(ON_THE_CHARTS)
        choose(page)
        wait_for_text(notebook, BLANK, "No metric is chosen.")
        assert shown(page) == []
        assert page.is_disabled(CSV)
        assert violations(notebook, DASHBOARD) == []
        page.click(f"{BUTTON}:has-text('Show all metrics')")
        page.wait_for_selector(f"{CHART} canvas", state="visible")
        assert len(shown(page)) == 19
        assert page.is_hidden(BLANK)
        page.wait_for_function(ON_THE_CHARTS)
        for chip in (0, 1):
            page.locator(CHIP).nth(chip).click()
        wait_for_text(notebook, BLANK, "No GPU is chosen.")
        assert page.locator(CHIP).first.is_visible()
        assert not page.locator(CHART).first.is_visible()
        assert page.is_disabled(CSV)
        page.click(f"{BUTTON}:has-text('Show all GPUs')")
        page.wait_for_selector(f"{CHART} canvas", state="visible")
        assert page.get_attribute(f"{CHIP} >> nth=1", "aria-pressed") == "true"
        page.wait_for_function(ON_THE_CHARTS)
        assert page.is_enabled(CSV)
        notebook.close()


def test_before_the_past_is_there_and_when_it_does_not_come(browser: Browser, tmp_path: Path) -> None:
    """It says what it waits for, then why that fails, and draws as soon as it has it."""
    with lab_with(tmp_path, *machine(2)) as (lab, _):
        notebook = lab.open(browser, lab.write("late.ipynb", ["1"]), kernel=False)
        page = notebook.page
        waiting: list[Route] = []
        page.route("**/gpuwidget/api/history*", lambda route: waiting.append(route))
        notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
        wait_for_text(notebook, BLANK, "Reading the past…")
        assert not page.locator(CHART).first.is_visible()
        assert page.is_disabled(CSV)
        waiting[0].fulfill(status=503, body='{"message": "Too busy."}', content_type="application/json")
        wait_for_text(notebook, BLANK, "Too busy.")
        assert page.is_hidden(NOTICE)
        page.unroute("**/gpuwidget/api/history*")
        page.wait_for_selector(f"{CHART} canvas", state="visible")
        assert page.is_hidden(BLANK)
        page.wait_for_function(ON_THE_CHARTS)
        notebook.close()


def test_the_connection_is_lost(browser: Browser, tmp_path: Path) -> None:
    """The charts stay, dimmed, with the reason above them, until it is back."""
    with lab_with(tmp_path, *machine(2)) as (lab, _):
        notebook = lab.open(browser, lab.write("lost.ipynb", ["1"]), kernel=False)
        page = notebook.page
        open_dashboard(notebook)
        wait_for_text(notebook, f"{CHART}[data-metric=utilization]", "97 · 11 %")
        lab.stop()
        wait_for_text(notebook, NOTICE, "The server does not answer.")
        page.wait_for_selector(f"{DASHBOARD}[data-link=lost] {CHART.split()[-1]} canvas", state="visible")
        lab.start()
        lab.wait_until_ready()
        page.wait_for_selector(f"{DASHBOARD}:not([data-link])", timeout=60_000)
        assert page.is_hidden(NOTICE)
        page.close(run_before_unload=False)
