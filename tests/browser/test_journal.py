"""Runs outlast the page: a page that is closed, killed or opened later shows what runs, what has ended and
why a kernel died, and puts each card under its cell once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers_lab import PATIENCE_S, Lab, Notebook, runs_until
from helpers_panel import PANEL, WATCH, show
from helpers_wait import until
from playwright.sync_api import BrowserContext, Locator
from playwright.sync_api import Error as PlaywrightError

from gpuwidget.journal.store import JournalStore
from gpuwidget.model.mime_types import MIME_TYPE

RUNNING = f"{PANEL} .jp-gpuwidget-cells-running"
ROW = f"{PANEL} .jp-gpuwidget-journal-run"
CHART = f"{PANEL} .jp-gpuwidget-journal-chart"
PUT = "Put the card under its cell"
CELL = 1


class Journal:
    """A JupyterLab whose runs are in the journal after a second, and a notebook with a long watched cell."""

    def __init__(self, lab: Lab, browser: BrowserContext, folder: Path, name: str) -> None:
        self.lab = lab
        self.browser = browser
        self.end = folder / "end"
        self.store = JournalStore(lab.data / "gpuwidget" / "runs")
        self.path = lab.write(
            name, ["%load_ext gpuwidget", f"%%gpuwatch --name train\n{runs_until(self.end)}"]
        )
        self.before = {row.id for row in self.rows("ended")}

    def rows(self, place: str) -> list[Any]:
        """Return the runs of the journal in this place."""
        return self.store.rows(place)  # type: ignore[arg-type]

    def open(self, *, kernel: bool = True) -> Notebook:
        """Open the notebook in a new page with the panel."""
        notebook = self.lab.open(self.browser, self.path, kernel=kernel)
        show(notebook, 300)
        return notebook

    def start(self, notebook: Notebook | None = None) -> Notebook:
        """Start the long cell, in this page or a new one. Return once its run is in the journal."""
        notebook = notebook or self.open()
        notebook.run_to_the_end(0)
        notebook.run(CELL)
        until(lambda: self.rows("live") != [], PATIENCE_S)
        return notebook

    def end_run(self) -> None:
        """Let the cell end, and wait until its card is in the journal."""
        self.end.touch()
        until(lambda: {row.id for row in self.rows("ended")} > self.before, PATIENCE_S)


@pytest.fixture(scope="module")
def journal_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Start a JupyterLab that replays the recording, and whose kernels write runs of more than a second."""
    lab = Lab(tmp_path_factory.mktemp("lab"), "replay", variables={"GPUWIDGET_JOURNAL_SECONDS": "1"})
    try:
        lab.wait_until_ready()
        yield lab
    finally:
        lab.stop()


@pytest.fixture
def journal(
    journal_lab: Lab, browser: BrowserContext, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Journal]:
    """Return the journal and a notebook of the test's own."""
    made = Journal(journal_lab, browser, tmp_path, f"{request.node.name}.ipynb")
    yield made
    made.end.touch()
    notebook = next((page for page in browser.pages if made.lab.url in page.url), None)
    if notebook is not None:
        notebook.evaluate("localStorage.clear()")


def reports(notebook: Notebook) -> list[dict[str, Any]]:
    """Return the reports in the outputs of the long cell."""
    found = [output.get("data", {}).get(MIME_TYPE) for output in notebook.outputs(CELL)]
    return [report for report in found if report is not None]


def row(notebook: Notebook) -> Locator:
    """Return the row of the run whose card is missing."""
    return notebook.page.locator(ROW)


def test_the_tab_is_closed_in_mid_cell_and_opened_after(journal: Journal) -> None:
    """The row says when the run finished, and its button puts the card under the cell, once and for good."""
    journal.start().page.close(run_before_unload=False)
    journal.end_run()

    notebook = journal.open()
    row(notebook).wait_for()
    assert "train finished at" in row(notebook).inner_text()
    assert reports(notebook) == []
    row(notebook).get_by_role("button", name=PUT).click()

    row(notebook).wait_for(state="detached")
    (report,) = reports(notebook)
    assert report["cell"]["label"] == "train"
    assert [output["metadata"] for output in notebook.outputs(CELL)] == [{"gpuwidget": True}]
    notebook.save()
    notebook.page.reload()
    notebook.wait_until_open(kernel=True)
    show(notebook, 300)
    notebook.page.wait_for_timeout(7000)  # longer than outputs have to arrive
    assert (row(notebook).count(), len(reports(notebook))) == (0, 1)


def test_a_page_that_is_killed_in_mid_cell_and_opened_again(journal: Journal) -> None:
    """The new page shows the kernel's state and the running cell with its time and its GPUs' charts, and then
    the run that ended."""
    killed = journal.start().page
    # goto returns before the renderer is dead, and a page made meanwhile would get the same renderer.
    with killed.expect_event("crash"), suppress(PlaywrightError):
        killed.goto("chrome://crash")
    killed.close(run_before_unload=False)

    notebook = journal.open(kernel=False)
    notebook.page.wait_for_selector(f"{RUNNING}:not([data-idle])")
    assert "train" in notebook.page.inner_text(RUNNING)
    notebook.page.wait_for_selector(f"{CHART} svg, {CHART} canvas")
    notebook.page.wait_for_selector(f"{WATCH}:enabled")  # The busy kernel has answered this page.
    time_of_cell = f"{RUNNING} > :nth-child(4)"
    first = notebook.page.inner_text(time_of_cell)
    notebook.wait_for(lambda: notebook.page.inner_text(time_of_cell) != first)

    journal.end_run()
    row(notebook).wait_for()
    assert notebook.page.get_attribute(RUNNING, "data-idle") == "true"
    assert "train finished at" in row(notebook).inner_text()


@pytest.mark.parametrize("opened", ["before the run", "while it lasts"])
def test_two_pages(journal: Journal, opened: str) -> None:
    """The page that has not started the cell shows that it runs. Only this page offers the card, and no page
    has it twice."""
    first = journal.open()
    second = journal.open() if opened == "before the run" else None
    journal.start(first)
    second = second or journal.open(kernel=False)
    second.page.wait_for_selector(f"{RUNNING}:not([data-idle])")
    second.page.wait_for_selector(f"{WATCH}:enabled")  # It knows that the first page has loaded gpuwidget.
    journal.end_run()

    row(second).wait_for()
    first.wait_for(lambda: len(reports(first)) == 1)
    first.page.wait_for_timeout(6000)
    assert row(first).count() == 0
    first.save()
    second.script("await panel.context.revert();")
    row(second).wait_for(state="detached")
    assert (len(reports(first)), len(reports(second))) == (1, 1)


def test_an_edited_cell_gets_no_card_without_a_question(journal: Journal) -> None:
    """If the cell has other code now, the page asks before it puts the card there."""
    journal.start().page.close(run_before_unload=False)
    journal.end_run()
    notebook = journal.open()
    notebook.script("panel.content.widgets[argument].model.sharedModel.setSource('pass');", CELL)
    row(notebook).get_by_role("button", name=PUT).click()

    dialog = notebook.page.locator(".jp-Dialog")
    dialog.wait_for()
    assert "code has changed since this run" in dialog.inner_text()
    dialog.get_by_role("button", name="Cancel").click()
    assert reports(notebook) == []
    row(notebook).get_by_role("button", name=PUT).click()
    dialog.locator("button.jp-mod-accept").click()

    notebook.wait_for(lambda: len(reports(notebook)) == 1)


def test_a_kernel_that_was_killed(journal: Journal) -> None:
    """The panel says that the run died and why, and its card ends with the last sample."""
    notebook = journal.start()
    (live,) = journal.rows("live")
    found = journal.store.read("live", live.id)
    assert found is not None
    os.kill(found[1].process.pid, signal.SIGKILL)

    notebook.page.locator(".jp-Dialog").get_by_role("button", name="Ok").click()  # JupyterLab's own message
    row(notebook).wait_for()
    text = row(notebook).inner_text()
    assert "train died at" in text
    assert "Killed by SIGKILL" in text
    row(notebook).get_by_role("button", name=PUT).click()
    notebook.wait_for(lambda: [report["cell"]["status"] for report in reports(notebook)] == ["died"])


def test_a_run_outlasts_the_server(journal: Journal) -> None:
    """After the server was stopped and started again, the page has the run and why it was interrupted."""
    journal.start().page.close(run_before_unload=False)
    journal.lab.stop()
    journal.lab.start()
    journal.lab.wait_until_ready()

    notebook = journal.open()
    row(notebook).wait_for()
    text = row(notebook).inner_text()
    assert "train was interrupted at" in text
    assert "The Jupyter server stopped" in text
    row(notebook).get_by_role("button", name=PUT).click()
    notebook.wait_for(lambda: [report["cell"]["status"] for report in reports(notebook)] == ["interrupted"])
