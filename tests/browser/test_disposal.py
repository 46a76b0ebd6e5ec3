"""The panel, the dashboard and the status item stop all work when they are disposed of."""

from __future__ import annotations

from collections.abc import Callable

from browser.test_dashboard_view import DASHBOARD, open_dashboard
from helpers_diagnosis import fake_doctor_route, healthy
from helpers_lab import Notebook
from helpers_panel import CARD, PANEL, open_part, record_streams, show
from playwright.sync_api import Page, Request, Route

Open = Callable[..., Notebook]
DOCTOR = f"{PANEL} .jp-gpuwidget-doctor"
COPY = f'{DOCTOR} section[aria-label="Jupyter server"] > .jp-gpuwidget-doctor-copy'
CSV = f"{DASHBOARD} .jp-gpuwidget-dashboard-csv"
TRACK_TIMERS = """
// Keeps the stack of each pending timer that code of this extension has started.
window.timers = new Map();
const ownStack = () => {
    const { stack } = new Error();
    return stack.includes('/jupyterlab-gpuwidget/') ? stack : null;
};
const { setTimeout, clearTimeout, setInterval } = window;
window.setTimeout = (action, ...rest) => {
    const stack = ownStack();
    const timer = setTimeout((...given) => {
        window.timers.delete(timer);
        action(...given);
    }, ...rest);
    if (stack !== null) { window.timers.set(timer, stack); }
    return timer;
};
window.setInterval = (...given) => {
    const timer = setInterval(...given);
    const stack = ownStack();
    if (stack !== null) { window.timers.set(timer, stack); }
    return timer;
};
window.clearTimeout = timer => {
    window.timers.delete(timer);
    clearTimeout(timer);
};
window.clearInterval = window.clearTimeout;
"""
DISPOSE = """
const [id] = argument;
const find = widget => widget.id === id ? widget : [...widget.children()].map(find).find(Boolean);
const widget = find(app.shell);
window.changes = 0;
new MutationObserver(() => { window.changes++; }).observe(
    widget.node, {subtree: true, childList: true, characterData: true, attributes: true});
widget.dispose();
// Disposing of a widget removes its node; count only the changes after that.
await new Promise(done => setTimeout(done));
window.changes = 0;
"""


def track_timers(page: Page) -> None:
    """Record the timers that the page starts."""
    page.add_init_script(TRACK_TIMERS)


def dispose(notebook: Notebook, widget: str) -> None:
    """Dispose of the widget with this id. From then on, ``window.changes`` counts the changes in it."""
    notebook.script(DISPOSE, [widget])


def test_disposed_views_stop_all_work(open_notebook: Open) -> None:
    """If a view is disposed of, it is no longer updated, and all its timers and requests end, including the
    timer that resets its copy button and a CSV export that is under way."""
    notebook = open_notebook(["%load_ext gpuwidget"], prepare=track_timers)
    page = notebook.page
    streams = record_streams(page)
    failed: list[str] = []

    def record_failure(request: Request) -> None:
        path = request.url.partition("?")[0]
        # JupyterLab itself also cancels requests, for example those that save its workspace.
        if "/gpuwidget/api/" in path:
            failed.append(path.rpartition("/")[2])

    page.on("requestfailed", record_failure)
    fake_doctor_route(notebook, (200, healthy()))
    show(notebook, 300)
    notebook.run(0)
    notebook.wait_until_done()
    # gpuwidget is loaded now, so the kernel replies immediately and no request is left pending.
    page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-watch:enabled")
    open_dashboard(notebook)
    held: list[Route] = []
    page.route("**/gpuwidget/api/history?*", lambda route: held.append(route))
    page.click(CSV)
    page.wait_for_selector(f"{CSV}:disabled")
    dispose(notebook, "jp-gpuwidget-dashboard")
    page.wait_for_function("() => window.jupyterapp.shell.currentWidget !== null")
    rows = CARD
    before = page.locator(rows).all_inner_texts()
    page.wait_for_function(
        "([rows, before]) =>"
        " [...document.querySelectorAll(rows)].some((row, at) => row.innerText !== before[at])",
        arg=[rows, before],
    )
    assert page.evaluate("window.changes") == 0
    assert failed == ["history"]
    open_part(notebook, "health")
    # Wait until server and kernel have replied, because a pending request would leave its timeout running.
    # The button is also enabled for a moment after the click, until the browser reports the open part.
    page.wait_for_selector(f"{DOCTOR} .jp-gpuwidget-doctor-run:enabled:has-text('Run again')")
    page.click(COPY)
    assert page.inner_text(COPY) == "Copied"
    for widget in ("jp-gpuwidget-panel", "jp-gpuwidget-status"):
        dispose(notebook, widget)
    assert page.evaluate("[...window.timers.values()]") == []
    notebook.wait_for(lambda: streams == ["open", "closed"])
    assert page.evaluate("window.changes") == 0
