"""A page of a real JupyterLab in Chromium, and the browser's own accounts of it (Performance.getMetrics)."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.settings import ROOT


@contextmanager
def notebook(
    chromium: str,
    folder: Path,
    cells: Sequence[str],
    variables: Mapping[str, str],
    *,
    python: str | None = None,
) -> Iterator[Any]:
    """A notebook of these cells, none of them run, open in a JupyterLab whose homes are in ``folder``.

    ``variables`` are added to the server's environment; ``python`` is whose JupyterLab it is, that of the
    browser tests unless said otherwise.
    """
    helpers, playwright = _browser_helpers(), importlib.import_module("playwright.sync_api")
    folder.mkdir()
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=list(helpers.CHROMIUM_ARGUMENTS))
        lab = helpers.Lab(folder, "nvml", variables=variables, python=python or helpers.PYTHON)
        try:
            lab.wait_until_ready()
            opened = lab.open(browser, lab.write("panel.ipynb", cells), height=1500)
            yield opened
            opened.close()
        finally:
            lab.stop()


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
        self._session.send("HeapProfiler.collectGarbage")
        busy = (after["TaskDuration"] - before["TaskDuration"]) / (after["Timestamp"] - before["Timestamp"])
        return {"busy": 1e3 * busy, "heap": self._metrics()["JSHeapUsedSize"]}

    def _metrics(self) -> dict[str, float]:
        told = self._session.send("Performance.getMetrics")["metrics"]
        return {metric["name"]: metric["value"] for metric in told}


def _browser_helpers() -> Any:
    path = str(ROOT / "tests" / "browser")
    if path not in sys.path:
        sys.path.insert(0, path)
    return importlib.import_module("helpers_lab")
