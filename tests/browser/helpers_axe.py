"""axe-core, asked in the page about what is ours there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers_lab import THEMES, Notebook

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
_JUDGE = """
const [source, include] = argument;
if (!window.axe) { (0, eval)(source); }
// Colours of a theme that was just changed are still on their way.
await Promise.all(document.getAnimations().map(animation => animation.finished.catch(() => {})));
const found = await window.axe.run({include}, {resultTypes: ['violations']});
return found.violations.flatMap(({id, help, nodes}) => nodes.map(node =>
    ({id, help, where: node.target.join(' '), html: node.html, why: node.failureSummary})));
"""


def violations(notebook: Notebook, *parts: str, themes: tuple[str, ...] = tuple(THEMES)) -> list[str]:
    """What axe finds wrong in these parts of the page, in the light and in the dark theme."""
    said = []
    for theme in themes:
        notebook.use_theme(theme)
        for part in parts:
            assert notebook.page.locator(part).first.is_visible(), f"{part} is not there to be judged"
        found: list[dict[str, Any]] = notebook.script(_JUDGE, [AXE.read_text(), [[part] for part in parts]])
        said += [
            f"{theme}: {one['id']}: {one['where']}: {one['html']}: {' '.join(one['why'].split())}"
            for one in found
        ]
    return said
