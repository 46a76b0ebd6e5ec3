"""Parse the figures in an out-of-memory error's message.

The figures in a message are rounded, so each figure stands for a range.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gpuwidget.model import units

_SIZES = {
    "bytes": 1,
    "kib": units.KIB,
    "mib": units.MIB,
    "gib": units.GIB,
    # torch versions before 2.0 used these names for the binary units.
    "kb": units.KIB,
    "mb": units.MIB,
    "gb": units.GIB,
}
_IMPOSSIBLE = 1 << 60
"""A figure of this many bytes or more means unknown: if the driver has no figure for a process, it reports
2**64 - 1."""

_SIZE = r"(\d+(?:\.\d+)?) ?(bytes|[KMG]i?B)\b"
_PATTERNS = {
    "requested": rf"(?:Tried to allocate|Requested\s*:) *{_SIZE}",
    "total": rf"total capac\w+ of {_SIZE}|{_SIZE} total capacity|Device limit\s*: *{_SIZE}",
    "free": rf"of which {_SIZE} is free|; {_SIZE} free;|Free \(according to CUDA\)\s*: *{_SIZE}",
    "limit": rf"{_SIZE} allowed;|PyTorch limit \([^)]*\)\s*: *{_SIZE}",
    "process": rf"this process has {_SIZE} memory in use",
    "allocated": rf"{_SIZE} is allocated by PyT|{_SIZE} already allocated|Currently allocated\s*: *{_SIZE}",
    "private": rf"with {_SIZE} allocated in private pools",
    "unallocated": rf"{_SIZE} is reserved by PyTorch but unallocated",
    "reserved": rf"{_SIZE} (?:reserved in total by PyTorch|cached)",
}
_INDEX = re.compile(r"\bGPU (\d+)(?:;| has)|Allocation on device (\d+)")
_PROCESS = re.compile(rf"Process (\d+) has {_SIZE} memory in use")


@dataclass(frozen=True, slots=True)
class RoundedBytes:
    """A rounded figure in a message: the exact number of bytes lies between ``low`` and ``high``."""

    low: int
    high: int

    @property
    def middle(self) -> int:
        """The rounded figure as written in the message."""
        return (self.low + self.high) // 2

    def exact(self, value: int | None) -> int:
        """Return ``value`` if it lies in the range, else the figure in the message."""
        return self._value_in_range(value, self.middle)

    def at_least(self, value: int | None) -> int:
        """Return ``value`` if it lies in the range, else the lower end of the range."""
        return self._value_in_range(value, self.low)

    def _value_in_range(self, value: int | None, default: int) -> int:
        return value if value is not None and self.low <= value <= self.high else default


@dataclass(frozen=True, slots=True)
class OomMessage:
    """The figures in an out-of-memory error's message. A figure that the message lacks is None."""

    index: int | None
    """The N of ``cuda:N``."""
    requested: RoundedBytes | None
    total: RoundedBytes | None
    free: RoundedBytes | None
    limit: RoundedBytes | None
    """torch's limit for this process (torch.cuda.set_per_process_memory_fraction)."""
    process: RoundedBytes | None
    """Memory of this process, including all its libraries."""
    allocated: RoundedBytes | None
    """Memory in tensors, excluding the private pools of CUDA graphs."""
    private: RoundedBytes | None
    unallocated: RoundedBytes | None
    """Memory that torch has reserved but does not use for tensors."""
    reserved: RoundedBytes | None
    others: tuple[tuple[int, RoundedBytes], ...]
    """The id and the memory of each other process."""


def parse_message(message: str) -> OomMessage:
    """Parse an out-of-memory error's message from any version of torch."""
    found = {name: _size(re.search(pattern, message)) for name, pattern in _PATTERNS.items()}
    index = _INDEX.search(message)
    others = ((int(match[1]), _rounded(match[2], match[3])) for match in _PROCESS.finditer(message))
    return OomMessage(
        index=None if index is None else int(index[1] or index[2]),
        others=tuple((pid, size) for pid, size in others if size is not None),
        **found,
    )


def _size(match: re.Match[str] | None) -> RoundedBytes | None:
    if match is None:
        return None
    number, unit = [group for group in match.groups() if group is not None]
    return _rounded(number, unit)


def _rounded(number: str, unit: str) -> RoundedBytes | None:
    size = _SIZES[unit.lower()]
    half = 0.5 * 10 ** -len(number.partition(".")[2]) * size if size > 1 else 0.0
    value = float(number) * size
    if value >= _IMPOSSIBLE:
        return None
    return RoundedBytes(max(0, math.ceil(value - half)), math.floor(value + half))
