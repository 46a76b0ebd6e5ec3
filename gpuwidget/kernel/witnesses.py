"""Who looks at a watched cell beside its samples."""

from __future__ import annotations

from typing import Any

from gpuwidget.kernel.memory_witness import MemoryWitness
from gpuwidget.kernel.options import WatchOptions
from gpuwidget.measure.witness import Witness


def witnesses(options: WatchOptions, shell: Any) -> list[Witness]:
    """Those that the cell's options ask for, in the order in which they testify."""
    return [MemoryWitness(shell)]
