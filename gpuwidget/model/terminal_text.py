"""Format text in aligned columns for a terminal.

Widths are measured in character cells of the terminal. Control characters are replaced.
"""

from __future__ import annotations

import functools
import re
import textwrap
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = "  "
_CUT = "…"
_WORD = re.compile(r"[^\s\u2e80-\u9fff\uff00-\uffef]+\s*|[\u2e80-\u9fff\uff00-\uffef]\s*|\s+")
"""Matches the parts of a text between which a line may break, with the spaces that follow them."""
_CLOSING = "，。；：、）！？"
"""Wide punctuation that does not begin a line."""
_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a table."""

    title: str
    right: bool = True
    """Whether the column's cells and its title are right-aligned."""
    shrinks_to: int | None = None
    """Minimum width to which the column may shrink if the table is too wide. None for a column that never
    shrinks."""


def printable(text: str) -> str:
    """Return ``text`` with escapes in place of characters that a terminal would interpret or not show.

    These are the characters that ``str.isprintable`` rejects: control characters (C0 and C1), line breaks,
    marks of the text's direction, lone surrogates, and white space other than the space. Wide and combining
    characters are not replaced.
    """
    if text.isprintable():  # Nearly all texts are printable.
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def printable_lines(text: str) -> str:
    """Return ``text`` with each line made :func:`printable`. The line breaks are kept."""
    return "\n".join(map(printable, text.split("\n")))


@functools.lru_cache(maxsize=1024)  # Cached, because many reports contain the same names and reasons.
def clean_line(text: str, max_length: int) -> str:
    """Return ``text`` as one printable line of at most ``max_length`` characters, without terminal escape
    sequences."""
    line = "".join(c if c.isprintable() else " " for c in _ESCAPE_SEQUENCE.sub("", text[: 4 * max_length]))
    line = " ".join(line.split())
    return line if len(line) <= max_length else line[: max_length - 1].rstrip() + _CUT


def shorten_path(path: str, max_length: int) -> str:
    """Shorten a path to ``max_length`` characters. The end of the path is kept, because it is more specific
    than the start."""
    line = clean_line(path, 1000)
    return line if len(line) <= max_length else _CUT + line[1 - max_length :]


def display_width(text: str) -> int:
    """Return how many character cells of a terminal ``text`` takes."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def truncate(text: str, width: int) -> str:
    """Return ``text``, cut to at most ``width`` character cells. A text that was cut ends with ``…``."""
    if display_width(text) <= width:
        return text
    kept, taken = "", 0
    for character in text:
        taken += _character_width(character)
        if taken > width - 1:
            break
        kept += character
    return kept.rstrip() + _CUT


def pad(text: str, width: int) -> str:
    """Return ``text`` with spaces after it, so that it takes ``width`` character cells."""
    return text + " " * (width - display_width(text))


def wrap(text: str, width: int, first_indent: str = "", indent: str = "") -> list[str]:
    """Return lines of at most ``width`` character cells, except for long words such as paths.

    A line may break at each space and between any two wide characters, such as Chinese ones.
    """
    if display_width(text) == len(text):
        return textwrap.wrap(
            text,
            width,
            initial_indent=first_indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        )
    lines: list[str] = []
    line = first_indent
    for word in _WORD.findall(text):
        if (
            display_width(line) + display_width(word.rstrip()) > width
            and line.strip()
            and word[0] not in _CLOSING
        ):
            lines.append(line.rstrip())
            line = indent
        line += word
    return [*lines, line.rstrip()]


def format_table(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return a line of titles and one line per row. Each line takes at most ``width`` character cells.

    If a row has fewer entries than there are columns, its last entry takes the rest of the line. A column
    after the second one is left out if all its entries are empty. If the table is too wide, columns shrink,
    beginning with the last one.
    """
    full = [row for row in rows if len(row) == len(columns)]
    kept = [index for index in range(len(columns)) if index < 2 or any(row[index] for row in full)]
    widths = {
        index: max(
            display_width(columns[index].title),
            *(display_width(row[index]) for row in rows if len(row) == len(columns) or index < len(row) - 1),
            0,
        )
        for index in kept
    }
    excess = sum(widths.values()) + len(_GAP) * (len(kept) - 1) - width
    for index in reversed(kept):
        least = columns[index].shrinks_to
        if excess > 0 and least is not None:
            less = min(excess, max(0, widths[index] - least))
            widths[index] -= less
            excess -= less

    def line(row: Sequence[str]) -> str:
        spans = len(row) < len(columns)
        parts = [
            row[index]
            if spans and index == len(row) - 1
            else _padded(row[index], widths[index], columns[index].right)
            for index in (range(len(row)) if spans else kept)
        ]
        return truncate(_GAP.join(parts).rstrip(), width)

    return [line([column.title for column in columns]), *map(line, rows)]


def _padded(text: str, width: int, right: bool) -> str:
    shown = truncate(text, width)
    space = " " * (width - display_width(shown))
    return space + shown if right else shown + space


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
