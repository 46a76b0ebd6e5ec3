"""A page that is loaded again, a browser tab that is hidden, and a Hub that stops the server, each in
mid-cell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from browser.test_disposal import track_timers
from browser.test_live_and_card import CARD as REPORT
from browser.test_running import run_with_chart, wait_for_busy
from helpers_hub import BASE, Hub
from helpers_lab import SETTINGS, Notebook, runs_until
from helpers_panel import (
    CARD,
    DEVICE,
    PANEL,
    SERVER_NOTICE,
    cards,
    lab_with,
    machine,
    record_streams,
    show,
    wait_for_text,
)
from playwright.sync_api import BrowserContext

LOAD = "%load_ext gpuwidget\nimport torch"
ENDED = "import gpuwidget\n[(run.cell.label, run.cell.status) for run in gpuwidget.reports()]"
NOTIFICATIONS = "@jupyterlab/apputils-extension/notification.jupyterlab-settings"
STATUS = ".jp-gpuwidget-status button"
UNREACHABLE = "The server does not answer. Trying again. Showing the last known values."
FAKE_VISIBILITY = """
Object.defineProperty(document, 'visibilityState', {get: () => window.pageHidden ? 'hidden' : 'visible'});
"""
SET_HIDDEN = "window.pageHidden = argument; document.dispatchEvent(new Event('visibilitychange'));"
RECORD_REQUESTS = """
window.requests = [];
panel.sessionContext.session.kernel.anyMessage.connect((_, {msg, direction}) => {
    if (direction === 'send' && msg.header.msg_type.startsWith('gpuwidget')) { window.requests.push(msg); }
});
"""
RECORD_TEXTS = """
window.texts = new Set();
for (const node of document.querySelectorAll(argument)) {
    const record = () => {
        if (node.checkVisibility()) { window.texts.add(node.innerText.replace(/\\d+ s/, 'N s')); }
    };
    new MutationObserver(record).observe(
        node, {subtree: true, childList: true, characterData: true, attributes: true});
    record();
}
"""


def record_errors(notebook: Notebook) -> list[str]:
    """Return a list to which every uncaught error of the page is added, with its stack."""
    errors: list[str] = []
    notebook.page.on("pageerror", lambda error: errors.append(error.stack or str(error)))
    return errors


def test_the_page_is_reloaded_in_mid_cell(browser: BrowserContext, tmp_path: Path) -> None:
    """If the page is loaded again while a watched cell runs, the panel shows the kernel as busy and only
    values from after the reload, and a device can be chosen. The cell ends as usual, and its next run has
    its chart and leaves one card."""
    end = tmp_path / "end"
    with lab_with(tmp_path, *machine(2)) as (lab, standin):
        cells = [LOAD, f"%%gpuwatch --name train --gpu 0\n{runs_until(end)}", ENDED]
        notebook = lab.open(browser, lab.write("reload.ipynb", cells))
        page = notebook.page
        errors = record_errors(notebook)
        show(notebook)
        notebook.run_to_the_end(0)
        run_with_chart(notebook, 1)
        notebook.save()
        standin.scenario(*machine(2, 2))
        page.reload()
        notebook.wait_until_open(kernel=False)
        show(notebook)
        page.wait_for_selector(f"{PANEL}[data-link=live]")
        assert [re.search(r"\d+ %", card["text"])[0] for card in cards(notebook)] == ["100 %", "0 %"]  # type: ignore[index]
        wait_for_busy(notebook, True)
        page.wait_for_selector(f"{DEVICE}:enabled")
        page.select_option(DEVICE, "cpu")
        wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-device-notebook", "next cell runs on cpu")
        assert page.is_hidden(SERVER_NOTICE)
        end.touch()
        wait_for_busy(notebook, False)
        notebook.run_to_the_end(2)
        (ended,) = notebook.outputs(2)
        assert ended["data"]["text/plain"] == "[('train', 'ok')]"
        end.unlink()
        run_with_chart(notebook, 1)
        end.touch()
        notebook.wait_until_done()
        assert [REPORT in output.get("data", {}) for output in notebook.outputs(1)] == [True]
        assert page.input_value(DEVICE) == "cpu"
        assert errors == []
        notebook.close()


def test_the_tab_is_hidden_in_mid_cell(browser: BrowserContext, tmp_path: Path) -> None:
    """While the browser tab is hidden, the page has no stream, sends the kernel no request and has no timer.
    When the tab is shown again, the panel and the status bar show what has changed meanwhile, and a GPU that
    was lost meanwhile is notified once."""
    end = tmp_path / "end"
    with lab_with(tmp_path, *machine(2)) as (lab, standin):

        def prepare(page: Any) -> None:
            track_timers(page)
            page.add_init_script(FAKE_VISIBILITY)

        shown = {**SETTINGS[NOTIFICATIONS], "doNotDisturbMode": False}
        (tmp_path / "lab" / "settings" / NOTIFICATIONS).write_text(json.dumps(shown))
        path = lab.write("tab.ipynb", [LOAD, f"%%gpuwatch --gpu 0\n{runs_until(end)}"])
        notebook = lab.open(browser, path, prepare=prepare)
        page = notebook.page
        errors = record_errors(notebook)
        streams = record_streams(page)
        show(notebook)
        notebook.run_to_the_end(0)
        run_with_chart(notebook, 1)
        wait_for_busy(notebook, True)
        page.wait_for_selector(f"{PANEL}[data-link=live]")
        page.wait_for_selector(f"{STATUS}[aria-label*='util 54 %']", state="visible")
        samples: list[str] = []
        page.on("request", lambda sent: samples.append(sent.url) if "gpuwidget/api" in sent.url else None)

        notebook.script(SET_HIDDEN, True)
        notebook.wait_for(lambda: streams == ["open", "closed"])
        # A request that was sent before ends with its reply or after two seconds.
        page.wait_for_function("() => window.timers.size === 0")
        before = [card["text"] for card in cards(notebook)]
        notebook.script(RECORD_REQUESTS)
        samples.clear()
        standin.scenario(*machine(2, 2), "gpu.1.*=error 15")
        page.wait_for_timeout(4000)
        assert notebook.script("return [window.requests.length, [...window.timers.values()]];") == [0, []]
        assert samples == []
        assert streams == ["open", "closed"]
        assert [card["text"] for card in cards(notebook)] == before
        assert page.locator(".Toastify__toast").count() == 0

        notebook.script(SET_HIDDEN, False)
        wait_for_text(notebook, CARD, "100 %")
        wait_for_text(notebook, CARD, "lost")
        page.locator(".Toastify__toast:has-text('GPU 1 lost since')").wait_for()
        page.wait_for_selector(f"{PANEL}[data-link=live]")
        assert streams == ["open", "closed", "open"]
        wait_for_busy(notebook, True)
        page.wait_for_selector(f"{STATUS}[title*='GPU 1 H200: lost']", state="visible")
        end.touch()
        notebook.wait_until_done()
        wait_for_busy(notebook, False)
        assert page.locator(".Toastify__toast").count() == 1
        assert errors == []
        notebook.close()


def test_the_hub_stops_the_server(browser: BrowserContext, tmp_path: Path) -> None:
    """While a Hub has stopped the server, the panel shows that the server does not answer, whether the proxy
    answers with 503 or the Hub with 424, and never another reason. While the server still ends, it may show
    that no data arrives. When the server is back, the panel is live again and has no value from before."""
    with lab_with(tmp_path, *machine(2), base=BASE) as (lab, standin):
        hub = Hub(tmp_path, lab)
        try:
            answered: list[str] = []
            notebook = lab.open(
                browser,
                lab.write("hub.ipynb", ["1"]),
                prepare=lambda page: page.on("requestfinished", lambda sent: answered.append(sent.url)),
            )
            page = notebook.page
            errors = record_errors(notebook)
            show(notebook)
            # Once a notebook has opened, JupyterLab requests nbconvert's formats. It catches no error.
            notebook.wait_for(lambda: any("/api/nbconvert" in url for url in answered))
            page.wait_for_selector(f"{PANEL}[data-link=live] {CARD.removeprefix(PANEL)}")
            notebook.script(RECORD_TEXTS, SERVER_NOTICE)
            streams = record_streams(page)
            lab.stop()
            wait_for_text(notebook, SERVER_NOTICE, UNREACHABLE)
            hub.remove_route()
            # After four attempts, the panel would blame a proxy that blocks websockets.
            notebook.wait_for(lambda: streams.count("open") >= 6)
            assert page.get_attribute(PANEL, "data-link") == "stale"
            shown = set(notebook.script("return [...window.texts];"))
            assert shown - {"No data from the server for N s."} == {UNREACHABLE}
            standin.scenario(*machine(2, 2))
            lab.start()
            hub.add_route()
            page.wait_for_selector(f"{PANEL}[data-link=live]")
            wait_for_text(notebook, CARD, "100 %")
            assert page.is_hidden(SERVER_NOTICE)
            assert errors == []
            page.close(run_before_unload=False)
        finally:
            hub.stop()
