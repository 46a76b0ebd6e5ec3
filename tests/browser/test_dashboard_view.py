"""The dashboard in JupyterLab's main area."""

from __future__ import annotations

import csv
import io
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from helpers_colors import VISIONS, contrast, distance
from helpers_lab import Lab, Notebook, new_page
from helpers_panel import PANEL, lab_with, machine, saved_workspace, show, uuids, wait_for_text
from nvml_standin import profiles
from playwright.sync_api import BrowserContext, Page, Request

from gpuwidget.model.metrics import METRICS

DASHBOARD = "#jp-gpuwidget-dashboard"
CHART = f"{DASHBOARD} .jp-gpuwidget-dashboard-chart"
CHIP = f"{DASHBOARD} .jp-gpuwidget-dashboard-chip"
CHART_COUNT = sum(metric.label is not None for metric in METRICS)
"""The number of metrics with a chart."""
LIVE = f"{DASHBOARD} .jp-gpuwidget-dashboard-live"
TIME_RANGE = f"{DASHBOARD} .jp-gpuwidget-dashboard-time-range"
POWER_TAB = "#jp-gpuwidget-dashboard-power_w"
TOOLTIP = f"{DASHBOARD} .jp-gpuwidget-dashboard-tooltip"
MISSING = f"{DASHBOARD} .jp-gpuwidget-dashboard-missing"
LINES = f"{DASHBOARD} button:text-is('Lines')"
TOOLTIP_TIME = f"{DASHBOARD} .jp-gpuwidget-dashboard-tooltip-time"
ENLARGED = f"{CHART}:visible"
SMOOTHING = f"{DASHBOARD} select[aria-label=Smoothing]"
MEAN = f"{DASHBOARD} button:text-is('Mean of GPUs')"
HINT = "Drag to zoom in, click to enlarge"
READ_COLORS = """
const style = getComputedStyle(document.querySelector(argument));
const names = Array.from({length: 8}, (_, index) => `--jp-gpuwidget-gpu-${index}`);
return [style.backgroundColor, ...names.map(name => style.getPropertyValue(name))];
"""
RECORD_TEXTS = """
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...given) {
    const { metric } = this.canvas.closest('[data-metric]')?.dataset ?? {};
    ((window.texts ??= {})[metric] ??= new Set()).add(text);
    fillText.call(this, text, ...given);
};
"""
COUNT_DRAWINGS = """
window.drawings = 0;
const stroke = CanvasRenderingContext2D.prototype.stroke;
CanvasRenderingContext2D.prototype.stroke = function (...given) {
    window.drawings++;
    stroke.apply(this, given);
};
"""


def busy_machine(gpus: int) -> list[str]:
    """Return a scenario for the NVML stand-in: busy GPUs that have hardware counters."""
    return [*machine(gpus), "gpu.*.gpm.2=77.5", "gpu.*.gpm.5=42.25"]


def open_dashboard(notebook: Notebook) -> None:
    """Open the dashboard, and wait until it draws a chart."""
    notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
    notebook.page.wait_for_selector(f"{CHART}[data-metric=utilization] canvas")


def chart_values(page: Page, metric: str) -> str:
    """Return the values above a metric's chart as text."""
    return page.inner_text(f"{CHART}[data-metric={metric}] .jp-gpuwidget-dashboard-chart-values")


def shown_metrics(page: Page) -> list[str]:
    """Return the metrics for which the dashboard has a chart."""
    metrics: list[str] = page.eval_on_selector_all(CHART, "nodes => nodes.map(node => node.dataset.metric)")
    return metrics


def pressed_buttons(page: Page, selector: str) -> list[str]:
    """Return the texts of the matching buttons that are pressed."""
    texts: list[str] = page.eval_on_selector_all(
        f"{selector}[aria-pressed=true]", "nodes => nodes.map(node => node.innerText.trim())"
    )
    return texts


def history_requests(page: Page) -> list[dict[str, list[str]]]:
    """Return a list to which the query of each future history request is added."""
    queries: list[dict[str, list[str]]] = []

    def note(request: Request) -> None:
        if "gpuwidget/api/history" in request.url:
            queries.append(parse_qs(urlsplit(request.url).query))

    page.on("request", note)
    return queries


def drag(page: Page, metric: str, start: float, end: float) -> None:
    """Drag the pointer along a chart, from one fraction of its width to another."""
    box = page.locator(f"{CHART}[data-metric={metric}] .u-over").bounding_box()
    assert box is not None
    height = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], height)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], height, steps=5)
    page.mouse.up()


def painted_texts(page: Page, metric: str) -> set[str]:
    """Return the texts that were painted on a metric's chart since ``RECORD_TEXTS`` ran."""
    texts: list[str] = page.evaluate("metric => [...(window.texts?.[metric] ?? [])]", metric)
    return set(texts)


def chart_boxes(page: Page) -> list[dict[str, float]]:
    """Return the positions of the visible charts' plots, rounded to pixels."""
    boxes: list[dict[str, float]] = page.eval_on_selector_all(
        f"{CHART} .u-over",
        "nodes => nodes.filter(node => node.checkVisibility()).map(node => node.getBoundingClientRect())"
        ".map(({top, bottom, left, right}) => ({top, bottom, left, right}))",
    )
    return boxes


def select_metrics(page: Page, *metrics: str) -> None:
    """Select these metrics in the dashboard's list, and deselect all others."""
    page.click(f"{DASHBOARD} summary")
    page.click(f"{DASHBOARD} .jp-gpuwidget-dashboard-metric-buttons button:text-is('None')")
    for metric in metrics:
        page.check(f"{DASHBOARD} input[value={metric}]")
    page.keyboard.press("Escape")


def test_every_metric_of_every_gpu(browser: BrowserContext, tmp_path: Path) -> None:
    """A button in the panel's header opens the dashboard. It has one chart per metric, with each GPU's latest
    value above the chart."""
    with lab_with(tmp_path, *busy_machine(2)) as (lab, standin):
        notebook = lab.open(browser, lab.write("open.ipynb", ["1"]), kernel=False)
        page = notebook.page
        show(notebook)
        page.click(f"{PANEL} [data-jp-item-name=dashboard]")
        wait_for_text(notebook, f"{CHART}[data-metric=utilization]", "97 · 11 %")
        assert len(shown_metrics(page)) == CHART_COUNT
        wait_for_text(notebook, f"{CHART}[data-metric=memory_used]", "57 · 16 GiB")
        # The hardware counters are sampled because the dashboard shows them. Only visible charts are updated,
        # so scroll to the chart.
        page.locator(f"{CHART}[data-metric=tensor]").scroll_into_view_if_needed()
        wait_for_text(notebook, f"{CHART}[data-metric=tensor]", "42.3 · 42.3 %")
        page.locator(f"{CHART}[data-metric=utilization]").scroll_into_view_if_needed()
        standin.scenario(*machine(2, 2))
        wait_for_text(notebook, f"{CHART}[data-metric=utilization]", "100 · 0 %")
        # Opening the dashboard a second time only activates the dashboard that is already open.
        notebook.script("app.shell.activateById(panel.id);")
        open_dashboard(notebook)
        assert page.locator(DASHBOARD).count() == 1
        notebook.close()


def test_choices_survive_a_reload(browser: BrowserContext, tmp_path: Path) -> None:
    """The dashboard's metrics, GPUs, time range, smoothing and zoom are the same after a reload, and so is a
    chart that was opened in its own tab."""
    with lab_with(tmp_path, *busy_machine(4)) as (lab, _):
        notebook = lab.open(browser, lab.write("choose.ipynb", ["1"]), kernel=False)
        page = notebook.page
        open_dashboard(notebook)
        select_metrics(page, "power_w", "utilization")
        page.click(f"{CHIP} >> nth=1")
        page.click(f"{CHIP} >> nth=3")
        page.select_option(SMOOTHING, "20")
        page.click(f"{CHART}[data-metric=power_w] button[aria-label='Open Power in a new tab']")
        page.wait_for_selector(f"{POWER_TAB} .jp-gpuwidget-dashboard-chart canvas")
        assert page.locator(f"{POWER_TAB} .jp-gpuwidget-dashboard-chart").count() == 1
        assert page.locator(f"{POWER_TAB} summary:visible").count() == 0
        notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
        with page.expect_request(lambda request: '"range":900' in saved_workspace(request)):
            page.click(f"{DASHBOARD} .jp-gpuwidget-dashboard-ranges button:text-is('15 min')")
        wait_for_text(notebook, f"{CHART}[data-metric=utilization]", "97 · 100 %")
        assert shown_metrics(page) == ["utilization", "power_w"]
        workspace = page.url.partition("/workspaces/")[2].partition("/")[0].partition("?")[0]
        page.goto(f"{lab.url}/lab/workspaces/{workspace}?token={lab.token}")
        page.wait_for_selector(f"{CHART}[data-metric=utilization] canvas")
        wait_for_text(notebook, f"{CHART}[data-metric=utilization]", "97 · 100 %")
        assert shown_metrics(page) == ["utilization", "power_w"]
        assert pressed_buttons(page, f"{DASHBOARD} .jp-gpuwidget-dashboard-ranges button") == ["15 min"]
        assert pressed_buttons(page, CHIP) == ["0 H200", "2 H200"]
        assert page.input_value(SMOOTHING) == "20"
        # The tab of a chart is restored as well, with what it showed.
        page.click(".lm-TabBar-tab:has-text('Power')")
        page.wait_for_selector(f"{POWER_TAB} .jp-gpuwidget-dashboard-chart[data-metric=power_w] canvas")
        assert pressed_buttons(page, f"{POWER_TAB} .jp-gpuwidget-dashboard-ranges button") == ["5 min"]
        assert pressed_buttons(page, f"{POWER_TAB} .jp-gpuwidget-dashboard-chip") == ["0 H200", "2 H200"]
        page.click(".lm-TabBar-tab:has-text('GPU Dashboard')")
        page.wait_for_selector(f"{CHART}[data-metric=utilization] canvas")
        with page.expect_request(lambda request: '"zoom":{' in saved_workspace(request)):
            drag(page, "utilization", 0.5, 0.9)
        page.wait_for_selector(f"{LIVE}[aria-pressed=false]")
        zoomed = page.inner_text(TIME_RANGE)
        page.goto(f"{lab.url}/lab/workspaces/{workspace}?token={lab.token}")
        page.wait_for_selector(f"{CHART}[data-metric=utilization] canvas")
        assert page.inner_text(TIME_RANGE) == zoomed
        page.close(run_before_unload=False)


def test_zoom_and_return_to_live(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """Dragging over a chart zooms into a time range, and keys pan and zoom. A double click or Escape returns
    to live mode."""
    notebook = two_gpu_lab.open(browser, two_gpu_lab.write("zoom.ipynb", ["1"]), kernel=False)
    page = notebook.page
    queries = history_requests(page)
    open_dashboard(notebook)
    assert queries[0]["seconds"] == ["300"]
    assert page.inner_text(TIME_RANGE) == HINT
    page.wait_for_timeout(2000)
    charts = page.locator(ENLARGED).count()
    assert charts > 1
    drag(page, "utilization", 0.5, 0.9)
    page.wait_for_selector(f"{LIVE}[aria-pressed=false]")
    since, until = (float(queries[-1][name][0]) for name in ("since", "until"))
    assert 100 < until - since < 140
    assert " \N{EN DASH} " in page.inner_text(TIME_RANGE)
    page.focus(f"{DASHBOARD} .jp-gpuwidget-dashboard-charts")
    count = len(queries)
    page.keyboard.press("+")
    notebook.wait_for(lambda: len(queries) > count)
    zoomed_in = [float(queries[-1][name][0]) for name in ("since", "until")]
    assert abs((zoomed_in[1] - zoomed_in[0]) - (until - since) / 2) < 0.01
    page.keyboard.press("ArrowLeft")
    notebook.wait_for(lambda: float(queries[-1]["since"][0]) < zoomed_in[0])
    page.dblclick(f"{CHART}[data-metric=power_w] .u-over")
    page.wait_for_selector(f"{LIVE}[aria-pressed=true]")
    assert queries[-1]["seconds"] == ["300"]
    assert page.inner_text(TIME_RANGE) == HINT
    # Neither a drag nor a double click enlarges a chart.
    assert page.locator(ENLARGED).count() == charts
    # Pause the dashboard; Escape returns to live mode.
    page.click(LIVE)
    page.wait_for_selector(f"{LIVE}[aria-pressed=false]")
    page.focus(f"{DASHBOARD} .jp-gpuwidget-dashboard-charts")
    page.keyboard.press("Escape")
    page.wait_for_selector(f"{LIVE}[aria-pressed=true]")
    notebook.close()


def test_the_tooltip_follows_a_zoom(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """After a zoom, the tooltip has the time that is now under the pointer."""
    notebook = two_gpu_lab.open(browser, two_gpu_lab.write("tooltip.ipynb", ["1"]), kernel=False)
    page = notebook.page
    queries = history_requests(page)
    open_dashboard(notebook)
    # The values of the last 20 s have longer steps in the range of five minutes than after the zoom.
    page.wait_for_timeout(20_000)
    drag(page, "utilization", 0.995, 0.94)
    page.wait_for_selector(f"{LIVE}[aria-pressed=false]")
    since, until = (float(queries[-1][name][0]) for name in ("since", "until"))
    under_pointer = since + 0.94 * (until - since)
    # A step of the curve is at most a second away from the pointer.
    page.wait_for_function(
        """([selector, ...times]) => {
            const shown = document.querySelector(selector).innerText;
            return times.some(time => new Date(1000 * time).toTimeString().startsWith(shown || '?'));
        }""",
        arg=[TOOLTIP_TIME, *(under_pointer + offset for offset in (-1, 0, 1))],
    )
    notebook.close()


def test_a_shared_cursor(browser: BrowserContext, tmp_path: Path) -> None:
    """If the pointer is on a chart, the tooltip lists the values of all GPUs at the time under the pointer,
    and all charts show their values at that time."""
    with lab_with(tmp_path, *busy_machine(8)) as (lab, _):
        notebook = lab.open(browser, lab.write("cursor.ipynb", ["1"]), kernel=False)
        page = notebook.page
        open_dashboard(notebook)
        page.click(f"{DASHBOARD} .jp-gpuwidget-dashboard-ranges button:text-is('1 min')")
        box = page.locator(f"{CHART}[data-metric=utilization] .u-over").bounding_box()
        assert box is not None

        def figures() -> list[str]:
            # The pointer is close to the line of a GPU at 0 %, so all charts show that GPU's values.
            page.mouse.move(box["x"] + box["width"] - 12, box["y"] + box["height"] / 3)
            page.mouse.move(box["x"] + box["width"] - 12, box["y"] + box["height"] - 2)
            page.wait_for_selector(TOOLTIP, state="visible")
            return page.inner_text(TOOLTIP).split("\n", 1)[1].split()

        # There are no values at the pointer until the server has sampled for some seconds.
        notebook.wait_for(lambda: figures()[:6] == ["0", "97", "%", "1", "11", "%"])
        assert chart_values(page, "utilization") == "GPU 3: 0 %"
        assert chart_values(page, "memory_used") == "GPU 3: 1 GiB"
        page.mouse.move(5, 5)
        page.wait_for_selector(TOOLTIP, state="hidden")
        assert chart_values(page, "utilization") == "0 \N{EN DASH} 100 %"
        page.focus(f"{DASHBOARD} .jp-gpuwidget-dashboard-charts")
        page.keyboard.press("Shift+ArrowLeft")
        page.wait_for_selector(TOOLTIP, state="visible")
        notebook.close()


def test_the_csv_file(browser: BrowserContext, tmp_path: Path) -> None:
    """The CSV file has the shown metrics and GPUs with the names and units of the charts, and one row per
    step. No column name is a spreadsheet formula."""
    scenario = [*busy_machine(2), 'gpu.0.name==HYPERLINK("http://x","y")']
    with lab_with(tmp_path, *scenario) as (lab, _):
        notebook = lab.open(browser, lab.write("table.ipynb", ["1"]), kernel=False)
        page = notebook.page
        open_dashboard(notebook)
        select_metrics(page, "utilization", "power_w")
        page.wait_for_timeout(2000)
        with page.expect_download() as download:
            page.click(f"{DASHBOARD} .jp-gpuwidget-dashboard-csv")
        assert download.value.suggested_filename.startswith("gpus 20")
        text = Path(download.value.path()).read_text(encoding="utf-8-sig")
        header, *rows = list(csv.reader(io.StringIO(text)))
        assert header[:4] == ["time (ISO 8601)", "time (epoch s)", "step (s)", "samples"]
        # Each step is one sample, so mean, min and max are the same.
        utilization, power = (
            page.inner_text(f"{CHART}[data-metric={name}] h3") for name in ("utilization", "power_w")
        )
        assert header[4:] == [
            f'GPU 0 (=HYPERLINK("http://x","y")) {utilization} (%)',
            f'GPU 0 (=HYPERLINK("http://x","y")) {power} (W)',
            f"GPU 1 (H200) {utilization} (%)",
            f"GPU 1 (H200) {power} (W)",
        ]
        assert not any(name.startswith(tuple("=+-@")) for name in header)
        assert len(rows) >= 5
        assert [row[4] for row in rows] == ["97"] * len(rows)
        notebook.close()


def test_a_hidden_dashboard_is_idle(browser: BrowserContext, tmp_path: Path) -> None:
    """If the dashboard is behind another tab, it loads nothing, draws nothing and closes its stream. When it
    is shown again, it continues."""
    with lab_with(tmp_path, *busy_machine(2)) as (lab, standin):
        notebook = lab.open(browser, lab.write("hidden.ipynb", ["1"]), kernel=False)
        page = notebook.page
        sockets: list[Any] = []
        page.on("websocket", lambda socket: sockets.append(socket) if "gpuwidget" in socket.url else None)
        notebook.script(COUNT_DRAWINGS)
        queries = history_requests(page)
        open_dashboard(notebook)
        notebook.wait_for(lambda: page.evaluate("window.drawings") > 0)
        notebook.script("app.shell.activateById(panel.id);")
        page.wait_for_selector(DASHBOARD, state="hidden")
        notebook.wait_for(lambda: [socket.is_closed() for socket in sockets] == [True])
        before = page.evaluate("window.drawings"), len(queries)
        page.wait_for_timeout(2000)
        assert (page.evaluate("window.drawings"), len(queries)) == before
        standin.scenario(*machine(2, 2))
        open_dashboard(notebook)
        wait_for_text(notebook, f"{CHART}[data-metric=utilization]", "100 · 0 %")
        assert [socket.is_closed() for socket in sockets] == [True, False]
        notebook.close()


def test_sixteen_gpus_one_of_them_lost(browser: BrowserContext, tmp_path: Path) -> None:
    """With 16 GPUs, the user can highlight one GPU and show only that GPU. Only visible charts are drawn, and
    a lost GPU is labeled."""
    with lab_with(tmp_path, *busy_machine(16)) as (lab, standin):
        notebook = lab.open(browser, lab.write("sixteen.ipynb", ["1"]), kernel=False)
        page = notebook.page
        known = uuids(lab)
        open_dashboard(notebook)
        wait_for_text(notebook, f"{CHART}[data-metric=utilization]", "0 \N{EN DASH} 100 %")
        chips = page.eval_on_selector_all(CHIP, "nodes => nodes.map(node => node.dataset.gpuUuid)")
        assert chips == known
        assert page.locator(CHIP).all_inner_texts() == [f"{index} H200" for index in range(16)]
        drawn = page.eval_on_selector_all(
            CHART, "nodes => nodes.filter(n => n.querySelector('canvas')).length"
        )
        assert drawn < CHART_COUNT
        page.hover(f"{CHIP} >> nth=5")
        assert chart_values(page, "utilization") == "GPU 5: 12 %"
        page.click(f"{CHIP} >> nth=5", modifiers=["Shift"])
        wait_for_text(notebook, f"{CHART}[data-metric=utilization]", "12 %")
        assert pressed_buttons(page, CHIP) == ["5 H200"]
        page.click(f"{CHIP} >> nth=5", modifiers=["Shift"])
        assert len(pressed_buttons(page, CHIP)) == 16
        # Above eight GPUs, a chart is a heat map with a row for each GPU, unless the user wants lines.
        box = page.locator(f"{CHART}[data-metric=utilization] .u-over").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + (4 + 0.5) * box["height"] / 16)
        page.mouse.move(box["x"] + box["width"] - 3, box["y"] + (4 + 0.5) * box["height"] / 16)
        notebook.wait_for(lambda: chart_values(page, "utilization") == "GPU 4: 94 %")
        page.mouse.move(5, 5)
        page.click(LINES)
        # A label for several lines, such as "3 6 +2", has the names of their GPUs.
        label = page.locator(f"{CHART}[data-metric=utilization] .u-over").bounding_box()
        assert label is not None
        page.mouse.move(label["x"] + label["width"] + 9, label["y"] + label["height"] - 1)
        title = page.get_attribute(f"{CHART}[data-metric=utilization] .uplot", "title")
        assert title == "3 H200\n6 H200\n11 H200\n14 H200"
        standin.scenario(*busy_machine(16), "gpu.1.*=error 15")
        wait_for_text(notebook, CHIP, "lost")
        notebook.close()


def test_eight_calm_colors(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """In both themes, eight GPUs have different colors, also for people with color vision deficiency. Their
    contrast is high enough for the figures in headers. None is red, which means trouble."""
    notebook = two_gpu_lab.open(browser, two_gpu_lab.write("colors.ipynb", ["1"]), kernel=False)
    open_dashboard(notebook)
    for theme in ("light", "dark"):
        notebook.use_theme(theme)
        background, *colors = notebook.script(READ_COLORS, DASHBOARD)
        assert min(contrast(color, background) for color in colors) >= 4.5, theme
        for first, second in combinations(colors, 2):
            for vision in VISIONS:
                assert distance(first, second, vision) > 0.1, (theme, vision, first, second)
        for color in colors:
            assert distance(color, "#c62828", "normal") > 0.1, (theme, color)
    notebook.close()


def test_charts_fill_the_window(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """Few charts share the whole window. A click enlarges a chart, by mouse or keyboard, and a button or
    Escape shows all charts again. Ticks are round."""
    notebook = two_gpu_lab.open(browser, two_gpu_lab.write("fill.ipynb", ["1"]), kernel=False)
    page = notebook.page
    notebook.script(RECORD_TEXTS)
    open_dashboard(notebook)
    select_metrics(page, "utilization", "memory_used", "power_w")
    page.wait_for_selector(f"{CHART} canvas >> nth=2")
    area = page.locator(f"{DASHBOARD} .jp-gpuwidget-dashboard-charts").bounding_box()
    assert area is not None

    def fills() -> bool:
        boxes = chart_boxes(page)
        right = max(box["right"] for box in boxes)
        bottom = max(box["bottom"] for box in boxes)
        return area["x"] + area["width"] - right < 60 and area["y"] + area["height"] - bottom < 60

    notebook.wait_for(fills)
    page.wait_for_timeout(600)  # Until the charts are drawn with their new size.
    assert len(chart_boxes(page)) == 3
    assert {"0", "20", "40", "60", "80", "100"} <= painted_texts(page, "utilization")
    assert {"0", "50", "100"} <= painted_texts(page, "memory_used")
    times = [text for text in painted_texts(page, "power_w") if ":" in text]
    assert times
    assert all(text.endswith((":00", ":30")) or text.count(":") == 1 for text in times), times
    page.click(f"{CHART}[data-metric=power_w] .u-over")
    page.wait_for_selector(f"{CHART}[data-metric=utilization]", state="hidden")
    assert page.locator(ENLARGED).count() == 1
    notebook.wait_for(fills)
    page.click(f"{DASHBOARD} button:text-is('All charts')")
    page.wait_for_selector(f"{CHART}[data-metric=utilization]", state="visible")
    page.focus(f"{CHART}[data-metric=memory_used] h3 button")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{CHART}[data-metric=utilization]", state="hidden")
    assert pressed_buttons(page, f"{CHART} h3 button") == ["Memory"]
    page.keyboard.press("Escape")
    page.wait_for_selector(f"{CHART}[data-metric=utilization]", state="visible")
    assert pressed_buttons(page, LIVE) == ["Live"]
    notebook.close()


def test_a_page_enlarged_to_200_percent(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """In a low window, the toolbar is one row, whose last button can be reached. The indices at the ends of
    lines of the same height are not painted as one text, which would look like a value."""
    notebook = two_gpu_lab.open(browser, two_gpu_lab.write("low.ipynb", []), kernel=False)
    page = notebook.page
    page.set_viewport_size({"width": 700, "height": 450})
    notebook.script(RECORD_TEXTS)
    show(notebook, 240)
    open_dashboard(notebook)
    toolbar = page.locator(f"{DASHBOARD} .jp-gpuwidget-dashboard-toolbar")
    assert toolbar.evaluate("node => node.offsetHeight") < 60
    page.click(f"{DASHBOARD} .jp-gpuwidget-dashboard-dropdown > summary")
    page.wait_for_selector(f"{DASHBOARD} input[value=graphics]", state="visible")
    notebook.wait_for(lambda: "1" in painted_texts(page, "graphics"))
    assert "0 1" not in painted_texts(page, "graphics")
    notebook.close()


def test_mean_smoothing_and_cells(browser: BrowserContext, tmp_path: Path) -> None:
    """A chart can show the mean over the GPUs, and smoothed lines whose highest values stay visible. The time
    in which a cell ran is a band, which the tooltip names."""
    with lab_with(tmp_path, *busy_machine(2)) as (lab, standin):
        notebook = lab.open(browser, lab.write("mean.ipynb", ["import time; time.sleep(600)"]))
        page = notebook.page
        notebook.script(RECORD_TEXTS)
        notebook.run(0)
        open_dashboard(notebook)
        select_metrics(page, "utilization")
        page.click(f"{DASHBOARD} .jp-gpuwidget-dashboard-ranges button:text-is('1 min')")
        page.click(MEAN)
        wait_for_text(notebook, f"{CHART}[data-metric=utilization]", "54 %")
        page.click(MEAN)
        wait_for_text(notebook, f"{CHART}[data-metric=utilization]", "97 · 11 %")
        page.select_option(SMOOTHING, "20")
        box = page.locator(f"{CHART}[data-metric=utilization] .u-over").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] - 1, box["y"] + box["height"] / 2)
        page.wait_for_selector(TOOLTIP, state="visible")
        standin.scenario(*machine(2, 2))  # GPU 0 rises from 97 to 100 %, and GPU 1 falls from 11 to 0 %.
        # For the time of 20 points, the newest values have the old and the new ones. The band's title is the
        # last line, so that the values don't move when it comes or goes.
        page.wait_for_function(
            """([selector, title, ...spans]) => {
                const { innerText, lastElementChild } = document.querySelector(selector);
                return spans.every(span => innerText.includes(span)) && lastElementChild.innerText === title;
            }""",
            arg=[TOOLTIP, "[1]", "97 \N{EN DASH} 100", "0 \N{EN DASH} 11"],
        )
        assert "1" in painted_texts(page, "utilization")
        notebook.close()


@pytest.mark.parametrize(
    ("model", "missing", "reported"),
    [("RTX 4090", "memory_temperature_c", "fan_speed"), ("V100", "fan_speed", "memory_temperature_c")],
)
def test_a_missing_metric_has_its_reason(
    browser: BrowserContext, tmp_path: Path, model: str, missing: str, reported: str
) -> None:
    """On an older model of GPU, the metrics that it does not report have no chart. One line names them, and
    its details have the reasons."""
    with lab_with(tmp_path, *profiles.machine(model)) as (lab, _):
        notebook = lab.open(browser, lab.write("without.ipynb", ["1"]), kernel=False)
        page = notebook.page
        open_dashboard(notebook)
        for metric in (missing, "sm", "nvlink_rx"):
            page.wait_for_selector(f"{CHART}[data-metric={metric}]", state="hidden")
        for metric in (reported, "utilization", "power_w"):
            page.locator(f"{CHART}[data-metric={metric}]").scroll_into_view_if_needed()
            page.wait_for_selector(f"{CHART}[data-metric={metric}] canvas")
        labels = {metric.key: metric.label for metric in METRICS}
        line = page.inner_text(f"{MISSING} summary")
        assert line.startswith("n/a: ")
        assert {labels[missing], "SM active", "NVLink received"} <= {*line.removeprefix("n/a: ").split(", ")}
        assert labels[reported] not in line.removeprefix("n/a: ").split(", ")
        page.click(f"{MISSING} summary")
        reasons = page.inner_text(f"{MISSING} div").split("\n")
        assert any(str(labels[missing]) in text and "not supported by this GPU" in text for text in reasons)
        assert any("SM active" in text and "Hopper and later" in text for text in reasons)
        notebook.close()


def test_a_recording_is_labeled(browser: BrowserContext, lab: Lab) -> None:
    """If the values come from a recording, the dashboard shows the label of the recording."""
    notebook = lab.open(browser, lab.write("dashboard-recording.ipynb", ["1"]), kernel=False)
    open_dashboard(notebook)
    wait_for_text(notebook, f"{DASHBOARD} .jp-gpuwidget-dashboard-recording", "Recording of 4")
    notebook.close()


def test_metrics_are_kept_when_reopened(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """After the dashboard is closed and opened again, it shows the same metrics as before."""
    notebook = two_gpu_lab.open(browser, two_gpu_lab.write("closed-dashboard.ipynb", ["1"]), kernel=False)
    page = notebook.page
    open_dashboard(notebook)
    select_metrics(page, "power_w", "utilization")
    notebook.script("app.shell.currentWidget.close();")
    page.wait_for_selector(DASHBOARD, state="detached")
    open_dashboard(notebook)
    assert shown_metrics(page) == ["utilization", "power_w"]
    notebook.close()


def open_notebook_7(lab: Lab, browser: BrowserContext, name: str) -> Page:
    """Open a new notebook in Notebook 7, and return the page once the dashboard's command exists."""
    path = lab.write(name, ["1"])
    page = new_page(browser, height=700)
    page.goto(f"{lab.url}/notebooks/{path.name}?token={lab.token}")
    page.wait_for_function("() => window.jupyterapp?.commands.hasCommand('gpuwidget:open-dashboard')")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    return page


def test_in_notebook_7(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """In Notebook 7, the dashboard opens below the notebook with half of the height, also when it is closed
    and opened again. Its list of metrics fits into the window.

    It is not in the main area, because Notebook 7 allows only the notebook there.
    """
    page = open_notebook_7(two_gpu_lab, browser, "seven-dashboard.ipynb")
    for _ in range(2):
        page.evaluate("() => window.jupyterapp.commands.execute('gpuwidget:open-dashboard')")
        page.wait_for_selector(f"{CHART} canvas", state="visible")
        height, below = page.eval_on_selector(
            DASHBOARD,
            "node => { const { height, bottom } = node.getBoundingClientRect();"
            " return [height, innerHeight - bottom]; }",
        )
        assert height > 300
        assert 0 <= below < 5
        assert page.locator(".jp-Notebook .jp-Cell").first.is_visible()
        page.click(f"{DASHBOARD} summary")
        box = page.locator(f"{DASHBOARD} .jp-gpuwidget-dashboard-metric-list").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 700
        page.click("#jp-down-stack .lm-TabBar-tabCloseIcon")
        page.wait_for_selector(DASHBOARD, state="detached")
    page.close(run_before_unload=False)


def test_the_tab_of_a_chart_in_notebook_7(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """In Notebook 7, the tab of a chart is selected when it is opened from the dashboard, also when it is
    already open. The dashboard is selected when its command runs again, or after the tab was closed."""
    page = open_notebook_7(two_gpu_lab, browser, "seven-chart.ipynb")
    for _ in range(2):
        page.evaluate("() => window.jupyterapp.commands.execute('gpuwidget:open-dashboard')")
        page.wait_for_selector(f"{CHART}[data-metric=utilization] canvas", state="visible")
        page.click(f"{CHART}[data-metric=power_w] button[aria-label='Open Power in a new tab']")
        page.wait_for_selector("#jp-down-stack .lm-mod-current:has-text('Power')")
        page.wait_for_selector(f"{POWER_TAB} [data-metric=power_w] canvas", state="visible")
        page.wait_for_selector(f"{CHART}[data-metric=utilization] canvas", state="hidden")
    page.click("#jp-down-stack .lm-mod-current .lm-TabBar-tabCloseIcon")
    page.wait_for_selector(f"{CHART}[data-metric=utilization] canvas", state="visible")
    page.close(run_before_unload=False)
