"""The dashboard that %gpu shows below a cell: live charts and the device dropdown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_lab import Notebook

STANDIN = Path(__file__).parent.parent / "torch_standin"
LOAD = (
    f"import sys\nsys.path.insert(0, {str(STANDIN)!r})\nimport torch\ntorch.cuda.init()\n%load_ext gpuwidget"
)
CHARTS = ".gpuwidget-live .bqplot path.line"
DROPDOWN = ".jp-OutputArea .widget-dropdown select"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_dashboard(open_notebook: Callable[..., Notebook], theme: str) -> None:
    """%gpu shows a live chart of every GPU and a device dropdown. A device that the user chooses in the
    dropdown applies from the next cell."""
    notebook = open_notebook([LOAD, "%gpu", "str(torch.get_default_device())"], theme=theme)
    for cell in (0, 1):
        notebook.run(cell)
        notebook.wait_until_done()
    page = notebook.page
    page.wait_for_selector(CHARTS, state="attached")
    page.wait_for_function("s => document.querySelector(s)?.options.length === 4", arg=DROPDOWN)
    before = page.eval_on_selector_all(CHARTS, "lines => lines.map(line => line.getAttribute('d'))")
    page.wait_for_function(
        "([chart, before]) => [...document.querySelectorAll(chart)]"
        ".some((line, place) => line.getAttribute('d') !== before[place])",
        arg=[CHARTS, before],
    )
    assert page.locator(".gpuwidget-live .gpuwidget-block").count() == 4
    page.select_option(DROPDOWN, index=3)
    page.wait_for_function("() => document.body.innerText.includes('Default device: cuda:1')")
    notebook.run(2)
    notebook.wait_until_done()
    assert notebook.outputs(2)[0]["data"]["text/plain"] == "'cuda:1'"
