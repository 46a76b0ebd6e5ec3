"""The subcommands of ``%gpu``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from gpuwidget.model.lazy_imports import import_attribute

Command = Callable[[Any, Sequence[str]], None]
"""Receives the shell and the words after the subcommand, and displays the result. Raises GpuWidgetError if
the command fails."""

_FUNCTIONS: Mapping[str, tuple[str, str]] = {
    "memory": ("gpuwidget.kernel.attribution.memory_holders", "memory_command"),
    "free": ("gpuwidget.kernel.commands.free_memory_command", "free"),
    "compare": ("gpuwidget.kernel.commands.compare_command", "command"),
    "doctor": ("gpuwidget.kernel.commands.doctor_command", "command"),
    "switches": ("gpuwidget.kernel.devices.switch_requests", "command"),
}
"""Maps the first word after ``%gpu`` to the module and the name of its command."""


def find_command(subcommand: str) -> Command | None:
    """Return the command for the first word after ``%gpu``, or None if there is none.

    The command's module is imported by this call, not by ``%load_ext``, which must be quick.
    """
    if subcommand not in _FUNCTIONS:
        return None
    module, name = _FUNCTIONS[subcommand]
    command: Command = import_attribute(module, name)
    return command


def closest_command(words: Sequence[str]) -> str | None:
    """Return the command that a user who typed these words after ``%gpu`` probably meant.

    Return None if the first word is a command, or similar to none.
    """
    known = ("watch on", "watch off", "device", *_FUNCTIONS)
    if words[0] in known:
        return None
    for typed in (" ".join(words), words[0]):
        for command in get_close_matches(typed, known, n=1):
            return command
    return None
