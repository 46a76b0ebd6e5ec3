"""Finds the bodies of a cell's magics in its text: ``%%time`` and its like run them as code of their own."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Sequence

from gpuwidget.profiler.code_locations import CellText, MagicBody

_CELL_MAGIC = re.compile(r"\s*%%(?P<name>[\w.]+)")
_FILES = {"time": ("<timed exec>", "<timed eval>"), "prun": ("<string>",)}
"""The files of the code that a magic makes of its body. That of ``%%timeit`` has lines of its own in it."""


def cell_text(raw_cell: str) -> CellText:
    """The cell as IPython counts its lines: from the first that is not blank on."""
    lines = raw_cell.splitlines()
    while lines and not lines[0].strip():
        del lines[0]
    at = _first(lines, 0)
    bodies = [MagicBody(at, lambda file: True)]
    while at < len(lines):
        magic = _CELL_MAGIC.match(lines[at])
        if magic is None or magic["name"] == "gpuwatch":
            break
        at = _first(lines, at + 1)
        bodies.append(MagicBody(at, _fits(magic["name"], lines[at:])))
    return CellText(tuple(lines), tuple(bodies))


def _first(lines: Sequence[str], start: int) -> int:
    """Where what runs begins: blank lines go, and ``%%gpuwatch`` above another magic."""
    at = start
    while at < len(lines):
        following = next((n for n in range(at + 1, len(lines)) if lines[n].strip()), len(lines))
        magic = _CELL_MAGIC.match(lines[at])
        watch = magic is not None and magic["name"] == "gpuwatch"
        above = watch and following < len(lines) and _CELL_MAGIC.match(lines[following]) is not None
        if lines[at].strip() and not above:
            return at
        at = following
    return at


def _fits(name: str, body: Sequence[str]) -> Callable[[str], bool]:
    files = _FILES.get(name)
    if files is not None:
        return lambda file: file in files

    def is_a_cell(file: str) -> bool:
        """Run as a cell of its own, as ``%%capture`` does: with that text, or with one of as many lines."""
        ran = [line.rstrip() for line in linecache.getlines(file)]
        meant = [line.rstrip() for line in body]
        return ran == meant if name != "capture" else len(ran) == len(meant)

    return is_a_cell
