"""Helpers for the doctor's texts, and its summary. The texts of each topic are in a ``messages_*`` module.

A check decides which issue there is, and with which values. A function of a ``messages_*`` module returns the
issue or the fix with its id, its parameters and its English text, so that the texts of a topic can be
rewritten or translated in one place. No code compares, searches or splits these texts.
"""

from __future__ import annotations

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


def broken_summary(first: Check, count: int) -> str:
    """Return the summary for ``count`` broken checks. ``first`` is the first of them."""
    if count == 1:
        return f"Broken: {first.title}. {first.reason}"
    others = f"{pluralize(count - 1, 'other link')} {'is' if count == 2 else 'are'} broken too."
    return f"Broken: {first.title}. {first.reason} {others}"


def unfinished_summary(step: str, check: Check | None) -> str:
    """Return the summary for the case that ``step`` did not finish. ``check`` is the check whose issue
    explains why, or None."""
    return f"Incomplete: {step}." if check is None else f"Incomplete: {check.title}. {check.reason}"


def doubtful_summary(first: Check, count: int) -> str:
    """Return the summary for the case that no check is broken, but ``count`` checks have a warning or no
    result. ``first`` is the first of them."""
    return f"Nothing is broken; {pluralize(count, 'link')} to look at: {first.title} first."


def healthy_summary() -> str:
    """Return the summary for the case that no check has an issue."""
    return "All links were found, from PyTorch to the GPU."
