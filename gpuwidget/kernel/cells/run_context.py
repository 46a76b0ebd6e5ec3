"""Collect a run's context for the advice: the user's data loaders and models, torch's switches, the host.

The user's variables are those of ``__main__``, which is the notebook's namespace or the script.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TypeVar

from gpuwidget import pytorch
from gpuwidget.kernel.shell.user_code import UserCode
from gpuwidget.measure.advice.evidence import MIN_RUN_S, EarlierRun, RunContext, measured_s, shortened
from gpuwidget.measure.advice.memory import RUNS
from gpuwidget.model.boundary import foreign_attribute, stopped
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.report import GpuReport, Report, Span
from gpuwidget.model.torch_state import CodeLine
from gpuwidget.system import host_limits, processes

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_MAX_SOURCES = 100
_CHILDREN_CPU_S = 1.0
"""Minimum CPU seconds of child processes that may have used a GPU. Loading CUDA alone takes longer."""
_GPU_LIBRARIES = ("cupy", "jax", "numba.cuda", "pycuda", "tensorflow")
_CUDA_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
_CELL_FRAME = re.compile(r"In\[(\d+)\]:(\d+)\b")
_lock = threading.Lock()
_earlier_runs: OrderedDict[tuple[str, str, str], deque[EarlierRun]] = OrderedDict()
"""Memory at the start and end of earlier runs, by the cell's source, GPU UUID and kind of memory.

The most recently used entry is the last one.
"""


class RunContextBuilder:
    """Builds the context of one run. Create it just before the run begins; call it when the run has ended."""

    def __init__(self, cell: str | None) -> None:
        """``cell`` is the source of the watched cell; None for a run outside a cell."""
        self._cell = cell
        self._started = SYSTEM_CLOCK.monotonic()
        self._cpu_at_start = time.process_time()
        self._children_cpu_at_start = processes.ended_children_cpu_time()

    def __call__(self, report: Report) -> RunContext:
        """Return the context. For a run too short for most advice, omit the parts that take time to
        collect."""
        earlier = _or_default(lambda: self._remember(report), None)
        if measured_s(report.cell) < MIN_RUN_S:
            return RunContext(cell=self._cell, earlier_runs=earlier)
        elapsed = max(SYSTEM_CLOCK.monotonic() - self._started, 1e-9)
        variables = _or_default(user_variables, list[tuple[str, object]]())
        return RunContext(
            cell=self._cell,
            loaders=_or_default(lambda: pytorch.loaders(variables), ()),
            models=_or_default(lambda: pytorch.models(variables), ()),
            switches=_or_default(pytorch.compute_switches, None),
            can_use_cuda=pytorch.is_loaded() and pytorch.no_cuda_build_reason() is None,
            cuda_initialized=pytorch.cuda_initialized(),
            other_gpu_work=_or_default(lambda: self._other_gpu_work(report), False),
            cores=_or_default(host_limits.usable_cores, None),
            shared_memory=_or_default(host_limits.shared_memory, None),
            process_cpu=100 * (time.process_time() - self._cpu_at_start) / elapsed,
            earlier_runs=earlier,
            cuda_variables={name: os.environ[name] for name in _CUDA_VARIABLES if name in os.environ},
            line_name=_line_name,
            source_of=_source_of,
        )

    def _other_gpu_work(self, report: Report) -> bool:
        if report.workers or any(name in sys.modules for name in _GPU_LIBRARIES) or processes.has_children():
            return True
        # Child processes may also have ended during the run.
        return processes.ended_children_cpu_time() - self._children_cpu_at_start >= _CHILDREN_CPU_S

    def _remember(self, report: Report) -> dict[str, tuple[EarlierRun, ...]]:
        """Store this run's memory. Return the memory of the last runs of the same source, by GPU UUID."""
        source = self._cell.strip() if self._cell is not None else report.cell.label
        if not source:
            return {}
        found = {}
        with _lock:
            for gpu in report.shown:
                kind, span = _process_memory(gpu)
                if span.start is None or span.end is None:
                    continue
                key = (source, gpu.uuid, kind)
                runs = _earlier_runs.setdefault(key, deque(maxlen=RUNS))
                _earlier_runs.move_to_end(key)
                runs.append(EarlierRun(span.start, span.end))
                found[gpu.uuid] = tuple(runs)
            while len(_earlier_runs) > _MAX_SOURCES:
                _earlier_runs.popitem(last=False)
        return found


def _or_default(query: Callable[[], _T], default: _T) -> _T:
    """Return the result of ``query``. If it fails, return ``default``. Advice that needs the result is then
    omitted."""
    try:
        return query()
    except BaseException as error:
        stopped(_LOG, "a part of the run's context is unknown", error)
        return default


def user_variables() -> list[tuple[str, object]]:
    """Return the names and values of the notebook's or script's variables."""
    # Skip private names and IPython's names for past results, such as _3. Also skip keys of globals() that
    # are not strings, which Python allows.
    return [
        (name, value)
        for name, value in list(vars(sys.modules["__main__"]).items())
        if type(name) is str and not name.startswith("_")
    ]


def _source_of(frame: str) -> str:
    """Return the source line that ``frame`` names: for ``In[2]:4 step``, line 4 of cell In[2]."""
    match = _CELL_FRAME.match(frame)
    cells = vars(sys.modules["__main__"]).get("In")
    if match is None or type(cells) is not list:
        return ""
    cell, line = int(match[1]), int(match[2])
    text = cells[cell] if cell < len(cells) else ""
    lines = text.splitlines() if isinstance(text, str) else []
    return lines[line - 1] if 0 < line <= len(lines) else ""


def _line_name(line: CodeLine) -> str:
    """Return a line's name and source, such as ``In[5]:4 `torch.cuda.set_device(1)```."""
    get_ipython = foreign_attribute("IPython", "get_ipython")
    code = UserCode(None if get_ipython is None else get_ipython())
    number = code.cell_line(line.file, line.line) or line.line
    name = f"{code.name(line.file) or os.path.basename(line.file)}:{number}"
    source = shortened(code.source(line.file, number))
    return f"{name} `{source}`" if source else name


def _process_memory(gpu: GpuReport) -> tuple[str, Span]:
    """Return the memory values that are most specific to this process, and their kind."""
    if gpu.torch is not None:
        return "torch", gpu.torch.allocated
    if gpu.process_memory is not None:
        return "process", gpu.process_memory
    return "device", gpu.device_memory
