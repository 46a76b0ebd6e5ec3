"""The panel's list of cells, the bands of cells on the charts, and the status bar item."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import helpers_kernel_state
import nbformat
from helpers_lab import Lab, Notebook, new_page, runs_until
from helpers_panel import (
    DEVICE,
    GIB,
    PANEL,
    saved_workspace,
    show,
    unreadable,
    use_font,
    uuids,
    wait_for_text,
)
from playwright.sync_api import BrowserContext

Open = Callable[..., Notebook]

CELLS = f"{PANEL} .jp-gpuwidget-cells"
ROW = f"{CELLS} .jp-gpuwidget-cells-rows > [role=row]"
RUNNING = f"{CELLS} .jp-gpuwidget-cells-running"
STATUS = ".jp-gpuwidget-status"
TIME = ".jp-gpuwidget-cells-time"
MIME = "application/vnd.gpuwidget.report+json"
WATCHED = "%%gpuwatch --name {label}\n{body}"
ACTIVE = "return panel.content.activeCellIndex;"
IN_VIEW = """
const node = panel.content.activeCell.node.getBoundingClientRect();
const view = panel.content.node.getBoundingClientRect();
return node.height > 0 && node.bottom > view.top && node.top < view.bottom;
"""


def span(start: int, end: int, peak: int) -> dict[str, int]:
    """Return a report's memory span in bytes. The arguments are in GiB."""
    return {"start": start * GIB, "end": end * GIB, "peak": peak * GIB}


def report(count: int, gib: int, seconds: float, uuid: str = "GPU-1", started: float = 1e9) -> dict[str, Any]:
    """Return the report of the cell with the execution count ``count``, which allocated ``gib`` GiB and used
    ``gib`` kJ of energy."""
    torch = {"allocated": span(0, gib, gib + 1), "reserved": span(0, gib, gib + 1), "ooms": 0}
    gpu = {
        "uuid": uuid,
        "index": 0,
        "mig_index": None,
        "torch_device": "cuda:0",
        "shown": True,
        "torch": torch,
        "process_memory": None,
        "device_memory": span(0, gib, gib),
        "energy_j": 1000.0 * gib,
        "missing": {},
    }
    cell = {"execution_count": count, "label": None, "started": started + 1000 * count, "duration_s": seconds}
    source = {"kind": "nvml", "reason": None, "recording": None}
    return {"schema": 1, "source": source, "cell": {**cell, "status": "ok"}, "gpus": [gpu]}


def write_reports(
    lab: Lab, name: str, reports: Sequence[dict[str, Any]], cells: int = 0, source: str = "1"
) -> Path:
    """Write a trusted notebook with ``cells`` cells without a report, followed by one cell for each report.
    Return its path."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for _ in range(cells)])
    for one in reports:
        cell = nbformat.v4.new_code_cell(source, execution_count=one["cell"]["execution_count"])
        cell.outputs = [nbformat.v4.new_output("display_data", data={"text/plain": "card", MIME: one})]
        notebook.cells.append(cell)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path = lab.notebooks / name
    nbformat.write(notebook, path)
    lab.trust(path)
    return path


def rows(notebook: Notebook) -> list[list[str]]:
    """Return each row of the list as texts: the cell's name without its day, and its figures."""
    shown: list[list[str]] = notebook.page.eval_on_selector_all(
        ROW,
        "rows => rows.map(row => [row.querySelector('.jp-gpuwidget-cells-name')"
        ", ...[...row.children].slice(1)].map(cell => cell.textContent))",
    )
    return shown


def names(notebook: Notebook) -> list[str]:
    """Return the name of the cell in each row of the list."""
    return [row[0] for row in rows(notebook)]


def wait_for_names(notebook: Notebook, *wanted: str) -> None:
    """Wait until the rows of the list have these names."""
    notebook.page.wait_for_function(
        "([row, wanted]) => JSON.stringify([...document.querySelectorAll(row)]"
        ".map(node => node.querySelector('.jp-gpuwidget-cells-name').textContent)) === wanted",
        arg=[ROW, json.dumps(list(wanted), separators=(",", ":"), ensure_ascii=False)],
    )


def sort_by(notebook: Notebook, column: int) -> str | None:
    """Click the header of a column, and return the column's new sort order."""
    head = f"{CELLS} [role=columnheader]:nth-child({column})"
    notebook.page.click(f"{head} button")
    return notebook.page.get_attribute(head, "aria-sort")


def run(notebook: Notebook, *cells: int) -> None:
    """Run these cells, one after the other."""
    for cell in cells:
        notebook.run(cell)
        notebook.wait_until_done()


def test_cells_that_ran_are_listed(open_notebook: Open, tmp_path: Path) -> None:
    """While a watched cell is running, it is shown as running, and a queued cell is not shown. When the cell
    ends, it is added to the list."""
    end = tmp_path / "end"
    notebook = open_notebook(
        [
            "%load_ext gpuwidget",
            WATCHED.format(label="first", body="import time; time.sleep(0.3)"),
            WATCHED.format(label="broken", body="1 / 0"),
            runs_until(end),
            "2",
        ]
    )
    show(notebook)
    notebook.page.click(f"{CELLS} .jp-gpuwidget-cells-toggle")
    assert notebook.page.inner_text(f"{CELLS} .jp-gpuwidget-cells-empty") == (
        "No watched cells yet. Click Watch cells, or start a cell with %%gpuwatch"
    )
    run(notebook, 0, 1, 2)
    wait_for_names(notebook, "[2] first", "[3] broken✕")
    line = rows(notebook)[0]
    assert line[1] == "n/a", line  # what changed in a recording is not what the run changed
    assert line[3].endswith("ms"), line
    assert "recording" in notebook.page.inner_text(f"{CELLS} .jp-gpuwidget-cells-notes")
    notebook.run(3)
    notebook.script("panel.content.activeCellIndex = 4; app.commands.execute('notebook:run-cell');")
    wait_for_text(notebook, RUNNING, "[4] import pathlib, time")
    wait_for_text(notebook, RUNNING, "2 s")
    assert names(notebook) == ["[2] first", "[3] broken✕"]
    end.touch()
    notebook.page.wait_for_selector(RUNNING, state="hidden")


def test_without_a_kernel_and_after_a_reload(open_notebook: Open, lab: Lab) -> None:
    """The list shows the cells of a saved notebook even without a kernel, and its sort order survives a
    reload."""
    path = write_reports(lab, "saved.ipynb", [report(3, 4, 0.5), report(1, 9, 70.0), report(2, 1, 8.0)])
    notebook = open_notebook(path, kernel=False)
    notebook.script("await panel.sessionContext.shutdown();")
    show(notebook)
    notebook.page.wait_for_selector(ROW)
    assert rows(notebook) == [
        ["[3] 1", "+4.0", "5.0", "500 ms", "4.0 kJ"],
        ["[1] 1", "+9.0", "10.0", "1 min 10 s", "9.0 kJ"],
        ["[2] 1", "+1.0", "2.0", "8.0 s", "1.0 kJ"],
    ]
    assert notebook.page.inner_text(f"{CELLS} .jp-gpuwidget-cells-totals") == "3 runs · 1 min 18 s · 14.0 kJ"
    assert sort_by(notebook, 2) == "descending"
    assert names(notebook) == ["[1] 1", "[3] 1", "[2] 1"]
    assert sort_by(notebook, 4) == "descending"
    order = '"column":"time","descending":false'
    with notebook.page.expect_request(lambda request: order in saved_workspace(request)):
        assert sort_by(notebook, 4) == "ascending"
    assert names(notebook) == ["[3] 1", "[2] 1", "[1] 1"]
    notebook.page.goto(notebook.page.url.split("?")[0])
    notebook.wait_until_open(kernel=False)
    show(notebook)
    wait_for_names(notebook, "[3] 1", "[2] 1", "[1] 1")


def test_a_click_goes_to_the_cell(open_notebook: Open, lab: Lab) -> None:
    """A click or Enter on a row of the list scrolls to the cell,
    even if the notebook renders only visible cells."""
    path = write_reports(lab, "far.ipynb", [report(1, 1, 1.0), report(2, 2, 1.0)], cells=300)
    notebook = open_notebook(path)
    notebook.script(
        "const settings = await app.serviceManager.settings.fetch('@jupyterlab/notebook-extension:tracker');"
        "await app.serviceManager.settings.save(settings.id, JSON.stringify({windowingMode: 'full'}));"
    )
    notebook.page.reload()
    notebook.wait_until_open(kernel=False)
    show(notebook)
    wait_for_names(notebook, "[1] 1", "[2] 1")
    assert notebook.script(ACTIVE) == 0
    notebook.page.click(f"{ROW} >> nth=1")
    notebook.page.wait_for_function("() => document.activeElement?.closest('.jp-Notebook')")
    notebook.wait_for(lambda: notebook.script(ACTIVE) == 301 and notebook.script(IN_VIEW))
    notebook.page.focus(f"{ROW} button >> nth=0")
    notebook.page.keyboard.press("End")
    notebook.page.keyboard.press("ArrowUp")
    notebook.page.keyboard.press("Enter")
    notebook.page.wait_for_function("() => document.activeElement?.closest('.jp-Notebook')")
    assert notebook.script(ACTIVE) == 300


def test_ticking_two_cells_compares_them(open_notebook: Open) -> None:
    """When the user ticks a second cell, a new cell below the active one compares the two, and the ticks
    disappear. Only cells that the present process of the kernel has run can be ticked."""
    notebook = open_notebook(["%load_ext gpuwidget", "%%gpuwatch\n1", "%%gpuwatch\n2"])
    page = notebook.page
    show(notebook)
    run(notebook, 0, 1, 2)
    wait_for_names(notebook, "[2] 1", "[3] 2")
    ticks = page.locator(f"{ROW} input")
    for row in (1, 0):
        ticks.nth(row).click()
    notebook.wait_for(lambda: len(notebook.outputs(3)) == 1)
    assert notebook.script("return panel.content.widgets[3].model.sharedModel.getSource();") == (
        "%gpu compare 2 3"
    )
    assert "[2]" in str(notebook.outputs(3)[0]["data"]["text/plain"])
    assert [ticks.nth(row).is_checked() for row in (0, 1)] == [False, False]
    ticks.nth(0).click()
    assert ticks.nth(0).is_checked()
    notebook.script("await panel.sessionContext.session.kernel.restart();")
    page.wait_for_selector(f"{ROW} input:disabled")
    assert not ticks.nth(0).is_checked()
    # The new process of the kernel knows only its own runs.
    run(notebook, 0, 1)
    page.wait_for_selector(f"{ROW} input:enabled")
    assert [ticks.nth(row).is_enabled() for row in (0, 1)] == [True, False]
    titles = page.locator(f"{ROW} .jp-gpuwidget-cells-tick").evaluate_all("nodes => nodes.map(n => n.title)")
    assert titles == [
        "Tick two cells to compare them (%gpu compare)",
        "Only cells that this kernel has run while the page was open can be compared",
    ]


def test_a_late_scroll_does_not_take_the_focus(open_notebook: Open, lab: Lab) -> None:
    """If the user goes elsewhere while the notebook scrolls to a clicked cell, the focus stays there. This
    cell may be in the document without being displayed.
    """
    path = write_reports(lab, "late.ipynb", [report(1, 1, 1.0), report(2, 2, 1.0)], cells=300)
    notebook = open_notebook(path, kernel=False)
    show(notebook)
    wait_for_names(notebook, "[1] 1", "[2] 1")
    notebook.script(
        "const { content } = panel, cell = content.widgets[301].node;"
        "Object.defineProperty(cell, 'isConnected', { value: true });"
        "cell.getClientRects = () => window.rendered === true ? [cell.getBoundingClientRect()] : [];"
        "content.scrollToItem = () => new Promise(resolve => { window.scrolled = resolve; });"
    )
    notebook.page.click(f"{ROW} >> nth=1")
    notebook.page.wait_for_function("() => window.scrolled !== undefined")
    notebook.page.focus(f"{ROW} button >> nth=0")
    notebook.script("window.rendered = true; window.scrolled(); await new Promise(done => setTimeout(done));")
    assert notebook.page.evaluate("() => document.activeElement.closest('.jp-gpuwidget-cells-row') !== null")


def test_the_day_of_a_run(open_notebook: Open, lab: Lab) -> None:
    """A cell that did not start today shows the day and time of its start without hovering; a cell of today
    does not. The longest times and sizes have room in their columns at each width. In the narrowest panel
    with a scrollbar, the column of the energy is hidden."""
    now = time.time()
    yesterday = time.localtime(now - 86400)
    reports = [
        report(1, 128, 3599.0, started=now - 1000 - 86400),
        report(2, 128, 359_940.0, started=now - 2000),
        report(3, 128, 707.0, started=now - 3000),
    ]
    reports[2]["cell"]["started"] = None
    path = write_reports(lab, "days.ipynb", reports, source="model.fit(train_set)")
    notebook = open_notebook(path, kernel=False, height=3200)
    show(notebook)
    notebook.page.wait_for_selector(ROW)
    days = notebook.page.locator(f"{ROW} .jp-gpuwidget-cells-day").all_inner_texts()
    month = time.strftime("%b", yesterday)
    assert days == [f"{month} {yesterday.tm_mday}, {yesterday.tm_hour:02}:{yesterday.tm_min:02}", "", ""]
    assert [row[3] for row in rows(notebook)] == ["59 min 59 s", "99 h 59 min", "11 min 47 s"]
    for pixels in (13, 18):
        use_font(notebook, pixels)
        for width in (240, 300, 330, 360, 420):
            show(notebook, width)
            assert unreadable(notebook) == [], (pixels, width)
    use_font(notebook, 13)
    show(notebook, 240)
    energy = notebook.page.locator(f"{CELLS} .jp-gpuwidget-cells-column").last
    assert energy.is_visible()
    # The tests' browser has no scrollbars, so a border takes the room of one.
    notebook.page.eval_on_selector(
        f"{PANEL} .jp-gpuwidget-panel-scroll", "node => { node.style.borderRight = '15px solid'; }"
    )
    energy.wait_for(state="hidden")
    assert unreadable(notebook) == []


def test_many_reports(open_notebook: Open, lab: Lab) -> None:
    """When the panel opens, the list shows all 500 reports of a notebook with 2000 cells. Text that a cell
    prints does not redraw the list."""
    path = write_reports(lab, "many.ipynb", [report(n, n % 50, n / 7) for n in range(1, 501)], cells=1500)
    notebook = open_notebook(path, kernel=False)
    show(notebook)
    notebook.wait_for(lambda: len(rows(notebook)) == 500)
    assert notebook.page.inner_text(f"{CELLS} .jp-gpuwidget-cells-totals").startswith("500 runs")
    notebook.script(
        "window.changes = 0;"
        "new MutationObserver(() => { window.changes++; })"
        ".observe(document.querySelector('.jp-gpuwidget-cells-rows'), {childList: true, subtree: true});"
        "const { outputs } = panel.content.model.cells.get(0);"
        "for (let n = 0; n < 2000; n++) {"
        "  outputs.add({output_type: 'stream', name: n % 2 ? 'stdout' : 'stderr', text: 'x'});"
        "}"
    )
    notebook.page.wait_for_timeout(600)
    assert notebook.script("return window.changes;") == 0
    sort_by(notebook, 2)
    assert names(notebook)[0] == "[49] 1"


def test_another_versions_reports_are_left_out(open_notebook: Open, lab: Lab) -> None:
    """A report of a newer version of gpuwidget is not listed; a note counts such reports. The list can be
    collapsed and expanded."""
    newer = {**report(2, 2, 1.0), "schema": 2}
    notebook = open_notebook(write_reports(lab, "newer.ipynb", [report(1, 1, 1.0), newer]), kernel=False)
    show(notebook)
    wait_for_names(notebook, "[1] 1")
    note = f"{CELLS} .jp-gpuwidget-cells-notes"
    assert notebook.page.inner_text(note) == "1 report from another version of gpuwidget is not shown."
    notebook.page.click(f"{CELLS} .jp-gpuwidget-cells-toggle")
    notebook.page.wait_for_selector(ROW, state="hidden")
    assert notebook.page.get_attribute(f"{CELLS} .jp-gpuwidget-cells-toggle", "aria-expanded") == "false"
    notebook.page.click(f"{CELLS} .jp-gpuwidget-cells-toggle")
    notebook.page.wait_for_selector(ROW)


def test_figures_of_an_untrusted_notebook_are_marked(open_notebook: Open, lab: Lab) -> None:
    """If JupyterLab does not trust a notebook, the list has a note that its figures may not be genuine, which
    also describes the table to screen readers. Markup in a name is text. The note disappears when the user
    trusts the notebook."""
    reports = [report(1, 4, 0.5), report(2, 2, 1.0)]
    reports[0]["cell"]["label"] = "<img src=x onerror='window.hacked = 1'>\u202e\n9 GiB"
    path = write_reports(lab, "sent.ipynb", reports)
    path.write_text(path.read_text().replace('"card"', '"changed"'))  # The signature is no longer valid.
    notebook = open_notebook(path, kernel=False, height=3200)
    page = notebook.page
    show(notebook, 300)
    wait_for_names(notebook, "[1] <img src=x onerror='window.hacked = 1'> 9 GiB", "[2] 1")
    note = page.locator("#jp-gpuwidget-cells-untrusted")
    assert note.inner_text() == "▲ This notebook is not trusted: figures in italics may not be genuine."
    assert page.get_attribute(f"{CELLS} [role=table]", "aria-describedby") == note.get_attribute("id")
    assert "trust the notebook if you trust its author" in (note.get_attribute("title") or "")
    totals = f"{CELLS} .jp-gpuwidget-cells-totals"
    assert page.inner_text(totals) == "Not trusted · 2 runs · 1.5 s · 6.0 kJ"
    slanted = f"rows => rows.map(row => getComputedStyle(row.querySelector('{TIME}')).fontStyle)"
    assert page.eval_on_selector_all(ROW, slanted) == ["italic", "italic"]
    assert unreadable(notebook) == []
    notebook.script("void app.commands.execute('notebook:trust');")
    page.click(".jp-Dialog button.jp-mod-accept, .jp-Dialog button.jp-mod-warn")
    note.wait_for(state="hidden")
    assert page.get_attribute(f"{CELLS} [role=table]", "aria-describedby") is None
    assert page.inner_text(totals) == "2 runs · 1.5 s · 6.0 kJ"
    assert page.eval_on_selector_all(ROW, slanted) == ["normal", "normal"]
    assert page.evaluate("window.hacked") is None


def test_bands_on_the_charts(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """If the pointer is on a GPU's chart, the chart names the cell that used that GPU at the time under the
    pointer. The charts of other GPUs name none."""
    first, second = uuids(two_gpu_lab)
    long_ago = report(7, 4, 60.0, first, time.time() - 7000 - 80)
    notebook = two_gpu_lab.open(browser, write_reports(two_gpu_lab, "bands.ipynb", [long_ago]))
    show(notebook, 300)
    for uuid, named in ((first, True), (second, False)):
        chart = notebook.page.locator(f"[data-gpu-uuid='{uuid}'] .jp-gpuwidget-gpu-chart")
        chart.locator("canvas").wait_for()
        box = chart.bounding_box()
        assert box is not None
        notebook.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
        readout = chart.locator(".jp-gpuwidget-gpu-readout")
        readout.wait_for()
        text = readout.inner_text()
        assert re.fullmatch(r"\d\d:\d\d:\d\d · .+", text), text
        assert text.endswith("[7] 1 · 1 min 00 s") == named
    notebook.close()


def wait_for_status(notebook: Notebook, sentence: str) -> None:
    """Wait until the name of the status bar's item, which is a meter, begins with a sentence."""
    notebook.page.wait_for_selector(f'{STATUS} button[aria-label^="{sentence}"]', state="visible")


def test_status_item(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """The status bar shows the memory and utilization of the server's GPUs or, once gpuwidget is loaded in
    the kernel, of the notebook's GPU. It opens no stream; a click on it opens the panel."""
    state = helpers_kernel_state.state(uuids(two_gpu_lab))
    path = two_gpu_lab.write("status.ipynb", [helpers_kernel_state.cell(state)])
    notebook = two_gpu_lab.open(browser, path)
    streams: list[str] = []
    notebook.page.on("websocket", lambda socket: streams.append(socket.url))
    wait_for_status(notebook, "2 GPUs: memory \u200773 of 280 GiB · mean util 54 %")
    assert notebook.page.inner_text(f"{STATUS} .jp-gpuwidget-status-meter").split("\n") == [
        "54 %",
        "\u200773 of 280 GiB",
    ]
    run(notebook, 0)
    wait_for_status(notebook, "Default: cpu · 14.0 GiB GPU memory · util 11 %")
    title = notebook.page.get_attribute(f"{STATUS} button", "title") or ""
    assert title.splitlines()[1:] == [
        "cuda:0: 14.0 GiB",
        "All GPUs of this server",
        "GPU 0 H200: utilization 97 %, \u200757 of 140 GiB used",
        "GPU 1 H200: utilization 11 %, \u200716 of 140 GiB used",
    ]
    assert not [url for url in streams if "gpuwidget" in url]
    notebook.page.click(f"{STATUS} button")
    notebook.page.wait_for_selector(DEVICE)
    notebook.close()


def test_impossible_numbers_in_a_kernels_reply(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """If a kernel replies with impossible sizes, the status bar and the panel show them as unknown and keep
    working."""
    state = helpers_kernel_state.state(uuids(two_gpu_lab))
    for gpu in state["gpus"]:
        gpu |= {"process_memory": -5 * 2**30, "torch_reserved": 10**400}
    for choice in state["choices"]:
        choice |= {"memory_total": True, "memory_free": 10**400}
    notebook = two_gpu_lab.open(
        browser, two_gpu_lab.write("impossible.ipynb", [helpers_kernel_state.cell(state)])
    )
    run(notebook, 0)
    wait_for_status(notebook, "Default: cpu · n/a GPU memory")
    notebook.page.click(f"{STATUS} button")
    notebook.page.wait_for_selector(DEVICE)
    options = notebook.page.locator(f"{DEVICE} option").all_inner_texts()
    assert {"cuda:0", "cuda:1"} <= {text.partition(" · ")[0] for text in options}
    shown = [*options, notebook.page.inner_text(PANEL)]
    assert [text for text in shown if re.search(r"Infinity|NaN|-\d|\u2212|e\+", text)] == []
    notebook.close()


def test_status_item_in_notebook_7(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """In Notebook 7, which has no status bar, the menu bar shows the memory and utilization."""
    state = helpers_kernel_state.state(uuids(two_gpu_lab))
    path = two_gpu_lab.write("seven.ipynb", [helpers_kernel_state.cell(state)])
    page = new_page(browser)
    page.goto(f"{two_gpu_lab.url}/notebooks/{path.name}?token={two_gpu_lab.token}")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.wait_for_function(
        "() => [...(window.jupyterapp?.shell.widgets('main') ?? [])]"
        ".some(w => w.sessionContext?.session?.kernel?.status === 'idle')"
    )
    notebook = Notebook(page, path)
    wait_for_status(notebook, "2 GPUs: memory \u200773 of 280 GiB · mean util 54 %")
    run(notebook, 0)
    wait_for_status(notebook, "Default: cpu · 14.0 GiB GPU memory · util 11 %")
    page.click(f"{STATUS} button")
    page.wait_for_selector(DEVICE)
    notebook.close()
