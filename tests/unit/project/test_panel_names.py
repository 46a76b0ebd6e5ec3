"""Tests of the labextension's version, and of the package names in texts that users see."""

from __future__ import annotations

import json
import re
from pathlib import Path

import gpuwidget

ROOT = Path(__file__).parents[3]


def test_the_panel_has_the_packages_version() -> None:
    """The labextension has the same version as the Python package."""
    assert json.loads((ROOT / "package.json").read_text())["version"] == gpuwidget.__version__


def test_no_text_offers_an_unpublished_package() -> None:
    """No text tells users to run `pip install gpuwidget`, because the project is not on a package index
    yet.
    """
    sources = [*ROOT.glob("gpuwidget/**/*.py"), *ROOT.glob("labextension/src/**/*.ts")]
    sources += ROOT.glob("gpuwidget/locale/**/*.po*")
    offer = re.compile(r"pip install (?:--?\S+ )*['\"]?(?:jupyterlab-)?gpuwidget", re.IGNORECASE)
    assert [str(one) for one in sources if offer.search(one.read_text(encoding="utf-8"))] == []
