"""Tests of the live chart's libraries: when they are imported, and why there is no chart without them."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest

from gpuwidget.kernel.live import chart_libraries, live_display


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder whose bqplot replaces the installed one. Nothing of the live chart is imported yet."""
    for name in list(sys.modules):
        if name.split(".")[0] in ("bqplot", "ipywidgets") or name == "gpuwidget.kernel.live.live_chart":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(chart_libraries, "_imported", False)
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("bqplot", None)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "raise ModuleNotFoundError('No module named bqplot', name='bqplot')",
            "(pip install ipywidgets bqplot).",
        ),
        ("1 / 0", "can't be imported (ZeroDivisionError: division by zero)."),
    ],
    ids=["missing", "broken"],
)
def test_why_there_is_no_live_chart(packages: Path, code: str, expected: str) -> None:
    """The reason says to install packages only if one is missing."""
    (packages / "bqplot.py").write_text(code)
    with pytest.raises(chart_libraries.LiveUnavailable) as raised:
        chart_libraries.import_libraries()
    assert str(raised.value).endswith(expected)
    assert not chart_libraries.is_imported()


@pytest.mark.parametrize("action", ["error", "always"])
def test_warnings_of_the_libraries_are_ours(packages: Path, action: Literal["error", "always"]) -> None:
    """Whatever the user's warning filters are, the libraries' warnings are neither shown nor errors, and the
    filters stay as they are."""
    (packages / "bqplot.py").write_text("import warnings; warnings.warn('old', DeprecationWarning); 1 / 0")
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter(action)
        filters = list(warnings.filters)
        with pytest.raises(chart_libraries.LiveUnavailable, match="ZeroDivisionError"):
            chart_libraries.import_libraries()
        assert warnings.filters == filters
    assert shown == []


@pytest.mark.parametrize(
    ("action", "category", "imported"),
    [("ignore", DeprecationWarning, False), ("error", UserWarning, False), ("error", Warning, True)],
    ids=["hidden", "other", "errors"],
)
def test_the_code_waits_for_the_import_only_if_it_must(
    packages: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: Literal["error", "ignore"],
    category: type[Warning],
    imported: bool,
) -> None:
    """The chart's thread imports the libraries while the code runs. They are imported before only if their
    warnings would be errors on that thread."""
    for name in ("numpy", "pandas"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    (packages / "bqplot.py").write_text("1 / 0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter(action, category)
        if imported:
            with pytest.raises(chart_libraries.LiveUnavailable, match="ZeroDivisionError"):
                chart_libraries.prepare_libraries()
        else:
            chart_libraries.prepare_libraries()
    assert ("bqplot" in sys.modules, chart_libraries.is_imported()) == (False, False)


@pytest.mark.parametrize(("used", "expected"), [(0.0, 0.19), (0.001, 0.19), (0.004, 0.4), (0.05, 1.0)])
def test_an_expensive_update_is_followed_by_a_pause(used: float, expected: float) -> None:
    """The more CPU time an update of the chart uses, the longer the pause after it, up to a second."""
    assert live_display.period_after(used, 0.19) == pytest.approx(expected)


def test_a_fork_waits_for_the_import(packages: Path) -> None:
    """If the user's code forks while the chart's thread imports the libraries, the fork waits. Otherwise, the
    child would wait forever for a half imported module, whose lock belongs to a thread that it lacks."""
    (packages / "bqplot.py").write_text(
        "import os, time\nopen(__file__ + '.begun', 'w').close()\ntime.sleep(0.5)\nended = "
        "time.monotonic()\n1 / 0"
    )
    failed: list[chart_libraries.LiveUnavailable] = []

    def import_them() -> None:
        try:
            chart_libraries.import_on_thread()
        except chart_libraries.LiveUnavailable as error:
            failed.append(error)

    thread = threading.Thread(target=import_them)
    thread.start()
    while not (packages / "bqplot.py.begun").exists():
        time.sleep(0.001)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork with threads.
        child = os.fork()
    if child == 0:
        os._exit(chart_libraries._import_lock.locked() or "bqplot" in sys.modules)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join()
    assert (len(failed), chart_libraries._import_lock.locked()) == (1, False)
