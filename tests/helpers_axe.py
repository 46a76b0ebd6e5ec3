"""Check gpuwidget's parts of the page with axe-core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers_lab import THEMES, Notebook

AXE = Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"
_RUN_AXE = """
const [source, include] = argument;
if (!window.axe) { (0, eval)(source); }
// The colors of a new theme are still in transition.
await Promise.all(document.getAnimations().map(animation => animation.finished.catch(() => {})));
const found = await window.axe.run({include}, {resultTypes: ['violations']});
return found.violations.flatMap(({id, help, nodes}) => nodes.map(node =>
    ({id, help, where: node.target.join(' '), html: node.html, why: node.failureSummary})));
"""


def violations(notebook: Notebook, *parts: str, themes: tuple[str, ...] = tuple(THEMES)) -> list[str]:
    """Return the violations that axe finds in these parts of the page, in the light and the dark theme."""
    lines = []
    for theme in themes:
        notebook.use_theme(theme)
        for part in parts:
            assert notebook.page.locator(part).first.is_visible(), f"{part} is not visible"
        found: list[dict[str, Any]] = notebook.script(_RUN_AXE, [AXE.read_text(), [[part] for part in parts]])
        lines += [
            f"{theme}: {one['id']}: {one['where']}: {one['html']}: {' '.join(one['why'].split())}"
            for one in found
        ]
    return lines
