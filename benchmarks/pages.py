"""A page of a real JupyterLab in Chromium, measured with the browser's Performance.getMetrics."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.settings import ROOT

_AT_ONCE = 500
_COUNTS = ("Documents", "Nodes", "JSEventListeners")
"""What :meth:`Page.counts` counts, as named by Performance.getMetrics."""
_RESULT_BY_VALUE = {"awaitPromise": True, "returnByValue": True}
"""Parameters of Runtime.evaluate: wait for the promise, and return its value as JSON."""
_SETTLES_S = 30.0
"""Seconds to wait between the first heap reading, which collects garbage, and the first measured window."""
_RECORDS_OF_THE_BROWSER = (
    "Performance",
    "TaskAttributionTiming",
    "blink::AnimationFrameTimingInfo",
    "blink::NetworkResourcesData",
    "blink::ScriptTimingInfo",
)
"""The first characters of the names of objects that the browser itself keeps: entries of its performance
timeline, at most 200 for long tasks, 200 for long frames and 250 for requests, and what DevTools, through
which Playwright controls the page, records of each request."""
_FLOOD = """
const now = performance.now.bind(performance);
let ahead = 0;
performance.now = () => now() + ahead;
let stream, sample, server, usage;
let sending = false;
window.WebSocket = class extends WebSocket {
    constructor(url, ...others) {
        super(url, ...others);
        if (!String(url).includes('/gpuwidget/api/stream')) { return; }
        stream = this;
        this.addEventListener('message', event => {
            if (!event.isTrusted) { return; }
            const message = JSON.parse(event.data);
            if (message.type === 'usage') {
                usage = message;
            } else if (message.type === 'hello') {
                server = message.sample;
            } else {
                const {time, readings} = message;
                const changed = (reading, index) => ({...reading, ...readings[index]});
                server = message.sample ?? {...server, time, readings: server.readings.map(changed)};
                if (sending) {
                    // Older than the samples of the flood: the history would start again.
                    event.stopImmediatePropagation();
                }
            }
        });
    }
};
const dispatch = message => {
    stream.dispatchEvent(new MessageEvent('message', {data: JSON.stringify(message)}));
};
const any = (least, most) => least + Math.floor((most - least + 1) * Math.random());
window.flood = async count => {
    if (!sending) { sample = server; }
    sending = true;
    for (let number = 0; number < count; number++) {
        ahead += 200;
        const readings = sample.readings.map(reading => ({
            ...reading,
            utilization: any(0, 100),
            memory_used: any(0, 140) * 2 ** 30,
            power_w: any(60, 1000),
            temperature_c: any(9, 101),
            sm_clock_mhz: any(300, 1980)
        }));
        sample = {...sample, time: sample.time + 0.2, readings};
        dispatch({type: 'sample', sample});
        if (usage !== undefined && number % 10 === 0) { dispatch(usage); }
        await null;  // The views update in microtasks.
    }
    await new Promise(requestAnimationFrame);
};
window.endFlood = () => { sending = false; };
"""
"""Script that dispatches samples as if the page's WebSocket had received them. Each sample advances the
page's clock by 200 ms."""


@contextmanager
def jupyterlab(
    chromium: str,
    folder: Path,
    variables: Mapping[str, str],
    *,
    python: str | None = None,
    options: Sequence[str] = (),
) -> Iterator[Callable[..., Any]]:
    """Start a JupyterLab with its home folders in ``folder``.

    Yield a function that opens a notebook with the given cells. It also takes the keyword arguments of
    ``Lab.open`` in the browser tests. ``variables`` are added to the server's environment. ``python`` is the
    interpreter that runs JupyterLab, by default the one that the browser tests use. ``options`` are added to
    the server's command line.
    """
    helpers, playwright = browser_helpers(), importlib.import_module("playwright.sync_api")
    folder.mkdir()
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=list(helpers.CHROMIUM_ARGUMENTS))
        lab = helpers.Lab(
            folder, "nvml", variables=variables, python=python or helpers.PYTHON, options=options
        )
        try:
            lab.wait_until_ready()

            def open_notebook(cells: Sequence[str], **how: Any) -> Any:
                context = browser.new_context()
                opened = lab.open(context, lab.write("panel.ipynb", cells), **{"height": 1500, **how})
                opened.page.once("close", lambda _: context.close())
                return opened

            yield open_notebook
        finally:
            lab.stop()


@contextmanager
def notebook(
    chromium: str,
    folder: Path,
    cells: Sequence[str],
    variables: Mapping[str, str],
    *,
    python: str | None = None,
) -> Iterator[Any]:
    """Start a :func:`jupyterlab` and open a notebook with these cells. No cell is run."""
    with jupyterlab(chromium, folder, variables, python=python) as open_notebook:
        opened = open_notebook(cells)
        yield opened
        opened.close()


class DetachedPage:
    """A page of a Chromium to which nothing is attached, except for a moment in each call.

    Playwright is not used here: with one connection per minute, the heap of a page without gpuwidget grew by
    0.2 MiB per minute. With this class, it grew by 0.04 MiB (each measured once, for 15 to 20 minutes).
    """

    def __init__(self, address: str, url: str) -> None:
        """``address`` is that of Chromium's debugging port. The page's URL starts with ``url``."""
        self._address = address
        self._url = url

    def script(self, body: str) -> Any:
        """Run JavaScript in the page, as the body of an async function, and return its result."""
        (answer,) = self._calls(
            ("Runtime.evaluate", {"expression": f"(async () => {{{body}}})()", **_RESULT_BY_VALUE})
        )
        return answer["result"].get("value")

    def counts(self) -> dict[str, float]:
        """Return what :meth:`Page.counts` returns."""
        *_, answer = self._calls(
            ("Performance.enable", {}), ("HeapProfiler.collectGarbage", {}), ("Performance.getMetrics", {})
        )
        metrics = {metric["name"]: metric["value"] for metric in answer["metrics"]}
        return {"heap": metrics["JSHeapUsedSize"], **{name: metrics[name] for name in _COUNTS}}

    def _calls(self, *calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
        websocket = importlib.import_module("websocket")
        with urllib.request.urlopen(f"{self._address}/json", timeout=60) as answer:
            pages = [target for target in json.load(answer) if target["type"] == "page"]
        (url,) = (page["webSocketDebuggerUrl"] for page in pages if page["url"].startswith(self._url))
        connection = websocket.create_connection(url, suppress_origin=True, timeout=60)
        try:
            return [_call(connection, number, *call) for number, call in enumerate(calls)]
        finally:
            connection.close()


def _call(connection: Any, number: int, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Call a method of the Chrome DevTools Protocol, and return its result."""
    connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
    while (answer := json.loads(connection.recv())).get("id") != number:
        pass
    if "error" in answer or "exceptionDetails" in answer["result"]:
        raise RuntimeError(f"{method} failed: {answer}")
    result: dict[str, Any] = answer["result"]
    return result


@contextmanager
def detached_notebook(
    chromium: str,
    folder: Path,
    cells: Sequence[str],
    variables: Mapping[str, str],
    prepare: Callable[[Any], object],
    *,
    size: tuple[int, int],
    options: Sequence[str] = (),
) -> Iterator[DetachedPage]:
    """Start a JupyterLab with its home folders in ``folder``, and open a notebook with these cells in
    Chromium. Call ``prepare`` with the notebook, and then disconnect Playwright from the page.

    ``size`` is the window's width and height in pixels. ``options`` are added to the server's command line.
    """
    helpers, playwright = browser_helpers(), importlib.import_module("playwright.sync_api")
    folder.mkdir()
    profile = folder / "profile"
    command = [
        *(chromium, "--headless=new", *helpers.CHROMIUM_ARGUMENTS),
        *(f"--user-data-dir={profile}", "--window-size={},{}".format(*size), "--remote-debugging-port=0"),
    ]
    with (
        (folder / "chromium.log").open("wb") as log,
        subprocess.Popen(command, stderr=log, start_new_session=True) as browser,
    ):
        try:
            lab = helpers.Lab(folder, "nvml", variables=variables, python=helpers.PYTHON, options=options)
            try:
                lab.wait_until_ready()
                path = lab.write("panel.ipynb", cells)
                address = f"http://127.0.0.1:{_debugging_port(browser, profile)}"
                with (
                    playwright.sync_playwright() as started,
                    started.chromium.connect_over_cdp(address) as connected,
                ):
                    prepare(lab.open(connected.contexts[0], path, width=size[0], height=size[1]))
                yield DetachedPage(address, lab.url)
            finally:
                lab.stop()
        finally:
            # The command may be a script that runs Chromium as its child. If only the script were terminated,
            # the page would go on running.
            os.killpg(browser.pid, signal.SIGKILL)


def _debugging_port(browser: subprocess.Popen[bytes], profile: Path) -> int:
    """Wait until Chromium has written its debugging port into its profile, and return the port."""
    file = profile / "DevToolsActivePort"
    deadline = time.monotonic() + 60
    while not (file.exists() and file.read_text(encoding="utf-8").strip()):
        if browser.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                f"Chromium opened no debugging port. Its log is {profile.parent}/chromium.log."
            )
        time.sleep(0.1)
    return int(file.read_text(encoding="utf-8").splitlines()[0])


class Flood:
    """Sends hours of samples to a page within a minute, and advances the page's clock by those hours.

    The views therefore update as often as they would in those hours. A script inside the page dispatches the
    samples. Playwright's WebSocket routes can't be used: they compile one script per message, which would
    increase the measured heap.
    """

    def __init__(self, page: Any) -> None:
        """Install the script in ``page``. Call this before the page loads anything."""
        self._page = page
        page.add_init_script(f"{{{_FLOOD}}}")

    def send(self, count: int) -> None:
        """Send ``count`` samples with random values, and return when the page has processed all of them.

        On the page's clock, samples arrive at 5 Hz. The script sends the server's latest list of holders
        again with every tenth sample. Until all samples are sent, it drops the samples that the server itself
        sends.
        """
        for sent in range(0, count, _AT_ONCE):
            self._page.evaluate("count => flood(count)", min(_AT_ONCE, count - sent))
        self._page.evaluate("endFlood()")


class Page:
    """Measures one page while the values of the stand-in GPUs change."""

    def __init__(self, notebook: Any, standin: Any, machine: Callable[[], Sequence[str]]) -> None:
        self._standin = standin
        self._machine = machine
        self._session = notebook.page.context.new_cdp_session(notebook.page)
        self._session.send("Performance.enable")

    def windows(self, count: int) -> tuple[list[float], float]:
        """Measure ``count`` windows (periods of 10 s). Return the main thread's busy milliseconds per second
        in each window, and the heap's growth in bytes.

        The heap is read only before the first and after the last window, because reading it collects garbage.
        """
        before = self.heap()
        self.window(_SETTLES_S if count > 1 else 1.0)
        busy = [self.window() for _ in range(count)]
        return busy, self.heap() - before

    def window(self, seconds: float = 10.0, interval_s: float = 0.2) -> float:
        """Return how many milliseconds per second the main thread was busy, measured for ``seconds``.

        The values of the stand-in GPUs change every ``interval_s`` seconds.
        """
        before = self._metrics()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._standin.scenario(*self._machine())
            time.sleep(interval_s)
        after = self._metrics()
        busy = (after["TaskDuration"] - before["TaskDuration"]) / (after["Timestamp"] - before["Timestamp"])
        return 1e3 * busy

    def busy_ms(self) -> float:
        """Return how long the main thread has been busy since the page was opened, in milliseconds."""
        return 1e3 * self._metrics()["TaskDuration"]

    def heap(self) -> float:
        """Return the size of the JavaScript heap after a garbage collection, in bytes."""
        self._session.send("HeapProfiler.collectGarbage")
        return self._metrics()["JSHeapUsedSize"]

    def counts(self) -> dict[str, float]:
        """Return the size of the JavaScript heap in bytes and the numbers of documents, DOM nodes and event
        listeners, after a garbage collection."""
        heap = self.heap()
        metrics = self._metrics()
        return {"heap": heap, **{name: metrics[name] for name in _COUNTS}}

    def kept(self) -> float:
        """Return the bytes that the page retains after a garbage collection, with DOM nodes, but without
        compiled code and the browser's own records.

        V8 compiles and discards code depending on how often functions run, and the browser records each task
        that takes longer than 50 ms. The heap's size therefore varies by hundreds of KiB even if the page
        retains no additional object.
        """
        chunks: list[str] = []

        def take(event: Mapping[str, str]) -> None:
            chunks.append(event["chunk"])

        self._session.on("HeapProfiler.addHeapSnapshotChunk", take)
        self._session.send("HeapProfiler.collectGarbage")
        self._session.send("HeapProfiler.takeHeapSnapshot", {"reportProgress": False})
        self._session.remove_listener("HeapProfiler.addHeapSnapshotChunk", take)
        snapshot = json.loads("".join(chunks))
        meta, nodes = snapshot["snapshot"]["meta"], snapshot["nodes"]
        fields = meta["node_fields"]
        code, native = (meta["node_types"][0].index(kind) for kind in ("code", "native"))
        records = {
            index
            for index, name in enumerate(snapshot["strings"])
            if name.startswith(_RECORDS_OF_THE_BROWSER)
        }
        columns = (nodes[fields.index(field) :: len(fields)] for field in ("type", "name", "self_size"))
        return float(
            sum(
                size
                for kind, name, size in zip(*columns, strict=True)
                if kind != code and not (kind == native and name in records)
            )
        )

    def _metrics(self) -> dict[str, float]:
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return {metric["name"]: metric["value"] for metric in metrics}


def browser_helpers() -> Any:
    """Return the module of the browser tests that starts JupyterLab and opens notebooks."""
    path = str(ROOT / "tests")
    if path not in sys.path:
        sys.path.insert(0, path)
    return importlib.import_module("helpers_lab")
