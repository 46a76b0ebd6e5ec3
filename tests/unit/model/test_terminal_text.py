"""Tests of text for a terminal: control characters become visible escapes, and nothing else is changed."""

from __future__ import annotations

import pytest

from gpuwidget.model.terminal_text import display_width, printable, printable_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b2J\x90q\x9c\x9d0;t\x9c", r"\x9b2J\x90q\x9c\x9d0;t\x9c"),
        ("\u202etxt.exe\u2066\u200f", r"\u202etxt.exe\u2066\u200f"),
        ("a\u200bb\ufeff\xad\u2028\xa0", r"a\u200bb\ufeff\xad\u2028\xa0"),
        ("\ud800 \udcff", r"\ud800 \udcff"),
        ("\U000e0041", r"\U000e0041"),
        ("a\tb\rc\x00\x08\x7f", r"a\tb\rc\x00\x08\x7f"),
        ("训练 é e\u0301 🎛 · …", "训练 é e\u0301 🎛 · …"),
        ("", ""),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    """Control characters, direction marks, invisible characters and lone surrogates are shown as escapes."""
    assert printable(text) == shown
    assert printable_lines(f"{text}\n{text}") == f"{shown}\n{shown}"
    assert printable(shown) == shown


def test_line_breaks_are_kept() -> None:
    """Newlines are kept, including the last one. All other line separators are shown as escapes."""
    assert printable_lines("a\n\nb\x85c\x0b\n") == "a\n\nb\\x85c\\x0b\n"


def test_wide_and_combining_characters_keep_their_width() -> None:
    """Escaping does not change the display width of text with wide or combining characters."""
    for text in ("训练.ipynb", "e\u0301t\u0301", "\uff27\uff30\uff35"):
        assert display_width(printable(text)) == display_width(text)
