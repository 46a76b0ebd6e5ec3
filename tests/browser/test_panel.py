"""The panel with a recording: what it shows, what it requests from the kernel, and that it does no work while
hidden."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_lab import Lab, Notebook, runs_until
from helpers_panel import (
    CARD,
    DEVICE,
    LOAD_BUTTON,
    NOTICE,
    PANEL,
    SERVER_NOTICE,
    add_kernel,
    cards,
    hide,
    record_streams,
    saved_workspace,
    show,
    use_kernel,
    uuids,
    wait_for_text,
)
from playwright.sync_api import BrowserContext, WebSocket

Open = Callable[..., Notebook]
LABEL = "Recording of 4 \N{MULTIPLICATION SIGN} NVIDIA H200"


@pytest.mark.parametrize("language", ["en-US", "en-US@posix"])
def test_a_card_for_each_gpu(open_notebook: Open, lab: Lab, language: str) -> None:
    """Each of the four GPUs has an expanded card with a live chart. The panel shows the label of the
    recording. The browser's language need not be a valid tag."""
    script = f"Object.defineProperty(navigator, 'language', {{value: '{language}'}});"
    notebook = open_notebook(["1"], prepare=lambda page: page.add_init_script(script))
    show(notebook)
    notebook.page.wait_for_selector(f"{CARD} canvas")
    assert [(card["uuid"], card["open"]) for card in cards(notebook)] == [(uuid, True) for uuid in uuids(lab)]
    assert "H200" in cards(notebook)[0]["text"]
    assert notebook.page.inner_text(f"{PANEL} .jp-gpuwidget-panel-recording") == LABEL


def test_the_chart_starts_with_the_history(open_notebook: Open) -> None:
    """If a page is opened later, its charts start with the server's history instead of being empty."""
    first = open_notebook(["1"])
    show(first)
    first.page.wait_for_selector(f"{CARD} canvas")
    first.page.wait_for_timeout(4000)
    second = open_notebook(["2"])
    messages: list[str] = []

    def opened(socket: WebSocket) -> None:
        if "gpuwidget/api/stream" in socket.url:
            socket.on("framereceived", lambda frame: messages.append(str(frame)))

    second.page.on("websocket", opened)
    show(second)
    second.page.wait_for_selector(f"{CARD} canvas")
    hello = json.loads(messages[0])
    assert hello["type"] == "hello"
    assert len(hello["history"]["t"]) > 10


def test_the_button_loads_gpuwidget(open_notebook: Open) -> None:
    """The button loads gpuwidget without adding an output, an execution count, a history entry or a name in
    the user's namespace."""
    notebook = open_notebook(["sorted(n for n in dir() if not n.startswith('_'))", "In"])
    show(notebook)
    wait_for_text(notebook, NOTICE, "gpuwidget is not loaded in this kernel.")
    assert notebook.page.is_disabled(DEVICE)
    notebook.page.click(LOAD_BUTTON)
    notebook.page.wait_for_selector(f"{DEVICE}:enabled")
    notebook.run(0)
    notebook.wait_until_done()
    notebook.run(1)
    notebook.wait_until_done()
    assert "gpuwidget" not in str(notebook.outputs(0))
    (history,) = notebook.outputs(1)
    assert history["execution_count"] == 2
    assert "load_ext" not in str(history)


def test_a_choice_made_while_a_cell_runs(open_notebook: Open, tmp_path: Path) -> None:
    """A device that the user chooses while a cell is running is confirmed before the cell ends, and applies
    from the next cell."""
    end = tmp_path / "end"
    notebook = open_notebook(["%load_ext gpuwidget\nimport torch", runs_until(end), "torch.zeros(2).device"])
    show(notebook)
    notebook.run(0)
    notebook.wait_until_done()
    wait_for_text(notebook, f"{DEVICE} option", "cpu")
    notebook.run(1)
    notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-busy:text('busy')")
    notebook.page.select_option(DEVICE, "cpu")
    wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-device-notebook", "next cell runs on cpu")
    assert not notebook.script("return window.gpuwidgetDone;")
    end.touch()
    notebook.wait_until_done()
    notebook.run(2)
    notebook.wait_until_done()
    (output,) = notebook.outputs(2)
    assert output["data"]["text/plain"] == "device(type='cpu')"
    assert notebook.page.input_value(DEVICE) == "cpu"


def test_the_panel_shows_what_a_cell_sets(open_notebook: Open) -> None:
    """If a cell sets the default device or turns on watching, the panel shows it."""
    notebook = open_notebook(["%load_ext gpuwidget\nimport torch", "%gpu device cpu\n%gpu watch on"])
    show(notebook)
    for cell in (0, 1):
        notebook.run(cell)
        notebook.wait_until_done()
    notebook.page.wait_for_function(f"() => document.querySelector('{DEVICE}').value === 'cpu'")
    notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-watch[aria-pressed=true]")
    notebook.page.click(f"{PANEL} .jp-gpuwidget-device-watch")
    notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-watch[aria-pressed=false]")


def test_a_restarted_kernel(open_notebook: Open) -> None:
    """After a restart of the kernel, the panel shows that no device is chosen and that gpuwidget is not
    loaded."""
    notebook = open_notebook(["%load_ext gpuwidget\nimport torch", "%gpu device cpu"])
    show(notebook)
    for cell in (0, 1):
        notebook.run(cell)
        notebook.wait_until_done()
    notebook.page.wait_for_function(f"() => document.querySelector('{DEVICE}').value === 'cpu'")
    notebook.script("await panel.sessionContext.session.kernel.restart();")
    wait_for_text(notebook, NOTICE, "The kernel was restarted")
    assert notebook.page.input_value(DEVICE) == ""
    assert notebook.page.is_disabled(DEVICE)


@pytest.mark.parametrize(
    ("name", "language", "before", "sentence"),
    [
        ("not-python", "R", "", "This kernel runs R, not Python."),
        ("bare", "python", "sys.modules['gpuwidget'] = None", "gpuwidget is not installed"),
    ],
)
def test_kernels_without_python_or_gpuwidget(
    open_notebook: Open, lab: Lab, name: str, language: str, before: str, sentence: str
) -> None:
    """If the kernel is not a Python kernel, the panel sends no request to it. If gpuwidget is not installed
    in the kernel, the panel refers to the page that explains how to install it.

    The panel does not suggest installing a package name that is on no index.
    """
    add_kernel(lab, name, language, before)
    path = lab.write(f"{name}.ipynb", ["1"])
    use_kernel(path, name, language)
    notebook = open_notebook(path)
    show(notebook)
    if language == "python":
        wait_for_text(notebook, NOTICE, "gpuwidget is not loaded in this kernel.")
        notebook.page.click(LOAD_BUTTON)
    wait_for_text(notebook, NOTICE, sentence)
    assert not notebook.page.locator(f"{NOTICE} code").is_visible()
    text = notebook.page.inner_text(NOTICE)
    assert "pip install" not in text
    assert ("docs/using/install.md in its repository" in text) == (language == "python")
    control_errors = lab.log.count("UNKNOWN CONTROL MESSAGE")
    notebook.run(0)
    notebook.wait_until_done()
    assert lab.log.count("UNKNOWN CONTROL MESSAGE") == control_errors


def test_the_configured_install_command(browser: BrowserContext, tmp_path: Path) -> None:
    """If gpuwidget is not installed in the kernel, the panel shows the install command that the server's
    administrator has configured, with shell quoting."""
    wheel = "--GpuWidget.install_requirement='/srv/my wheels/gpuwidget.whl[lab]'"
    (tmp_path / "lab").mkdir()
    lab = Lab(tmp_path / "lab", "replay", options=[wheel])
    try:
        lab.wait_until_ready()
        add_kernel(lab, "bare", "python", "sys.modules['gpuwidget'] = None")
        path = lab.write("bare.ipynb", ["1"])
        use_kernel(path, "bare", "python")
        notebook = lab.open(browser, path)
        show(notebook)
        wait_for_text(notebook, NOTICE, "gpuwidget is not loaded in this kernel.")
        notebook.page.click(LOAD_BUTTON)
        wait_for_text(notebook, NOTICE, "gpuwidget is not installed")
        command = "%pip install '/srv/my wheels/gpuwidget.whl[lab]'"
        wait_for_text(notebook, f"{NOTICE} code", command)
        assert command in notebook.page.locator(f"{NOTICE} code").all_inner_texts()
        notebook.close()
    finally:
        lab.stop()


def test_a_hidden_panel_is_idle(open_notebook: Open) -> None:
    """While the panel is hidden, it has no open stream and sends no requests to the kernel."""
    notebook = open_notebook(["%load_ext gpuwidget"])
    streams = record_streams(notebook.page)
    notebook.run(0)
    notebook.wait_until_done()
    assert streams == []
    show(notebook)
    notebook.page.wait_for_selector(f"{CARD} canvas")
    notebook.page.wait_for_selector(".jp-gpuwidget-device-watch:enabled")
    hide(notebook)
    notebook.wait_for(lambda: streams == ["open", "closed"])
    notebook.script(
        "window.requests = 0; const kernel = panel.sessionContext.session.kernel;"
        "kernel.anyMessage.connect((_, {msg}) => {"
        " if (msg.header.msg_type.startsWith('gpuwidget')) window.requests++; });"
    )
    notebook.page.wait_for_timeout(4000)
    assert notebook.script("return window.requests;") == 0


def test_the_layout_is_restored(open_notebook: Open, lab: Lab) -> None:
    """After a reload of the page, the panel is open and live at its previous place."""
    notebook = open_notebook(["1"])
    with notebook.page.expect_request(lambda request: "jp-gpuwidget-panel" in saved_workspace(request)):
        show(notebook)
    workspace = notebook.page.url.partition("/workspaces/")[2].partition("/")[0]
    notebook.page.goto(f"{lab.url}/lab/workspaces/{workspace}?token={lab.token}")
    notebook.page.wait_for_selector(f"{PANEL}[data-link=live] {CARD.removeprefix(PANEL)} canvas")
    notebook.wait_until_open(kernel=True)


def test_the_keyboard(open_notebook: Open) -> None:
    """A command in the palette focuses the device dropdown, also if a cell had the focus. Enter expands and
    collapses a GPU's card."""
    notebook = open_notebook(["%load_ext gpuwidget"])
    show(notebook)
    notebook.run(0)
    notebook.wait_until_done()
    notebook.page.wait_for_selector(f"{DEVICE}:enabled")
    for closed in (False, True):
        if closed:
            hide(notebook)
        notebook.page.click(".jp-Notebook .jp-CodeCell .cm-content")
        notebook.page.keyboard.press("Control+Shift+c")
        notebook.page.wait_for_selector(".jp-ModalCommandPalette:visible")
        notebook.page.keyboard.type("Choose Default Device")
        notebook.page.wait_for_selector(".lm-CommandPalette-item.lm-mod-active:has-text('Choose Default')")
        notebook.page.keyboard.press("Enter")
        notebook.page.wait_for_function("selector => document.activeElement.matches(selector)", arg=DEVICE)
        notebook.page.wait_for_timeout(300)  # The focus stays there.
        assert notebook.page.evaluate("selector => document.activeElement.matches(selector)", DEVICE)
    row = notebook.page.locator(f"{CARD} .jp-gpuwidget-gpu-row").first
    before = row.get_attribute("aria-expanded")
    row.focus()
    notebook.page.keyboard.press("Enter")
    assert {before, row.get_attribute("aria-expanded")} == {"true", "false"}


def test_without_a_notebook(open_notebook: Open) -> None:
    """If no notebook is open, the device dropdown is disabled and shows the reason."""
    notebook = open_notebook(["1"])
    show(notebook)
    notebook.script("await panel.sessionContext.shutdown(); await panel.context.save(); panel.dispose();")
    wait_for_text(notebook, NOTICE, "Open a notebook to choose its default device.")
    assert notebook.page.get_attribute(DEVICE, "title") == "Open a notebook to choose its default device."
    assert notebook.page.is_hidden(SERVER_NOTICE)
