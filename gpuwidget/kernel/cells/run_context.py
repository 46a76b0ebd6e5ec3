"""What is known around a run when it ends: the user's loaders and models, torch's switches, the host.

Variables are those of ``__main__``, which is the notebook's namespace in a kernel and the script's elsewhere.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TypeVar

from gpuwidget.measure.advice.evidence import SHORTEST_S, Ends, Surroundings, measured_s
from gpuwidget.measure.advice.memory import RUNS
from gpuwidget.model.report import GpuReport, Report, Span
from gpuwidget.pytorch import cuda_state, loaders_and_models, torch_switches
from gpuwidget.system import host_limits, processes

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_MOST_CODES = 100
_GPU_LIBRARIES = ("cupy", "jax", "numba.cuda", "pycuda", "tensorflow")
_IN_CELL = re.compile(r"In\[(\d+)\]:(\d+)\b")
_lock = threading.Lock()
_past: OrderedDict[tuple[str, str, str], deque[Ends]] = OrderedDict()
"""What runs left, by code, GPU and kind of memory; the code that ran last comes last."""


class Around:
    """Made just before a run begins, asked when it has ended."""

    def __init__(self, cell: str | None) -> None:
        """``cell`` is the source of the cell that is measured; None outside of one."""
        self._cell = cell
        self._began = time.monotonic()
        self._cpu_before = time.process_time()

    def __call__(self, report: Report) -> Surroundings:
        """What is known now; of a run too short to be judged, only what costs nothing."""
        earlier = _known(lambda: self._remember(report), None)
        if measured_s(report.cell) < SHORTEST_S:
            return Surroundings(cell=self._cell, earlier=earlier)
        cpu = 100 * (time.process_time() - self._cpu_before) / max(time.monotonic() - self._began, 1e-9)
        variables = _known(_variables, list[tuple[str, object]]())
        return Surroundings(
            cell=self._cell,
            loaders=_known(lambda: loaders_and_models.loaders(variables), ()),
            models=_known(lambda: loaders_and_models.models(variables), ()),
            switches=_known(torch_switches.switches, None),
            can_use_cuda=cuda_state.loaded() is not None and cuda_state.without_cuda() is None,
            cuda_up=cuda_state.cuda_initialized(),
            other_gpu_work=_known(_other_gpu_work, False),
            cores=_known(host_limits.usable_cores, None),
            shared_memory=_known(host_limits.shared_memory, None),
            process_cpu=cpu,
            earlier=earlier,
            source_of=_source_of,
        )

    def _remember(self, report: Report) -> dict[str, tuple[Ends, ...]]:
        code = self._cell.strip() if self._cell is not None else report.cell.label
        if not code:
            return {}
        found = {}
        with _lock:
            for gpu in report.shown:
                kind, span = _memory(gpu)
                if span.start is None or span.end is None:
                    continue
                key = (code, gpu.uuid, kind)
                runs = _past.setdefault(key, deque(maxlen=RUNS))
                _past.move_to_end(key)
                runs.append(Ends(span.start, span.end))
                found[gpu.uuid] = tuple(runs)
            while len(_past) > _MOST_CODES:
                _past.popitem(last=False)
        return found


def _known(ask: Callable[[], _T], otherwise: _T) -> _T:
    """What ``ask`` finds; where that fails, the rules that need it are silent and the others speak."""
    try:
        return ask()
    except Exception:
        _LOG.debug("A part of the surroundings is unknown", exc_info=True)
        return otherwise


def _variables() -> list[tuple[str, object]]:
    return [(name, value) for name, value in list(vars(sys.modules["__main__"]).items()) if _is_users(name)]


def _other_gpu_work() -> bool:
    return any(name in sys.modules for name in _GPU_LIBRARIES) or processes.has_children()


def _source_of(frame: str) -> str:
    """The line that a frame in another cell, as ``In[2]:4 step``, stands at."""
    match = _IN_CELL.match(frame)
    cells = vars(sys.modules["__main__"]).get("In")
    if match is None or type(cells) is not list:
        return ""
    cell, line = int(match[1]), int(match[2])
    text = cells[cell] if cell < len(cells) else ""
    lines = text.splitlines() if isinstance(text, str) else []
    return lines[line - 1] if 0 < line <= len(lines) else ""


def _is_users(name: object) -> bool:
    # _, __, _3 and Out hold what other names hold too; globals() takes names that are no text.
    return type(name) is str and not name.startswith("_")


def _memory(gpu: GpuReport) -> tuple[str, Span]:
    """The memory that is most surely this process's own."""
    if gpu.torch is not None:
        return "torch", gpu.torch.allocated
    if gpu.process_memory is not None:
        return "process", gpu.process_memory
    return "device", gpu.device_memory
