"""The subcommands of ``%gpu``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuwidget.kernel.attribution import memory_holders
from gpuwidget.kernel.commands import compare_command, doctor_command, free_memory_command
from gpuwidget.kernel.devices import switch_requests

Command = Callable[[Any, Sequence[str]], None]
"""Receives the shell and the words after the subcommand, and displays the result. Raises GpuWidgetError."""

COMMANDS: Mapping[str, Command] = {
    "memory": memory_holders.memory_command,
    "free": free_memory_command.free,
    "compare": compare_command.command,
    "doctor": doctor_command.command,
    "switches": switch_requests.command,
}
"""Maps the first word after ``%gpu`` to its command."""
