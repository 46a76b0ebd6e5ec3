"""One JupyterLab and one Chromium for all browser tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from helpers_lab import CHROMIUM_ARGUMENTS, Lab, Notebook, find_chromium
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium; a test that cannot find one fails, for a skipped one proves nothing."""
    path = find_chromium()
    if path is None:
        pytest.fail("No Chromium found. Install it (Debian, Ubuntu: apt-get install chromium) and run again.")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab whose kernels replay the shipped recording of four H200s."""
    server = Lab(tmp_path_factory.mktemp("lab"), source="replay")
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture
def open_notebook(
    lab: Lab, browser: Browser, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Notebook]]:
    """Open a new notebook with the given cells, or an existing file; closed when the test ends."""
    opened: list[Notebook] = []

    def open_notebook(cells: Sequence[str] | Path, **options: object) -> Notebook:
        path = (
            cells if isinstance(cells, Path) else lab.write(f"{request.node.name}-{len(opened)}.ipynb", cells)
        )
        opened.append(lab.open(browser, path, **options))
        return opened[-1]

    yield open_notebook
    for notebook in opened:
        notebook.close()
