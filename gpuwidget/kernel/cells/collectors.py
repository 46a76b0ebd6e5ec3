"""Who looks at a watched cell beside its samples."""

from __future__ import annotations

import functools
import linecache
from typing import Any

from gpuwidget.kernel.cell_bodies import cell_text
from gpuwidget.kernel.cell_names import is_cell, name_of
from gpuwidget.kernel.line_memory import LineWitness
from gpuwidget.kernel.memory_witness import MemoryWitness
from gpuwidget.kernel.options import WatchOptions
from gpuwidget.kernel.user_code import UserCode
from gpuwidget.measure.observer import CodeWitness
from gpuwidget.measure.places import Places
from gpuwidget.measure.windows import SampledWindows
from gpuwidget.measure.witness import Witness
from gpuwidget.sampler import process_sampler
from gpuwidget.torch_stream import DefaultStreams


def witnesses(options: WatchOptions, shell: Any, cell: str) -> list[Witness]:
    """Those that the options of the cell with that text ask for, in the order in which they testify."""
    found: list[Witness] = [code_witness(shell, cell), MemoryWitness(shell)]
    if options.lines:
        found.append(LineWitness(UserCode(shell)))
    return found


def code_witness(shell: Any, cell: str) -> CodeWitness:
    """Looks at where the cell's code is."""
    text = cell_text(cell)

    def a_cells(file: str) -> bool:
        return is_cell(shell, file)

    @functools.cache
    def cell_name(file: str) -> str | None:
        return name_of(shell, file)

    def source(file: str, line: int) -> str:
        """As its author wrote it, where IPython has not joined lines: ``%time f(x)``."""
        as_written = len(text.bodies) > 1 or len(linecache.getlines(file)) == len(text.lines)
        if as_written:
            return text.lines[line - 1] + "\n" if line <= len(text.lines) else ""
        return linecache.getline(file, line)

    return CodeWitness(
        Places(a_cells, cell_name, text), source, DefaultStreams(), windows=SampledWindows(process_sampler())
    )
