"""The layout of the panel's sections: how they share its height, and that they stay expanded or collapsed
after a reload."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import helpers_kernel_state
from browser.test_cells_list import MIME, ROW, report, write_reports
from helpers_diagnosis import fake_doctor_route, healthy
from helpers_lab import Lab, Notebook
from helpers_ownership import FakeOwnershipStream, allocation, gpu, kernel
from helpers_panel import (
    CARD,
    DEVICE,
    GIB,
    LOAD_BUTTON,
    PANEL,
    cards,
    lab_with,
    machine,
    open_part,
    saved_workspace,
    set_part,
    show,
    unreadable,
    use_font,
    uuids,
    wait_for_text,
)
from playwright.sync_api import BrowserContext, Page

Open = Callable[..., Notebook]
SCROLL = f"{PANEL} .jp-gpuwidget-panel-scroll"
SWITCHES = f"{PANEL} .jp-gpuwidget-switches"
DOCTOR = f"{PANEL} .jp-gpuwidget-doctor"
CELLS = f"{PANEL} .jp-gpuwidget-cells-toggle"
ENERGY = f"{PANEL} .jp-gpuwidget-cells-column:last-child"
RUN_CHECKS = f"{DOCTOR} .jp-gpuwidget-doctor-run"
COUNT_VISIBLE = """
([selector, scroll]) => {
    const view = document.querySelector(scroll).getBoundingClientRect();
    return [...document.querySelectorAll(selector)].filter(node => {
        const { top, bottom } = node.getBoundingClientRect();
        return bottom > top && top >= view.top - 1 && bottom <= view.bottom + 1;
    }).length;
}
"""
SCROLLED = """
nodes => nodes.filter(node => node.checkVisibility() && node.scrollHeight > node.clientHeight + 1)
    .filter(node => ['auto', 'scroll'].includes(getComputedStyle(node).overflowY))
    .map(node => node.className.split(' ').at(-1))
"""
# Show a text in a dropdown, and return the places of its lines and of the caret. The text of a dropdown is
# not in the document, so a copy with the same font and width is measured.
_SHOW_IN_DROPDOWN = """
([selector, text]) => {
    const select = document.querySelector(selector);
    select.selectedOptions[0].text = text;
    const style = getComputedStyle(select);
    const copy = document.createElement('div');
    copy.textContent = text;
    for (const name of ['font', 'lineHeight', 'whiteSpace', 'paddingLeft', 'paddingRight']) {
        copy.style[name] = style[name];
    }
    const width = `${select.clientWidth}px`;
    Object.assign(copy.style, {position: 'absolute', boxSizing: 'border-box', width});
    select.parentElement.append(copy);
    const lineHeight = parseFloat(style.lineHeight);
    const {right, height} = select.getBoundingClientRect();
    const caret = select.parentElement.querySelector('svg').getBoundingClientRect().toJSON();
    const lines = Math.round(copy.clientHeight / lineHeight);
    const cut = copy.scrollWidth > copy.clientWidth;
    copy.remove();
    return {
        lines, cut, lineHeight, height, right, caret,
        textRight: right - parseFloat(style.paddingRight) - parseFloat(style.borderRightWidth),
        ellipsis: style.whiteSpace === 'nowrap' && style.textOverflow === 'ellipsis',
    };
}
"""
FOLD = f"{CARD} .jp-gpuwidget-gpu-row"
BAR = f"{CARD} .jp-gpuwidget-gpu-bar"
HEIGHTS = "panel => [...panel.children].map(node => node.getBoundingClientRect().height)"


def count_visible(page: Page, selector: str, scroll: str) -> int:
    """Return how many matching elements are fully visible in the scrolled part of the panel."""
    count: int = page.evaluate(COUNT_VISIBLE, [selector, scroll])
    return count


def scroll_to(page: Page, selector: str) -> bool:
    """Scroll to the last matching element.
    Return whether it is visible and not covered by a sticky header."""
    page.locator(selector).last.evaluate("node => node.scrollIntoView({ block: 'end' })")
    found: bool = page.locator(selector).last.evaluate(
        "node => { const { left, top, width, height } = node.getBoundingClientRect();"
        " return node.contains(document.elementFromPoint(left + width / 2, top + height / 2)); }"
    )
    return found


def expanded(page: Page) -> dict[str, bool]:
    """Return for each section whether it is expanded."""
    return {
        "switches": page.get_attribute(SWITCHES, "open") is not None,
        "health": page.get_attribute(DOCTOR, "open") is not None,
        "cells": page.get_attribute(CELLS, "aria-expanded") == "true",
    }


def test_everything_expanded_in_a_small_panel(open_notebook: Open, lab: Lab) -> None:
    """In a panel of 240 by 600 pixels with all sections expanded, everything below the header scrolls as one
    part, no section is squeezed, and no element moves while values change."""
    path = write_reports(lab, "full.ipynb", [report(n, n, 1.0) for n in range(2, 22)], source="import time")
    notebook = open_notebook(path, height=600)
    page = notebook.page
    fake_doctor_route(notebook, (200, healthy()))
    notebook.script(
        "panel.content.model.sharedModel.cells[0].setSource('%load_ext gpuwidget\\nimport torch');"
    )
    show(notebook, 240)
    notebook.run(0)
    notebook.wait_until_done()
    page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-watch:enabled")
    for part in ("switches", "health"):
        open_part(notebook, part)
    page.wait_for_selector(f"{DOCTOR} .jp-gpuwidget-doctor-check")
    page.wait_for_selector(f"{RUN_CHECKS}:enabled")
    assert expanded(page) == {"switches": True, "health": True, "cells": True}
    for section in (SWITCHES, DOCTOR):
        whole = page.eval_on_selector(section, "node => [node.offsetHeight >= node.scrollHeight, node.open]")
        assert whole == [True, True]
    scrolled = page.eval_on_selector_all(f"{PANEL} *", SCROLLED)
    assert [name for name in scrolled if "switches-log" not in name] == ["jp-gpuwidget-panel-scroll"]
    for part in (
        DEVICE,
        f"{SWITCHES} .jp-gpuwidget-switches-row",
        f"{CARD} .jp-gpuwidget-gpu-row",
        RUN_CHECKS,
        ROW,
    ):
        assert scroll_to(page, part), part
    # Only the cards in view are updated with each sample, the others every 10 s.
    scroll_to(page, f"{CARD} .jp-gpuwidget-gpu-row")
    before = page.eval_on_selector(PANEL, HEIGHTS)
    notebook.record_layout_shifts(PANEL)
    notebook.wait_for_changes(f"{PANEL} .jp-gpuwidget-gpu-list", 5)
    assert notebook.layout_shifts() == []
    assert page.eval_on_selector(PANEL, HEIGHTS) == before
    assert page.eval_on_selector(PANEL, "node => node.scrollHeight === node.clientHeight")


def test_large_fonts_and_zoom(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """With fonts of 13 and 18 px in panels of 240, 300 and 420 px, no text is cut off or overlaps another,
    and the memory bars are at least 40 px wide. A folded row is one line. At a zoom of 200 %, every part can
    be scrolled into view."""
    faked: list[FakeOwnershipStream] = []
    known = uuids(two_gpu_lab)
    reports = [report(n, 3 * n, 60.0 * n) for n in range(2, 5)]
    notebook = two_gpu_lab.open(
        browser,
        write_reports(two_gpu_lab, "large.ipynb", reports),
        height=2600,
        prepare=lambda page: faked.append(FakeOwnershipStream(page)),
    )
    page = notebook.page
    show(notebook)
    page.wait_for_selector(CARD)
    active = notebook.script("return panel.sessionContext.session.kernel.id;")
    faked[0].send(
        [kernel(active, "large.ipynb"), kernel("k2", "eval.ipynb", idle_since=time.time() - 7200)],
        [
            gpu(known[0], allocation(14, kernel=active), allocation(30, kernel="k2"), unattributed=2**33),
            gpu(known[1], allocation(14, pid=4711, user="ada", program="python train.py")),
        ],
    )
    wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-hint", "eval.ipynb")
    page.wait_for_selector(LOAD_BUTTON)
    open_part(notebook, "switches")
    page.locator(FOLD).nth(1).click()
    for pixels in (18, 13):
        use_font(notebook, pixels)
        for width in (240, 300, 420):
            show(notebook, width)
            assert unreadable(notebook) == [], (pixels, width)
            bars = page.eval_on_selector_all(BAR, "bars => bars.map(bar => bar.clientWidth).filter(Boolean)")
            assert len(bars) == 2, (pixels, width)
            assert min(bars) >= 40, (pixels, width, bars)
    folded = page.locator(f"{CARD} .jp-gpuwidget-gpu-head").nth(1)
    assert folded.inner_text().replace("\u2007", "").split() == [
        "1",
        "H200",
        "11",
        "%",
        "ada:",
        "python",
        "train.py",
    ]
    assert folded.evaluate("row => row.clientHeight") == 22
    page.click(f"{SWITCHES} > summary")
    page.set_viewport_size({"width": 683, "height": 384})  # a window of 1366 by 768 px at 200 %
    show(notebook, 300)
    for part in (DEVICE, FOLD, f"{CARD} .jp-gpuwidget-gpu-chart:visible", ROW):
        assert scroll_to(page, part), part
    notebook.close()


def test_the_chosen_device_at_every_width(open_notebook: Open, lab: Lab) -> None:
    """The text of the device dropdown is one line at every width. At 240 px, it has room for the device, its
    model and its free memory, and the rest ends with an ellipsis; the tooltip has all of it. The dropdown has
    a caret, which no text covers."""
    notebook = open_notebook([helpers_kernel_state.cell(helpers_kernel_state.state(uuids(lab)))])
    page = notebook.page
    show(notebook, 300)
    notebook.run(0)
    notebook.wait_until_done()
    page.wait_for_selector(f"{DEVICE}:enabled")
    assert page.get_attribute(DEVICE, "title") == page.locator(f"{DEVICE} option:checked").inner_text()
    text = "cuda:1 · H200 · 128 GiB free"
    for width in (240, 300, 330, 360, 420):
        show(notebook, width)
        box = page.evaluate(_SHOW_IN_DROPDOWN, [DEVICE, text])
        assert box["lines"] == 1, (width, box)
        assert box["cut"] is False, (width, box)
        assert box["ellipsis"], (width, box)
        assert box["height"] >= box["lines"] * box["lineHeight"], (width, box)
        assert 0 <= box["right"] - box["caret"]["right"] <= 8, (width, box)
        assert box["caret"]["left"] >= box["textRight"], (width, box)
        assert box["caret"]["width"] == 16, (width, box)
    caret = f"{PANEL} .jp-gpuwidget-device-caret path"
    fill = "node => getComputedStyle(node).fill"
    colors = {}
    for theme in ("light", "dark"):
        notebook.use_theme(theme)
        colors[theme] = page.eval_on_selector(caret, fill)
    page.emulate_media(forced_colors="active")
    assert page.eval_on_selector(caret, fill) == page.eval_on_selector(
        PANEL, "node => { node.style.color = 'FieldText'; return getComputedStyle(node).color; }"
    )
    assert colors["light"] != colors["dark"]


def test_memory_is_one_line(lab: Lab, browser: BrowserContext) -> None:
    """In a panel of 240 px, the notebook's memory, that of others and the free memory fit into one line."""
    notebook = lab.open(browser, lab.write("in-use.ipynb", ["1"]), kernel=False)
    show(notebook, 240)
    notebook.page.wait_for_selector(f"{CARD} canvas")
    needed, available = notebook.script(
        "const line = document.querySelector('.jp-gpuwidget-gpu-memory'), [used, free] = line.children;"
        "used.textContent = '130 GiB mine · 110 others'; free.textContent = '123 free';"
        "return [line.scrollWidth, line.clientWidth];"
    )
    assert needed <= available


def test_two_gpus_in_a_window_of_768_px(two_gpu_lab: Lab, browser: BrowserContext) -> None:
    """In a window of 1366 by 768 px, a notebook without watched cells shows two GPUs with their charts, the
    device section and the head of the list of cells without scrolling, and nothing else. After the first
    watched cell, the list of cells is expanded."""
    state = helpers_kernel_state.state(uuids(two_gpu_lab))
    path = two_gpu_lab.write("laptop.ipynb", [helpers_kernel_state.cell(state), "1"])
    notebook = two_gpu_lab.open(browser, path, width=1366, height=768)
    page = notebook.page
    show(notebook, 300)
    notebook.run(0)
    notebook.wait_until_done()
    wait_for_text(notebook, f"{CARD} .jp-gpuwidget-gpu-badge", "cuda:1")
    for part, section in (("switches", SWITCHES), ("health", DOCTOR)):
        set_part(notebook, part, shown=False)  # as by default
        page.wait_for_selector(section, state="hidden")
    assert page.inner_text(CELLS).split("\n") == ["Cells", "none watched yet"]
    assert [card["open"] for card in cards(notebook)] == [True, True]
    assert page.eval_on_selector(SCROLL, "node => node.scrollHeight === node.clientHeight")
    for part in (DEVICE, CELLS):
        assert count_visible(page, part, SCROLL) == 1, part
    assert count_visible(page, f"{CARD} .jp-gpuwidget-gpu-state", SCROLL) == 2
    notebook.script(
        "panel.content.model.cells.get(1).outputs.add({output_type: 'display_data', metadata: {},"
        " data: {'text/plain': 'card', [argument[0]]: argument[1]}});",
        [MIME, report(2, 3, 1.0)],
    )
    page.wait_for_selector(ROW)
    assert expanded(page)["cells"]
    notebook.close()


def test_the_doctor_below_many_gpus(browser: BrowserContext, tmp_path: Path) -> None:
    """With 16 GPUs, the doctor's button is always visible. Its section scrolls into view when it opens."""
    with lab_with(tmp_path, *machine(16)) as (lab, _):
        notebook = lab.open(browser, lab.write("many.ipynb", ["1"]), height=600, kernel=False)
        page = notebook.page
        fake_doctor_route(notebook, (200, healthy()))
        show(notebook, 300)
        page.wait_for_selector(CARD)
        assert count_visible(page, CARD, SCROLL) < 16
        page.click(f"{PANEL} [data-jp-item-name=doctor]")
        wait_for_text(notebook, f"{DOCTOR} > summary", "no problems")
        assert count_visible(page, f"{DOCTOR} > summary", SCROLL) == 1
        notebook.close()


ROWS = """
rows => rows.map(row => {
    const cut = [...row.querySelectorAll('.jp-gpuwidget-gpu-name, .jp-gpuwidget-gpu-user')]
        .filter(node => node.checkVisibility() && node.scrollWidth > node.clientWidth);
    return {
        height: row.clientHeight,
        wide: row.scrollWidth > row.clientWidth,
        cut: cut.length,
        explained: cut.every(node => node.title !== '' && getComputedStyle(node).textOverflow === 'ellipsis'),
    };
})
"""


def test_sixteen_gpus(browser: BrowserContext, tmp_path: Path) -> None:
    """With 16 GPUs in a panel of 240 px, each folded GPU is one row of 22 px, or 31 px with a font of 18 px,
    with and without a scrollbar. Names that are too long end with an ellipsis, and their tooltip has them in
    full."""
    faked: list[FakeOwnershipStream] = []
    with lab_with(tmp_path, *machine(16)) as (lab, _):
        known = uuids(lab)
        state = helpers_kernel_state.state(known)
        path = lab.write("a long name of a notebook about training.ipynb", [helpers_kernel_state.cell(state)])
        prepare = lambda page: faked.append(FakeOwnershipStream(page))  # noqa: E731
        notebook = lab.open(browser, path, height=2600, prepare=prepare)
        page = notebook.page
        show(notebook, 240)
        notebook.run(0)
        notebook.wait_until_done()
        wait_for_text(notebook, f"{CARD} .jp-gpuwidget-gpu-badge", "cuda:15")
        # The cards of default and used devices are expanded: fold all.
        for row in page.query_selector_all(f"{CARD}[data-open=true] .jp-gpuwidget-gpu-row"):
            row.click()
        long = "a long name of a notebook that evaluates.ipynb"
        faked[0].send([kernel("k2", long)], [gpu(uuid, allocation(1, kernel="k2")) for uuid in known])
        page.wait_for_selector(f"{CARD} .jp-gpuwidget-gpu-user[title='{long}']", state="attached")
        for pixels, height in ((13, 22), (18, 31)):
            use_font(notebook, pixels)
            for window in (2600, 500):
                page.set_viewport_size({"width": 1200, "height": window})
                show(notebook, 240)
                scrolls = page.eval_on_selector(SCROLL, "node => node.scrollHeight > node.clientHeight")
                assert scrolls == (window == 500)
                rows = page.eval_on_selector_all(f"{CARD} .jp-gpuwidget-gpu-head", ROWS)
                assert len(rows) == 16
                assert {row["height"] for row in rows} == {height}, (pixels, window)
                assert not any(row["wide"] for row in rows), (pixels, window)
                assert all(row["explained"] for row in rows), (pixels, window)
                title = page.locator(f"{PANEL} .jp-gpuwidget-device-title")
                assert title.evaluate("node => node.clientHeight") < 3 * pixels, (pixels, window)
        name = page.locator(f"{PANEL} .jp-gpuwidget-device-notebook")
        assert name.evaluate("node => getComputedStyle(node).textOverflow") == "ellipsis"
        assert "a long name of a notebook about training.ipynb" in (name.get_attribute("title") or "")
        notebook.close()


LEVELS = """
nodes => nodes.map(node => [
    node.dataset.level ?? '',
    getComputedStyle(node.querySelector('.jp-gpuwidget-gpu-body .jp-gpuwidget-gpu-bar')).backgroundImage,
])
"""


def test_memory_that_is_nearly_full(browser: BrowserContext, tmp_path: Path) -> None:
    """The memory bar of a GPU is amber from 90 % on and red from 97 % on, whoever holds the memory. So is the
    meter in the status bar."""
    used = [f"gpu.{index}.memory_used={share * 140 * GIB // 100}" for index, share in enumerate((89, 91, 98))]
    with lab_with(tmp_path, *machine(3), *used) as (lab, standin):
        notebook = lab.open(browser, lab.write("full.ipynb", ["1"]), kernel=False)
        page = notebook.page
        show(notebook, 240)
        for row in page.locator(f"{CARD}[data-open=false] .jp-gpuwidget-gpu-row").all():
            row.click()
        page.wait_for_selector(f"{CARD}[data-level=full]")
        levels = page.eval_on_selector_all(CARD, LEVELS)
        assert [level for level, _ in levels] == ["", "high", "full"]
        gray, amber, red = (bar.split("0%")[0] for _, bar in levels)
        assert len({gray, amber, red}) == 3
        page.wait_for_selector(".jp-gpuwidget-status-bar[data-level=full]")
        standin.scenario(*machine(3), *used[:2], f"gpu.2.memory_used={GIB}")
        page.wait_for_selector(".jp-gpuwidget-status-bar[data-level=high]")
        notebook.close()


def test_the_panel_is_the_same_after_a_reload(open_notebook: Open, lab: Lab) -> None:
    """After a reload of the page, the same sections are expanded and the list of cells has the same order.
    The checks of an expanded "Doctor" section do not run."""
    notebook = open_notebook(write_reports(lab, "sections.ipynb", [report(1, 1, 1.0)]), kernel=False)
    page = notebook.page
    fake_doctor_route(notebook, (200, healthy()))
    show(notebook, 300)
    page.wait_for_selector(CARD)
    assert expanded(page) == {"switches": False, "health": False, "cells": True}
    for part in ("switches", "health"):
        set_part(notebook, part, shown=True)
    before = [card["open"] for card in cards(notebook)[:2]]
    with page.expect_request(lambda request: uuids(lab)[1] in saved_workspace(request)):
        page.click(f"{ENERGY} > button")
        for head in (f"{SWITCHES} > summary", f"{DOCTOR} > summary", CELLS):
            page.click(head)
        wait_for_text(notebook, f"{DOCTOR} > summary", "no problems")
        for place in (0, 1):
            page.locator(f"{CARD} .jp-gpuwidget-gpu-row").nth(place).click()
    page.goto(page.url.split("?")[0])
    notebook.wait_until_open(kernel=False)
    requested = fake_doctor_route(notebook, (200, healthy()))
    show(notebook, 300)
    page.wait_for_selector(CARD)
    assert expanded(page) == {"switches": True, "health": True, "cells": False}
    assert [card["open"] for card in cards(notebook)[:2]] == [not open_before for open_before in before]
    page.click(CELLS)
    assert page.get_attribute(ENERGY, "aria-sort") == "descending"
    wait_for_text(notebook, DOCTOR, "Not run")
    assert requested == []
    page.click(f"{RUN_CHECKS}:has-text('Run')")
    wait_for_text(notebook, f"{DOCTOR} > summary", "no problems")
    assert page.inner_text(RUN_CHECKS) == "Run again"
    for part in ("switches", "health"):
        set_part(notebook, part, shown=False)
