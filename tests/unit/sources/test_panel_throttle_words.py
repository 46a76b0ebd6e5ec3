"""The panel's words and versions, which TypeScript has to write down a second time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import gpuwidget
from gpuwidget.sources import throttle_reasons

ROOT = Path(__file__).parents[3]
WORDS = ROOT / "labextension" / "src" / "panel" / "words.ts"


def test_the_panel_is_warm_where_the_other_views_are() -> None:
    """What holds a clock down is a worry in the panel if and only if it is one in the table."""
    (quiet,) = re.findall(r"QUIET_THROTTLES[^[]*\[([^]]*)\]", WORDS.read_text(encoding="utf-8"))
    every = set(throttle_reasons.reason_names((1 << 11) - 1)) | set(
        throttle_reasons.reason_names(throttle_reasons.HW_SLOWDOWN)
    )
    assert set(re.findall(r"'([^']*)'", quiet)) == every - throttle_reasons.NEEDS_ATTENTION


def test_the_panel_has_the_package_s_version() -> None:
    """What JupyterLab lists as installed is what pip lists."""
    assert json.loads((ROOT / "package.json").read_text())["version"] == gpuwidget.__version__


def test_no_text_offers_a_name_that_is_on_no_index() -> None:
    """Whoever followed it would get nothing, or one day what somebody else puts there under that name."""
    sources = [*ROOT.glob("gpuwidget/**/*.py"), *ROOT.glob("labextension/src/**/*.ts")]
    sources += ROOT.glob("gpuwidget/locale/**/*.po*")
    offer = re.compile(r"pip install (?:--?\S+ )*['\"]?(?:jupyterlab-)?gpuwidget", re.IGNORECASE)
    assert [str(one) for one in sources if offer.search(one.read_text(encoding="utf-8"))] == []
