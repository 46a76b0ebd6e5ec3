"""No element of the panel or the dashboard moves while values change: the layout-shift score is 0."""

from __future__ import annotations

from collections.abc import Callable

from helpers_lab import Notebook
from helpers_panel import CARD, PANEL, show
from test_dashboard_view import CHART, DASHBOARD, open_dashboard

Open = Callable[..., Notebook]
UPDATES = 10


def test_the_panel(open_notebook: Open) -> None:
    """In a panel of 300 px, while a recording plays and a cell runs, no element moves in the GPUs' cards and
    rows or in the list of cells. What applies to all GPUs of a recording is shown once."""
    notebook = open_notebook(["%load_ext gpuwidget", "import time; time.sleep(40)"], height=1400)
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
    page.wait_for_selector(f"{PANEL} .jp-gpuwidget-panel-reason:not(:empty)")
    notebook.record_layout_shifts(f"{CARD}, {PANEL} .jp-gpuwidget-cells-body")
    notebook.wait_for_changes(f"{PANEL} .jp-gpuwidget-gpu-list", UPDATES)
    notebook.wait_for_changes(f"{PANEL} .jp-gpuwidget-cells-running", UPDATES)
    assert notebook.layout_shifts() == []
    shown = page.inner_text(PANEL)
    for sentence in (
        "Recording of 4 \u00d7 NVIDIA H200",
        "The recorded processes are not this machine's.",
    ):
        assert shown.count(sentence) == 1, sentence


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
    box = notebook.page.locator(f"{CHART}[data-metric=power_w] .u-over").bounding_box()
    assert box is not None
    notebook.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    notebook.page.wait_for_selector(f"{DASHBOARD} .jp-gpuwidget-dashboard-tooltip", state="visible")
    notebook.wait_for_changes(values, UPDATES)
    assert notebook.layout_shifts() == []
