"""Fixtures for the browser tests, which share one JupyterLab and one Chromium."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers_lab import CHROMIUM_ARGUMENTS, PATIENCE_S, Lab, Notebook
from helpers_panel import lab_with, machine
from helpers_programs import skip
from playwright.sync_api import BrowserContext, sync_playwright

from tools import chromium

_find_chromium = functools.cache(chromium.find)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a browser test if there is no Chromium, before the test's fixtures start a JupyterLab."""
    if _find_chromium() is None:
        skip(chromium.MISSING)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Start one Chromium for all tests.

    All pages share a profile on disk, in which Chromium keeps JupyterLab's compiled code. Opening a notebook
    takes 3.2 s of CPU time with this profile, and 4.8 s in a new context without one.
    """
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=_find_chromium(),
            # Most of the CPU time of these tests goes to the start of JupyterLab's page. With these two
            # options, Chromium takes about a fifth less for it. Benchmarks do without them.
            args=[*CHROMIUM_ARGUMENTS, "--renderer-process-limit=1", "--js-flags=--no-opt --no-maglev"],
        )
        context.set_default_timeout(PATIENCE_S * 1000)
        yield context
        context.close()


@pytest.fixture(autouse=True)
def restore_browser(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test, close the pages that it left open, and withdraw the permissions that it granted.

    A page whose server has stopped would keep reconnecting, and the next server may get the same port.
    """
    if "browser" not in request.fixturenames:
        yield
        return
    browser: BrowserContext = request.getfixturevalue("browser")
    before = list(browser.pages)
    yield
    for page in browser.pages:
        if page not in before:
            page.close()
    browser.clear_permissions()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Start a JupyterLab in which the server and the kernels replay the packaged recording of four H200s."""
    server = Lab(tmp_path_factory.mktemp("lab"), source="replay")
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def two_gpu_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Start a JupyterLab on a machine with two GPUs. Only tests that change no settings and no GPU may use
    it."""
    with lab_with(tmp_path_factory.mktemp("two"), *machine(2)) as (made, _):
        yield made


@pytest.fixture
def open_notebook(
    lab: Lab, browser: BrowserContext, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Notebook]]:
    """Return a function that opens a notebook: a new one with the given cells, or an existing file.

    The opened notebooks are closed after the test. The settings are the default ones, whatever tests before
    have changed.
    """
    opened: list[Notebook] = []
    lab.reset_settings()

    def open_notebook(cells: Sequence[str] | Path, **options: Any) -> Notebook:
        path = (
            cells if isinstance(cells, Path) else lab.write(f"{request.node.name}-{len(opened)}.ipynb", cells)
        )
        opened.append(lab.open(browser, path, **options))
        return opened[-1]

    yield open_notebook
    for notebook in opened:
        notebook.close()
