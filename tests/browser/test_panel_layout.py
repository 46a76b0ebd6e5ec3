"""How the panel's sections share its height, and that what was folded stays so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from helpers_doctor import answer_server, well
from helpers_lab import Lab, Notebook
from helpers_panel import CARD, PANEL, cards, lab_with, machine, show, uuids, wait_for_text
from playwright.sync_api import Browser, Page
from test_cells_list import ROW, report, saved

Open = Callable[..., Notebook]
SCROLL = f"{PANEL} .jp-gpuwidget-panel-scroll"
SWITCHES = f"{PANEL} .jp-gpuwidget-settings"
HEALTH = f"{PANEL} .jp-gpuwidget-diagnostics"
CELLS = f"{PANEL} .jp-gpuwidget-cells-toggle"
ENERGY = f"{PANEL} .jp-gpuwidget-cells-column:last-child"
AGAIN = f"{HEALTH} .jp-gpuwidget-diagnostics-run"
SEEN = """
([selector, scroll]) => {
    const view = document.querySelector(scroll).getBoundingClientRect();
    return [...document.querySelectorAll(selector)].filter(node => {
        const { top, bottom } = node.getBoundingClientRect();
        return bottom > top && top >= view.top - 1 && bottom <= view.bottom + 1;
    }).length;
}
"""
SHARES = "panel => [...panel.children].map(node => node.getBoundingClientRect().height)"


def seen(page: Page, selector: str, scroll: str) -> int:
    """How many of these are wholly in sight within what scrolls."""
    count: int = page.evaluate(SEEN, [selector, scroll])
    return count


def reach(page: Page, selector: str) -> bool:
    """Scroll there, and say whether it is wholly in sight then, below what sticks to the top."""
    page.locator(selector).last.evaluate("node => node.scrollIntoView({ block: 'end' })")
    found: bool = page.locator(selector).last.evaluate(
        "node => { const { left, top, width, height } = node.getBoundingClientRect();"
        " return node.contains(document.elementFromPoint(left + width / 2, top + height / 2)); }"
    )
    return found


def unfolded(page: Page) -> dict[str, bool]:
    """Which folds are unfolded."""
    return {
        "switches": page.get_attribute(SWITCHES, "open") is not None,
        "health": page.get_attribute(HEALTH, "open") is not None,
        "cells": page.get_attribute(CELLS, "aria-expanded") == "true",
    }


def test_everything_unfolded_in_little_room(open_notebook: Open, lab: Lab) -> None:
    """With all unfolded at 240 by 600 pixels nothing is squeezed: the GPUs, torch's switches and the doctor
    scroll past in 140 pixels at least, three lines of the cells are seen, and nothing moves by itself."""
    path = saved(lab, "full.ipynb", [report(n, n, 1.0) for n in range(2, 22)], source="import time")
    notebook = open_notebook(path, height=600)
    page = notebook.page
    answer_server(notebook, (200, well()))
    notebook.script(
        "panel.content.model.sharedModel.cells[0].setSource('%load_ext gpuwidget\\nimport torch');"
    )
    show(notebook, 240)
    notebook.run(0)
    notebook.wait_until_done()
    page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-watch:enabled")
    for fold in (SWITCHES, HEALTH):
        page.click(f"{fold} > summary")
    page.wait_for_selector(f"{HEALTH} .jp-gpuwidget-diagnostics-check")
    page.wait_for_selector(f"{AGAIN}:enabled")
    assert unfolded(page) == {"switches": True, "health": True, "cells": True}
    box = page.locator(SCROLL).bounding_box()
    assert box is not None
    assert box["height"] >= 140
    assert seen(page, ROW, f"{PANEL} .jp-gpuwidget-cells-body") >= 3
    for fold in (SWITCHES, HEALTH):
        whole = page.eval_on_selector(fold, "node => [node.offsetHeight >= node.scrollHeight, node.open]")
        assert whole == [True, True]
    for part in (f"{SWITCHES} .jp-gpuwidget-settings-row", f"{CARD} .jp-gpuwidget-gpu-row", AGAIN, ROW):
        assert reach(page, part), part
    before = page.eval_on_selector(PANEL, SHARES)
    notebook.watch_shifts()
    page.wait_for_timeout(2500)
    assert notebook.shifts() == []
    assert page.eval_on_selector(PANEL, SHARES) == before
    assert page.eval_on_selector(PANEL, "node => node.scrollHeight === node.clientHeight")


def test_the_doctor_is_at_hand_below_many_gpus(browser: Browser, tmp_path: Path) -> None:
    """Folded its line is always in sight; unfolded it comes to the top."""
    with lab_with(tmp_path, *machine(16)) as (lab, _):
        notebook = lab.open(browser, lab.write("many.ipynb", ["1"]), height=600, kernel=False)
        page = notebook.page
        answer_server(notebook, (200, well()))
        show(notebook, 300)
        page.wait_for_selector(CARD)
        assert seen(page, CARD, SCROLL) < 16
        assert seen(page, f"{HEALTH} > summary", SCROLL) == 1
        page.click(f"{HEALTH} > summary")
        wait_for_text(notebook, f"{HEALTH} > summary", "all links found")
        assert seen(page, f"{HEALTH} > summary", SCROLL) == 1
        assert seen(page, f"{HEALTH} .jp-gpuwidget-diagnostics-title", SCROLL) >= 1
        notebook.close()


def test_the_panel_is_the_same_after_a_reload(open_notebook: Open, lab: Lab) -> None:
    """Expanded sections and the cells' order are restored; an expanded doctor runs no checks by itself."""
    notebook = open_notebook(saved(lab, "folds.ipynb", [report(1, 1, 1.0)]), kernel=False)
    page = notebook.page
    answer_server(notebook, (200, well()))
    show(notebook, 300)
    page.wait_for_selector(CARD)
    assert unfolded(page) == {"switches": False, "health": False, "cells": True}
    before = [card["open"] for card in cards(notebook)[:2]]
    with page.expect_request(
        lambda request: request.method == "PUT" and uuids(lab)[1] in (request.post_data or "")
    ):
        page.click(f"{ENERGY} > button")
        for head in (f"{SWITCHES} > summary", f"{HEALTH} > summary", CELLS):
            page.click(head)
        wait_for_text(notebook, f"{HEALTH} > summary", "all links found")
        for place in (0, 1):
            page.locator(f"{CARD} .jp-gpuwidget-gpu-row").nth(place).click()
    page.goto(page.url.split("?")[0])
    notebook.wait_until_open(kernel=False)
    asked = answer_server(notebook, (200, well()))
    show(notebook, 300)
    page.wait_for_selector(CARD)
    assert unfolded(page) == {"switches": True, "health": True, "cells": False}
    assert [card["open"] for card in cards(notebook)[:2]] == [not open_before for open_before in before]
    page.click(CELLS)
    assert page.get_attribute(ENERGY, "aria-sort") == "descending"
    wait_for_text(notebook, HEALTH, "Not looked at yet.")
    assert asked == []
    page.click(f"{AGAIN}:has-text('Look now')")
    wait_for_text(notebook, f"{HEALTH} > summary", "all links found")
    assert page.inner_text(AGAIN) == "Look again"
