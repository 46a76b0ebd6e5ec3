"""A page of a real JupyterLab in Chromium, and the browser's own accounts of it (Performance.getMetrics)."""

from __future__ import annotations

import importlib
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.settings import ROOT

_KINDS = 200
_AT_ONCE = 500
_TIME = "1234567890.25"
"""Stands for a sample's time until it is sent."""


@contextmanager
def laboratory(
    chromium: str, folder: Path, variables: Mapping[str, str], *, python: str | None = None
) -> Iterator[Callable[..., Any]]:
    """A JupyterLab whose homes are in ``folder``; gives a function that opens a notebook of some cells in it.

    ``variables`` are added to the server's environment; ``python`` is whose JupyterLab it is, that of the
    browser tests unless said otherwise. What the function is given beside the cells is that of the browser
    tests' ``Lab.open``.
    """
    helpers, playwright = _browser_helpers(), importlib.import_module("playwright.sync_api")
    folder.mkdir()
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=list(helpers.CHROMIUM_ARGUMENTS))
        lab = helpers.Lab(folder, "nvml", variables=variables, python=python or helpers.PYTHON)
        try:
            lab.wait_until_ready()
            yield lambda cells, **how: lab.open(
                browser, lab.write("panel.ipynb", cells), **{"height": 1500, **how}
            )
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
    """A notebook of these cells, none of them run, open in a :func:`laboratory` of its own."""
    with laboratory(chromium, folder, variables, python=python) as open_notebook:
        opened = open_notebook(cells)
        yield opened
        opened.close()


class Flood:
    """Sends a page more of the server's samples than the server would: those of hours within a minute."""

    def __init__(self, page: Any) -> None:
        """``page`` is empty yet. What server and page say to each other goes through as it is."""
        self._page = page
        self._route: Any = None
        self._sample: dict[str, Any] = {}
        page.route_web_socket(re.compile(r"/gpuwidget/api/stream"), self._meet)

    def _meet(self, route: Any) -> None:
        self._route, server = route, route.connect_to_server()

        def forward(message: Any) -> None:
            told = json.loads(message)
            if told.get("type") == "sample":
                self._sample = told["sample"]
            route.send(message)

        server.on_message(forward)

    def send(self, count: int) -> None:
        """So many samples more, each another; returns when the page has had them."""
        kinds = [json.dumps({"type": "sample", "sample": self._another()}) for _ in range(_KINDS)]
        began = self._sample["time"]
        for number in range(count):
            self._route.send(kinds[number % _KINDS].replace(_TIME, repr(began + 0.2 * (number + 1))))
            if number % _AT_ONCE == _AT_ONCE - 1:
                self._page.evaluate("new Promise(requestAnimationFrame)")
        self._sample["time"] = began + 0.2 * count
        self._page.evaluate("new Promise(requestAnimationFrame)")

    def _another(self) -> dict[str, Any]:
        readings = [
            {
                **reading,
                **{name: random.uniform(0, 100) for name in ("utilization", "power_w", "temperature")},
            }
            for reading in self._sample["readings"]
        ]
        return {**self._sample, "time": float(_TIME), "readings": readings}


class Page:
    """One page's accounts while the values of the stand-in's machine change."""

    def __init__(self, notebook: Any, standin: Any, machine: Callable[[], Sequence[str]]) -> None:
        self._standin = standin
        self._machine = machine
        self._session = notebook.page.context.new_cdp_session(notebook.page)
        self._session.send("Performance.enable")

    def window(self, seconds: float = 10.0) -> Mapping[str, float]:
        """Milliseconds a second that the main thread was busy, and the bytes of heap that are left then."""
        before = self._metrics()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._standin.scenario(*self._machine())
            time.sleep(0.2)
        after = self._metrics()
        busy = (after["TaskDuration"] - before["TaskDuration"]) / (after["Timestamp"] - before["Timestamp"])
        return {"busy": 1e3 * busy, "heap": self.heap()}

    def heap(self) -> float:
        """Bytes of heap that are left after a garbage collection."""
        self._session.send("HeapProfiler.collectGarbage")
        return self._metrics()["JSHeapUsedSize"]

    def _metrics(self) -> dict[str, float]:
        told = self._session.send("Performance.getMetrics")["metrics"]
        return {metric["name"]: metric["value"] for metric in told}


def _browser_helpers() -> Any:
    path = str(ROOT / "tests" / "browser")
    if path not in sys.path:
        sys.path.insert(0, path)
    return importlib.import_module("helpers_lab")
