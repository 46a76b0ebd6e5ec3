"""The buttons on cards: where they are, and what they do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helpers_reports as reports
import nbformat
import pytest
from helpers_lab import Lab, Notebook

from gpuwidget.model.mime_types import MIME_TYPE
from gpuwidget.views import card

Open = Callable[..., Notebook]

# There is no live chart: if one is closed while it is drawn, ipywidgets raises an error that nobody catches.
LOAD = "%env GPUWIDGET_LIVE=0\n%load_ext gpuwidget"
WATCHED = "%%gpuwatch\nimport time\ntime.sleep(0.5)"
FIX = "num_workers=15, pin_memory=True, persistent_workers=True"
OOM_HTML = "<div>1 <code class='gpuwidget-insert'>%gpu free --yes</code></div>"
OOM = {"text/html": OOM_HTML, "text/plain": "out of memory", "application/vnd.gpuwidget.card+json": {}}
BUTTONS = "[...document.querySelectorAll('.jp-Notebook .jp-OutputArea button')]"
LABELS = f"return {BUTTONS}.filter(b => b.checkVisibility()).map(b => b.textContent);"
SOURCES = "return panel.content.widgets.map(cell => cell.model.sharedModel.getSource());"
RUN = "return panel.content.activeCell.model.executionCount;"
ACTIVE = "return panel.content.activeCellIndex;"


@pytest.fixture
def errors() -> list[str]:
    """Return the list of the page's errors, which the test fills."""
    return []


def write(lab: Lab, name: str, *bundles: dict[str, Any], trusted: bool = True) -> Path:
    """Write a notebook with a cell for each output, and one cell below them. Return its path."""
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for bundle in bundles:
        cell = nbformat.v4.new_code_cell("train()", execution_count=1)
        cell.outputs = [nbformat.v4.new_output("display_data", data=bundle)]
        notebook.cells.append(cell)
    notebook.cells.append(nbformat.v4.new_code_cell("last"))
    path = lab.notebooks / name
    nbformat.write(notebook, path)
    if trusted:
        lab.trust(path)
    return path


def listen(errors: list[str]) -> Callable[[Any], object]:
    """Return a function that collects the errors of a page."""
    return lambda page: page.on("pageerror", lambda error: errors.append(error.stack or str(error)))


def button(notebook: Notebook, label: str, number: int = 0) -> Any:
    """Return the visible button with this label."""
    return notebook.page.get_by_role("button", name=label, exact=True).nth(number)


def test_compare_and_show_in_dashboard(open_notebook: Open, errors: list[str]) -> None:
    """The card of a cell that has run before tells the change of its time since then. *Compare* runs the
    comparison in a new cell below the cell, and *Show in dashboard* shows the time of the run."""
    notebook = open_notebook([LOAD, WATCHED, "last"], prepare=listen(errors))
    for cell in (0, 1):
        notebook.run(cell)
        notebook.wait_until_done()
    assert notebook.script(LABELS) == ["Show in dashboard"]
    notebook.run(1)
    notebook.wait_until_done()
    notebook.page.wait_for_selector("text=vs. last run: time")
    assert notebook.script(LABELS) == ["Compare", "Show in dashboard"]
    (output,) = notebook.outputs(1)
    assert re.search(r"vs\. last run: time [+\N{MINUS SIGN}±]", output["data"]["text/plain"])
    notebook.script("panel.content.activeCellIndex = 2;")
    button(notebook, "Compare").click()
    notebook.page.wait_for_selector("text=In [2] \N{RIGHTWARDS ARROW} In [3]")
    assert notebook.script(SOURCES) == [LOAD, WATCHED, "%gpu compare 2 3", "last"]
    button(notebook, "Show in dashboard").click()
    notebook.page.wait_for_selector(".jp-gpuwidget-dashboard-chart canvas")
    # A new process of the kernel does not know the runs.
    notebook.script("await panel.sessionContext.session.kernel.restart();")
    notebook.wait_for(lambda: notebook.page.get_by_role("button", name="Compare", exact=True).count() == 0)
    assert errors == []


def test_an_edited_cell_is_compared(open_notebook: Open) -> None:
    """After the code of a cell has changed, its card says how the run differs from the last one."""
    notebook = open_notebook([LOAD, WATCHED])
    for cell in (0, 1):
        notebook.run(cell)
        notebook.wait_until_done()
    notebook.script("panel.content.widgets[1].model.sharedModel.setSource(argument);", f"{WATCHED}\n1")
    notebook.run(1)
    notebook.wait_until_done()
    notebook.page.wait_for_selector("text=vs. last run: time")
    assert notebook.script(LABELS) == ["Compare", "Show in dashboard"]


def test_a_fix(lab: Lab, open_notebook: Open, errors: list[str]) -> None:
    """*Copy* copies the code of a fix and says so. *Insert cell* inserts it below the card's cell and selects
    the new cell, but does not run it. Both work with the keyboard."""
    path = write(lab, "fix.ipynb", card.bundle(reports.advised()), OOM)
    notebook = open_notebook(path, kernel=False, prepare=listen(errors))
    page = notebook.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.wait_for_selector("text=Insert cell")
    assert notebook.script(LABELS) == ["Copy", "Show in dashboard", "Copy", "Insert cell"]
    button(notebook, "Copy").click()
    page.wait_for_selector("button >> text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == FIX
    page.mouse.move(0, 0)
    page.wait_for_selector("button >> text=Copied", state="detached")
    button(notebook, "Insert cell").click()
    assert notebook.script(SOURCES) == ["train()", "train()", "%gpu free --yes", "last"]
    assert (notebook.script(ACTIVE), notebook.script(RUN)) == (2, None)
    button(notebook, "Copy", 1).focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert notebook.script(SOURCES) == ["train()", "train()", "%gpu free --yes", "%gpu free --yes", "last"]
    button(notebook, "Insert cell").focus()
    page.keyboard.press("Space")
    assert notebook.script(ACTIVE) == 2
    assert len(notebook.script(SOURCES)) == 6
    assert errors == []


def test_an_old_run(lab: Lab, open_notebook: Open) -> None:
    """If the dashboard has no data of the time any more, the button says so and does nothing."""
    notebook = open_notebook(write(lab, "old.ipynb", card.bundle(reports.advised())), kernel=False)
    show = button(notebook, "Show in dashboard")
    show.focus()
    assert show.get_attribute("aria-disabled") == "true"
    assert show.get_attribute("title").startswith("The server stores only the last hour.")
    show.press("Enter")
    assert notebook.page.query_selector(".jp-gpuwidget-dashboard-chart") is None


def test_a_notebook_that_is_not_trusted(lab: Lab, open_notebook: Open, errors: list[str]) -> None:
    """A notebook that is not trusted shows the same cards without buttons."""
    path = write(lab, "untrusted.ipynb", card.bundle(reports.advised()), OOM, trusted=False)
    notebook = open_notebook(path, kernel=False, prepare=listen(errors))
    notebook.page.wait_for_selector("text=The GPU waits for its data")
    notebook.page.wait_for_selector("text=%gpu free --yes")
    assert notebook.script(LABELS) == []
    assert errors == []


@pytest.mark.parametrize(
    "report", [None, 1, {"schema": 99}, {"schema": 1, "cell": {"started": "x"}, "gpus": 7}]
)
def test_a_broken_report(lab: Lab, open_notebook: Open, errors: list[str], report: Any) -> None:
    """Whatever another program writes as a report, the output's HTML is shown, or its text if it has none."""
    bundles = ({"text/html": "<b>shown</b>", MIME_TYPE: report}, {"text/plain": "as text", MIME_TYPE: report})
    notebook = open_notebook(write(lab, "broken.ipynb", *bundles), kernel=False, prepare=listen(errors))
    notebook.page.wait_for_selector(".jp-OutputArea-output b >> text=shown")
    notebook.page.wait_for_selector(".jp-OutputArea-output >> text=as text")
    assert notebook.script(LABELS) == []
    assert errors == []


def test_a_view_of_an_output(lab: Lab, open_notebook: Open, errors: list[str]) -> None:
    """A view of an output outside the notebook has no place for a new cell, so only *Copy* is there."""
    notebook = open_notebook(write(lab, "view.ipynb", OOM), kernel=False, prepare=listen(errors))
    notebook.script("panel.content.activeCellIndex = 0;")
    notebook.script("await app.commands.execute('notebook:create-output-view');")
    view = notebook.page.wait_for_selector(".jp-LinkedOutputView button")
    assert view is not None
    labels = "node => [...node.parentNode.querySelectorAll('button')].filter(b => b.checkVisibility()).length"
    assert (view.text_content(), view.evaluate(labels)) == ("Copy", 1)
    assert errors == []
