"""What the dashboard shows if it has nothing to draw: the reason, and what the user can do."""

from __future__ import annotations

from pathlib import Path

from browser.test_dashboard_view import (
    CHART,
    CHART_COUNT,
    CHIP,
    DASHBOARD,
    open_dashboard,
    select_metrics,
    shown_metrics,
)
from helpers_axe import violations
from helpers_lab import Lab
from helpers_panel import lab_with, machine, wait_for_text
from playwright.sync_api import BrowserContext, Route, expect

EMPTY = f"{DASHBOARD} .jp-gpuwidget-dashboard-empty"
TOOLBAR = f"{DASHBOARD} .jp-gpuwidget-dashboard-toolbar"
NOTICE = f"{DASHBOARD} > .jp-gpuwidget-dashboard-notice"
CSV = f"{DASHBOARD} .jp-gpuwidget-dashboard-csv"
RECORD = f"{TOOLBAR} .jp-gpuwidget-dashboard-always-on"
BUTTON = f"{EMPTY} button"
CHARTS_FOCUSED = "() => document.activeElement?.matches('.jp-gpuwidget-dashboard-charts')"


def test_without_a_gpu(browser: BrowserContext, tmp_path: Path) -> None:
    """If there is no GPU, the dashboard shows only the reason, without charts or a toolbar. Once there is a
    GPU, the charts appear."""
    with lab_with(tmp_path, "nvmlInitWithFlags=error 9") as (lab, standin):
        notebook = lab.open(browser, lab.write("none.ipynb", ["1"]), kernel=False)
        page = notebook.page
        notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
        wait_for_text(notebook, EMPTY, "driver")
        for gone in (CHART, TOOLBAR, NOTICE, BUTTON, CHIP):
            assert not page.locator(gone).first.is_visible(), gone
        assert violations(notebook, DASHBOARD) == []
        standin.scenario(*machine(1))
        lab.stop()
        wait_for_text(notebook, NOTICE, "The server does not answer.")
        assert "driver" in page.inner_text(EMPTY)
        lab.start()
        lab.wait_until_ready()
        page.wait_for_selector(f"{CHART} canvas", state="visible")
        assert page.is_hidden(EMPTY)
        assert page.is_visible(TOOLBAR)
        page.close(run_before_unload=False)


def test_no_metric_or_gpu_selected(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """If no metric or no GPU is selected, a button in the dashboard selects all metrics or all GPUs, and the
    charts get the focus."""
    notebook = two_gpu_lab.open(browser, two_gpu_lab.write("nothing.ipynb", ["1"]), kernel=False)
    page = notebook.page
    open_dashboard(notebook)
    page.wait_for_function(CHARTS_FOCUSED)
    select_metrics(page)
    wait_for_text(notebook, EMPTY, "No metric is selected.")
    assert shown_metrics(page) == []
    assert page.is_disabled(CSV)
    assert violations(notebook, DASHBOARD) == []
    page.click(f"{BUTTON}:has-text('Show all metrics')")
    page.wait_for_selector(f"{CHART} canvas", state="visible")
    assert len(shown_metrics(page)) == CHART_COUNT
    assert page.is_hidden(EMPTY)
    page.wait_for_function(CHARTS_FOCUSED)
    for chip in (0, 1):
        page.locator(CHIP).nth(chip).click()
    wait_for_text(notebook, EMPTY, "No GPU is selected.")
    assert page.locator(CHIP).first.is_visible()
    assert not page.locator(CHART).first.is_visible()
    assert page.is_disabled(CSV)
    page.click(f"{BUTTON}:has-text('Show all GPUs')")
    page.wait_for_selector(f"{CHART} canvas", state="visible")
    assert page.get_attribute(f"{CHIP} >> nth=1", "aria-pressed") == "true"
    page.wait_for_function(CHARTS_FOCUSED)
    assert page.is_enabled(CSV)
    notebook.close()


def test_the_history_is_late_or_fails(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """While the history is loading, the dashboard shows that. If loading fails, it shows why, and it draws
    the charts once loading succeeds."""
    notebook = two_gpu_lab.open(browser, two_gpu_lab.write("late.ipynb", ["1"]), kernel=False)
    page = notebook.page
    requests: list[Route] = []
    page.route("**/gpuwidget/api/history*", lambda route: requests.append(route))
    notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
    wait_for_text(notebook, EMPTY, "Loading the history…")
    assert not page.locator(CHART).first.is_visible()
    assert page.is_disabled(CSV)
    requests[0].fulfill(status=503, body='{"message": "Too busy."}', content_type="application/json")
    wait_for_text(notebook, EMPTY, "Too busy.")
    assert page.is_hidden(NOTICE)
    page.unroute("**/gpuwidget/api/history*")
    page.wait_for_selector(f"{CHART} canvas", state="visible")
    assert page.is_hidden(EMPTY)
    page.wait_for_function(CHARTS_FOCUSED)
    notebook.close()


def test_the_connection_is_lost(browser: BrowserContext, tmp_path: Path) -> None:
    """If the connection to the server is lost, the dashboard shows that above the charts, which stay visible
    but dimmed until the connection is back. So do the last values and the holders."""
    with lab_with(tmp_path, *machine(2)) as (lab, _):
        notebook = lab.open(browser, lab.write("lost.ipynb", ["1"]), kernel=False)
        page = notebook.page
        open_dashboard(notebook)
        wait_for_text(notebook, f"{CHART}[data-metric=utilization]", "97 · 11 %")
        lab.stop()
        wait_for_text(notebook, NOTICE, "The server does not answer.")
        page.wait_for_selector(f"{DASHBOARD}[data-link=stale] {CHART.split()[-1]} canvas", state="visible")
        for old in (
            f"{CHART} .jp-gpuwidget-dashboard-chart-values",
            f"{DASHBOARD} .jp-gpuwidget-dashboard-holders",
        ):
            # Dimming starts half a second after the connection is lost.
            expect(page.locator(old).first).to_have_css("opacity", "0.5")
        lab.start()
        lab.wait_until_ready()
        page.wait_for_selector(f"{DASHBOARD}[data-link=live]")
        page.wait_for_selector(NOTICE, state="hidden")
        page.close(run_before_unload=False)


def test_record_always(browser: BrowserContext, tmp_path: Path) -> None:
    """*Record always* lets the server store values even without pages, until it is pressed again. All open
    pages show that. If the server refuses, the dashboard shows why."""
    with lab_with(tmp_path, *machine(2)) as (lab, _):
        notebooks = [
            lab.open(browser, lab.write(name, ["1"]), kernel=False) for name in ("a.ipynb", "b.ipynb")
        ]
        for notebook in notebooks:
            open_dashboard(notebook)
        first, second = (notebook.page for notebook in notebooks)
        for pressed in ("false", "true"):
            for page in (first, second):
                page.bring_to_front()
                page.wait_for_selector(f"{RECORD}[aria-pressed={pressed}]")
            second.click(RECORD)
        first.bring_to_front()
        first.wait_for_selector(f"{RECORD}[aria-pressed=false]")
        assert violations(notebooks[0], TOOLBAR) == []
        first.route(
            "**/gpuwidget/api/history?*",
            lambda route: route.fulfill(
                status=403, body='{"message": "Not here."}', content_type="application/json"
            ),
        )
        first.click(RECORD)
        wait_for_text(notebooks[0], NOTICE, "what the server stores: Not here.")
        assert first.get_attribute(RECORD, "aria-pressed") == "false"
        for page in (first, second):
            page.close(run_before_unload=False)
