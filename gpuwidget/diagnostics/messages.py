"""Helpers for the doctor's texts, and its summary. The texts of each topic are in a ``messages_*`` module.

A check decides which issue there is, and with which values. A function of a ``messages_*`` module returns the
issue or the fix with its id, its parameters and its English text, so that the texts of a topic can be
rewritten or translated in one place. No code compares, searches or splits these texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuwidget.model.diagnosis import Check, Fix


def text_fix(id_: str, text: str, **params: Any) -> Fix:
    """Return a fix without a command."""
    return Fix(id_, params, text, None, "")


def command_fix(id_: str, before: str, command: str, after: str = ".", **params: Any) -> Fix:
    """Return a fix with a command, and with the texts before and after it."""
    return Fix(id_, params, before, command, after)


def pluralize(number: int, what: str) -> str:
    """Return the number with its noun in singular or plural, such as ``1 GPU`` or ``4 GPUs``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# -- the summary -----------------------------------------------------------------------------------------


def broken_summary(broken: Sequence[Check]) -> str:
    """Return the summary for these broken checks, with the reason of the first of them."""
    return f"{pluralize(len(broken), 'problem')}: {_titles(broken)}. {broken[0].reason}"


def unfinished_summary(step: str, check: Check | None) -> str:
    """Return the summary for the case that ``step`` did not finish. ``check`` is the check whose issue
    explains why, or None."""
    return f"Incomplete: {step}." if check is None else f"Incomplete: {check.title}. {check.reason}"


def doubtful_summary(doubtful: Sequence[Check]) -> str:
    """Return the summary for the case that no check is broken, but these have a warning or no result."""
    have = "has" if len(doubtful) == 1 else "have"
    return (
        f"Nothing is broken; {pluralize(len(doubtful), 'check')} {have} a warning or no result: "
        f"{_titles(doubtful)}."
    )


def healthy_summary() -> str:
    """Return the summary for the case that no check has an issue."""
    return "No problems: all checks passed, from PyTorch to the GPU."


def _titles(checks: Sequence[Check]) -> str:
    return ", ".join(check.title for check in checks)
