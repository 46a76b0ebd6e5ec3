"""Who looks at a watched cell beside its samples."""

from __future__ import annotations

import linecache
import re
from typing import Any

from gpuwidget.kernel.cell_bodies import cell_text
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

_OLDER_NAME = re.compile(r"<ipython-input-(\d+)-")


def witnesses(options: WatchOptions, shell: Any, cell: str) -> list[Witness]:
    """Those that the options of the cell with that text ask for, in the order in which they testify."""
    found: list[Witness] = [code_witness(shell, cell), MemoryWitness(shell)]
    if options.lines:
        found.append(LineWitness(UserCode(shell)))
    return found


def code_witness(shell: Any, cell: str) -> CodeWitness:
    """Looks at where the cell's code is."""
    text = cell_text(cell)

    def cell_name(file: str) -> str | None:
        count = getattr(shell.compile, "_filename_map", {}).get(file)
        if count is None:
            older = _OLDER_NAME.match(file)
            count = older[1] if older is not None else None
        if count is not None:
            return f"In[{count}]"
        # What runs without an In[N] of its own.
        return "a cell" if file in getattr(linecache, "_ipython_cache", {}) else None

    def source(file: str, line: int) -> str:
        """As its author wrote it, where IPython has not joined lines: ``%time f(x)``."""
        as_written = len(text.bodies) > 1 or len(linecache.getlines(file)) == len(text.lines)
        if as_written:
            return text.lines[line - 1] + "\n" if line <= len(text.lines) else ""
        return linecache.getline(file, line)

    return CodeWitness(
        Places(cell_name, text), source, DefaultStreams(), windows=SampledWindows(process_sampler())
    )
