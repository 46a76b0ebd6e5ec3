"""Recognize torch's CUDA out-of-memory errors, and read the allocator's exact state after such an error.

This module reads only what is safe to read after the error: the allocator's counters and segments, and the
free memory of devices on which this process has a context.
"""

from __future__ import annotations

import builtins
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuwidget.model.boundary import Boundary
from gpuwidget.model.raw_attributes import class_module, class_mro
from gpuwidget.model.torch_state import AllocatorState, Segment, Stage
from gpuwidget.pytorch import allocator, cuda_state
from gpuwidget.pytorch.allocator import parse_segment

_LOG = logging.getLogger(__name__)

_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_NEW_SETTING_SINCE = (2, 10)
"""Error messages of this and later versions of torch mention the first of ``_SETTINGS``, those of earlier
versions the second."""
_MAX_ERRORS = 50
_MAX_FRAMES = 1_000
_OUT_OF_MEMORY = re.compile(
    r"\b(?:CUDA|HIP) out of memory"
    r"|\b(?:CUDA|HIP)(?: driver)? error: out of memory"
    r"|would exceed allowed memory\. \(out of memory\)"
)
_args_of: Any = vars(BaseException)["args"].__get__


# -- the error -------------------------------------------------------------------------------------------


def is_out_of_memory(message: str) -> bool:
    """Return whether a message reports that a CUDA (or HIP) device ran out of memory."""
    return _OUT_OF_MEMORY.search(message) is not None


def find_oom_error(error: BaseException) -> BaseException | None:
    """Return the CUDA out-of-memory error among ``error``, its causes and its group members, or None."""
    torch: Any = cuda_state.loaded_torch()
    if torch is None:
        return None
    torch_classes = [getattr(namespace, "OutOfMemoryError", None) for namespace in (torch, torch.cuda)]
    pending, visited = [error], 0
    while pending and visited < _MAX_ERRORS:
        candidate = pending.pop(0)
        visited += 1
        if _may_be_torch_error(candidate, torch_classes) and is_out_of_memory(error_message(candidate)):
            return candidate
        pending += _related_errors(candidate)
    return None


def error_message(error: BaseException) -> str:
    """Return the first string among an error's arguments. Avoids ``str(error)``, which could run user
    code."""
    texts: list[str] = [part for part in _args_of(error) if type(part) is str]
    return texts[0] if texts else ""


def _may_be_torch_error(error: BaseException, torch_classes: Sequence[object]) -> bool:
    cls = type(error)
    if cls is RuntimeError:
        return True
    bases = class_mro(cls)
    known = (
        any(base is torch_class for base in bases for torch_class in torch_classes)
        or class_module(cls) == "torch"
    )
    return known and any(base is RuntimeError for base in bases)


def _related_errors(error: BaseException) -> list[BaseException]:
    """Return an error's cause and context and, for an exception group, its members."""
    found = [error.__cause__]
    # Leave out the ``__context__`` of an interrupt, which is not an Exception: the user caused the interrupt,
    # not the error that was being handled.
    if issubclass(type(error), Exception) and not error.__suppress_context__:
        found.append(error.__context__)
    group: Any = getattr(builtins, "BaseExceptionGroup", None)  # Python 3.11 and later have this class.
    if group is not None and issubclass(type(error), group):
        found += group.exceptions.__get__(error)
    return [related for related in found if related is not None]


def allocator_setting(message: str) -> str:
    """Return the name of the environment variable for the allocator's settings.

    If the error message mentions a name, return that one, else the name that the loaded version of torch
    uses.
    """
    named = re.search(r"PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF(?==)", message)
    if named is not None:
        return named[0]
    version = re.match(r"(\d+)\.(\d+)", cuda_state.torch_version() or "")
    new = version is not None and (int(version[1]), int(version[2])) >= _NEW_SETTING_SINCE
    return _SETTINGS[0 if new else 1]


# -- the failed code -----------------------------------------------------------------------------------------


def failed_stage(error: BaseException) -> Stage:
    """Return what the failed code was doing, by the innermost frames of torch on the traceback."""
    torch: Any = cuda_state.loaded_torch()
    folder = os.path.dirname(getattr(torch, "__file__", None) or "")
    found: Stage = "other"
    trace = error.__traceback__
    for _ in range(_MAX_FRAMES):
        if trace is None or not folder:
            break
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(folder):
            found = _stage_of(code.co_filename[len(folder) :], code.co_name) or found
        trace = trace.tb_next
    return found


def _stage_of(file: str, function: str) -> Stage | None:
    """Return the stage that a function of torch belongs to; None if it doesn't tell."""
    file = file.replace(os.sep, "/")
    if file.startswith("/optim/"):
        return "optimizer"
    if file.startswith("/autograd/") and function != "decorate_context":
        return "backward" if "backward" in function or function == "apply" else None
    if file == "/nn/modules/module.py" and function in ("_apply", "to", "cuda"):
        return "parameters"
    if file.startswith("/nn/") and function in ("__init__", "reset_parameters"):
        return "parameters"
    return "forward" if file == "/nn/modules/module.py" and function.endswith("_call_impl") else None


def has_zero_grad(value: object) -> bool:
    """Return whether ``value`` is a module or an optimizer."""
    torch: Any = cuda_state.loaded_torch()
    return torch is not None and issubclass(type(value), (torch.nn.Module, torch.optim.Optimizer))


# -- the allocator ---------------------------------------------------------------------------------------


def allocated_memory() -> dict[int, int]:
    """Return the allocated bytes by device index, for each device on which this process has a context."""
    if cuda_state.no_counters_reason() is not None:
        return {}
    return {index: _current(stats, "allocated_bytes") or 0 for index, stats in _memory_stats().items()}


def allocator_state(index: int) -> AllocatorState:
    """Return the allocator's state on ``cuda:index``."""
    torch: Any = cuda_state.loaded_torch()
    stats = _memory_stats().get(index, {}) if cuda_state.no_counters_reason() is None else {}
    free, total = _free_and_total(torch, index)
    segments = _segments(index) if stats else ()
    return AllocatorState(
        allocated=_current(stats, "allocated_bytes"),
        reserved=_current(stats, "reserved_bytes"),
        fragmented=_current(stats, "inactive_split_bytes"),
        free=free,
        total=total,
        limit=_limit(torch, index, total),
        segments=segments,
        expandable=any(segment.expandable for segment in segments) or _expandable_segments_requested(),
    )


def _memory_stats() -> dict[int, Mapping[str, Any]]:
    torch: Any = cuda_state.loaded_torch()
    devices = cuda_state.devices_with_context()
    return {index: torch.cuda.memory_stats_as_nested_dict(index) for index in devices}


def _current(stats: Mapping[str, Any], name: str) -> int | None:
    value = stats.get(name, {}).get("all", {}).get("current")
    return value if isinstance(value, int) else None


def _free_and_total(torch: Any, index: int) -> tuple[int | None, int | None]:
    if index in cuda_state.devices_with_context():
        with Boundary(_LOG, "the GPU's free memory could not be read", foreign=True):
            free, total = torch.cuda.mem_get_info(index)
            return int(free), int(total)
    return None, None


def _limit(torch: Any, index: int, total: int | None) -> int | None:
    get_fraction = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    if total is None or not callable(get_fraction):
        return None
    with Boundary(_LOG, "the process's memory limit could not be read", foreign=True):
        fraction = float(get_fraction(index))
        return int(fraction * total) if fraction < 1 else None
    return None


def _segments(index: int) -> tuple[Segment, ...]:
    return tuple(parse_segment(raw) for raw in allocator.raw_segments() if raw.get("device") == index)


def _expandable_segments_requested() -> bool:
    settings = ",".join(os.environ.get(name, "") for name in _SETTINGS)
    return "expandable_segments:true" in settings.lower().replace(" ", "")
