"""What the panel shows if the server limits its clients."""

from __future__ import annotations

from pathlib import Path

from helpers_lab import Lab
from helpers_panel import PANEL, SERVER_NOTICE, hide, show, wait_for_text
from playwright.sync_api import BrowserContext

ONE_CLIENT = "from gpuwidget.server import client_limits\nclient_limits.MAX_STREAMS = 1\n"


def test_too_many_pages(browser: BrowserContext, tmp_path: Path) -> None:
    """If the server has as many clients as it allows, the panel of another page shows that, not that a proxy
    blocks websockets. Once a client has disconnected, the panel is live when it is shown again."""
    config = tmp_path / "config.py"
    config.write_text(ONE_CLIENT)
    (tmp_path / "lab").mkdir()
    lab = Lab(tmp_path / "lab", "replay", options=[f"--config={config}"])
    try:
        lab.wait_until_ready()
        first = lab.open(browser, lab.write("first.ipynb", ["1"]), kernel=False)
        show(first)
        first.page.wait_for_selector(f"{PANEL}[data-link=live]")
        second = lab.open(browser, lab.write("second.ipynb", ["1"]), kernel=False)
        show(second)
        wait_for_text(second, SERVER_NOTICE, "as many pages and programs as it allows")
        first.close()
        hide(second)
        show(second)
        second.page.wait_for_selector(f"{PANEL}[data-link=live]")
        second.close()
    finally:
        lab.stop()
