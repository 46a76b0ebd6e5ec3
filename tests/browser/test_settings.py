"""The settings and keyboard shortcuts in a real JupyterLab. Changed settings apply without a reload of the
page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helpers_kernel_state
import pytest
from browser.test_cells_list import report, write_reports
from helpers_lab import Lab, Notebook, new_page
from helpers_panel import CARD, PANEL, clipped, lab_with, machine, show, uuids, wait_for_text
from playwright.sync_api import BrowserContext, Error, Page, WebSocket

CELLS = f"{PANEL} .jp-gpuwidget-cells"
DASHBOARD = ".jp-gpuwidget-dashboard"
DOCTOR = f"{PANEL} .jp-gpuwidget-doctor"
STATUS = ".jp-gpuwidget-status"
SWITCHES = f"{PANEL} .jp-gpuwidget-switches"
ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "labextension" / "schema" / "panel.json").read_text(encoding="utf-8"))
SHORTCUTS = SCHEMA["jupyter.lab.shortcuts"]
SETTINGS = "jupyterlab-gpuwidget:panel"
TOOLBAR_SETTINGS = "jupyterlab-gpuwidget:toolbar"
FAKE_NOTIFICATIONS = """
window.asked = 0;
window.sent = [];
window.Notification = class {
    static permission = 'default';
    static requestPermission() {
        window.asked++;
        this.permission = 'granted';
        return Promise.resolve('granted');
    }
    constructor(title, {body}) { window.sent.push([title, body]); }
};
Object.defineProperty(document, 'visibilityState', {get: () => window.pageHidden ? 'hidden' : 'visible'});
"""
"""JavaScript with fake browser notifications and a fake visibility of the tab."""
POSITIONS = """
return [...document.querySelectorAll('.jp-gpuwidget-panel *')].filter(node => node.checkVisibility())
    .filter(node => getComputedStyle(node).display !== 'inline' &&
            !node.matches('.jp-gpuwidget-section-summary'))
    .map(node => [node.className, Math.round(node.getBoundingClientRect().top)].join(' '));
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Start a JupyterLab on a machine with two GPUs."""
    with lab_with(tmp_path_factory.mktemp("settings"), *machine(2)) as (made, _):
        yield made


def set_settings(notebook: Notebook, plugin: str = SETTINGS, **settings: Any) -> None:
    """Set these settings of ``plugin`` and reset its others, in the same way as the settings editor."""
    notebook.script(
        "const plugin = app.pluginRegistry?._plugins?.get('@jupyterlab/apputils-extension:settings')"
        " ?? app._plugins?.get('@jupyterlab/apputils-extension:settings');"
        "const registry = plugin.service; await registry.upload(argument[0], argument[1]);",
        [plugin, json.dumps(settings)],
    )


def open_watched(lab: Lab, browser: BrowserContext, name: str, theme: str = "light") -> Notebook:
    """Open the panel and a notebook with reports, whose kernel holds 14 GiB on the second GPU."""
    path = write_reports(lab, name, [report(1, 3, 14.0), report(2, 5, 200.0)])
    content = json.loads(path.read_text())
    content["cells"][0]["source"] = helpers_kernel_state.cell(helpers_kernel_state.state(uuids(lab)))
    path.write_text(json.dumps(content))
    notebook = lab.open(browser, path, theme=theme)
    show(notebook, 300)
    notebook.run(0)
    notebook.wait_until_done()
    notebook.page.wait_for_selector(f"{STATUS} button[aria-label*='Default: cpu']", state="visible")
    return notebook


def test_units(lab: Lab, browser: BrowserContext) -> None:
    """If the user sets the units GB and °F, they immediately apply to the cards, the list of cells, the
    status bar and the dashboard. They can be changed back."""
    notebook = open_watched(lab, browser, "units.ipynb")
    page = notebook.page
    wait_for_text(notebook, CARD, "51 °C")
    assert "GiB" in page.inner_text(CELLS)
    before = notebook.script(POSITIONS)
    set_settings(notebook, units={"memory": "GB", "temperature": "F"})
    wait_for_text(notebook, CARD, "124 °F")
    wait_for_text(notebook, CELLS, "Δ GB")
    wait_for_text(notebook, STATUS, "GB")
    assert notebook.script(POSITIONS) == before
    show(notebook, 240)
    assert clipped(notebook) == []
    notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
    for metric, unit in (("temperature_c", "°F"), ("memory_used", "GB")):
        # Only visible charts are updated.
        page.locator(f"{DASHBOARD} [data-metric={metric}]").scroll_into_view_if_needed()
        wait_for_text(notebook, f"{DASHBOARD} [data-metric={metric}]", unit)
    for part in (PANEL, STATUS, DASHBOARD):
        words = page.eval_on_selector(
            part,
            "node => [node.innerText, ...[...node.querySelectorAll('[title], [aria-label], option')].flatMap("
            "each => [each.title, each.getAttribute('aria-label'), each.text])].join(' ')",
        )
        assert [unit for unit in ("GiB", "MiB", "°C") if unit in words] == [], words
    set_settings(notebook, units={"memory": "GiB"})
    wait_for_text(notebook, CARD, "51 °C")
    wait_for_text(notebook, f"{DASHBOARD} [data-metric=memory_used]", "GiB")
    notebook.close()


def test_hidden_parts(lab: Lab, browser: BrowserContext) -> None:
    """Settings hide parts of the panel, and the status bar item, while the panel is open. All other parts
    stay visible."""
    notebook = open_watched(lab, browser, "show.ipynb")
    page = notebook.page
    parts = {"switches": SWITCHES, "cells": CELLS, "health": DOCTOR}
    set_settings(notebook, show={"switches": True, "health": True})
    for part in parts.values():
        page.wait_for_selector(part, state="visible")
    holders = f"{CARD}[data-open=true] .jp-gpuwidget-holder-list"
    page.wait_for_selector(holders, state="attached")
    names = [*parts, "holders", "bands", "hints"]
    set_settings(notebook, show=dict.fromkeys(names, False))
    for part in parts.values():
        page.wait_for_selector(part, state="hidden")
    page.wait_for_function(
        "selector => [...document.querySelectorAll(selector)].every(node => node.hidden)", arg=holders
    )
    assert page.is_visible(CARD)
    notebook.script("await app.commands.execute('gpuwidget:examine');")
    page.wait_for_selector(DOCTOR, state="visible")  # The command shows the hidden section.
    set_settings(notebook)
    for name in ("cells",):
        page.wait_for_selector(parts[name], state="visible")
    for name in ("switches", "health"):
        page.wait_for_selector(parts[name], state="hidden")
    notebook.close()


def test_the_parts_button(lab: Lab, browser: BrowserContext) -> None:
    """By default, the panel has the default device, the GPUs with their holders, and the cells. The menu of
    the button *Parts to show* shows and hides each part, and the choice is saved in the settings."""
    notebook = open_watched(lab, browser, "parts.ipynb")
    page = notebook.page
    set_settings(notebook)
    page.wait_for_selector(CELLS, state="visible")
    for part in (SWITCHES, DOCTOR):
        page.wait_for_selector(part, state="hidden")
    button = f"{PANEL} [data-jp-item-name=parts]"
    for state in ("visible", "hidden"):
        page.click(button)
        item = page.locator(".lm-Menu-item:has-text('PyTorch switches')")
        assert ("lm-mod-toggled" in (item.get_attribute("class") or "")) == (state == "hidden")
        item.click()
        page.wait_for_selector(SWITCHES, state=state)
    page.click(button)
    toggled = page.locator(".lm-Menu-item.lm-mod-toggled .lm-Menu-itemLabel").all_inner_texts()
    parts = SCHEMA["properties"]["show"]["properties"].values()
    assert toggled == [part["title"] for part in parts if part["default"]]
    page.keyboard.press("Escape")
    set_settings(notebook)
    notebook.close()


def test_the_status_bar_is_a_meter_or_a_sentence_or_off(lab: Lab, browser: BrowserContext) -> None:
    """By default, the status bar has a meter with a sparkline. The settings replace it with a sentence, which
    is its name for screen readers in any case, or turn it off. A click opens the panel."""
    notebook = lab.open(browser, lab.write("status.ipynb", ["1"]), kernel=False)
    page = notebook.page
    meter, sentence = (f"{STATUS} .jp-gpuwidget-status-{part}" for part in ("meter", "text"))
    page.wait_for_selector(meter, state="visible")
    assert page.is_hidden(sentence)
    page.wait_for_selector(f"{meter} path[d]", state="attached")
    assert "GPUs: memory" in (page.get_attribute(f"{STATUS} button", "aria-label") or "")
    set_settings(notebook, statusBar="sentence")
    wait_for_text(notebook, sentence, "GPUs: memory")
    assert page.is_hidden(meter)
    set_settings(notebook, statusBar="off")
    page.wait_for_selector(STATUS, state="hidden")
    set_settings(notebook, statusBar="meter")
    page.wait_for_selector(meter, state="visible")
    page.click(f"{STATUS} button")
    page.wait_for_selector(PANEL, state="visible")
    notebook.close()


def test_sample_interval(lab: Lab, browser: BrowserContext) -> None:
    """The page requests samples at the interval of the settings. While a dashboard is open, it requests every
    sample."""
    requested: list[float] = []

    def opened(socket: WebSocket) -> None:
        if "gpuwidget/api/stream" in socket.url:
            socket.on("framesent", sent)

    def sent(frame: str | bytes) -> None:
        message = json.loads(frame)
        if message["type"] == "rate":
            requested.append(message["interval_s"])

    notebook = lab.open(
        browser,
        lab.write("rate.ipynb", ["1"]),
        kernel=False,
        prepare=lambda page: page.on("websocket", opened),
    )
    show(notebook)
    notebook.page.wait_for_selector(CARD)
    set_settings(notebook, sampleSeconds=2)
    notebook.wait_for(lambda: requested[-1:] == [2])
    notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
    notebook.wait_for(lambda: requested[-1:] == [0])
    set_settings(notebook)
    notebook.close()


def test_invalid_values(lab: Lab, browser: BrowserContext) -> None:
    """If a setting is invalid, it is not saved."""
    notebook = lab.open(browser, lab.write("bad.ipynb", ["1"]), kernel=False)
    for bad in ({"sampleSeconds": -1}, {"units": {"memory": "bits"}}, {"show": {"sun": True}}):
        with pytest.raises(Error, match="failed to validate"):
            set_settings(notebook, **bad)
    notebook.close()


@pytest.fixture(scope="module")
def lab_with_invalid_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Path]]:
    """Start a JupyterLab whose overrides.json has invalid defaults, and whose settings schema lacks some
    settings, as in another version of gpuwidget. Yield the JupyterLab and the path of the user's settings
    file."""
    folder = tmp_path_factory.mktemp("mixed")
    presets = {SETTINGS: {"chartSeconds": "long", "units": {"memory": "bits", "temperature": "F"}}}
    (folder / "app").mkdir()
    (folder / "app" / "overrides.json").write_text(json.dumps(presets))
    extension = folder / "extensions" / "jupyterlab-gpuwidget"
    shutil.copytree(ROOT / "gpuwidget" / "labextension", extension)
    served = extension / "schemas" / "jupyterlab-gpuwidget" / "panel.json"
    schema = json.loads(served.read_text())
    del schema["properties"]["hints"]["properties"]["idleHours"]
    del schema["properties"]["alerts"]
    served.write_text(json.dumps(schema))
    options = [
        f"--LabApp.app_settings_dir={folder / 'app'}",
        f"--LabApp.extra_labextensions_path={extension.parent}",
    ]
    file = folder / "lab" / "settings" / "jupyterlab-gpuwidget" / "panel.jupyterlab-settings"
    file.parent.mkdir(parents=True)
    started = Lab(folder / "lab", "replay", options=options)
    try:
        started.wait_until_ready()
        yield started, file
    finally:
        started.stop()


def test_invalid_settings_are_replaced(
    lab_with_invalid_settings: tuple[Lab, Path], browser: BrowserContext
) -> None:
    """The panel uses gpuwidget's defaults in place of invalid defaults in overrides.json and of invalid saved
    settings, which notifications report, and of settings that the server's schema lacks."""
    lab, file = lab_with_invalid_settings
    # Such settings may have been saved by an older version. Because they are invalid, Jupyter's server sends
    # none of the saved settings.
    file.write_text(json.dumps({"units": {"temperature": "K"}, "removed": 1}))
    notebook = lab.open(browser, lab.write("preset.ipynb", ["1"]), kernel=False)
    page = notebook.page
    show(notebook, 300)
    wait_for_text(notebook, CARD, "°F")
    wait_for_text(notebook, CARD, "GiB")
    page.wait_for_selector(CELLS)
    notebook.script("await app.commands.execute('gpuwidget:open-dashboard');")
    page.wait_for_selector(f"{DASHBOARD} canvas")
    notebook.script("await app.commands.execute('apputils:display-notifications');")
    center = ".jp-Notification-List"
    for sentence in (
        'sets chartSeconds to "long", which is not valid',
        'sets units.memory to "bits", which is not valid',
        "Your GPU settings are not valid in this version, so the defaults are used.",
    ):
        wait_for_text(notebook, center, sentence)
    assert page.locator(f"{center} > li").count() == 3
    page.locator(f"{center} > li", has_text="not valid in this version").get_by_text("Show All").click()
    wait_for_text(notebook, ".jp-Dialog", f"Correct or delete the file {file} and reload this page.")
    notebook.close()


def test_valid_settings_apply_if_others_are_missing(
    lab_with_invalid_settings: tuple[Lab, Path], browser: BrowserContext
) -> None:
    """If the server's schema lacks some settings, the user's valid settings apply, and so do later changes to
    them."""
    lab, file = lab_with_invalid_settings
    file.write_text(json.dumps({"units": {"memory": "GB"}}))
    notebook = lab.open(browser, lab.write("valid.ipynb", ["1"]), kernel=False)
    show(notebook, 300)
    wait_for_text(notebook, CARD, "GB")
    set_settings(notebook, units={"memory": "GiB"})
    wait_for_text(notebook, CARD, "GiB")
    notebook.close()


@pytest.mark.parametrize("app", ["notebooks", "lab/tree"])
def test_a_settings_file_with_a_syntax_error(
    lab_with_invalid_settings: tuple[Lab, Path], browser: BrowserContext, app: str
) -> None:
    """If the settings file has a syntax error, a dialog shows the file and the error. In Notebook 7, the
    panel works with default settings; JupyterLab itself does not start."""
    lab, file = lab_with_invalid_settings
    file.write_text('{"units": ')
    path = lab.write(f"broken-{app.partition('/')[0]}.ipynb", ["1"])
    page = new_page(browser)
    page.goto(f"{lab.url}/{app}/{path.name}?token={lab.token}")
    notebook = Notebook(page, path)
    wait_for_text(notebook, ".jp-Dialog", f"correct or delete the file {file} and reload this page.")
    wait_for_text(notebook, ".jp-Dialog", "Failed loading settings (jupyterlab-gpuwidget:panel)")
    assert page.locator(".jp-Dialog").count() == 1
    page.click(".jp-Dialog button")
    if app == "notebooks":
        show(notebook)
        wait_for_text(notebook, CARD, "GiB")
        wait_for_text(notebook, CARD, "°C")
    page.close(run_before_unload=False)


def menu_items(page: Page, menu: str) -> list[str]:
    """Open a menu of the menu bar, and return the labels of its items."""
    page.keyboard.press("Escape")
    page.wait_for_selector(".lm-Menu-item", state="detached")  # the menu that was open before
    page.click(f".lm-MenuBar-itemLabel:text-is('{menu}')")
    page.wait_for_selector(".lm-Menu-item")
    return page.locator(".lm-Menu .lm-Menu-itemLabel").all_inner_texts()


def check_menus(page: Page) -> None:
    """Check gpuwidget's items in the menus View, Kernel and Help."""
    assert {"GPU Panel", "GPU Dashboard"} <= set(menu_items(page, "View"))
    assert page.locator(".lm-Menu-item.lm-mod-toggled:has-text('GPU Panel')").count() == 1
    kernel = {
        "Load gpuwidget",
        "Choose Default Device\N{HORIZONTAL ELLIPSIS}",
        "Watch Cells",
        "Free PyTorch Cache",
    }
    # A command that can't be used has the reason in parentheses, which changes while the kernel starts.
    items = {label.partition(" (")[0] for label in menu_items(page, "Kernel")}
    assert kernel <= items
    assert "GPU Doctor" in menu_items(page, "Help")
    page.click(".lm-Menu-item:has-text('GPU Doctor')")
    page.wait_for_selector(f"{DOCTOR}[open]")


def test_shortcut_and_menus(lab: Lab, browser: BrowserContext) -> None:
    """A keyboard shortcut shows and hides the panel. It belongs to no other command and types no character on
    macOS. The menus View, Kernel and Help have gpuwidget's other commands."""
    notebook = lab.open(browser, lab.write("keys.ipynb", ["1"]))
    page = notebook.page
    bound = notebook.script(
        "return app.commands.keyBindings.map(({command, keys, selector}) =>"
        " ({command, keys: [...keys], selector}));"
    )
    assert len(SHORTCUTS) <= 2
    for shortcut in SHORTCUTS:
        (keys,) = shortcut["keys"]
        assert "Alt" not in keys.split()
        same = [each for each in bound if each["keys"][0] in (keys, keys.replace("Accel", "Ctrl"))]
        assert [(each["command"], each["selector"]) for each in same] == [
            (shortcut["command"], shortcut["selector"])
        ]
    page.click(".jp-Notebook .cm-content")
    page.keyboard.press("Control+Shift+KeyY")
    page.wait_for_selector(PANEL, state="visible")
    page.keyboard.press("Control+Shift+KeyY")
    page.wait_for_selector(PANEL, state="hidden")
    page.wait_for_function("() => document.querySelector('.jp-Notebook').contains(document.activeElement)")
    assert notebook.script("return panel.content.widgets[0].model.sharedModel.source;") == "1"
    assert page.is_hidden(".jp-NotebookPanel-toolbar :text-is('GPUs')")
    show(notebook)
    check_menus(page)
    notebook.close()


def test_notebook_7(lab: Lab, browser: BrowserContext) -> None:
    """In Notebook 7, a button in the notebook's toolbar opens the panel. The shortcut and the menus are the
    same as in JupyterLab."""
    path = lab.write("keys7.ipynb", ["1"])
    page = new_page(browser)
    page.goto(f"{lab.url}/notebooks/{path.name}?token={lab.token}")
    # An open menu may be closed while the page and the kernel still start.
    Notebook(page, path).wait_until_open(kernel=True)
    page.click(".jp-NotebookPanel-toolbar :text-is('GPUs')")
    page.wait_for_selector(PANEL, state="visible")
    page.keyboard.press("Control+Shift+KeyY")
    page.wait_for_selector(PANEL, state="hidden")
    page.keyboard.press("Control+Shift+KeyY")
    page.wait_for_selector(PANEL, state="visible")
    check_menus(page)
    Notebook(page, path).close()


def test_the_toolbar_of_the_panel(lab: Lab, browser: BrowserContext) -> None:
    """The buttons in the panel's header can be changed in the settings, as those of JupyterLab's other
    toolbars."""
    notebook = lab.open(browser, lab.write("toolbar.ipynb", ["1"]), kernel=False)
    show(notebook, 240)
    buttons = f"{PANEL} .jp-Toolbar"
    for name in ("dashboard", "doctor", "parts"):
        notebook.page.wait_for_selector(f"{buttons} [data-jp-item-name={name}] svg")
    notebook.page.wait_for_selector(f"{PANEL}[data-size~=narrow], {PANEL} [data-size~=narrow]")
    # The layout is complete some frames after the panel got its first values.
    for _ in range(50):
        if clipped(notebook) == []:
            break
        notebook.page.wait_for_timeout(100)
    assert clipped(notebook) == []
    toolbar = [
        {"name": "dashboard", "disabled": True},
        {"name": "doctor", "command": "gpuwidget:examine", "label": "Doctor"},
    ]
    set_settings(notebook, TOOLBAR_SETTINGS, toolbar=toolbar)
    wait_for_text(notebook, buttons, "Doctor")
    assert notebook.page.inner_text(buttons).strip() == "Doctor"
    notebook.page.click(f"{buttons} :text-is('Doctor')")
    notebook.page.wait_for_selector(f"{DOCTOR}[open]")
    notebook.close()


def test_the_notification_of_a_finished_long_cell(lab: Lab, browser: BrowserContext) -> None:
    """If the user turns it on, a cell that ends while the tab is hidden, after a minimum run time, causes a
    browser notification with its time and peak memory. The browser is asked once for the permission."""
    mime = "application/vnd.gpuwidget.report+json"
    source = (
        "import json, time; from IPython.display import publish_display_data\n"
        f"publish_display_data({{{mime!r}: json.loads({json.dumps(report(4, 14, 1.0))!r})}})\n"
    )
    notebook = lab.open(
        browser,
        lab.write("long.ipynb", [source + "time.sleep(3)", source]),
        prepare=lambda page: page.add_init_script(FAKE_NOTIFICATIONS),
    )

    def run(cell: int, hidden: bool) -> None:
        notebook.script("window.pageHidden = argument;", hidden)
        notebook.run(cell)
        notebook.wait_until_done()

    run(0, hidden=True)
    set_settings(notebook, longCells={"notify": True, "seconds": 2})
    notebook.page.wait_for_function("() => window.asked === 1")
    run(0, hidden=False)
    run(1, hidden=True)
    assert notebook.script("return window.sent;") == []
    run(0, hidden=True)
    notebook.page.wait_for_function("() => window.sent.length === 1")
    ((title, body),) = notebook.script("return window.sent;")
    assert title == "long.ipynb: cell [4] finished"
    # The time is that between two messages, one of which a slow page may receive late.
    assert body in [f"{each} s \N{MIDDLE DOT} peak GPU memory 15.0 GiB" for each in (2, 3, 4)]
    assert notebook.script("return window.asked;") == 1
    set_settings(notebook)
    run(0, hidden=True)
    assert notebook.script("return window.sent.length;") == 1
    notebook.close()
