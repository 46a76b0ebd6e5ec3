"""Helpers for the doctor's texts, and its summary. The texts of each topic are in a ``messages_*`` module.

A check decides which issue there is, and with which values. A function of a ``messages_*`` module returns the
issue or the fix with its id, its parameters and its English text, so that the texts of a topic can be
rewritten or translated in one place. No code compares, searches or splits these texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuwidget.model.diagnosis import Check, Fix
from gpuwidget.model.translation import Text, counted, joined, translatable


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


def broken_summary(broken: Sequence[Check]) -> str:
    """Return the summary for these broken checks, with the reason of the first of them."""
    return translatable(
        "{problems}: {titles}. {reason}",
        problems=counted(len(broken), "{number} problem", "{number} problems"),
        titles=_titles(broken),
        reason=broken[0].reason,
    )


def unfinished_summary(step: str, check: Check | None) -> str:
    """Return the summary for the case that ``step`` did not finish. ``check`` is the check whose issue
    explains why, or None."""
    if check is None:
        return translatable("Incomplete: {step}.", step=step)
    return translatable("Incomplete: {title}. {reason}", title=check.title, reason=check.reason)


def doubtful_summary(doubtful: Sequence[Check]) -> str:
    """Return the summary for the case that no check is broken, but these have a warning or no result."""
    checks = counted(
        len(doubtful),
        "{number} check has a warning or no result",
        "{number} checks have a warning or no result",
    )
    return translatable("Nothing is broken; {checks}: {titles}.", checks=checks, titles=_titles(doubtful))


def healthy_summary() -> str:
    """Return the summary for the case that no check has an issue."""
    return translatable("No problems: all checks passed, from PyTorch to the GPU.")


def _titles(checks: Sequence[Check]) -> Text:
    return joined([check.title for check in checks])
