"""The translation to Simplified Chinese: all texts of gpuwidget are translated and fit into the panel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import helpers_kernel_state
import pytest
from browser.test_cells_list import report, write_reports
from helpers_lab import Lab, Notebook
from helpers_ownership import FakeOwnershipStream, allocation, gpu, kernel
from helpers_panel import CARD, PANEL, clipped, lab_with, machine, open_part, show, uuids, wait_for_text
from playwright.sync_api import BrowserContext

TRANSLATION = "@jupyterlab/translation-extension/plugin.jupyterlab-settings"
DASHBOARD = ".jp-gpuwidget-dashboard"
DOCTOR = f"{PANEL} .jp-gpuwidget-doctor"
CHECKS = f"{DOCTOR} .jp-gpuwidget-doctor-check"
HAN = re.compile(r"[\u4e00-\u9fff]")
TEXTS = """
const walker = document.createTreeWalker(document.querySelector(argument), NodeFilter.SHOW_TEXT);
const found = [];
while (walker.nextNode()) {
    const node = walker.currentNode;
    const shown = node.parentElement.checkVisibility() && node.parentElement.closest('code') === null;
    if (shown && node.data.trim() !== '') { found.push(node.data.trim()); }
}
for (const node of document.querySelectorAll(`${argument} [title], ${argument} [aria-label]`)) {
    found.push(...['title', 'aria-label'].map(name => node.getAttribute(name)).filter(text => text !== null));
}
return [...new Set(found)];
"""
# Names, units, code, file names and messages from Python are not translated.
UNTRANSLATED = re.compile(
    r"GPU|UUID|PyTorch|NCCL|torch|cuda:?\d*|cuDNN|TF32|H200|NVIDIA|MiB|GiB|MHz|Hz|kJ|min|ms|ada|python|train|eval|serve|ipynb"
    r"|py|CSV|SM|Tensor|Core|PCIe|NVLink|FP\d+|float32|benchmark|Escape|Shift|Esc|k2|gpuwidget|cpu|Jupyter"
    r"|highest|high|medium|default|warn|error|off|on|In|GB|MB|kernel|warp|CUDA|µs|load_ext|watch|gpu|n|s|h|J|W|C|v"
)


def english_texts(notebook: Notebook, part: str) -> list[str]:
    """Return the English texts, titles and labels in a part of the page."""
    texts: list[str] = notebook.script(TEXTS, part)
    return [
        text
        for text in texts
        if not HAN.search(text) and re.search("[A-Za-z]{2}", UNTRANSLATED.sub("", text))
    ]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Start a JupyterLab in Chinese, with JupyterLab's language pack, on a machine with eight GPUs."""
    folder = tmp_path_factory.mktemp("zh")
    with lab_with(folder, *machine(8), "gpu.*.gpm.2=77.5", "gpu.*.fan=30") as (made, _):
        settings = folder / "lab" / "settings" / TRANSLATION
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps({"locale": "zh_CN"}))
        yield made


def test_the_panel(lab: Lab, browser: BrowserContext) -> None:
    """All texts of the panel are Chinese, and none of them is clipped in a panel of 240, 300 or 480 px."""
    faked: list[FakeOwnershipStream] = []
    known = uuids(lab)
    path = write_reports(lab, "train.ipynb", [report(1, 3, 14.0), report(2, 5, 200.0)])
    content = json.loads(path.read_text())
    content["cells"][0]["source"] = helpers_kernel_state.cell(helpers_kernel_state.state(known))
    content["cells"][1]["outputs"][0]["data"]["application/vnd.gpuwidget.report+json"]["gpus"][0]["torch"] = (
        None
    )
    path.write_text(json.dumps(content))
    notebook = lab.open(
        browser, path, height=1700, prepare=lambda page: faked.append(FakeOwnershipStream(page))
    )
    show(notebook, 300)
    wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-device-section", "此内核未加载 gpuwidget。")
    notebook.run(0)
    notebook.wait_until_done()
    wait_for_text(notebook, f"{CARD} .jp-gpuwidget-gpu-badge", "cuda:7")
    active_kernel = notebook.script("return panel.sessionContext.session.kernel.id;")
    faked[0].send(
        [kernel(active_kernel, "train.ipynb", state="busy"), kernel("k2", "eval.ipynb", idle_since=1e9)],
        [
            gpu(
                known[0], allocation(9, kernel=active_kernel), allocation(30, kernel="k2"), unattributed=2**30
            ),
            gpu(
                known[7],
                allocation(4, pid=7, user="ada", program="python serve.py"),
                allocation(3, terminal="1"),
            ),
        ],
    )
    wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-hint", "空闲")
    for row in notebook.page.query_selector_all(f"{CARD}[data-open=false] .jp-gpuwidget-gpu-row")[:2]:
        row.click()
    open_part(notebook, "switches")
    for width in (480, 300, 240):
        show(notebook, width)
        assert clipped(notebook) == []
    assert english_texts(notebook, PANEL) == ["[1] import json as _json"]  # A cell is named by its code.
    notebook.close()


def test_the_doctor_and_a_card(lab: Lab, browser: BrowserContext) -> None:
    """The doctor's findings and fixes, of the kernel and of the server, are Chinese. So is a card that is
    made while the page is open."""
    notebook = lab.open(
        browser, lab.write("doctor.ipynb", ["%load_ext gpuwidget", "%%gpuwatch\npass"]), height=1700
    )
    show(notebook, 420)
    notebook.run(0)
    notebook.wait_until_done()
    wait_for_text(notebook, f"{CARD} .jp-gpuwidget-gpu-badge", "cuda:7")
    open_part(notebook, "health")
    notebook.page.wait_for_selector(CHECKS)
    notebook.page.wait_for_selector(f"{DOCTOR} .jp-gpuwidget-doctor-run:enabled")
    assert english_texts(notebook, f"{DOCTOR} .jp-gpuwidget-doctor-checks") == []
    notebook.run(1)
    notebook.wait_until_done()
    card = notebook.page.locator(".jp-OutputArea-output").last
    assert "峰值" in card.inner_text()
    assert card.locator("summary").last.inner_text() == "运行"
    notebook.close()


def test_the_dashboard_the_launcher_and_the_palette(lab: Lab, browser: BrowserContext) -> None:
    """The dashboard and all commands are Chinese. The dashboard's launcher item is in JupyterLab's category
    "Other"."""
    notebook = lab.open(browser, lab.write("board.ipynb", ["1"]), kernel=False)
    notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
    notebook.page.wait_for_selector(f"{DASHBOARD} .jp-gpuwidget-dashboard-chart canvas")
    notebook.page.click(f"{DASHBOARD} summary")
    assert english_texts(notebook, DASHBOARD) == []
    labels = notebook.script(
        "return app.commands.listCommands().filter(id => id.startsWith('gpuwidget:'))"
        ".map(id => app.commands.label(id));"
    )
    assert [label for label in labels if not HAN.search(label)] == []
    notebook.script("await app.commands.execute('launcher:create');")
    group = notebook.page.locator(".jp-Launcher-section:has([title*='所有 GPU 各项指标'])")
    assert "其" in group.locator(".jp-Launcher-sectionTitle").inner_text()
    notebook.close()


def test_the_settings(lab: Lab, browser: BrowserContext) -> None:
    """In the settings editor, the names and descriptions of gpuwidget's settings are Chinese."""
    notebook = lab.open(browser, lab.write("set.ipynb", ["1"]), kernel=False)
    notebook.script("await app.commands.execute('settingeditor:open', {query: 'GPU'});")
    wait_for_text(notebook, ".jp-SettingsForm", "图表的时长")
    wait_for_text(notebook, ".jp-SettingsForm", "GPU 从总线上掉线")
    notebook.close()
