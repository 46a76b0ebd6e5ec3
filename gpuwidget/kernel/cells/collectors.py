"""Who looks at a watched cell beside its samples."""

from __future__ import annotations

import functools
import linecache
from typing import Any

from gpuwidget.kernel.attribution.line_memory import LineCollector
from gpuwidget.kernel.attribution.memory_collector import HolderCollector
from gpuwidget.kernel.cells.options import WatchOptions
from gpuwidget.kernel.shell.user_code import UserCode, cell_label, is_cell_file
from gpuwidget.measure.collector import Witness
from gpuwidget.model.cell_source import CellSource
from gpuwidget.profiler.code_places import Places
from gpuwidget.profiler.counter_windows import SampledWindows
from gpuwidget.profiler.sampling_profiler import CodeWitness
from gpuwidget.pytorch.stream_activity import DefaultStreams
from gpuwidget.sampler import process_sampler


def witnesses(options: WatchOptions, shell: Any, cell: str) -> list[Witness]:
    """Those that the options of the cell with that text ask for, in the order in which they testify."""
    found: list[Witness] = [code_witness(shell, cell), HolderCollector(shell)]
    if options.lines:
        found.append(LineCollector(UserCode(shell)))
    return found


def code_witness(shell: Any, cell: str) -> CodeWitness:
    """Looks at where the cell's code is."""
    text = CellSource.parse(cell)

    def a_cells(file: str) -> bool:
        return is_cell_file(shell, file)

    @functools.cache
    def cell_name(file: str) -> str | None:
        return cell_label(shell, file)

    def source(file: str, line: int) -> str:
        """As its author wrote it, where IPython has not joined lines: ``%time f(x)``."""
        as_written = len(text.bodies) > 1 or len(linecache.getlines(file)) == len(text.lines)
        if as_written:
            return text.lines[line - 1] + "\n" if line <= len(text.lines) else ""
        return linecache.getline(file, line)

    return CodeWitness(
        Places(a_cells, cell_name, text), source, DefaultStreams(), windows=SampledWindows(process_sampler())
    )
