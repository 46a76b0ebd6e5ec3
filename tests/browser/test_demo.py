"""The page that ``make demo`` opens. It is the first thing that a new user sees of gpuwidget."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_panel import CARD
from playwright.sync_api import BrowserContext

ROOT = Path(__file__).parents[2]


@pytest.fixture
def demo_lines(tmp_path: Path) -> Iterator[list[str]]:
    """Run ``make demo``, yield the lines that it prints, and end it as Ctrl-C would."""
    environment = {**os.environ, "HOME": str(tmp_path), "GPUWIDGET_SOURCE": "replay"}
    torch = "0" if (ROOT / ".venv" / ".installed-torch0").exists() else "1"
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            ["make", "demo", f"TORCH={torch}"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as make,
    ):
        assert make.stdout is not None
        try:
            lines = itertools.takewhile(lambda line: line != "Ctrl-C ends it.\n", make.stdout)
            yield [line.strip() for line in lines]
        finally:
            # A terminal sends Ctrl-C to make and to the processes that make runs.
            os.killpg(make.pid, signal.SIGINT)
            try:
                make.wait(60)
            finally:
                if make.poll() is None:
                    os.killpg(make.pid, signal.SIGKILL)


def test_the_demo_shows_the_quickstart_and_the_panel(
    demo_lines: list[str], browser: BrowserContext, tmp_path: Path
) -> None:
    """``make demo`` prints at most ten lines. The page that it opens shows the quickstart notebook, and the
    panel with the four recorded GPUs, which are all expanded."""
    (url,) = [line for line in demo_lines if line.startswith("http://127.0.0.1:")]
    assert len(demo_lines) + len((tmp_path / "log").read_text().splitlines()) < 10
    page = browser.new_page()
    page.goto(url)
    page.wait_for_selector(".jp-Notebook .jp-Cell >> visible=true")
    page.wait_for_selector(f"{CARD} canvas")
    assert page.locator(f"{CARD}[data-open=true]").count() == page.locator(CARD).count() == 4
    assert page.title().startswith("quickstart")
    page.close()
