"""Draw the packages and their imports into ``docs/pictures/architecture.svg``.

``--check`` fails if the picture is out of date. The rows are the layers of import-linter's contract in
``pyproject.toml``, and the arrows are the imports of the code.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "architecture.svg"
_PACKAGE = "gpuwidget"
_WIDTH = 760
_ROW = 64
_BOX_WIDTH, _BOX_HEIGHT = 132, 36
_STYLE = """
  rect { fill: #eef4fb; stroke: #1f6feb; }
  path { stroke: #8b949e; stroke-width: 1.2; fill: none; marker-end: url(#end); }
  text { font: 13px system-ui, sans-serif; fill: #1f2328; text-anchor: middle; }
  .modules { font-size: 10px; fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    rect { fill: #1c2836; }
    text { fill: #e6edf3; }
    .modules { fill: #9198a1; }
  }
"""

Imports = Mapping[str, set[str]]


def layers() -> list[list[str]]:
    """Return the names of the packages in each layer, the top layer first. Single modules are left out."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    rows = re.findall(r'"(.*?)"', text.partition("\nlayers = [")[2].partition("]")[0])
    named = ([name.strip() for name in row.split("|")] for row in rows)
    packages = ([name for name in row if (ROOT / _PACKAGE / name).is_dir()] for row in named)
    return [row for row in packages if row]


def imports(packages: Iterable[str]) -> Imports:
    """Return the packages from which each package imports."""
    graph = grimp.build_graph(_PACKAGE, cache_dir=None)
    known = set(packages)
    found: dict[str, set[str]] = {name: set() for name in known}
    for module in graph.modules:
        importer = _package_of(module)
        for imported in graph.find_modules_directly_imported_by(module):
            target = _package_of(imported)
            if importer in known and target in known and importer != target:
                found[importer].add(target)
    return found


def _package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def without_implied(found: Imports) -> Imports:
    """Return the imports without those that follow from others: a → c, if a → b and b → c."""
    reached: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in reached:
            reached[name] = set().union(found[name], *(reach(target) for target in found[name]))
        return reached[name]

    return {
        name: {
            target
            for target in targets
            if not any(target in reach(other) for other in targets if other != target)
        }
        for name, targets in found.items()
    }


def svg(rows: list[list[str]], arrows: Imports) -> str:
    """Return the picture: a row of boxes per layer, and an arrow per import."""
    places = {
        name: (_WIDTH * (column + 1) / (len(row) + 1), _ROW * number + 12)
        for number, row in enumerate(rows)
        for column, name in enumerate(row)
    }
    lines = []
    for name, targets in sorted(arrows.items()):
        x, y = places[name]
        for target in sorted(targets):
            to_x, to_y = places[target]
            bend = (to_y - y - _BOX_HEIGHT) / 2
            lines.append(
                f'<path d="M {x:.0f} {y + _BOX_HEIGHT} C {x:.0f} {y + _BOX_HEIGHT + bend:.0f}, '
                f'{to_x:.0f} {to_y - bend:.0f}, {to_x:.0f} {to_y - 3}"/>'
            )
    for name, (x, y) in places.items():
        count = len([*(ROOT / _PACKAGE / name).rglob("*.py")])
        lines.append(
            f'<rect x="{x - _BOX_WIDTH / 2:.0f}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6"/>'
            f'<text x="{x:.0f}" y="{y + 16}">{escape(name)}</text>'
            f'<text class="modules" x="{x:.0f}" y="{y + 29}">{count} modules</text>'
        )
    height = _ROW * len(rows)
    marker = (
        '<marker id="end" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M 0 0 L 6 3 L 0 6" style="marker-end: none"/></marker>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
            f'role="img" aria-label="The packages of gpuwidget and their imports">',
            f"<style>{_STYLE}</style>",
            f"<defs>{marker}</defs>",
            *lines,
            "</svg>\n",
        ]
    )


def picture() -> str:
    """Return the picture of the code's packages."""
    rows = layers()
    return svg(rows, without_implied(imports(name for row in rows for name in row)))


def main(arguments: list[str] | None = None) -> None:
    """Write or check the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="fail if the picture is out of date")
    chosen = parser.parse_args(arguments)
    if not chosen.check:
        PICTURE.write_text(picture(), encoding="utf-8")
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != picture():
        raise SystemExit(f"{PICTURE.relative_to(ROOT)} is out of date: python -m tools.architecture")


if __name__ == "__main__":
    main()
