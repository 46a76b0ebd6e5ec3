"""Tests of the reason why there is no live chart."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from gpuwidget.kernel.live import live_display


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder whose bqplot replaces the installed one. Nothing of the live chart is imported yet."""
    for name in list(sys.modules):
        if name.split(".")[0] in ("bqplot", "ipywidgets") or name == "gpuwidget.kernel.live.live_chart":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(live_display, "_imported", False)
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
    with pytest.raises(live_display.LiveUnavailable) as raised:
        live_display.import_libraries()
    assert str(raised.value).endswith(expected)
    assert not live_display.libraries_imported()


@pytest.mark.parametrize("action", ["error", "always"])
def test_warnings_of_the_libraries_are_ours(packages: Path, action: Literal["error", "always"]) -> None:
    """Whatever the user's warning filters are, the libraries' warnings are neither shown nor errors, and the
    filters stay as they are."""
    (packages / "bqplot.py").write_text("import warnings; warnings.warn('old', DeprecationWarning); 1 / 0")
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter(action)
        filters = list(warnings.filters)
        with pytest.raises(live_display.LiveUnavailable, match="ZeroDivisionError"):
            live_display.import_libraries()
        assert warnings.filters == filters
    assert shown == []
