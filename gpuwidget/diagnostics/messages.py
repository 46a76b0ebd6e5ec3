"""Helpers for the doctor's texts, and its summary. The texts of each topic are in a ``messages_*`` module.

A check decides which issue there is, and with which values. A function of a ``messages_*`` module returns the
issue or the fix with its id, its parameters and its English text, so that the texts of a topic can be
rewritten or translated in one place. No code compares, searches or splits these texts.
"""

from __future__ import annotations

from typing import Any

from gpuwidget.model.diagnosis import Check, Fix
from gpuwidget.model.translation import Text, counted, translatable


def text_fix(id_: str, template: str, **params: Any) -> Fix:
    """Return a fix without a command, from the template of its text and the template's parameters."""
    return Fix(id_, params, _text(template, params), None, "")


def command_fix(id_: str, before: str, command: str, after: str = ".", **params: Any) -> Fix:
    """Return a fix with a command, and with the templates of the texts before and after it."""
    return Fix(id_, params, _text(before, params), command, _text(after, params))


def _text(template: str, params: dict[str, Any]) -> Text:
    return template if isinstance(template, Text) else translatable(template, **params)


def gpu_count(number: int) -> Text:
    """Return a number of GPUs as text, such as ``1 GPU`` or ``4 GPUs``."""
    return counted(number, "{number} GPU", "{number} GPUs")


# -- the summary -----------------------------------------------------------------------------------------


def broken_summary(first: Check, count: int) -> str:
    """Return the summary for ``count`` broken checks. ``first`` is the first of them."""
    if count == 1:
        return translatable("Broken: {title}. {reason}", title=first.title, reason=first.reason)
    others = counted(count - 1, "{number} other link is broken too.", "{number} other links are broken too.")
    return translatable(
        "Broken: {title}. {reason} {others}", title=first.title, reason=first.reason, others=others
    )


def unfinished_summary(step: str, check: Check | None) -> str:
    """Return the summary for the case that ``step`` did not finish. ``check`` is the check whose issue
    explains why, or None."""
    if check is None:
        return translatable("Incomplete: {step}.", step=step)
    return translatable("Incomplete: {title}. {reason}", title=check.title, reason=check.reason)


def doubtful_summary(first: Check, count: int) -> str:
    """Return the summary for the case that no check is broken, but ``count`` checks have a warning or no
    result. ``first`` is the first of them."""
    return translatable(
        "Nothing is broken; {links} to look at: {title} first.",
        links=counted(count, "{number} link", "{number} links"),
        title=first.title,
    )


def healthy_summary() -> str:
    """Return the summary for the case that no check has an issue."""
    return translatable("All links were found, from PyTorch to the GPU.")
