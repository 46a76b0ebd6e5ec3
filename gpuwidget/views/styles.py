"""Colors, spacing and table markup that the card, the live chart and all other static views share.

JupyterLab removes most styles from an untrusted notebook, and other front ends lack its theme variables. Each
color therefore has a fallback that is readable on white and on black, and secondary text uses the front
end's text color with a lower opacity.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from gpuwidget.model.terminal_text import display_width, pad

BLUE = "#1976d2"
UTILIZATION = f"var(--jp-brand-color1,{BLUE})"
MEMORY = "#ab47bc"
"""A color that is readable on white and on black. It does not depend on the theme, because JupyterLab's
themes have no second chart color."""
IDLE = "#e57373"
"""The color of time in which the GPU was idle."""
UNKNOWN = "#9e9e9e"
"""The color of what could not be determined."""
# As text, the themes' own colors have too little contrast: 2.8:1 on white. The color of the text around them
# makes them darker in light themes, and lighter in dark ones.
ERROR = "color-mix(in srgb,var(--jp-error-color1,#e5393f) 80%,currentColor)"
WARNING = "color-mix(in srgb,var(--jp-warn-color0,#c77700) 65%,currentColor)"
SUCCESS = "color-mix(in srgb,var(--jp-success-color1,#388e3c) 65%,currentColor)"
NEUTRAL = "var(--jp-border-color1,#9e9e9e)"

FONT = "font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);font-variant-numeric:tabular-nums;"
QUIET = "opacity:.75"
LEFT = "text-align:left"
TABLE = "margin:4px 0 0;text-align:right;border-collapse:collapse;"
AUTO_TABLE = f"{TABLE}table-layout:auto;"
"""Overrides the fixed column widths of JupyterLab's tables."""

SEPARATOR = "\N{NO-BREAK SPACE}· "
"""Separates two segments of a line. The line may break after the separator."""
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=[GMK]iB|B\b|%|[kM]?J\b|W\b|[mµ]?s\b|min\b|h\b)")
_INDENT = "  "


def frame(inner: str, edge: str, padding: str = "2px 0 2px 12px") -> str:
    """Return ``inner`` in the views' font, with a left border in the color ``edge``."""
    return f"<div style='{FONT}border-left:3px solid {edge};padding:{padding}'>{inner}</div>"


def scrollable(inner: str) -> str:
    """Return ``inner`` in the views' font, with a horizontal scroll bar if it is too wide."""
    return f"<div style='{FONT}overflow-x:auto'>{inner}</div>"


def quiet(inner: str) -> str:
    """Return ``inner`` as a line in the style of secondary text."""
    return f"<div style='{QUIET}'>{inner}</div>"


def segments(parts: Sequence[str]) -> str:
    """Return segments as one line of HTML that breaks between segments, not between a number and its unit."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", escape(SEPARATOR.join(parts)))


def unbroken(text: str) -> str:
    """Return ``text`` as HTML without line breaks."""
    return escape(text).replace(" ", "\N{NO-BREAK SPACE}")


def html_table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return an HTML table of ``rows``, the first of which is the header.

    The first ``left`` columns are aligned left, all others right.
    """
    header, *body = rows
    titles = "".join(
        f"<th scope='col'{f' {_LEFT}' if n < left else ''}>{escape(name)}</th>"
        for n, name in enumerate(header)
    )
    lines = "".join(
        f"<tr><th scope='row' {_LEFT}>{segments([row[0]])}</th>"
        f"{''.join(f'<td {_LEFT}>{escape(cell)}</td>' for cell in row[1:left])}"
        f"{''.join(f'<td>{unbroken(cell)}</td>' for cell in row[left:])}</tr>"
        for row in body
    )
    return (
        f"<table cellpadding='4' style='{AUTO_TABLE}font-size:12px'>"
        f"<thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"
    )


def text_table(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Return ``rows`` as indented lines of text in aligned columns.

    The first ``left`` columns are aligned left, all others right.
    """
    widths = [max(display_width(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        (
            _INDENT
            + "  ".join(
                pad(cell, width) if column < left else " " * (width - display_width(cell)) + cell
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        ).rstrip()
        for row in rows
    ]


_LEFT = f"style='{LEFT}'"
