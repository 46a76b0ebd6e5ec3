"""Who looks at a watched cell beside its samples."""

from __future__ import annotations

import functools
import linecache
from typing import Any

from gpuwidget.kernel.attribution.line_memory import LineWitness
from gpuwidget.kernel.attribution.memory_collector import MemoryWitness
from gpuwidget.kernel.cells.options import WatchOptions
from gpuwidget.kernel.shell.cell_filenames import is_cell, name_of
from gpuwidget.kernel.shell.magic_bodies import cell_text
from gpuwidget.kernel.shell.user_code import UserCode
from gpuwidget.measure.collector import Collector
from gpuwidget.profiler.code_locations import CodeLocator
from gpuwidget.profiler.counter_windows import SamplerWindows
from gpuwidget.profiler.sampling_profiler import SamplingProfiler
from gpuwidget.pytorch.stream_activity import DefaultStreams
from gpuwidget.sampler import process_sampler


def witnesses(options: WatchOptions, shell: Any, cell: str) -> list[Collector]:
    """Those that the options of the cell with that text ask for, in the order in which they testify."""
    found: list[Collector] = [sampling_profiler(shell, cell), MemoryWitness(shell)]
    if options.lines:
        found.append(LineWitness(UserCode(shell)))
    return found


def sampling_profiler(shell: Any, cell: str) -> SamplingProfiler:
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

    return SamplingProfiler(
        CodeLocator(a_cells, cell_name, text),
        source,
        DefaultStreams(),
        windows=SamplerWindows(process_sampler()),
    )
