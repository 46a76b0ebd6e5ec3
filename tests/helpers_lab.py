"""Start a real JupyterLab with an empty home directory, and open notebooks in it with Chromium."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
from helpers_jupyter import jupyter_folders
from nbformat.sign import NotebookNotary
from playwright.sync_api import BrowserContext, Page
from playwright.sync_api import TimeoutError as PlaywrightTimeout

CHROMIUM_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PYTHON = os.environ.get("GPUWIDGET_TEST_LAB", sys.executable)
"""The Python interpreter that runs the JupyterLab under test and its kernels."""
_KERNEL_STATUS = """() => {
    const widgets = [...(window.jupyterapp?.shell.widgets('main') ?? [])];
    const opened = widgets.find(widget => widget.sessionContext);
    return opened?.sessionContext.kernelDisplayStatus ?? 'not requested';
}"""
_POLLING_MS = 50
"""Milliseconds between two checks of a condition while a page starts. By default, Playwright would check in
every frame, and take CPU time from the page."""
PATIENCE_S = 90.0
"""Maximum seconds for which a test waits for the page. Only a very busy machine needs as many."""
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
SETTINGS = {
    # JupyterLab's news and update checks would open pop-ups over the notebook and use the network.
    "@jupyterlab/apputils-extension/notification.jupyterlab-settings": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
}
_RECORD_LAYOUT_SHIFTS = """
window.layoutShifts = [];
new PerformanceObserver(list => {
    const place = ({x, y, width, height}) => [x, y, width, height].map(Math.round);
    for (const { value, sources, hadRecentInput } of list.getEntries()) {
        const moved = sources.flatMap(({ node, previousRect, currentRect }) => {
            const element = node instanceof Element ? node : node?.parentElement;
            const isInside = element?.parentElement?.closest(argument);
            return isInside ? [`${element.className} ${place(previousRect)} -> ${place(currentRect)}`] : [];
        });
        if (!hadRecentInput && moved.length > 0) { window.layoutShifts.push(`${value}: ${moved.join()}`); }
    }
}).observe({type: 'layout-shift'});
"""
_WAIT_FOR_CHANGES = """
const [selector, changes] = argument;
let seen = 0;
await new Promise(done => {
    const observer = new MutationObserver(() => {
        seen++;
        if (seen === changes) { observer.disconnect(); done(); }
    });
    observer.observe(document.querySelector(selector), {subtree: true, characterData: true, childList: true});
});
// A layout shift is reported in the frame after the change.
await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))));
"""


_released_ports: set[int] = set()
"""Ports of stopped servers. A new server reuses one, because Chromium keeps compiled code by URL, and the URL
contains the port."""


def runs_until(end: Path) -> str:
    """Return source code that runs until the file ``end`` exists.

    A test that needs a running cell creates the file at the end: on a busy machine, a cell of some seconds
    may end before the test has looked at it.
    """
    return f"import pathlib, time\nwhile not pathlib.Path({str(end)!r}).exists(): time.sleep(0.05)"


def new_page(browser: BrowserContext, width: int = 1200, height: int = 800) -> Page:
    """Open a browser page of this size."""
    page = browser.new_page()
    page.set_viewport_size({"width": width, "height": height})
    return page


class Lab:
    """A running JupyterLab server. ``source`` is the source of GPU samples for the server and its kernels.

    ``variables`` are added to the server's environment, and ``options`` to its command line. The server runs
    with the interpreter ``python``. ``base`` is the path of its address, as behind a proxy.
    """

    def __init__(
        self,
        root: Path,
        source: str,
        *,
        variables: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        python: str = PYTHON,
        base: str = "",
    ) -> None:
        self.notebooks = root / "notebooks"
        self.data = root / "data"
        self.token = secrets.token_hex(8)
        self._log = root / "server.log"
        self._port = _free_port()
        self.url = f"http://127.0.0.1:{self._port}{base}"
        self._settings = settings = root / "settings"
        self.reset_settings()
        self.notebooks.mkdir()
        environment = {
            **os.environ,
            **jupyter_folders(root),
            "JUPYTER_TOKEN": self.token,
            "JUPYTERLAB_SETTINGS_DIR": str(settings),
            "GPUWIDGET_SOURCE": source,
            **(variables or {}),
        }
        environment.pop("PYTEST_CURRENT_TEST", None)
        self._environment = environment
        self._command = [
            *(python, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            f"--ServerApp.port={self._port}",
            "--ServerApp.port_retries=0",
            f"--ServerApp.base_url={base}/",
            f"--ServerApp.root_dir={self.notebooks}",
            f"--LabApp.workspaces_dir={root / 'workspaces'}",
            "--LabApp.expose_app_in_browser=True",
            "--JupyterNotebookApp.expose_app_in_browser=True",
            "--LabApp.extension_manager=readonly",
            # The search for language servers starts npm and node, which takes time from the tests.
            "--LanguageServerManager.autodetect=False",
            *options,
        ]
        self.start()

    def reset_settings(self) -> None:
        """Forget what pages have saved in the user's settings."""
        for saved in self._settings.rglob("*.jupyterlab-settings"):
            saved.unlink()
        for name, value in SETTINGS.items():
            path = self._settings / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(value))

    def start(self) -> None:
        """Start the server, or restart it at the same address with the same token."""
        _released_ports.discard(self._port)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)

    def wait_until_ready(self, seconds: float = 180) -> None:
        """Wait until the server responds. If it exits or does not respond within ``seconds``, raise an error
        with its log."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/api?token={self.token}", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise RuntimeError(f"JupyterLab did not start:\n{self._log.read_text()[-4000:]}")

    def stop(self) -> None:
        """Stop the server, and with it the kernels."""
        self._process.terminate()
        try:
            # A server waits a long time for a kernel that is just starting, so it may have to be killed.
            # Kernels exit when their server is gone.
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _released_ports.add(self._port)

    @property
    def log(self) -> str:
        """The log of the server and its kernels."""
        return self._log.read_text(errors="replace")

    def write(self, name: str, cells: Sequence[str]) -> Path:
        """Write a notebook file with these code cells, and return its path."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata["kernelspec"] = {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        }
        path = self.notebooks / name
        nbformat.write(notebook, path)
        return path

    def trust(self, path: Path) -> None:
        """Sign the notebook, as the server does after the user has trusted it."""
        NotebookNotary(data_dir=str(self.data)).sign(nbformat.read(path, as_version=4))

    def open(
        self,
        browser: BrowserContext,
        path: Path,
        *,
        theme: str = "light",
        width: int = 1200,
        height: int = 1000,
        kernel: bool = True,
        prepare: Callable[[Page], object] | None = None,
    ) -> Notebook:
        """Open the notebook in a new browser page. If ``kernel`` is false, do not wait for its kernel.

        ``prepare`` is called with the page before the page loads anything.
        """
        page = new_page(browser, width, height)
        if prepare is not None:
            prepare(page)
        workspace = secrets.token_hex(4)
        query = f"reset&token={self.token}"
        notebook = Notebook(page, path)
        try:
            page.goto(f"{self.url}/lab/workspaces/{workspace}/tree/{path.name}?{query}")
            notebook.wait_until_open(kernel=kernel)
        except PlaywrightTimeout as error:
            status = page.evaluate(_KERNEL_STATUS)
            raise RuntimeError(
                f"The notebook did not open. Kernel: {status}. The server's log:\n{self.log[-4000:]}"
            ) from error
        notebook.use_theme(theme)
        return notebook


class Notebook:
    """A notebook that is open in JupyterLab, with its browser page."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.path = path

    def script(self, body: str, argument: object = None) -> Any:
        """Run JavaScript in the page, as the body of an async function.

        The code can use ``app`` (JupyterLab's application), ``panel`` (the notebook's widget) and
        ``argument``.
        """
        return self.page.evaluate(
            "async argument => { const app = window.jupyterapp;"
            "const panel = [...app.shell.widgets('main')].find(w => w.content?.widgets && w.sessionContext);"
            f"{body} }}",
            argument,
        )

    def wait_until_open(self, *, kernel: bool) -> None:
        """Wait until JupyterLab has started, the notebook is rendered and, if ``kernel`` is true, its kernel
        is idle."""
        self.page.wait_for_function(
            "() => window.jupyterapp && !document.querySelector('#jupyterlab-splash')", polling=_POLLING_MS
        )
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self.script("await panel.context.ready; await panel.revealed;")
        # After a reload, JupyterLab restores the notebook, and later opens it again, because the URL has its
        # path. That would take the focus from what a test does. Meanwhile, its file browser has this class.
        self.page.wait_for_selector(".jp-FileBrowser.jp-mod-restoring", state="detached")
        if kernel:
            self.script("await panel.sessionContext.ready;")
            self.page.wait_for_function(
                "() => [...window.jupyterapp.shell.widgets('main')]"
                ".some(w => w.sessionContext?.session?.kernel?.status === 'idle')",
                polling=_POLLING_MS,
            )
        self.script("app.shell.collapseLeft(); app.shell.collapseRight?.();")

    def use_theme(self, theme: str) -> None:
        """Switch to the ``light`` or ``dark`` theme."""
        self.script(
            "if (document.body.dataset.jpThemeName !== argument) {"
            "await app.commands.execute('apputils:change-theme', {theme: argument}); }",
            THEMES[theme],
        )
        # JupyterLab hides its shell for one frame after it has named the new theme.
        self.page.wait_for_function(
            "light => document.body.dataset.jpThemeLight === light && window.jupyterapp.shell.isVisible",
            arg=str(theme == "light").lower(),
            polling=_POLLING_MS,
        )

    def run(self, cell: int) -> None:
        """Start a cell, and return without waiting until it has finished."""
        self.script(
            "panel.content.activeCellIndex = argument; panel.content.deselectAll();"
            "window.gpuwidgetDone = false;"
            "app.commands.execute('notebook:run-cell').then(() => { window.gpuwidgetDone = true; });",
            cell,
        )

    def wait_until_done(self, seconds: float = PATIENCE_S) -> None:
        """Wait until the cell that was started last has finished."""
        self.page.wait_for_function("() => window.gpuwidgetDone", timeout=seconds * 1000)

    def run_to_the_end(self, cell: int) -> None:
        """Run a cell, and wait until it has finished."""
        self.run(cell)
        self.wait_until_done()

    def outputs(self, cell: int) -> list[dict[str, Any]]:
        """Return the outputs of a cell in the format in which JupyterLab saves them."""
        outputs: list[dict[str, Any]] = self.script(
            "return panel.content.widgets[argument].model.outputs.toJSON();", cell
        )
        return outputs

    def record_layout_shifts(self, selector: str) -> None:
        """Start recording the layout shifts inside the matching elements. Shifts that follow a user action
        are ignored.

        Shifts of other elements do not count: JupyterLab's status bar, for example, moves when the kernel's
        state changes.
        """
        self.script(_RECORD_LAYOUT_SHIFTS, selector)

    def layout_shifts(self) -> list[str]:
        """Return the layout shifts since the last call. Each is a text with its score and, for each moved
        element, the classes, and the old and new position and size.

        If the list is empty, the layout-shift score is 0.
        """
        moved: list[str] = self.script("return window.layoutShifts.splice(0);")
        return moved

    def wait_for_changes(self, selector: str, changes: int) -> None:
        """Wait until the content of the first matching element has changed this many times."""
        self.script(_WAIT_FOR_CHANGES, [selector, changes])

    def wait_for(self, condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        """Wait until ``condition`` returns true, while Playwright delivers the page's events.

        :raises AssertionError: if it is false for ``seconds``.
        """
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, f"still false after {seconds} s"
            self.page.wait_for_timeout(50)

    def save(self) -> None:
        """Save the notebook to its file."""
        self.script("await panel.context.save();")

    def close(self) -> None:
        """Shut down the notebook's kernel and close the page, without a dialog about unsaved changes.

        Also clear the page's ``localStorage``, which later pages at the same URL would read.
        """
        self.script("await panel?.sessionContext.shutdown(); localStorage.clear();")
        self.page.close(run_before_unload=False)


def _free_port() -> int:
    while True:
        with socket.socket() as free, suppress(OSError):
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", _released_ports.pop() if _released_ports else 0))
            return int(free.getsockname()[1])
