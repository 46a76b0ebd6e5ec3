"""Pieces of static HTML that several views share: figures, bars, lines of code, small tables and folds.

A front end that removes styles still shows the same lines, below each other. In an untrusted notebook,
JupyterLab keeps ``grid-gap``, an older name of ``gap``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from gpuwidget.model.terminal_text import display_width
from gpuwidget.views import styles
from gpuwidget.views.styles import QUIET

_BAR_HEIGHT = 10
_BAR_WIDTH = 190
_CODE = re.compile(
    r"`([^`]+)`"  # what a text quotes
    r"|((?<!\S)%{1,2}[a-z][^,;()]*|--[a-z][\w-]*"  # a magic with its arguments, an option
    r"|\.?[A-Za-z_][\w.]*\([^()]*\)"  # a call
    r"|[A-Za-z_]\w*=(?:[^\s,;:()]|:(?=\w))+(?:, [A-Za-z_]\w*=(?:[^\s,;:()]|:(?=\w))+)*"  # arguments
    r"|\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w+)+(?: = \w+|:\d+)?)"  # an attribute, its value, a file and its line
)
_STATEMENT = re.compile(r"%|[\w.]+ = |torch\.set_\w+\(|\w+\.to\('")
"""The start of code that does its work as a cell."""
_CHARACTER_WIDTH = 7
"""Pixels of a character of 12 px."""
_FULL_STOPS = (".", "\N{IDEOGRAPHIC FULL STOP}")
_PART_OF_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[\w.]+\(.|=)")
"""The start of code to put into a cell: a call with arguments, or arguments."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One labeled figure of a headline."""

    value: str
    label: str
    qualifier: str = ""
    """What limits or explains the value, such as ``exact, of 140.4 GiB``; shown small below the label. It may
    have several lines."""
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
    place: str = ""
    """The function and the call in which most of the line's time was spent."""


def figures_row(figures: Iterable[Figure]) -> str:
    """Return the figures side by side: value, label and qualifier below each other.

    In an output of less than 600 pixels, the last figures may be in a second row.
    """
    look = "display:flex;flex-wrap:wrap;grid-gap:0 26px;font-size:11px;line-height:1.35;white-space:nowrap"
    return f"<div style='{look}'>{''.join(map(_figure, figures))}</div>"


def _figure(figure: Figure) -> str:
    color = f";color:{figure.color}" if figure.color else ""
    title = f" title='{escape(figure.title)}'" if figure.title else ""
    quiet = f"style='{color[1:] or QUIET}'"
    qualifier = f"<br><span {quiet}>{_lines(figure.qualifier)}</span>" if figure.qualifier else ""
    return (
        f"<div><b style='font-size:19px{color}'{title}>{escape(figure.value)}</b><br>{escape(figure.label)}"
        f"{qualifier}</div>"
    )


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def bar(parts: Iterable[tuple[float, str]], style: str = f"width:{_BAR_WIDTH}px;display:inline-block") -> str:
    """Return a horizontal bar, whose ``parts`` are its percentages from left to right and their colors.

    The rest is a faint track. ``style`` contains the bar's width, and its height if it isn't 10 pixels.
    """
    stops, start = [], 0.0
    for share, color in parts:
        end = min(100.0, start + share)
        stops.append(f"{color} {start:.3g}% {end:.3g}%")
        start = end
    colors = ",".join([*stops, f"#8883 {start:.3g}%"])
    look = f"height:{_BAR_HEIGHT}px;border-radius:2px;background:linear-gradient(90deg,{colors})"
    return f"<i style='{look};{style}'></i>"


def code_lines(lines: Iterable[CodeLine]) -> str:
    """Return lines of code, each with its number, source, bar and the bar's figures, above its place."""
    lines = list(lines)
    cut = "white-space:pre;overflow:hidden;text-overflow:ellipsis"
    # The same width in each row, so that all bars have the same scale.
    widest = _CHARACTER_WIDTH * max((display_width(line.text) for line in lines), default=0)
    rows = "".join(
        "<div style='display:flex;grid-gap:8px;align-items:center'>"
        f"<span style='flex:0 0 24px;{QUIET}'>{escape(line.number)}</span> "
        f"<code style='flex:0 1 260px;{cut};background:none'>{escape(line.source)}</code> "
        f"{bar(line.parts, f'flex:0 3 {_BAR_WIDTH}px;min-width:40px')} "
        f"<span style='flex:1 0 {widest}px;white-space:nowrap'>{escape(line.text)}</span></div>"
        + (
            f"<div style='margin-left:32px;font-size:11px;{QUIET}'>{escape(line.place)}</div>"
            if line.place
            else ""
        )
        for line in lines
    )
    return f"<div style='margin:4px 0;font-size:12px'>{rows}</div>"


def small_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table of figures, the first row of which is the header. The first column has the names."""
    if not rows:
        return ""
    (first, *titles), *body = rows
    header = "".join(f"<th scope='col'>{escape(title)}" for title in titles)
    left = f"style='{styles.LEFT}'"
    corner = f"<th {left}>{escape(first)}" if first else "<td>"  # An empty header confuses screen readers.
    lines = "".join(
        f"<tr><th scope='row' {left}>{escape(row[0])}"
        f"{''.join(f'<td>{styles.unbroken(cell)}' for cell in row[1:])}"
        for row in body
    )
    return (
        f"<div style='overflow-x:auto'><table cellpadding='3' style='{styles.AUTO_TABLE}'>"
        f"<thead><tr>{corner}{header}<tbody>{lines}</table></div>"
    )


def facts(rows: Iterable[Sequence[str]]) -> str:
    """Return rows of a name and a sentence about it."""
    inner = "".join(f"<b>{escape(name)}</b> <div>{escape(text)}</div>" for name, text in rows)
    grid = "display:grid;grid-template-columns:fit-content(40%) 1fr;grid-gap:0 14px"
    return f"<div style='{grid}'>{inner}</div>" if inner else ""


def fold(title: str, inner: str, *, opened: bool = False) -> str:
    """Return ``inner`` below a title that opens and closes it, or nothing if it is empty."""
    if not inner:
        return ""
    state = " open" if opened else ""
    return f"<details{state}><summary>{escape(title)}</summary>{inner}</details>"


def folds(parts: Iterable[str]) -> str:
    """Return folds side by side, as long as they are closed."""
    inner = "".join(parts)
    if not inner:
        return ""
    return (
        f"<div style='display:flex;flex-wrap:wrap;grid-gap:0 18px;margin-top:4px;font-size:12px;{QUIET}'>"
        f"{inner}</div>"
    )


def notice(inner: str, color: str = styles.WARNING) -> str:
    """Return ``inner`` in a box with a border in a color that stands for attention."""
    return (
        f"<div style='border-left:3px solid {color};background:#f9a8251a;padding:5px 10px;margin:6px 0'>"
        f"{inner}</div>"
    )


def fix_code(code: str, *, is_statement: bool, style: str = "") -> str:
    """Return the code of a fix. The labextension adds *Copy* to it, and *Insert cell* to a statement."""
    look = f" style='{style}'" if style else ""
    return f"<code class='gpuwidget-{'insert' if is_statement else 'copy'}'{look}>{escape(code)}</code>"


def with_code(text: str, *, is_fix: bool = False) -> str:
    """Return a sentence as HTML in which everything to type is marked as code.

    That is quoted text, magics and options, calls, arguments and attributes. A fix quotes what the user has,
    and all else is code of the fix.
    """
    found, end = [], 0
    for match in _CODE.finditer(text):
        code = match[1] or match[2].rstrip(". ")
        is_statement = _STATEMENT.match(code) is not None
        if is_fix and not match[1] and (is_statement or _PART_OF_CODE.match(code)):
            shown = fix_code(code, is_statement=is_statement)
            # After a button, a full stop would stand alone.
            last = text[match.start() + len(code) :] in _FULL_STOPS
        else:
            shown, last = f"<code>{escape(code)}</code>", False
        rest = "" if match[1] else match[2][len(code) :]
        found.append(f"{escape(text[end : match.start()])}{shown}{'' if last else escape(rest)}")
        end = len(text) if last else match.end()
    return "".join([*found, escape(text[end:])])
