"""The layout of the panel's sections: how they share its height, and that they stay expanded or collapsed
after a reload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from helpers_diagnosis import fake_doctor_route, healthy
from helpers_lab import Lab, Notebook
from helpers_panel import CARD, PANEL, cards, lab_with, machine, show, uuids, wait_for_text
from playwright.sync_api import Browser, Page
from test_cells_list import ROW, report, write_reports

Open = Callable[..., Notebook]
SCROLL = f"{PANEL} .jp-gpuwidget-panel-scroll"
SWITCHES = f"{PANEL} .jp-gpuwidget-settings"
DIAGNOSTICS = f"{PANEL} .jp-gpuwidget-diagnostics"
CELLS = f"{PANEL} .jp-gpuwidget-cells-toggle"
ENERGY = f"{PANEL} .jp-gpuwidget-cells-column:last-child"
RUN_CHECKS = f"{DIAGNOSTICS} .jp-gpuwidget-diagnostics-run"
COUNT_VISIBLE = """
([selector, scroll]) => {
    const view = document.querySelector(scroll).getBoundingClientRect();
    return [...document.querySelectorAll(selector)].filter(node => {
        const { top, bottom } = node.getBoundingClientRect();
        return bottom > top && top >= view.top - 1 && bottom <= view.bottom + 1;
    }).length;
}
"""
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
        "health": page.get_attribute(DIAGNOSTICS, "open") is not None,
        "cells": page.get_attribute(CELLS, "aria-expanded") == "true",
    }


def test_everything_expanded_in_a_small_panel(open_notebook: Open, lab: Lab) -> None:
    """In a panel of 240 by 600 pixels with all sections expanded, no section is squeezed, and no element
    moves while values change.

    The part with the GPUs, the PyTorch switches and the doctor scrolls and is at least 140 pixels high. Three
    rows of the list of cells are visible.
    """
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
    for section in (SWITCHES, DIAGNOSTICS):
        page.click(f"{section} > summary")
    page.wait_for_selector(f"{DIAGNOSTICS} .jp-gpuwidget-diagnostics-check")
    page.wait_for_selector(f"{RUN_CHECKS}:enabled")
    assert expanded(page) == {"switches": True, "health": True, "cells": True}
    box = page.locator(SCROLL).bounding_box()
    assert box is not None
    assert box["height"] >= 140
    assert count_visible(page, ROW, f"{PANEL} .jp-gpuwidget-cells-body") >= 3
    for section in (SWITCHES, DIAGNOSTICS):
        whole = page.eval_on_selector(section, "node => [node.offsetHeight >= node.scrollHeight, node.open]")
        assert whole == [True, True]
    for part in (f"{SWITCHES} .jp-gpuwidget-settings-row", f"{CARD} .jp-gpuwidget-gpu-row", RUN_CHECKS, ROW):
        assert scroll_to(page, part), part
    before = page.eval_on_selector(PANEL, HEIGHTS)
    notebook.record_layout_shifts(PANEL)
    notebook.wait_for_changes(f"{PANEL} .jp-gpuwidget-gpu-list", 5)
    assert notebook.layout_shifts() == []
    assert page.eval_on_selector(PANEL, HEIGHTS) == before
    assert page.eval_on_selector(PANEL, "node => node.scrollHeight === node.clientHeight")


def test_the_doctor_below_many_gpus(browser: Browser, tmp_path: Path) -> None:
    """With 16 GPUs, the header of the collapsed doctor is always visible. When the user expands the doctor,
    its section scrolls into view."""
    with lab_with(tmp_path, *machine(16)) as (lab, _):
        notebook = lab.open(browser, lab.write("many.ipynb", ["1"]), height=600, kernel=False)
        page = notebook.page
        fake_doctor_route(notebook, (200, healthy()))
        show(notebook, 300)
        page.wait_for_selector(CARD)
        assert count_visible(page, CARD, SCROLL) < 16
        assert count_visible(page, f"{DIAGNOSTICS} > summary", SCROLL) == 1
        page.click(f"{DIAGNOSTICS} > summary")
        wait_for_text(notebook, f"{DIAGNOSTICS} > summary", "all links found")
        assert count_visible(page, f"{DIAGNOSTICS} > summary", SCROLL) == 1
        assert count_visible(page, f"{DIAGNOSTICS} .jp-gpuwidget-diagnostics-title", SCROLL) >= 1
        notebook.close()


def test_the_panel_is_the_same_after_a_reload(open_notebook: Open, lab: Lab) -> None:
    """After a reload of the page, the same sections are expanded and the list of cells has the same order.
    The checks of an expanded "Health" section do not run."""
    notebook = open_notebook(write_reports(lab, "sections.ipynb", [report(1, 1, 1.0)]), kernel=False)
    page = notebook.page
    fake_doctor_route(notebook, (200, healthy()))
    show(notebook, 300)
    page.wait_for_selector(CARD)
    assert expanded(page) == {"switches": False, "health": False, "cells": True}
    before = [card["open"] for card in cards(notebook)[:2]]
    with page.expect_request(
        lambda request: request.method == "PUT" and uuids(lab)[1] in (request.post_data or "")
    ):
        page.click(f"{ENERGY} > button")
        for head in (f"{SWITCHES} > summary", f"{DIAGNOSTICS} > summary", CELLS):
            page.click(head)
        wait_for_text(notebook, f"{DIAGNOSTICS} > summary", "all links found")
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
    wait_for_text(notebook, DIAGNOSTICS, "Not looked at yet.")
    assert requested == []
    page.click(f"{RUN_CHECKS}:has-text('Look now')")
    wait_for_text(notebook, f"{DIAGNOSTICS} > summary", "all links found")
    assert page.inner_text(RUN_CHECKS) == "Look again"
