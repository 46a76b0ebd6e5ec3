"""Create the collectors of a watched cell. They add data to its report that GPU samples do not contain."""

from __future__ import annotations

import linecache
from typing import Any

from gpuwidget.kernel.attribution.memory_holders import HolderCollector
from gpuwidget.kernel.cells.options import WatchOptions
from gpuwidget.kernel.shell.user_code import UserCode
from gpuwidget.measure.collector import Collector
from gpuwidget.model.cell_source import CellSource
from gpuwidget.profiler.code_locations import CodeLocator
from gpuwidget.profiler.counter_windows import SamplerWindows
from gpuwidget.profiler.sampling_profiler import SamplingProfiler
from gpuwidget.pytorch import DefaultStreams
from gpuwidget.sampler import process_sampler


def collectors(options: WatchOptions, shell: Any, raw_cell: str) -> list[Collector]:
    """Return the collectors for the cell's options, in the order in which they annotate the report."""
    found: list[Collector] = [_profiler(shell, raw_cell), HolderCollector(shell)]
    if options.lines:
        from gpuwidget.kernel.attribution.line_memory import LineCollector

        found.append(LineCollector(UserCode(shell)))
    return found


def _profiler(shell: Any, raw_cell: str) -> SamplingProfiler:
    source, code = CellSource.parse(raw_cell), UserCode(shell)

    def line_text(file: str, line: int) -> str:
        """Return a line as the user wrote it.

        In a cell without cell magics, IPython may compile a different number of lines than the user wrote. In
        that case, return the compiled line.
        """
        as_written = len(source.bodies) > 1 or len(linecache.getlines(file)) == len(source.lines)
        if as_written:
            return source.lines[line - 1] + "\n" if line <= len(source.lines) else ""
        return linecache.getline(file, line)

    return SamplingProfiler(
        CodeLocator(code.is_cell, code.cell_name, source, code.cell_line),
        line_text,
        DefaultStreams(),
        windows=SamplerWindows(process_sampler()),
    )
