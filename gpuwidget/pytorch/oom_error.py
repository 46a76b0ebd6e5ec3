"""What torch says around an out-of-memory error, with the exact counters that its message rounds.

Asks only what is safe then: the allocator's own books, and how much is free on a device on which this process
has a context.
"""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpuwidget.model.raw_attributes import class_module, class_mro
from gpuwidget.pytorch import allocator, cuda_state
from gpuwidget.pytorch.segments import Segment, segment_of

_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_RENAMED = (2, 10)
"""The version from which torch's own messages use the first of these names."""
_MOST_ERRORS = 50
_WANTED = re.compile(
    r"\b(?:CUDA|HIP) out of memory"
    r"|\b(?:CUDA|HIP)(?: driver)? error: out of memory"
    r"|would exceed allowed memory\. \(out of memory\)"
)
_args_of: Any = vars(BaseException)["args"].__get__


@dataclass(frozen=True, slots=True)
class Books:
    """One device's allocator now; None for what this torch does not tell."""

    allocated: int | None
    reserved: int | None
    stuck: int | None
    """Bytes that are free in segments which are in use (inactive_split_bytes)."""
    free: int | None
    """Bytes free for everybody (cudaMemGetInfo)."""
    total: int | None
    limit: int | None
    """Bytes that this process lets itself have; None without such a limit, and where torch does not say."""
    segments: tuple[Segment, ...]
    expandable: bool


def is_out_of_memory(message: str) -> bool:
    """Whether a message is one of a CUDA (or HIP) device that has run out of memory."""
    return _WANTED.search(message) is not None


def found_in(error: BaseException) -> BaseException | None:
    """The out-of-memory error of a CUDA device that ``error`` is, came from or holds; None for others."""
    torch: Any = cuda_state.loaded()
    if torch is None:
        return None
    own = [getattr(place, "OutOfMemoryError", None) for place in (torch, torch.cuda)]
    ahead, met = [error], 0
    while ahead and met < _MOST_ERRORS:
        one = ahead.pop(0)
        met += 1
        if _may_be(one, own) and is_out_of_memory(message(one)):
            return one
        ahead += _before(one)
    return None


def message(error: BaseException) -> str:
    """What an error says, without the user's code: to make a text of anything but a text may run it."""
    said: list[str] = [part for part in _args_of(error) if type(part) is str]
    return said[0] if said else ""


def _may_be(error: BaseException, own: Sequence[object]) -> bool:
    """Whether an error is of a kind that torch raises."""
    kind = type(error)
    if kind is RuntimeError:
        return True
    bases = class_mro(kind)
    known = any(base is one for base in bases for one in own) or class_module(kind) == "torch"
    return known and any(base is RuntimeError for base in bases)


def _before(error: BaseException) -> list[BaseException]:
    """What an error was raised from, or while it was dealt with, and what a group of errors holds."""
    found = [error.__cause__]
    # An interrupt is no failure of what was being done.
    if issubclass(type(error), Exception) and not error.__suppress_context__:
        found.append(error.__context__)
    group: Any = getattr(builtins, "BaseExceptionGroup", None)  # from Python 3.11 on
    if group is not None and issubclass(type(error), group):
        found += group.exceptions.__get__(error)
    return [one for one in found if one is not None]


def allocated() -> dict[int, int]:
    """Bytes allocated on each device on which this process has a context, by index."""
    if cuda_state.missing_reason() is not None:
        return {}
    return {index: _stat(stats, "allocated_bytes") or 0 for index, stats in _stats().items()}


def books(index: int) -> Books:
    """The allocator's books of ``cuda:index``."""
    torch: Any = cuda_state.loaded()
    stats = _stats().get(index, {}) if cuda_state.missing_reason() is None else {}
    free, total = _free_and_total(torch, index)
    segments = _segments(index) if stats else ()
    return Books(
        allocated=_stat(stats, "allocated_bytes"),
        reserved=_stat(stats, "reserved_bytes"),
        stuck=_stat(stats, "inactive_split_bytes"),
        free=free,
        total=total,
        limit=_limit(torch, index, total),
        segments=segments,
        expandable=any(segment.expandable for segment in segments) or _asked_for_expandable(),
    )


def setting(message: str) -> str:
    """The environment variable with the allocator's settings, as this torch calls it."""
    named = re.search(r"PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF(?==)", message)
    if named is not None:
        return named[0]
    version = re.match(r"(\d+)\.(\d+)", cuda_state.versions().torch or "")
    new = version is not None and (int(version[1]), int(version[2])) >= _RENAMED
    return _SETTINGS[0 if new else 1]


def _stats() -> dict[int, Mapping[str, Any]]:
    torch: Any = cuda_state.loaded()
    in_use = cuda_state.devices_with_context()
    return {index: torch.cuda.memory_stats_as_nested_dict(index) for index in in_use}


def _stat(stats: Mapping[str, Any], name: str) -> int | None:
    value = stats.get(name, {}).get("all", {}).get("current")
    return value if isinstance(value, int) else None


def _free_and_total(torch: Any, index: int) -> tuple[int | None, int | None]:
    if index in cuda_state.devices_with_context():
        with suppress(Exception):
            free, total = torch.cuda.mem_get_info(index)
            return int(free), int(total)
    return None, None


def _limit(torch: Any, index: int, total: int | None) -> int | None:
    fraction = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    if total is None or not callable(fraction):
        return None
    with suppress(Exception):
        share = float(fraction(index))
        return int(share * total) if share < 1 else None
    return None


def _segments(index: int) -> tuple[Segment, ...]:
    return tuple(segment_of(one) for one in allocator.segments() if one.get("device") == index)


def _asked_for_expandable() -> bool:
    settings = ",".join(os.environ.get(name, "") for name in _SETTINGS)
    return "expandable_segments:true" in settings.lower().replace(" ", "")
