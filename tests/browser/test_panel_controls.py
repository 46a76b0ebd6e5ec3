"""The panel's controls: which one gets the focus, which requests they send, and what they show if the
kernel's reply comes from another version of gpuwidget."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers_kernel_state import cell, state
from helpers_lab import Lab, Notebook
from helpers_panel import (
    DEVICE,
    LOAD_BUTTON,
    NOTICE,
    PANEL,
    WATCH,
    add_kernel,
    show,
    use_kernel,
    uuids,
    wait_for_text,
)

Open = Callable[..., Notebook]
STATUS = ".jp-gpuwidget-status button"
CHOSEN = {"chosen": "cuda:1", "new_tensors": True, "pending": False, "present": "cuda:1", "note": None}
_OLDEST = Path(__file__).parents[2] / "labextension" / "tests" / "oldest_messages.json"
"""Messages of the oldest version that the panel understands, by their types."""
_COUNT_REQUESTS = """
window.requests = [];
panel.sessionContext.session.kernel.anyMessage.connect((_, {msg, direction}) => {
    if (direction === 'send' && msg.header.msg_type === 'gpuwidget_request') {
            window.requests.push(msg.content);
        }
});
"""
_FOCUSED = """() => {
    // Return the class of the focused control, the style and the width of its ring, and whether it is whole.
    const node = document.activeElement;
    const root = node.closest('.jp-gpuwidget-panel-scroll');
    if (root === null) { return ['']; }
    const { outlineStyle, outlineWidth, outlineColor, outlineOffset } = getComputedStyle(node);
    const reach = Math.max(0, parseFloat(outlineWidth) + parseFloat(outlineOffset));
    const { left, right } = node.getBoundingClientRect();
    let whole = outlineColor !== getComputedStyle(root.parentElement).backgroundColor;
    for (let part = node.parentElement; part !== root.parentElement; part = part.parentElement) {
        const { overflowX, contain } = getComputedStyle(part);
        if (overflowX !== 'visible' || contain !== 'none') {
            const box = part.getBoundingClientRect();
            whole &&= left - reach >= box.left && right + reach <= box.right;
        }
    }
    return [node.className || node.tagName, outlineStyle, outlineWidth, whole];
}"""
_REPLY = """\
import json as _json
def _install():
    kernel = get_ipython().kernel
    async def handler(stream, ident, parent):
        kernel.session.send(stream, "gpuwidget_reply", _json.loads({reply!r}), parent, ident=ident)
    kernel.control_handlers["gpuwidget_request"] = handler
_install()
# gpuwidget"""

_OLDER_GPUWIDGET = """
import types
older = sys.modules["gpuwidget"] = types.ModuleType("gpuwidget")
older.__version__ = "0.0.1"
older.load_ipython_extension = lambda shell: None
"""
"""Statements that replace gpuwidget by an older version, which does not know the panel's requests."""


def sent_requests(notebook: Notebook, ask: str) -> list[dict[str, Any]]:
    """Return the requests of the kind ``ask`` that the page has sent since :func:`open_with_kernel`."""
    sent: list[dict[str, Any]] = notebook.script(
        "return window.requests.filter(each => each.ask === argument);", ask
    )
    return sent


def open_with_kernel(open_notebook: Open, lab: Lab) -> Notebook:
    """Open the panel with a notebook whose kernel replies as if it had torch, and start recording the
    requests to the kernel."""
    notebook = open_notebook([cell(state(uuids(lab)))])
    show(notebook)
    notebook.run(0)
    notebook.wait_until_done()
    notebook.page.wait_for_selector(f"{DEVICE}:enabled")
    notebook.script(_COUNT_REQUESTS)
    return notebook


def test_the_focus_ring(open_notebook: Open, lab: Lab) -> None:
    """Each control that the Tab key reaches in the panel, such as the dropdown, the buttons and the GPUs'
    rows, has a ring of 2 px in the theme's color, which no other element clips."""
    notebook = open_with_kernel(open_notebook, lab)
    page = notebook.page
    for part in ("gpu-row", "gpu-chip"):
        page.wait_for_selector(f"{PANEL} .jp-gpuwidget-{part}")
    page.focus(WATCH)
    reached: list[str] = []
    for _ in range(20):
        name, *ring = page.evaluate(_FOCUSED)
        if not name:
            break
        reached.append(name)
        assert ring == ["solid", "2px", True], name
        page.keyboard.press("Tab")
    for part in ("device-dropdown", "device-watch", "gpu-row", "gpu-chip", "cells-toggle"):
        assert any(part in name for name in reached), (part, reached)


def test_opening_the_panel_focuses_the_enabled_control(open_notebook: Open) -> None:
    """Opening the panel focuses the button that loads gpuwidget, or the device dropdown if gpuwidget is
    already loaded."""
    notebook = open_notebook(["1"])
    show(notebook)
    notebook.page.wait_for_function("() => document.activeElement?.textContent === 'Load gpuwidget'")
    notebook.page.keyboard.press("Enter")
    notebook.page.wait_for_selector(f"{DEVICE}:enabled")
    notebook.script("app.commands.execute('gpuwidget:show-panel');")
    notebook.page.wait_for_function("selector => document.activeElement?.matches(selector)", arg=DEVICE)


def test_a_package_in_the_notebooks_folder_is_refused(open_notebook: Open, lab: Lab, tmp_path: Path) -> None:
    """If a folder called gpuwidget lies beside the notebook, the button loads nothing, and the panel shows
    its path and what to do. The button works once the folder is renamed. No code of the folder runs."""
    folder, mark = lab.notebooks / "gpuwidget", tmp_path / "mark"
    notebook = open_notebook(["1"])
    folder.mkdir()
    try:
        (folder / "__init__.py").write_text(f"open({str(mark)!r}, 'w').close()")
        show(notebook)
        notebook.page.click(LOAD_BUTTON)
        wait_for_text(notebook, NOTICE, f"Python would import {folder}, which lies in")
        wait_for_text(notebook, NOTICE, "Rename it, or run %load_ext gpuwidget in a cell")
        folder.rename(lab.notebooks / "mine")
        notebook.page.click(LOAD_BUTTON)
        notebook.page.wait_for_selector(f"{DEVICE}:enabled")
    finally:
        for left in (folder, lab.notebooks / "mine"):
            shutil.rmtree(left, ignore_errors=True)
    assert not mark.exists()


def test_an_idle_kernel_is_checked_and_loaded_without_a_shift(open_notebook: Open) -> None:
    """While an idle kernel is checked, the dropdown says so, which moves nothing. The result follows. The
    watch button keeps its width."""
    notebook = open_notebook(["1"])
    notebook.script(
        "window.sentences = [];"
        "new MutationObserver(() => {"
        "    const text = document.querySelector(argument)?.selectedOptions[0]?.text;"
        "    if (text && text !== window.sentences.at(-1)) { window.sentences.push(text); }"
        "}).observe(document.body, {subtree: true, childList: true, characterData: true});",
        DEVICE,
    )
    show(notebook, 300)
    wait_for_text(notebook, NOTICE, "gpuwidget is not loaded in this kernel.")
    assert "Checking the kernel…" in notebook.page.evaluate("window.sentences")
    notebook.page.click(LOAD_BUTTON)
    notebook.page.wait_for_selector(f"{WATCH}:enabled")
    assert notebook.page.inner_text(WATCH) == "Watch cells"
    width = notebook.page.eval_on_selector(WATCH, "node => node.offsetWidth")
    notebook.page.click(WATCH)
    notebook.page.wait_for_selector(f"{WATCH}[aria-pressed=true]")
    assert notebook.page.eval_on_selector(WATCH, "node => node.offsetWidth") == width


def test_arrow_keys_do_not_choose_a_device(open_notebook: Open, lab: Lab) -> None:
    """In the device dropdown, arrow keys only move through the list of devices. Enter chooses a device."""
    notebook = open_with_kernel(open_notebook, lab)
    notebook.page.focus(DEVICE)
    for key in ("ArrowDown", "ArrowDown", "End", "Home", "c"):
        notebook.page.keyboard.press(key)
    notebook.page.wait_for_timeout(500)
    assert sent_requests(notebook, "set_device") == []
    notebook.page.keyboard.press("Enter")
    notebook.page.wait_for_function("() => window.requests.some(each => each.ask === 'set_device')")
    assert [request["device"] for request in sent_requests(notebook, "set_device")] == ["cpu"]


def test_a_click_on_a_chip_chooses_the_default_device(open_notebook: Open, lab: Lab) -> None:
    """The chip with torch's name of the default device is filled. A click on another GPU's chip makes that
    GPU the default device, and the card stays as it is. For two seconds, the panel says what the next cell
    runs on."""
    notebook = open_with_kernel(open_notebook, lab)
    page = notebook.page
    chip = f"{PANEL} .jp-gpuwidget-gpu-chip"
    page.click(f"{chip}:has-text('cuda:1')")
    wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-device-notebook", "next cell runs on cuda:1")
    page.wait_for_function("() => window.requests.some(each => each.ask === 'set_device')")
    assert [request["device"] for request in sent_requests(notebook, "set_device")] == ["cuda:1"]
    assert page.locator(f"{PANEL} [data-gpu-uuid][data-open=false]").count() == 0
    wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-device-notebook", ".ipynb")
    notebook.script(
        "await panel.sessionContext.session.kernel.requestExecute({code: argument}).done;",
        cell(state(uuids(lab), device=CHOSEN)),
    )
    page.wait_for_selector(f"{chip}[aria-pressed=true]:has-text('cuda:1')")
    assert page.locator(f"{chip}[aria-pressed=true]").count() == 1


def test_the_option_for_new_tensors(open_notebook: Open, lab: Lab) -> None:
    """The last option of the dropdown turns the default device for new tensors on or off. The dropdown then
    still shows the device."""
    notebook = open_with_kernel(open_notebook, lab)
    page = notebook.page
    last = f"{DEVICE} option:last-child"
    assert page.locator(last).inner_text() == "☑ Also for new tensors (+1\N{EN DASH}3 µs per torch call)"
    page.select_option(DEVICE, "new-tensors")
    wait_for_text(notebook, last, "☐ Also for new tensors")
    assert page.input_value(DEVICE) == ""
    page.select_option(DEVICE, "cuda:1")
    page.wait_for_function("() => window.requests.some(each => each.ask === 'set_device')")
    assert [request["new_tensors"] for request in sent_requests(notebook, "set_device")] == [False]
    page.select_option(DEVICE, "new-tensors")


def test_two_quick_clicks_on_watch(open_notebook: Open, lab: Lab) -> None:
    """The second of two quick clicks on the watch button undoes the first one, even if the page is not
    repainted in between."""
    notebook = open_with_kernel(open_notebook, lab)
    notebook.page.eval_on_selector(WATCH, "button => { button.click(); button.click(); }")
    notebook.page.wait_for_function("() => window.requests.filter(each => each.ask === 'watch').length === 2")
    assert [request["on"] for request in sent_requests(notebook, "watch")] == [True, False]
    notebook.page.wait_for_selector(f"{WATCH}[aria-pressed=false]")


@pytest.mark.parametrize(
    "reply",
    [
        {"status": "ok", "done": None, "state": {"schema": 2, "version": "9.0"}},
        {"status": "ok", "done": None, "state": {**state([]), "version": "9.0", "gpus": None}},
    ],
    ids=["schema", "shape"],
)
def test_a_kernel_of_another_version(open_notebook: Open, reply: dict[str, Any]) -> None:
    """If a kernel's reply has an unknown schema or shape, the panel shows the kernel's version of gpuwidget,
    and no error is raised in the page."""
    notebook = open_notebook([_REPLY.format(reply=json.dumps(reply))])
    errors: list[str] = []
    notebook.page.on("pageerror", lambda error: errors.append(error.stack or str(error)))
    show(notebook)
    notebook.run(0)
    notebook.wait_until_done()
    wait_for_text(notebook, NOTICE, "This kernel has gpuwidget 9.0")
    assert notebook.page.is_disabled(DEVICE)
    assert errors == []


def test_the_first_schema(open_notebook: Open, lab: Lab) -> None:
    """If a kernel's reply has the fields of the first version only, the panel offers its devices, and shows
    memory that the reply lacks as unknown, with the reason."""
    _, second, *_ = uuids(lab)
    older = json.loads(_OLDEST.read_text())["OkReply"]["state"]
    (choice,) = older["choices"]
    (gpu,) = older["gpus"]
    choice["uuid"] = gpu["uuid"] = second
    choice["candidates"] = []
    gpu |= {"process_memory": None, "torch_reserved": None}
    notebook = open_notebook([cell(older)])
    errors: list[str] = []
    notebook.page.on("pageerror", lambda error: errors.append(error.stack or str(error)))
    show(notebook)
    notebook.run_to_the_end(0)
    notebook.page.wait_for_selector(f"{DEVICE}:enabled")
    options = notebook.page.locator(f"{DEVICE} option").all_inner_texts()
    assert [text.partition(" \N{MIDDLE DOT} ")[0] for text in options[:2]] == [
        "PyTorch default (cpu)",
        "cuda:1",
    ]
    notebook.page.wait_for_selector(f"{STATUS}[aria-label^='Default: cpu \N{MIDDLE DOT} n/a GPU memory']")
    title = notebook.page.get_attribute(STATUS, "title") or ""
    assert "The driver does not report this notebook\N{RIGHT SINGLE QUOTATION MARK}s share" in title
    notebook.page.select_option(DEVICE, "cuda:1")
    wait_for_text(notebook, f"{PANEL} .jp-gpuwidget-device-notebook", "next cell runs on cuda:1")
    assert errors == []


def test_an_older_kernel_that_never_answers(open_notebook: Open, lab: Lab) -> None:
    """If a kernel has a version of gpuwidget that doesn't know the panel's requests, the panel says which
    version that is, and how to get the server's."""
    add_kernel(lab, "older", "python", _OLDER_GPUWIDGET)
    path = lab.write("older.ipynb", ["1"])
    use_kernel(path, "older", "python")
    notebook = open_notebook(path)
    show(notebook)
    notebook.page.click(LOAD_BUTTON)
    wait_for_text(
        notebook,
        NOTICE,
        "This kernel has gpuwidget 0.0.1 and the server has 0.1.0, which are not compatible.",
    )
    assert "How to install gpuwidget" in notebook.page.inner_text(NOTICE)
    assert notebook.page.is_disabled(DEVICE)
    notebook.run_to_the_end(0)
    assert notebook.outputs(0)[0]["data"]["text/plain"] == "1"
