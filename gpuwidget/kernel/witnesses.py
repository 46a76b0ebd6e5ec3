"""Who looks at a watched cell beside its samples."""

from __future__ import annotations

from typing import Any

from gpuwidget.kernel.line_memory import LineWitness
from gpuwidget.kernel.memory_witness import MemoryWitness
from gpuwidget.kernel.options import WatchOptions
from gpuwidget.kernel.user_code import UserCode
from gpuwidget.measure.witness import Witness


def witnesses(options: WatchOptions, shell: Any) -> list[Witness]:
    """Those that the cell's options ask for, in the order in which they testify."""
    found: list[Witness] = [MemoryWitness(shell)]
    if options.lines:
        found.append(LineWitness(UserCode(shell)))
    return found
