"""The further commands of ``%gpu``, each in a module of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuwidget.kernel import comparing, doctoring, memory, memory_free, switches

Command = Callable[[Any, Sequence[str]], None]
"""Takes the shell and the words after its name, and shows something. Raises GpuWidgetError, in a sentence."""

COMMANDS: Mapping[str, Command] = {
    "memory": memory.show,
    "free": memory_free.free,
    "compare": comparing.command,
    "doctor": doctoring.command,
    "switches": switches.command,
}
"""By the first word after ``%gpu``."""
