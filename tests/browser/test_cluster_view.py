"""The wall and the panel's section of the cluster view, with 512 GPUs on 64 nodes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_axe import violations
from helpers_cluster import CLUSTER_OPTION, FREE_NODES, LOST_NODE, XID_NODE, FakeCluster, cluster
from helpers_exporters import SimulatedCluster
from helpers_lab import Lab, Notebook, new_page
from helpers_panel import PANEL, show, wait_for_text
from helpers_prometheus import Prometheus, find_programs
from playwright.sync_api import BrowserContext, Page

WALL = ".jp-gpuwidget-cluster"
NODE = f"{WALL} .jp-gpuwidget-cluster-node"
CELL = f"{NODE} .jp-gpuwidget-cluster-cell"
FILTER = f"{WALL} .jp-gpuwidget-cluster-filter"
SECTION = ".jp-gpuwidget-cluster-section"
LEGEND = f"{WALL} .jp-gpuwidget-cluster-legend"
_FOCUSED = "() => document.activeElement.getAttribute('aria-label')"
_RECORD_COMMANDS = """
window.executed = [];
app.commands.commandExecuted.connect((_, {id, args}) => window.executed.push([id, args]));
"""


@pytest.fixture(scope="module")
def cluster_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Start a JupyterLab whose administrator has configured a Prometheus, which does not answer."""
    lab = Lab(tmp_path_factory.mktemp("cluster"), "none", options=[CLUSTER_OPTION])
    try:
        lab.wait_until_ready()
        yield lab
    finally:
        lab.stop()


@pytest.fixture(scope="module")
def fake() -> FakeCluster:
    """The answers that the module's page receives."""
    return FakeCluster(cluster())


@pytest.fixture(scope="module")
def opened(cluster_lab: Lab, browser: BrowserContext, fake: FakeCluster) -> Iterator[Notebook]:
    """Open a page with the wall. The tests share it."""
    path = cluster_lab.write("cluster.ipynb", ["1"])
    notebook = cluster_lab.open(browser, path, kernel=False, width=1366, height=768, prepare=fake.install)
    notebook.script(_RECORD_COMMANDS)
    yield notebook
    notebook.close()


@pytest.fixture
def wall(opened: Notebook, fake: FakeCluster) -> Notebook:
    """Open a wall with its default state."""
    fake.snapshot = cluster()
    opened.script(
        "for (const widget of [...app.shell.widgets('main')]) {"
        " if (['gpuwidget-cluster', 'gpuwidget-dashboard'].includes(widget.id)) { widget.close(); } }"
        "window.executed.splice(0);"
        "await app.commands.execute('gpuwidget:open-cluster', {state: {}});"
    )
    opened.page.wait_for_function(f"() => document.querySelectorAll('{CELL}').length === 512")
    return opened


def choose(page: Page, label: str, option: str) -> None:
    """Select an option of one of the toolbar's dropdowns."""
    page.locator(WALL).get_by_label(label, exact=True).select_option(label=option)


def node_names(page: Page) -> list[str]:
    """Return the names of the shown nodes in their order."""
    names: list[str] = page.eval_on_selector_all(NODE, "nodes => nodes.map(node => node.dataset.node)")
    return names


def cell(node: str, index: int) -> str:
    """Return the selector of a GPU's cell."""
    return f"{NODE}[data-node={node}] .jp-gpuwidget-cluster-cell >> nth={index}"


@pytest.mark.parametrize(
    ("quantity", "legend", "name", "level", "value"),
    [
        ("Utilization", "GPU utilization, %", "GPU 0, Utilization 1 %", "1", "40 %"),
        ("Memory", "Memory used, % of the total", "GPU 0, Memory 56.0 GiB of 140.0 GiB", "2", "59 %"),
        ("Power", "Power, % of the limit", "GPU 0, Power 210 of 700 W", "1", "50 %"),
        ("Temperature", "Temperature, °C", "GPU 0, Temperature 38 °C", "0", "77 °C"),
        ("Errors", "XID and uncorrected memory errors in the last hour", "GPU 0, Errors none", "0", "0"),
        (
            "Held while idle",
            "Memory held without utilization, minutes",
            "GPU 0, Held while idle 0 s",
            "0",
            "0 s",
        ),
    ],
)
def test_color_by_each_quantity(
    wall: Notebook, quantity: str, legend: str, name: str, level: str, value: str
) -> None:
    """Cells are colored by the chosen quantity. The legend has its unit, and each cell's name its value.

    A GPU without a known value is hatched, with n/a in its name."""
    page = wall.page
    choose(page, "Color by", quantity)
    wait_for_text(wall, LEGEND, legend)
    assert page.get_attribute(cell("node001", 0), "aria-label") == name
    assert page.get_attribute(cell("node001", 0), "data-level") == level
    assert page.inner_text(f"{NODE}[data-node=node001] .jp-gpuwidget-cluster-node-value") == value
    assert page.get_attribute(cell("node006", 1), "data-level") == "unknown"
    assert page.get_attribute(cell("node006", 1), "aria-label") == f"GPU 1, {quantity} n/a"


def test_filter(wall: Notebook) -> None:
    """GPUs that contain all words of the filter are shown. If there is none, the wall shows a message."""
    page = wall.page
    page.fill(FILTER, "ada train-0")
    page.wait_for_function(f"() => document.querySelectorAll('{CELL}').length < 100")
    assert node_names(page)[:3] == ["node001", "node013", "node025"]
    page.fill(FILTER, "nobody")
    wait_for_text(wall, WALL, "No GPU matches the filter.")


def test_group_by(wall: Notebook) -> None:
    """The nodes are grouped by model, user, notebook or job, with the number of GPUs of each group."""
    page = wall.page
    for grouping, first in {
        "Model": "A100-SXM4-40GB128 GPUs, 3 free, 16 nodes",
        "User": "ada118 GPUs, 0 free, 15 nodes",
        "Notebook": "train-0.ipynb",
        "Job": "4000",
    }.items():
        choose(page, "Group by", grouping)
        title = page.locator(f"{WALL} .jp-gpuwidget-cluster-group-title").first
        title.wait_for(state="visible")
        page.wait_for_function(
            "([title, text]) => document.querySelector(title).textContent.startsWith(text)",
            arg=[f"{WALL} .jp-gpuwidget-cluster-group-title", first],
        )


def test_sort(wall: Notebook) -> None:
    """The nodes are sorted by name, by the chosen value, by free GPUs, or with problems first."""
    page = wall.page
    assert node_names(page)[:3] == ["node001", "node002", "node003"]
    for order, first in {
        "Highest value first": "node007",
        "Lowest value first": "node008",
        "Most free GPUs first": FREE_NODES[0],
        "Problems first": LOST_NODE,
    }.items():
        choose(page, "Sort by", order)
        page.wait_for_function(
            "([selector, name]) => document.querySelector(selector).dataset.node === name", arg=[NODE, first]
        )


def test_find_four_free_h200s(wall: Notebook) -> None:
    """One search lists the nodes that have four free H200s first, and highlights these GPUs."""
    page = wall.page
    page.fill(f"{WALL} .jp-gpuwidget-cluster-count", "4")
    page.select_option(f"{WALL} .jp-gpuwidget-cluster-model", label="H200")
    page.click(f"{WALL} .jp-gpuwidget-cluster-find")
    wait_for_text(wall, f"{WALL} .jp-gpuwidget-cluster-result", "4 free H200: 2 nodes, node008 first")
    assert node_names(page)[:2] == list(FREE_NODES)
    assert page.locator(f"{NODE}[data-match=true]").count() == 2
    assert page.locator(f"{NODE}[data-match=true] [data-found]").count() == 8
    page.click(f"{WALL} .jp-gpuwidget-cluster-end")
    page.wait_for_selector(f"{NODE}[data-match]", state="detached")


@pytest.mark.parametrize("count", ["0", "65", "1.5", ""])
def test_a_number_that_cannot_be_searched_for_is_refused(wall: Notebook, count: str) -> None:
    """The browser refuses a number of free GPUs that is impossible, and the last search stays."""
    page = wall.page
    find = f"{WALL} .jp-gpuwidget-cluster-find"
    result = f"{WALL} .jp-gpuwidget-cluster-result"
    page.fill(f"{WALL} .jp-gpuwidget-cluster-count", "4")
    page.click(find)
    wait_for_text(wall, result, "4 free GPUs: 2 nodes, node008 first")
    page.fill(f"{WALL} .jp-gpuwidget-cluster-count", count)
    page.click(find)
    page.wait_for_selector(f"{WALL} .jp-gpuwidget-cluster-count:invalid:focus")
    assert page.inner_text(result) == "4 free GPUs: 2 nodes, node008 first"


def test_the_tab_key_reaches_the_grid_after_every_change(wall: Notebook) -> None:
    """If the element that had the focus disappears, another one is reached with the Tab key."""
    stop = f"{WALL} [role=grid] [tabindex='0']"
    choose(wall.page, "Group by", "Model")
    wall.page.wait_for_selector(f"{WALL} .jp-gpuwidget-cluster-group-title [tabindex]")
    wall.page.focus(f"{WALL} .jp-gpuwidget-cluster-group-title [tabindex] >> nth=0")
    choose(wall.page, "Group by", "Node")
    wall.page.wait_for_selector(f"{WALL} .jp-gpuwidget-cluster-group-title [tabindex]", state="detached")
    assert wall.page.locator(stop).count() == 1
    assert wall.page.is_visible(stop)


def test_a_node_opens_its_charts(wall: Notebook) -> None:
    """A click on a node or one of its GPUs opens the charts of that node."""
    wall.page.click(cell("node007", 2))
    wall.page.wait_for_selector(".jp-gpuwidget-dashboard", state="visible")
    executed = wall.script("return window.executed;")
    assert ["gpuwidget:open-dashboard", {"state": {"node": "node007"}}] in executed


def test_errors_and_lost_nodes_stand_out(wall: Notebook) -> None:
    """A lost node, a lost GPU and GPUs with errors have a symbol and a name for it, whatever the color
    shows."""
    page = wall.page
    value = page.inner_text(f"{NODE}[data-node={LOST_NODE}] .jp-gpuwidget-cluster-node-value")
    assert value == "✕ lost"
    assert page.locator(f"{NODE}[data-lost]").count() == 1
    assert page.locator(f"{CELL}[data-mark=lost]").count() == 9
    assert page.locator(f"{CELL}[data-mark=error]").count() == 2
    name = page.get_attribute(cell(XID_NODE, 3), "aria-label")
    assert name is not None
    assert name.endswith(", XID 79")
    summary = page.inner_text(f"{WALL} .jp-gpuwidget-cluster-summary")
    assert "2 with errors · 1 lost GPU · 1 lost node" in summary


def test_keyboard(wall: Notebook) -> None:
    """One Tab stop leads into the grid. Arrows, Home and End move, Enter opens the charts, and Escape ends
    the filter."""
    page = wall.page
    page.fill(FILTER, "node00")
    page.wait_for_function(f"() => document.querySelectorAll('{NODE}').length === 9")
    assert page.locator(f"{WALL} [role=grid] [tabindex='0']").count() == 1
    page.focus(f"{WALL} [role=grid] [tabindex='0']")
    for key, name in {
        "Home": "node001, ",
        "ArrowRight": "GPU 0, ",
        "End": "GPU 7, ",
        "ArrowLeft": "GPU 6, ",
    }.items():
        page.keyboard.press(key)
        assert page.evaluate(_FOCUSED).startswith(name), key
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(_FOCUSED).startswith("node007, ")
    page.keyboard.press("ArrowUp")
    assert page.evaluate(_FOCUSED).startswith("node001, ")
    page.keyboard.press("Escape")
    page.wait_for_function(f"() => document.querySelectorAll('{NODE}').length === 64")
    assert page.input_value(FILTER) == ""
    page.keyboard.press("Enter")
    page.wait_for_selector(".jp-gpuwidget-dashboard", state="visible")
    executed = wall.script("return window.executed;")
    assert ["gpuwidget:open-dashboard", {"state": {"node": "node001"}}] in executed


def test_screen_reader(wall: Notebook) -> None:
    """axe finds nothing in the wall in either theme. The grid's rows and cells have names with values."""
    assert violations(wall, WALL) == []
    wall.use_theme("light")
    grid = wall.page.get_by_role("grid", name="GPUs of the cluster by node")
    assert grid.get_by_role("gridcell").count() == 512
    header = grid.get_by_role("rowheader", name="node001, Utilization: 40 %, 8 GPUs, 0 free")
    assert header.count() == 1


def test_csv(wall: Notebook) -> None:
    """The table has the shown GPUs with units in its column names. Unknown values are empty."""
    page = wall.page
    page.fill(FILTER, "node006")
    page.wait_for_function(f"() => document.querySelectorAll('{CELL}').length === 8")
    with page.expect_download() as download:
        page.click(f"{WALL} .jp-gpuwidget-cluster-csv")
    assert download.value.suggested_filename.startswith("gpu cluster ")
    text = Path(download.value.path()).read_text(encoding="utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["GPU index"] for row in rows] == ["0", "1", "2", "3", "4", "5", "6", "7"]
    assert [row["utilization (%)"] for row in rows[:2]] == ["86", ""]
    assert rows[0]["memory total (B)"] == str(80 * 1024**3)
    assert rows[0]["users"] == "grace"


def test_panel_section(wall: Notebook, fake: FakeCluster) -> None:
    """The panel's section has the GPUs of each model and the problems, and covers no other section. It
    requests nothing while it is collapsed and no wall is visible."""
    page = wall.page
    wall.script("app.shell.currentWidget.close();")
    show(wall, 300)
    page.click(f"{SECTION} summary")
    wait_for_text(wall, SECTION, "512 GPUs · 64 nodes · 19 free")
    assert page.inner_text(f"{SECTION} tbody tr:has-text('H200')").split() == ["H200", "256", "13", "47", "%"]
    problems = page.locator(f"{SECTION} .jp-gpuwidget-cluster-problem").all_inner_texts()
    assert problems == [
        "✕ node005: lost",
        "! node002, GPU 3: XID 79",
        "! node002, GPU 5: 2 memory errors",
        "✕ node004, GPU 2: lost",
    ]
    assert violations(wall, SECTION) == []
    places = page.locator(f"{PANEL} .jp-gpuwidget-panel-scroll > *").evaluate_all(
        "nodes => nodes.map(node => node.getBoundingClientRect()).filter(box => box.height > 0)"
        ".map(({top, bottom}) => [top, bottom])"
    )
    assert [box for box, above in zip(places[1:], places, strict=False) if box[0] < above[1] - 1] == []
    wall.use_theme("light")
    page.click(f"{SECTION} >> text=Show all nodes")
    page.wait_for_selector(WALL, state="visible")
    wall.script("app.shell.collapseRight();")


def test_a_problem_is_shown(wall: Notebook, fake: FakeCluster) -> None:
    """If the values are old, the wall shows the reason and dims them. They stay."""
    fake.snapshot = {**cluster(), "interval_s": 1.0, "problem": "Prometheus does not answer."}
    notice = f"{WALL} .jp-gpuwidget-cluster-notice"
    wait_for_text(wall, notice, "Prometheus does not answer.")
    assert wall.page.locator(f"{WALL}[data-stale]").count() == 1
    assert wall.page.locator(CELL).count() == 512
    fake.snapshot = {**cluster(), "interval_s": 1.0}
    wall.page.wait_for_selector(f"{WALL}:not([data-stale])")


def test_without_prometheus(browser: BrowserContext, lab: Lab) -> None:
    """If no Prometheus is configured, there is no command and no section."""
    notebook = lab.open(browser, lab.write("no-cluster.ipynb", ["1"]), kernel=False)
    assert not notebook.script("return app.commands.hasCommand('gpuwidget:open-cluster');")
    show(notebook)
    assert notebook.page.locator(SECTION).count() == 0
    notebook.close()


def test_in_notebook_7(cluster_lab: Lab, browser: BrowserContext) -> None:
    """In Notebook 7, the wall opens below the notebook."""
    path = cluster_lab.write("seven.ipynb", ["1"])
    page = new_page(browser, height=700)
    FakeCluster(cluster(2)).install(page)
    page.goto(f"{cluster_lab.url}/notebooks/{path.name}?token={cluster_lab.token}")
    page.wait_for_function("() => window.jupyterapp?.commands.hasCommand('gpuwidget:open-cluster')")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.evaluate("() => window.jupyterapp.commands.execute('gpuwidget:open-cluster')")
    page.wait_for_selector(CELL, state="visible")
    box = page.locator(WALL).bounding_box()
    assert box is not None
    assert box["height"] > 300
    page.close(run_before_unload=False)


def test_with_a_real_prometheus(browser: BrowserContext, tmp_path: Path) -> None:
    """The wall shows what a real Prometheus has scraped from exporters. A node whose exporter stops is lost,
    without values."""
    programs = find_programs()
    nodes = SimulatedCluster(2, 8)
    for gpu in nodes.by_node["node001"][4:]:
        gpu.utilization, gpu.memory_used_mib = 87, 70_000
    for folder in ("prometheus", "lab"):
        (tmp_path / folder).mkdir()
    prometheus = Prometheus(programs["prometheus"], tmp_path / "prometheus", nodes.scrape_configs())
    lab = Lab(tmp_path / "lab", "none", options=[f"--GpuWidget.prometheus_url={prometheus.url}"])
    try:
        lab.wait_until_ready()
        notebook = lab.open(browser, lab.write("real.ipynb", ["1"]), kernel=False)
        page = notebook.page
        notebook.script("await app.commands.execute('gpuwidget:open-cluster');")
        page.wait_for_function(f"() => document.querySelectorAll('{CELL}').length === 16")
        assert node_names(page) == ["node001", "node002"]
        label = "GPU 4, Utilization 87 %"
        page.wait_for_selector(f"{NODE}[data-node=node001] [aria-label='{label}']")
        page.locator(WALL).get_by_label("Number of free GPUs").fill("8")
        page.keyboard.press("Enter")
        wait_for_text(notebook, WALL, "8 free GPUs: 1 node, node002")
        nodes.down.add("node002")
        wait_for_text(notebook, f"{NODE}[data-node=node002]", "lost", 60)
        notebook.close()
    finally:
        lab.stop()
        prometheus.stop()
        nodes.stop()
