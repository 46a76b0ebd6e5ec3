"""Control the panel in the browser, and start a JupyterLab on fake machines."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers_lab import PATIENCE_S, Lab, Notebook
from nvml_standin import Standin, build
from playwright.sync_api import Page, Request, WebSocket

GIB = 1024**3
PANEL = ".jp-gpuwidget-panel"
CARD = f"{PANEL} [data-gpu-uuid]"
NOTICE = f"{PANEL} .jp-gpuwidget-device-section .jp-gpuwidget-notice"
SERVER_NOTICE = f"{PANEL} .jp-gpuwidget-server-notice"
DEVICE = f"{PANEL} .jp-gpuwidget-device-dropdown"
WATCH = f"{PANEL} .jp-gpuwidget-device-watch"
"""The button that is enabled once the kernel has answered, with and without torch."""
LOAD_BUTTON = f"{PANEL} .jp-gpuwidget-device-section .jp-gpuwidget-notice-action"

_UTILIZATION = (97, 11, 100, 0, 94, 12, 0, 88)
_USED = (57, 16, 129, 1, 60, 15, 1, 99)
_CLIPPED = """
return [...document.querySelectorAll('.jp-gpuwidget-panel *')]
    .filter(node => node.checkVisibility() &&
            !node.matches('select, option, canvas, .jp-gpuwidget-device-label, .jp-gpuwidget-gpu-name,' +
            '.jp-gpuwidget-gpu-user, .jp-gpuwidget-section-summary'))
    .filter(node => !argument || getComputedStyle(node).textOverflow !== 'ellipsis')
    .filter(node => node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== 'inline')
    .map(node => `${node.className}: ${node.textContent}`);
"""
_UNREADABLE = """
// Names that users chose may be long. They end with an ellipsis, and their tooltip has them in full. Names of
// up to 14 characters fit. So does the summary of a section, except its last figures.
const isLongName = node => node.textContent.length > 14 && node.matches(
    '.jp-gpuwidget-holder-name, .jp-gpuwidget-cells-label, .jp-gpuwidget-section-summary,' +
    '.jp-gpuwidget-panel-recording, .jp-gpuwidget-panel-job') ||
    node.matches('.jp-gpuwidget-gpu-user, .jp-gpuwidget-gpu-name');
const root = document.querySelector('.jp-gpuwidget-panel');
const texts = [];
const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
    const node = walker.currentNode;
    const parent = node.parentElement;
    if (node.data.trim() === '' || !parent.checkVisibility({visibilityProperty: true}) ||
        parent.closest('select, .jp-gpuwidget-switches-description, .jp-gpuwidget-switches-log')) {
        continue;
    }
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const {left, right, top, bottom} of range.getClientRects()) {
        if (right > left) { texts.push({text: node.data, parent, left, right, top, bottom}); }
    }
}
const found = [];
for (const select of root.querySelectorAll('select')) {
    // The text of a dropdown is not in the document, so measure a copy that has its font and width.
    const style = getComputedStyle(select);
    const copy = document.createElement('div');
    // The device, its model and its free memory fit; the tooltip has the rest.
    copy.textContent = (select.selectedOptions[0]?.text ?? '').split(' · ').slice(0, 3).join(' · ');
    for (const name of ['font', 'lineHeight', 'whiteSpace', 'paddingLeft', 'paddingRight']) {
        copy.style[name] = style[name];
    }
    const width = `${select.clientWidth}px`;
    Object.assign(copy.style, {position: 'absolute', boxSizing: 'border-box', width});
    root.append(copy);
    if (select.checkVisibility() &&
        (copy.scrollWidth > copy.clientWidth || copy.clientHeight > select.clientHeight)) {
        found.push(`cut: ${copy.textContent}`);
    }
    copy.remove();
}
for (const each of texts) {
    for (let node = each.parent; node !== root.parentElement; node = node.parentElement) {
        const style = getComputedStyle(node);
        if (style.display === 'inline' || (style.overflowX === 'visible' && style.contain === 'none')) {
            continue;
        }
        const box = node.getBoundingClientRect();
        const cut = each.right > box.right + 1 || each.left < box.left - 1 || each.bottom > box.bottom + 3;
        if (cut && !isLongName(node)) { found.push(`cut: ${each.text}`); }
        each.right = Math.min(each.right, box.right);
    }
}
for (let one = 0; one < texts.length; one++) {
    for (let other = one + 1; other < texts.length; other++) {
        const [a, b] = [texts[one], texts[other]];
        const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (a.parent !== b.parent && width > 2 && height > 4) {
            found.push(`overlap: ${a.text} / ${b.text}`);
        }
    }
}
return found;
"""
_USE_FONT = """
const style = document.documentElement.style;
[0.83, 1, 1.2].forEach((part, size) => style.setProperty(`--jp-ui-font-size${size}`, `${part * argument}px`));
await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
"""
_KERNEL = """\
import sys
{before}
from ipykernel.kernelapp import launch_new_instance
launch_new_instance()
"""


def machine(gpus: int, step: int = 0) -> list[str]:
    """Return a scenario for the NVML stand-in: busy and idle H200s, whose values depend on ``step``."""
    lines = [f"gpus={gpus}", f"gpu.*.memory_total={140 * GIB}", "gpu.*.power_limit=700"]
    for gpu in range(gpus):
        place = gpu + step
        lines += [
            f"gpu.{gpu}.util={_UTILIZATION[place % 8]}",
            f"gpu.{gpu}.memory_used={_USED[place % 8] * GIB}",
            f"gpu.{gpu}.power={(611, 98, 1000, 90)[place % 4]}",
            f"gpu.{gpu}.temperature={(51, 101, 9)[place % 3]}",
            f"gpu.{gpu}.sm_clock={(1980, 345)[place % 2]}",
            f"gpu.{gpu}.throttle={(0, 4)[place % 2]}",
        ]
    return lines


@contextmanager
def lab_with(
    folder: Path, *scenario: str, options: Sequence[str] = (), base: str = ""
) -> Iterator[tuple[Lab, Standin]]:
    """Start a JupyterLab on a machine with this scenario; yield the JupyterLab and the NVML stand-in.

    ``options`` are added to the server's command line. ``base`` is the path of its address.
    """
    standin = Standin(build(folder / "build"), folder / "nvml")
    standin.scenario(*scenario)
    variables = {**standin.variables, "LD_LIBRARY_PATH": standin.environment()["LD_LIBRARY_PATH"]}
    (folder / "lab").mkdir()
    lab = Lab(folder / "lab", "nvml", variables=variables, options=options, base=base)
    try:
        lab.wait_until_ready()
        yield lab, standin
    finally:
        lab.stop()


def add_kernel(lab: Lab, name: str, language: str, before: str) -> None:
    """Install a kernelspec that declares ``language`` as its language. Its kernel is a Python kernel that
    first runs the statements ``before``."""
    folder = lab.data / "kernels" / name
    folder.mkdir(parents=True)
    program = folder / "kernel.py"
    program.write_text(_KERNEL.format(before=before))
    spec = {
        "argv": ["python", str(program), "-f", "{connection_file}"],
        "display_name": name,
        "language": language,
    }
    (folder / "kernel.json").write_text(json.dumps(spec))


def use_kernel(path: Path, name: str, language: str) -> None:
    """Change the notebook file at ``path`` so that it uses this kernel."""
    content = json.loads(path.read_text())
    content["metadata"]["kernelspec"] = {"name": name, "display_name": name, "language": language}
    path.write_text(json.dumps(content))


def uuids(lab: Lab) -> list[str]:
    """Return the UUIDs of the server's GPUs."""
    with urllib.request.urlopen(f"{lab.url}/gpuwidget/api/sample?token={lab.token}", timeout=30) as answer:
        return [gpu["uuid"] for gpu in json.load(answer)["gpus"]]


def show(notebook: Notebook, width: int | None = None) -> None:
    """Open the panel and, if ``width`` is given, make it that many pixels wide."""
    notebook.page.wait_for_function("() => window.jupyterapp.commands.hasCommand('gpuwidget:show-panel')")
    notebook.script("await app.commands.execute('gpuwidget:show-panel');")
    notebook.page.wait_for_selector(PANEL, state="visible")
    if width is not None:
        notebook.script(
            "const split = app.shell._hsplitPanel; const part = argument / split.node.clientWidth;"
            "split.setRelativeSizes([0, 1 - part, part]);",
            width,
        )
        notebook.page.wait_for_function(
            "([panel, width]) => Math.abs(document.querySelector(panel).clientWidth - width) < 12",
            arg=[PANEL, width],
        )
        # The charts are resized after the layout and redrawn in the next frame.
        notebook.script(
            "await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));"
        )


def set_part(notebook: Notebook, part: str, *, shown: bool) -> None:
    """Show a part of the panel, or hide it, in the user's settings."""
    notebook.script(
        "const command = 'gpuwidget:toggle-part', args = {part: argument[0]};"
        "if (app.commands.isToggled(command, args) !== argument[1]) {"
        "  await app.commands.execute(command, args);"
        "}",
        [part, shown],
    )


def open_part(notebook: Notebook, part: str) -> None:
    """Show a part of the panel, and expand its section, which has the part's name, except that the part
    ``health`` has the section ``doctor``."""
    set_part(notebook, part, shown=True)
    section = "doctor" if part == "health" else part
    notebook.page.click(f"{PANEL} .jp-gpuwidget-{section} > summary")


def hide(notebook: Notebook) -> None:
    """Collapse the sidebar that contains the panel."""
    notebook.script("app.shell.collapseRight();")
    notebook.page.wait_for_selector(PANEL, state="hidden")


def wait_for_text(notebook: Notebook, selector: str, text: str, seconds: float = PATIENCE_S) -> None:
    """Wait until an element that matches ``selector`` contains ``text``."""
    notebook.page.wait_for_function(
        "([selector, text]) =>"
        " [...document.querySelectorAll(selector)].some(node => node.innerText.includes(text))",
        arg=[selector, text],
        timeout=seconds * 1000,
    )


def record_streams(page: Page) -> list[str]:
    """Return a list to which "open" is added for each stream that the page opens, and "closed" for each that
    closes.

    A stream closes some time after the page has closed it: when the server has confirmed that.
    """
    streams: list[str] = []

    def opened(socket: WebSocket) -> None:
        if "gpuwidget/api/stream" in socket.url:
            streams.append("open")
            socket.on("close", lambda _: streams.append("closed"))

    page.on("websocket", opened)
    return streams


def saved_workspace(request: Request) -> str:
    """Return the workspace in a request that saves it, as JSON; an empty text for any other request."""
    is_save = request.method == "PUT" and "/api/workspaces/" in request.url
    return (request.post_data or "").replace(" ", "") if is_save else ""


def cards(notebook: Notebook) -> list[dict[str, Any]]:
    """Return the GPUs' cards in the panel. Each has the GPU's UUID, whether the card is expanded, and its
    text in one line."""
    shown: list[dict[str, Any]] = notebook.page.eval_on_selector_all(
        CARD,
        "nodes => nodes.map(node => ({uuid: node.dataset.gpuUuid, open: node.dataset.open === 'true',"
        " text: node.innerText.replace(/\\s+/g, ' ').trim()}))",
    )
    return shown


def clipped(notebook: Notebook, *, ellipsis: bool = True) -> list[str]:
    """Return the elements of the panel whose content is clipped.

    If ``ellipsis`` is true, elements that shorten their text with an ellipsis are not returned.
    """
    elements: list[str] = notebook.script(_CLIPPED, ellipsis)
    return elements


def unreadable(notebook: Notebook) -> list[str]:
    """Return the texts of the panel that are cut off or that overlap another text.

    The panel must be high enough to show everything, because sticky headers cover what scrolls below them.
    """
    texts: list[str] = notebook.script(_UNREADABLE)
    return texts


def use_font(notebook: Notebook, pixels: float) -> None:
    """Set the size of JupyterLab's interface font, and wait until the page has its new layout."""
    notebook.script(_USE_FONT, pixels)
