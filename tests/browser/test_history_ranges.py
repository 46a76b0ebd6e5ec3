"""The history that a Prometheus stores: ranges of days in the dashboard, other machines, and the time of a
cell that ran long ago."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from browser.test_cells_list import ROW, report, write_reports
from browser.test_dashboard_view import CHART, DASHBOARD, TIME_RANGE, busy_machine, open_dashboard
from helpers_exporters import SimulatedCluster
from helpers_lab import Lab
from helpers_panel import lab_with, machine, show, uuids, wait_for_text
from helpers_prometheus import Prometheus, find_programs, write_past
from playwright.sync_api import BrowserContext

DATES = f"{DASHBOARD} .jp-gpuwidget-dashboard-date-form"
MACHINE = f"{DASHBOARD} select[aria-label=Machine]"
UTILIZATION = f"{CHART}[data-metric=utilization]"
SCRAPE_S = 60
DAY_S = 24 * 3600
STANDIN_UUIDS = tuple(f"GPU-00000000-0000-4000-8000-{index:012d}" for index in range(2))


def night() -> datetime:
    """Return 3 am of yesterday in local time."""
    return (datetime.now() - timedelta(days=1)).replace(hour=3, minute=0, second=0, microsecond=0)


@pytest.fixture(scope="module")
def stored_days(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, SimulatedCluster]]:
    """A JupyterLab that was started just now, and a Prometheus with the days before: both GPUs were at 20 %,
    but GPU 0 was at 90 % in the half hour from 3 am of yesterday. It also scrapes another machine."""
    programs = find_programs()
    folder = tmp_path_factory.mktemp("nights")
    three, now = night().timestamp(), time.time()
    times = [now - 3 * DAY_S + SCRAPE_S * number for number in range(3 * DAY_S // SCRAPE_S - 5)]
    series = {
        f'gpuwidget_gpu_utilization_ratio{{job="gpuwidget",instance="a",gpu="{index}",UUID="{uuid}"}}': [
            (at, 0.9 if index == 0 and three <= at < three + 1800 else 0.2) for at in times
        ]
        for index, uuid in enumerate(STANDIN_UUIDS)
    }
    write_past(programs["promtool"], folder, series)
    cluster = SimulatedCluster(1, 2, ("dcgm",))
    for gpu in cluster.all_gpus:
        gpu.utilization = 61.0 + gpu.index
    prometheus = Prometheus(programs["prometheus"], folder, cluster.scrape_configs())
    options = [f"--GpuWidget.prometheus_url={prometheus.url}"]
    try:
        with lab_with(tmp_path_factory.mktemp("lab"), *busy_machine(2), options=options) as (lab, _):
            yield lab, cluster
    finally:
        prometheus.stop()
        cluster.stop()


def test_what_happened_at_3_am(stored_days: tuple[Lab, SimulatedCluster], browser: BrowserContext) -> None:
    """With a Prometheus, the dashboard goes back 30 days, also before the server was started. A date picker,
    used with the keyboard alone, leads to any part of them."""
    lab, _ = stored_days
    assert tuple(uuids(lab)) == STANDIN_UUIDS
    notebook = lab.open(browser, lab.write("night.ipynb", ["1"]), kernel=False)
    page = notebook.page
    open_dashboard(notebook)
    assert page.inner_text(f"{DASHBOARD} .jp-gpuwidget-dashboard-ranges").split("\n") == [
        *("1 min", "5 min", "15 min", "1 h", "6 h", "24 h", "7 d", "30 d"),
    ]
    with page.expect_response(lambda response: "seconds=604800" in response.url) as answer:
        page.click(f"{DASHBOARD} button:text-is('7 d')")
    history = answer.value.json()
    assert history["step_s"] == 1800
    assert [gpu["uuid"] for gpu in history["gpus"]] == list(STANDIN_UUIDS)
    assert len(history["t"]) in (144, 145)
    page.focus(f"{DASHBOARD} summary:has-text('Date')")
    page.keyboard.press("Enter")
    page.wait_for_selector(DATES)
    three = night()
    page.fill(f"{DATES} input >> nth=0", f"{three - timedelta(minutes=30):%Y-%m-%dT%H:%M}")
    page.fill(f"{DATES} input >> nth=1", f"{three + timedelta(minutes=20):%Y-%m-%dT%H:%M}")
    page.keyboard.press("Enter")
    # The values at the end of the range: GPU 0 worked.
    wait_for_text(notebook, UTILIZATION, "90 · 20 %")
    day = f"{three:%Y-%m-%d}"
    assert page.inner_text(TIME_RANGE).split() == [day, "02:30:00", "\N{EN DASH}", day, "03:20:00"]
    notebook.close()


def test_a_cell_leads_to_its_time(stored_days: tuple[Lab, SimulatedCluster], browser: BrowserContext) -> None:
    """The time of a cell in the panel's list opens the dashboard where the cell ran, also for a notebook that
    was saved days ago. If that time is no longer stored, the tooltip
    has the reason."""
    lab, _ = stored_days
    three = night().timestamp()
    reports = [
        report(1, 2, 600.0, STANDIN_UUIDS[0], three - 1000),
        report(2, 3, 9.0, STANDIN_UUIDS[0], three - 100 * DAY_S),
    ]
    notebook = lab.open(browser, write_reports(lab, "cell.ipynb", reports), kernel=False)
    page = notebook.page
    show(notebook)
    page.wait_for_selector(f"{ROW} >> nth=1")
    old = page.locator(f"{ROW} >> nth=1").locator("button").last
    old.hover()
    assert (old.get_attribute("aria-disabled"), "last 30 days" in (old.get_attribute("title") or "")) == (
        "true",
        True,
    )
    # By keyboard: the name of the first row, then its time.
    page.focus(f"{ROW} >> nth=0 >> button >> nth=0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    wait_for_text(notebook, UTILIZATION, "90 · 20 %")
    day = f"{night():%Y-%m-%d}"
    assert page.inner_text(TIME_RANGE).split() == [day, "02:59:00", "\N{EN DASH}", day, "03:11:00"]
    notebook.close()


def test_another_machine(stored_days: tuple[Lab, SimulatedCluster], browser: BrowserContext) -> None:
    """The dashboard shows the GPUs of another machine, which it names, and leads back to this one."""
    lab, _ = stored_days
    notebook = lab.open(browser, lab.write("node.ipynb", ["1"]), kernel=False)
    page = notebook.page
    notebook.script("await app.commands.execute('gpuwidget:open-dashboard', {state: {node: 'node001'}});")
    wait_for_text(notebook, UTILIZATION, "61 · 62 %")
    assert page.locator(MACHINE).input_value() == "node001"
    page.select_option(MACHINE, label="This machine")
    wait_for_text(notebook, UTILIZATION, "97 · 11 %")
    notebook.close()


def test_a_dead_prometheus(browser: BrowserContext, tmp_path: Path) -> None:
    """If Prometheus does not answer, the long ranges show the reason, and the last hour works."""
    options = ["--GpuWidget.prometheus_url=http://127.0.0.1:9"]
    with lab_with(tmp_path, *machine(2), options=options) as (lab, _):
        notebook = lab.open(browser, lab.write("dead.ipynb", ["1"]), kernel=False)
        page = notebook.page
        open_dashboard(notebook)
        page.click(f"{DASHBOARD} button:text-is('24 h')")
        wait_for_text(notebook, DASHBOARD, "Prometheus at 127.0.0.1:9 can't be reached")
        page.click(f"{DASHBOARD} button:text-is('5 min')")
        page.wait_for_selector(f"{DASHBOARD} .jp-gpuwidget-dashboard-notice", state="hidden")
        wait_for_text(notebook, UTILIZATION, "97 · 11 %")
        notebook.close()
