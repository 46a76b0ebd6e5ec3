"""A diagnosis as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from gpuwidget.diagnostics.compare import Change
from gpuwidget.model.diagnosis import Check, Diagnosis
from gpuwidget.model.terminal_text import printable

WORDS = {"ok": "found", "broken": "BROKEN", "warning": "warning", "unknown": "unknown", "skipped": "skipped"}
"""What is shown of a check's status: a word, so that no colour or sign is needed."""
_NARROWEST = 60


def render(doctor: Diagnosis, width: int = 100, changes: Sequence[Change] | None = None) -> str:
    """Lines of at most ``width`` cells where words allow it; ``changes`` since an earlier one come last."""
    width = max(width, _NARROWEST)
    titles = max(len(check.title) for check in doctor.links)
    words = max(map(len, WORDS.values()))
    lines = textwrap.wrap(printable(doctor.summary), width)
    lines.append("")
    for check in doctor.links:
        lines += _link(check, titles, words, width)
    if changes is not None:
        lines += ["", "Changed since then:" if changes else "Nothing has changed since then."]
        for change in changes:
            lines += textwrap.wrap(
                printable(str(change)), width, initial_indent="  ", subsequent_indent="    "
            )
    return "\n".join(lines)


def _link(check: Check, titles: int, words: int, width: int) -> list[str]:
    indent = " " * (words + titles + 4)
    head = f"{WORDS[check.status]:<{words}}  {check.title:<{titles}}  "
    lines = textwrap.wrap(printable(check.found), width, initial_indent=head, subsequent_indent=indent)
    # Below its title: a sentence in a narrow column is hard to read, and a command to copy harder.
    indent = " " * (words + 4)
    for text in (check.reason, check.remedy and f"To do: {check.remedy}"):
        if text and check.command and check.command in text:
            before, _, after = text.partition(check.command)
            # In one line, however long: what is copied must run as a whole.
            lines += [*_sentence(before, indent, width), f"{indent}  {printable(check.command)}"]
            lines += _sentence(after.lstrip(".,; "), indent, width)
        elif text:
            lines += _sentence(text, indent, width)
    return lines


def _sentence(text: str, indent: str, width: int) -> list[str]:
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
