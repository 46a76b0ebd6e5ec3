"""Pieces of static HTML that several views share: figures, bars, lines of code, small tables and folds.

They are tables, because a front end that removes styles, as in an untrusted notebook, keeps tables in shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from gpuwidget.views import styles
from gpuwidget.views.styles import LEFT, QUIET

_ROW = "background:none"
"""Overrides the stripes of JupyterLab's tables."""
_SMALL = "font-size:11px;opacity:.7"
_BAR_HEIGHT = 10
_BAR_WIDTH = 190
_CODE = re.compile(
    r"`([^`]+)`"  # what a text quotes
    r"|((?<!\S)%{1,2}[a-z][^,;()]*|--[a-z][\w-]*"  # a magic with its arguments, an option
    r"|\.?[A-Za-z_][\w.]*\([^()]*\)"  # a call
    r"|[A-Za-z_]\w*=(?:[^\s,;:()]|:(?=\w))+(?:, [A-Za-z_]\w*=(?:[^\s,;:()]|:(?=\w))+)*"  # arguments
    r"|[a-z_]+(?:\.[A-Za-z_]\w+)+)"  # an attribute
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One labelled figure of a headline."""

    value: str
    label: str
    qualifier: str = ""
    """What limits or explains the value, such as ``exact, of 140.4 GiB``; shown small below the label."""
    title: str = ""
    """The tooltip, such as the reason why the value is unknown."""
    color: str = ""
    """The color of the value and of the qualifier; the front end's text color if empty."""


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of code with a bar."""

    number: str
    """The line's number, or several, such as ``7-9``; empty for time outside the code."""
    source: str
    parts: Sequence[tuple[float, str]]
    """The parts of the bar, see :func:`bar`."""
    text: str
    """The figures of the bar in words."""


def figures_row(figures: Iterable[Figure]) -> str:
    """Return the figures side by side: value, label and qualifier below each other. Nothing wraps."""
    cells = "".join(f"<td style='{LEFT};vertical-align:top;padding:0 26px 0 0'>{_figure(figure)}</td>" for figure in figures)
    return (
        f"<div style='overflow-x:auto'><table style='{styles.AUTO_TABLE}margin:0;line-height:1.35'>"
        f"<tr style='{_ROW};white-space:nowrap'>{cells}</tr></table></div>"
    )


def _figure(figure: Figure) -> str:
    color = f";color:{figure.color}" if figure.color else ""
    title = f" title='{escape(figure.title)}'" if figure.title else ""
    small = _SMALL if not figure.color else f"font-size:11px{color}"
    qualifier = f"<br><span style='{small}'>{escape(figure.qualifier)}</span>" if figure.qualifier else ""
    return (
        f"<b style='font-size:19px;font-weight:600{color}'{title}>{styles.unbroken(figure.value)}</b>"
        f"<br><span style='font-size:11px'>{escape(figure.label)}</span>{qualifier}"
    )


def bar(parts: Iterable[tuple[float, str]], style: str = f"width:{_BAR_WIDTH}px") -> str:
    """Return a horizontal bar, whose ``parts`` are its percentages from left to right and their colors.

    The rest is a track in a faint version of the text's color. ``style`` contains the bar's width.
    """
    stops, start = [], 0.0
    for share, color in parts:
        end = min(100.0, start + share)
        stops.append(f"{color} {start:.4g}% {end:.4g}%")
        start = end
    stops.append(f"#8883 {start:.4g}%")
    return (
        f"<div style='{style};height:{_BAR_HEIGHT}px;border-radius:2px;"
        f"background:linear-gradient(90deg,{','.join(stops)})'></div>"
    )


def code_lines(lines: Iterable[CodeLine]) -> str:
    """Return lines of code as a table: number, source, bar, and the bar's figures."""
    cell = f"style='{LEFT};padding:0 10px 0 0;white-space:pre'"
    source = (
        f"style='{LEFT};padding:0 10px 0 0;white-space:pre;max-width:340px;overflow:hidden;"
        "text-overflow:ellipsis;font-family:var(--jp-code-font-family,monospace)'"
    )
    rows = "".join(
        f"<tr style='{_ROW}'><td style='{QUIET};padding:0 8px 0 0'>{escape(line.number)}</td>"
        f"<td {source}>{escape(line.source)}</td><td {cell}>{bar(line.parts)}</td>"
        f"<td {cell}>{escape(line.text)}</td></tr>"
        for line in lines
    )
    return (
        f"<div style='overflow-x:auto'><table style='{styles.AUTO_TABLE}margin:2px 0 4px;font-size:12px'>"
        f"{rows}</table></div>"
    )


def small_table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Return a table whose rows are a name and its values. Without a header, the values are sentences."""
    if header:
        return f"<div style='overflow-x:auto'>{styles.html_table([header, *rows])}</div>"
    cell = f"<td style='{LEFT};padding:0 14px 0 0'>"
    body = "".join(
        f"<tr style='{_ROW};vertical-align:top'><th scope='row' style='{LEFT};padding:0 14px 0 0;"
        f"font-weight:400;{QUIET};white-space:nowrap'>{escape(name)}</th>"
        f"{''.join(f'{cell}{escape(value)}</td>' for value in values)}</tr>"
        for name, *values in rows
    )
    return f"<table style='{styles.AUTO_TABLE}font-size:12px'>{body}</table>"


def fold(title: str, inner: str, *, opened: bool = False) -> str:
    """Return ``inner`` below a title that opens and closes it, or nothing if it is empty."""
    if not inner:
        return ""
    state = " open" if opened else ""
    return f"<details{state}><summary style='cursor:pointer'>{escape(title)}</summary>{inner}</details>"


def folds(parts: Iterable[str]) -> str:
    """Return folds side by side, as long as they are closed."""
    inner = "".join(parts)
    if not inner:
        return ""
    return (
        f"<div style='display:flex;flex-wrap:wrap;gap:0 18px;margin-top:4px;font-size:12px;{QUIET}'>"
        f"{inner}</div>"
    )


def notice(inner: str, color: str = styles.WARNING) -> str:
    """Return ``inner`` in a box with a border in a color that stands for attention."""
    return (
        f"<div style='border-left:3px solid {color};background:#f9a8251a;padding:5px 10px;margin:6px 0'>"
        f"{inner}</div>"
    )


def with_code(text: str) -> str:
    """Return a sentence as HTML in which everything to type is marked as code.

    That is quoted text, magics and options, calls, arguments and attributes.
    """
    found, end = [], 0
    for match in _CODE.finditer(text):
        code = match[1] or match[2].rstrip(". ")
        rest = "" if match[1] else match[2][len(code) :]
        found.append(f"{escape(text[end : match.start()])}<code>{escape(code)}</code>{escape(rest)}")
        end = match.end()
    return "".join([*found, escape(text[end:])])
