"""Accessibility of gpuwidget's parts of the page, checked by axe in the light and the dark theme."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import helpers_kernel_state
import pytest
from browser.test_cells_list import report, write_reports
from helpers_axe import violations
from helpers_diagnosis import fake_doctor_route, healthy, kernel_cell, unhealthy
from helpers_lab import Lab, Notebook, runs_until
from helpers_ownership import FakeOwnershipStream, allocation, gpu, kernel
from helpers_panel import (
    CARD,
    DEVICE,
    LOAD_BUTTON,
    PANEL,
    SERVER_NOTICE,
    hide,
    lab_with,
    machine,
    open_part,
    show,
    uuids,
    wait_for_text,
)
from nvml_standin import Standin
from playwright.sync_api import BrowserContext

Open = Callable[..., Notebook]
DASHBOARD = ".jp-gpuwidget-dashboard"
STATUS = ".jp-gpuwidget-status"
CELL_CARD = ".jp-OutputArea-output.jp-RenderedHTMLCommon"
TALL = 1600
POOR_CONTROLS = """
const all = [...document.querySelectorAll('.jp-gpuwidget-panel :is(button, summary, select, input, a)')]
    .filter(node => node.checkVisibility({visibilityProperty: true}));
const small = all.filter(node => {
    // A GPU's row is 22 px high, and a click anywhere in it counts.
    const { width, height } = (node.closest('label, .jp-gpuwidget-gpu-head') ?? node).getBoundingClientRect();
    return Math.min(width, height) < 22;
});
const rows = '.jp-gpuwidget-gpu-row, .jp-gpuwidget-gpu-chip, .jp-gpuwidget-section-head,' +
    '.jp-gpuwidget-panel-more, [role=table] *';
const own = all.filter(node => node.matches('button') && !node.matches(rows) &&
    !node.matches('.jp-gpuwidget-button, .jp-gpuwidget-icon-button'));
const carets = all.filter(node => node.matches('summary, [aria-expanded]:not([aria-haspopup])') &&
    getComputedStyle(node, '::before').clipPath !== 'polygon(0px 0px, 100% 50%, 0px 100%)');
const unnamed = [...document.querySelectorAll('.jp-gpuwidget-panel [role=img]')]
    .filter(node => node.checkVisibility() && !node.getAttribute('aria-label'));
return [small, own, carets, unnamed].map(nodes => nodes.map(node => node.outerHTML));
"""
FORCED_COLORS = """
const root = document.querySelector('.jp-gpuwidget-panel');
const color = (node, pseudo) => getComputedStyle(node, pseudo).backgroundColor;
const bars = [...root.querySelectorAll('.jp-gpuwidget-gpu-bar')].filter(node => node.checkVisibility());
return {
    carets: [...root.querySelectorAll('.jp-gpuwidget-gpu-row, summary')]
        .filter(node => color(node, '::before') === color(root)).length,
    bars: bars.map(node => new Set(getComputedStyle(node).backgroundImage.match(/rgba?\\([^)]*\\)/g)).size),
    charts: getComputedStyle(root).getPropertyValue('--jp-gpuwidget-here').trim(),
};
"""
KERNEL = "return panel.sessionContext.session.kernel.id;"


@pytest.fixture(scope="module")
def eight_gpu_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Standin]]:
    """Start a JupyterLab on a machine with eight GPUs that have hardware counters."""
    with lab_with(tmp_path_factory.mktemp("eight"), *machine(8), "gpu.*.gpm.2=77.5") as made:
        yield made


@pytest.fixture
def open_panel(
    eight_gpu_lab: tuple[Lab, Standin], browser: BrowserContext
) -> Iterator[tuple[Notebook, FakeOwnershipStream]]:
    """Open the panel and a notebook whose kernel replies to the panel, with fake memory ownership."""
    lab, _ = eight_gpu_lab
    faked: list[FakeOwnershipStream] = []
    source = helpers_kernel_state.cell(helpers_kernel_state.state(uuids(lab)))
    notebook = lab.open(
        browser,
        lab.write("axe.ipynb", [source, "import time; time.sleep(30)"]),
        height=TALL,
        prepare=lambda page: faked.append(FakeOwnershipStream(page)),
    )
    show(notebook, 300)
    notebook.run(0)
    notebook.wait_until_done()
    wait_for_text(notebook, f"{CARD} .jp-gpuwidget-gpu-badge", "cuda:7")
    yield notebook, faked[0]
    notebook.close()


def test_without_gpuwidget_or_a_notebook(eight_gpu_lab: tuple[Lab, Standin], browser: BrowserContext) -> None:
    """axe finds no violation in the panel if gpuwidget is not loaded in the notebook's kernel, with collapsed
    and with expanded sections, or if no notebook is open."""
    lab, _ = eight_gpu_lab
    notebook = lab.open(browser, lab.write("bare.ipynb", ["1"]), height=TALL)
    show(notebook, 300)
    notebook.page.wait_for_selector(LOAD_BUTTON)
    assert violations(notebook, PANEL) == []
    for part in ("switches", "health"):
        open_part(notebook, part)
    assert violations(notebook, PANEL) == []
    notebook.script("await panel.sessionContext.shutdown(); panel.close(); panel.dispose();")
    notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-notebook:text('(no notebook)')")
    assert violations(notebook, PANEL) == []
    notebook.page.close(run_before_unload=False)


def test_gpus_and_their_holders(
    eight_gpu_lab: tuple[Lab, Standin], open_panel: tuple[Notebook, FakeOwnershipStream]
) -> None:
    """axe finds no violation in the panel's GPU cards, list of holders, hints and menu of actions, nor while
    a change of the device is pending and a cell is running. All controls are at least 22 px high and wide,
    all buttons and carets are alike, and all charts and marks have names. With forced colors, carets and the
    parts of the memory bars can be told apart."""
    notebook, ownership = open_panel
    known = uuids(eight_gpu_lab[0])
    active_kernel = notebook.script(KERNEL)
    idle = kernel("k2", "eval.ipynb", idle_since=1e9)
    many = [allocation(1 + pid / 10, pid=pid, user="ada", program="python train.py") for pid in range(8)]
    low = [{"seconds": seconds, "utilization": 4.0} for seconds in (600, 1800, 3600)]
    ownership.send(
        [kernel(active_kernel, "axe.ipynb", state="busy"), idle],
        [
            gpu(
                known[0],
                allocation(14, kernel=active_kernel),
                allocation(30, kernel="k2"),
                *many,
                means=low,
                unattributed=2**31,
            ),
            gpu(known[7], allocation(None, terminal="1", program="python serve.py"), unattributed=2**30),
        ],
    )
    wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-hint", "eval.ipynb")
    assert violations(notebook, PANEL) == []
    for row in notebook.page.query_selector_all(f"{CARD}[data-open=false] .jp-gpuwidget-gpu-row"):
        row.click()
    for part in ("switches", "health"):
        open_part(notebook, part)
    notebook.page.select_option(DEVICE, index=1)
    notebook.run(1)
    notebook.page.wait_for_selector(f"{PANEL} [data-next]:text('next cell runs on cpu')")
    assert violations(notebook, PANEL) == []
    assert notebook.script(POOR_CONTROLS) == [[], [], [], []]
    notebook.page.emulate_media(forced_colors="active")
    # JupyterLab hides the panel while it loads a theme. Then a card that is out of view is updated only every
    # 10 s.
    notebook.page.locator(CARD).first.scroll_into_view_if_needed()
    # The bar's parts: this notebook, others, unknown processes and free memory.
    notebook.wait_for(lambda: notebook.script(FORCED_COLORS)["bars"][0] == 4)
    forced = notebook.script(FORCED_COLORS)
    assert forced["carets"] == 0
    assert forced["charts"] == "Highlight"
    notebook.page.emulate_media(forced_colors="none")
    notebook.page.locator(f"{PANEL} [aria-label='Actions for eval.ipynb']").first.click()
    notebook.page.wait_for_selector(".lm-Menu-item")
    assert violations(notebook, PANEL) == []
    notebook.page.keyboard.press("Escape")
    notebook.script("await panel.sessionContext.session.kernel.interrupt();")


def test_the_dashboard(open_panel: tuple[Notebook, FakeOwnershipStream]) -> None:
    """axe finds no violation in the dashboard with its charts, list of metrics and tooltip, whether it is
    live or paused."""
    notebook, _ = open_panel
    page = notebook.page
    hide(notebook)
    notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
    page.wait_for_selector(f"{DASHBOARD} .jp-gpuwidget-dashboard-chart canvas")
    assert violations(notebook, DASHBOARD) == []
    page.click(f"{DASHBOARD} summary")
    assert violations(notebook, DASHBOARD) == []
    page.keyboard.press("Escape")
    page.click(f"{DASHBOARD} .jp-gpuwidget-dashboard-live")
    page.hover(f"{DASHBOARD} .jp-gpuwidget-dashboard-chart .u-over")
    page.wait_for_selector(f"{DASHBOARD} .jp-gpuwidget-dashboard-tooltip")
    assert violations(notebook, DASHBOARD) == []


def test_the_status_item(open_panel: tuple[Notebook, FakeOwnershipStream]) -> None:
    """axe finds no violation in the status bar item that shows the notebook's GPU."""
    notebook, _ = open_panel
    notebook.page.wait_for_selector(STATUS)
    assert violations(notebook, STATUS) == []


def violated_rules(found: list[str]) -> set[str]:
    """Return the ids of the rules in a list of violations."""
    return {one.split(": ")[1] for one in found}


def test_the_settings(open_panel: tuple[Notebook, FakeOwnershipStream]) -> None:
    """In the settings editor, gpuwidget's settings violate only rules that JupyterLab's own settings violate
    as well."""
    notebook, _ = open_panel
    found = []
    for name in ("GPUs", "Terminal"):
        notebook.script("await app.commands.execute('settingeditor:open', {query: argument});", name)
        notebook.page.wait_for_selector(f".jp-SettingsForm:has-text('{name}') input")
        found.append(violated_rules(violations(notebook, ".jp-SettingsForm")))
        notebook.script("app.shell.currentWidget.close();")
    ours, theirs = found
    assert ours - theirs == set()


def test_the_cells(eight_gpu_lab: tuple[Lab, Standin], browser: BrowserContext) -> None:
    """axe finds no violation in the panel with a list of cells that has error marks and a note, whether the
    list is sorted or not."""
    lab, _ = eight_gpu_lab
    reports = [report(1, 3, 14.0), report(2, 5, 200.0), report(3, 1, 0.002)]
    reports[0]["cell"] |= {"status": "error", "label": "a rather long name of a cell that does not fit"}
    reports[1]["gpus"][0]["torch"] = None
    reports[2]["source"] = {"kind": "replay", "reason": None, "recording": "recording of an H200"}
    reports[2]["cell"]["status"] = "interrupted"
    notebook = lab.open(browser, write_reports(lab, "reports.ipynb", reports), height=TALL, kernel=False)
    show(notebook, 300)
    notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-cells [role=row]")
    assert violations(notebook, PANEL) == []
    notebook.page.click(f"{PANEL} .jp-gpuwidget-cells [role=columnheader]:nth-child(2) button")
    assert violations(notebook, PANEL) == []
    notebook.close()


def test_a_lost_gpu(browser: BrowserContext, tmp_path: Path) -> None:
    """axe finds no violation in the panel if one of two GPUs is lost."""
    with lab_with(tmp_path, *machine(2)) as (lab, standin):
        notebook = lab.open(browser, lab.write("lost.ipynb", ["1"]))
        show(notebook, 300)
        notebook.page.wait_for_selector(CARD)
        standin.scenario(*machine(2), "gpu.1.*=error 15")
        wait_for_text(notebook, CARD, "Lost since")
        assert violations(notebook, PANEL) == []
        notebook.close()


def test_no_driver(browser: BrowserContext, tmp_path: Path) -> None:
    """axe finds no violation in the panel on a machine without a driver."""
    with lab_with(tmp_path, "nvmlInitWithFlags=error 9") as (lab, _):
        notebook = lab.open(browser, lab.write("none.ipynb", ["1"]))
        show(notebook, 300)
        wait_for_text(notebook, SERVER_NOTICE, "driver")
        assert violations(notebook, PANEL) == []
        notebook.close()


def test_a_recording_the_switches_and_the_doctor(open_notebook: Open) -> None:
    """axe finds no violation in the panel with the label of a recording, the PyTorch switches and all symbols
    of the doctor."""
    notebook = open_notebook(["%load_ext gpuwidget\nimport torch", kernel_cell(unhealthy())], height=TALL)
    show(notebook, 300)
    fake_doctor_route(notebook, (200, healthy()))
    for cell in (0, 1):
        notebook.run(cell)
        notebook.wait_until_done()
    notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-watch:enabled")
    for part in ("switches", "health"):
        open_part(notebook, part)
    notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-doctor-check[data-status=broken]")
    notebook.page.click(f"{PANEL} .jp-gpuwidget-switches label:has-text('cuDNN benchmark') input")
    wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-switches-log", "Ran: ")
    assert violations(notebook, PANEL) == []


OUT_OF_MEMORY = f"""import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import torch
from helpers_out_of_memory import LimitedGpu
gpu = LimitedGpu(torch, 64 * 2**20)
gpu.install()
def mib(size): return gpu.empty(size * 2**18)
model = mib(20)
cache = [mib(6), mib(6)]"""
CARDS = {
    "card": ["%%gpuwatch\nimport time; time.sleep(3)"],
    "compare": [
        "%%gpuwatch --name first\nimport time; time.sleep(3)",
        "%%gpuwatch --name second\nimport time; time.sleep(1)",
        "%gpu compare first second",
    ],
    "failed": ["%%gpuwatch\nimport time; time.sleep(1); 1 / 0"],
    "commands": ["%gpu device", "%gpu memory", "%gpu switches", "%gpu doctor", "%gpu nonsense"],
    "out of memory": [OUT_OF_MEMORY, "%%gpuwatch\nresult = model[:1] + mib(16)"],
}


@pytest.mark.parametrize("cells", CARDS.values(), ids=CARDS)
def test_an_expanded_card(
    eight_gpu_lab: tuple[Lab, Standin], browser: BrowserContext, cells: list[str]
) -> None:
    """axe finds no violation in what a cell, a failed cell, an out-of-memory error, a comparison and the
    commands show, in which everything is expanded."""
    lab, _ = eight_gpu_lab
    notebook = lab.open(browser, lab.write("cards.ipynb", ["%load_ext gpuwidget", *cells]), height=TALL)
    for cell in range(len(cells) + 1):
        notebook.run(cell)
        notebook.wait_until_done()
    notebook.page.wait_for_selector(f"{CELL_CARD} details")
    notebook.script(
        "for (const node of document.querySelectorAll(`${argument} details`)) { node.open = true; }",
        CELL_CARD,
    )
    assert violations(notebook, CELL_CARD) == []
    notebook.close()


def test_a_card(open_notebook: Open, tmp_path: Path) -> None:
    """axe finds no violation in the live chart of a watched cell, nor in the card that replaces it."""
    end = tmp_path / "end"
    notebook = open_notebook(["%load_ext gpuwidget", f"%%gpuwatch\n{runs_until(end)}"])
    notebook.run(0)
    notebook.wait_until_done()
    notebook.run(1)
    notebook.page.wait_for_selector(".gpuwidget-live .bqplot path.line", state="attached")
    live = violations(notebook, ".gpuwidget-live")
    end.touch()
    notebook.wait_until_done()
    notebook.page.wait_for_selector(".gpuwidget-live", state="detached")
    notebook.page.wait_for_selector(CELL_CARD)
    assert [*live, *violations(notebook, CELL_CARD)] == []
