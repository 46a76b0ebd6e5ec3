"""Add up torch's allocation history per line of the user's code.

Sizes are the bytes requested from torch. torch allocates a little more, because it rounds sizes up to a
multiple of 512 bytes and may leave up to 1 MiB of a large block unused. The sums therefore match torch's
``requested_bytes`` counter, not its ``allocated_bytes``.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from gpuwidget.model.report import LineMemory
from gpuwidget.model.translation import translatable
from gpuwidget.model.user_files import TIMED_FILES
from gpuwidget.pytorch import blocks_in_use

BACKWARD = translatable("allocated on torch's own threads, as in backward()")
"""Shown instead of the source line if the allocation has no Python frames and can't be assigned to a line
that called ``backward()``."""
LIBRARY = translatable("allocated by libraries, on threads that run no line of your code")
"""Shown instead of the source line if no frame of the allocation is in the user's code."""
_AUTOGRAD = "/torch/autograd/__init__.py"
_NO_FUNCTION = ("<module>", "<cell line")


class Code(Protocol):
    """Distinguishes the user's files from libraries."""

    def name(self, filename: str) -> str | None:
        """Return ``In[N]``, ``a cell`` or a path for a file of the user, and None for a library's file."""

    def cell_line(self, filename: str, line: int, timed: int | None = None) -> int | None:
        """Return the number that a line of a cell's code has in the cell; None for files other than cells.

        If the code calls ``%%time``, ``timed`` is the line of the code that ``%%time`` runs.
        """

    def source(self, filename: str, line: int) -> str:
        """Return the text of a line, or an empty string if it is unknown.

        For a cell, ``line`` is the line's number in the cell.
        """


@dataclass(frozen=True, slots=True)
class RunRequests:
    """Values of torch's ``requested_bytes`` counters on one device for one run."""

    during: int
    """Total bytes requested between the run's start and its end."""
    end: int
    """Bytes in use at the run's end."""
    peak: int
    """Maximum bytes in use since the counter's peak was last reset."""


@dataclass(frozen=True, slots=True)
class LineAllocations:
    """The allocations of a run per line, and the bytes that could not be assigned to a line."""

    lines: tuple[LineMemory, ...]
    """The lines, sorted by bytes held at the peak, the largest first."""
    missing: Mapping[int, int]
    """By device index, the bytes that torch's counter includes but its allocation history does not, for
    example because old entries were dropped."""
    peak_unknown: tuple[int, ...]
    """Indices of the devices whose peak can't be assigned to lines, because a part of their history is
    missing."""


class _Place(NamedTuple):
    """A line of the user's code."""

    filename: str
    line: int
    """The line's number in the cell or in the module's file."""
    function: str


_Key = _Place | str
"""A line of the user's code, or the text shown instead of one."""
_Frames = Sequence[Mapping[str, Any]]
"""A call stack, innermost frame first."""


@dataclass(slots=True)
class _LineSums:
    """The bytes of one line on one device."""

    allocated: int = 0
    held: int = 0
    at_peak: int = 0
    callers: Counter[_Place] = field(default_factory=Counter)


@dataclass(slots=True)
class _DeviceReplay:
    """Replays one device's allocation history. ``total`` is the net growth in bytes since the run's start."""

    sums: dict[_Key, _LineSums] = field(default_factory=dict)
    live: dict[int, tuple[_Key, int]] = field(default_factory=dict)
    changes: list[tuple[_Key, int]] = field(default_factory=list)
    total: int = 0
    highest: int = 0
    highest_after: int = 0
    """Number of entries in :attr:`changes` when :attr:`total` was highest."""

    def sums_of(self, key: _Key) -> _LineSums:
        return self.sums.setdefault(key, _LineSums())

    def allocate(self, address: int, size: int, key: _Key, caller: _Place | None) -> None:
        self.free(address, 0)  # in case the history lacks the free of an earlier block at this address
        sums = self.sums_of(key)
        sums.allocated += size
        if caller is not None:
            sums.callers[caller] += size
        self.live[address] = (key, size)
        self.changes.append((key, size))
        self.total += size
        if self.total > self.highest:
            self.highest, self.highest_after = self.total, len(self.changes)

    def free(self, address: int, size: int) -> None:
        key, held = self.live.pop(address, ("", 0))
        if key:
            self.changes.append((key, -held))
            self.total -= held
        else:  # the block was allocated before the run
            self.total -= size

    def finish(self) -> None:
        """Compute the bytes that each line held at the end and at the peak."""
        for position, (key, change) in enumerate(self.changes):
            sums = self.sums[key]
            sums.held += change
            if position < self.highest_after:
                sums.at_peak += change


class _Stack(NamedTuple):
    """The parts of a call stack that are needed to add up allocations per line."""

    key: _Key
    caller: _Place | None
    """The line of the cell that led to the allocation, or None if that is ``key`` itself."""
    bottom: tuple[str, str]
    """File and name of the outermost frame, which identify the thread."""
    in_backward: bool


class _StackCache:
    """Analyzes each stack once, because a loop allocates from the same few stacks."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._stacks: dict[tuple[int, ...], _Stack] = {}

    def get(self, frames: _Frames) -> _Stack:
        """Return the analyzed stack.

        Equal stacks in a snapshot consist of the same frame objects, so the ids of these objects identify a
        stack.
        """
        key = tuple(map(id, frames))
        found = self._stacks.get(key)
        if found is None:
            found = self._stacks[key] = self._analyze(frames)
        return found

    def _analyze(self, frames: _Frames) -> _Stack:
        """Find the innermost line of the user's code and the line of the cell that called it."""
        inner: _Place | None = None
        cell: _Place | None = None
        in_backward = False
        timed: int | None = None
        for frame in frames:
            filename, line = str(frame.get("filename", "")), int(frame.get("line", 0))
            in_backward = in_backward or _AUTOGRAD in filename
            if filename in TIMED_FILES:
                timed = line
            name = self._code.name(filename)
            if name is None:
                continue
            cell_line = self._code.cell_line(filename, line, timed)
            place = _Place(filename, line if cell_line is None else cell_line, str(frame.get("name", "")))
            if inner is None:
                inner = place
            if cell_line is None:
                continue
            timed = None
            # If the body of this cell's magic is on the stack too, this frame only calls the magic.
            if cell is None or cell.filename == filename or self._code.name(cell.filename) != name:
                cell = place
        bottom = (str(frames[-1].get("filename")), str(frames[-1].get("name")))
        if inner is None:
            return _Stack(LIBRARY, None, bottom, False)
        return _Stack(inner, cell if cell != inner else None, bottom, in_backward)


class _BackwardCaller:
    """Assigns the allocations of autograd's threads to the line that called ``backward()``.

    ``backward()`` allocates its first gradient on the caller's thread. Later allocations without Python
    frames are assigned to the same call, until the caller's thread allocates memory outside ``backward()``.
    """

    def __init__(self) -> None:
        self._caller: tuple[_Key, _Place | None] = (BACKWARD, None)
        self._thread: tuple[str, str] | None = None

    def update(self, stack: _Stack) -> None:
        """Update the current caller of ``backward()`` after an allocation with Python frames."""
        if stack.in_backward:
            self._caller, self._thread = (stack.key, stack.caller), stack.bottom
        elif stack.bottom == self._thread:
            self._caller, self._thread = (BACKWARD, None), None

    @property
    def line(self) -> tuple[_Key, _Place | None]:
        """The line to which allocations without Python frames are currently assigned, and its caller."""
        return self._caller


def allocations_by_line(
    snapshot: Mapping[str, Any],
    code: Code,
    *,
    since_us: float | None = None,
    until_us: float | None = None,
    requests: Mapping[int, RunRequests] | None = None,
    recorded_before: frozenset[int] | None = None,
) -> LineAllocations:
    """Add up the ``device_traces`` of an allocator snapshot per line.

    ``since_us`` and ``until_us`` (epoch microseconds) limit the events to the run. ``recorded_before``
    contains the addresses of the blocks whose allocation was recorded before the run, or is None if they are
    unknown. If the addresses are known, a block that the run allocated and that is still in use counts even
    if its allocation is no longer in the history.
    """
    devices: dict[int, _DeviceReplay] = {}
    stacks, backward = _StackCache(code), _BackwardCaller()
    for index, entry in _events(snapshot.get("device_traces") or (), since_us, until_us):
        device = devices.setdefault(index, _DeviceReplay())
        address, size = int(entry.get("addr", 0)), int(entry.get("size", 0))
        if entry["action"] != "alloc":
            device.free(address, size)
            continue
        frames = entry.get("frames")
        key, caller = backward.line
        if frames:
            stack = stacks.get(frames)
            key, caller = stack.key, stack.caller
            backward.update(stack)
        device.allocate(address, size, key, caller)
    if recorded_before is not None and _incomplete(devices, requests):
        _add_blocks_in_use(devices, snapshot, stacks, recorded_before)
    missing, peak_unknown, lines = {}, [], []
    for index, device in sorted(devices.items()):
        device.finish()
        counted = (requests or {}).get(index)
        difference = 0 if counted is None else counted.during - _allocated(device)
        if difference > 0:
            missing[index] = difference
        peak_known = (
            counted is None or difference <= 0 or counted.end + device.highest - device.total == counted.peak
        )
        if not peak_known:
            peak_unknown.append(index)
        lines += [_line(index, key, sums, code, peak_known) for key, sums in device.sums.items()]
    for index, counted in (requests or {}).items():
        if index not in devices and counted.during > 0:
            missing[index] = counted.during
    lines.sort(key=lambda line: (-(line.at_peak or 0), -line.held, -line.allocated, line.file or "~"))
    return LineAllocations(tuple(lines), missing, tuple(peak_unknown))


def _events(
    traces: Sequence[Sequence[Mapping[str, Any]]], since_us: float | None, until_us: float | None
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the allocations and frees of all devices in chronological order."""

    def events_of(index: int) -> Iterator[tuple[float, int, Mapping[str, Any]]]:
        # torch may record two events per free: one for the request and one for the completion. Use only one
        # kind of event, so that no block is freed twice.
        actions = {str(entry.get("action")) for entry in traces[index]}
        free = "free_requested" if "free_requested" in actions else "free_completed"
        for entry in traces[index]:
            time_us = entry.get("time_us")
            if time_us is not None and (
                (since_us is not None and time_us < since_us) or (until_us is not None and time_us > until_us)
            ):
                continue
            if entry.get("action") in ("alloc", free):
                yield time_us or 0.0, index, entry

    by_device = [events_of(index) for index in range(len(traces))]
    for _, index, entry in heapq.merge(*by_device, key=lambda event: event[0]):
        yield index, entry


def _incomplete(devices: Mapping[int, _DeviceReplay], requests: Mapping[int, RunRequests] | None) -> bool:
    return any(
        counted.during > (_allocated(devices[index]) if index in devices else 0)
        for index, counted in (requests or {}).items()
    )


def _add_blocks_in_use(
    devices: dict[int, _DeviceReplay],
    snapshot: Mapping[str, Any],
    stacks: _StackCache,
    recorded_before: frozenset[int],
) -> None:
    """Add the blocks in use that the run allocated but whose allocation is no longer in the history."""
    for index, address, size, frames in blocks_in_use(snapshot):
        device = devices.setdefault(index, _DeviceReplay())
        if not frames or address in device.live or address in recorded_before:
            continue
        stack = stacks.get(frames)
        sums = device.sums_of(stack.key)
        sums.allocated += size
        sums.held += size
        # The block was in use throughout the period that the history covers, and therefore also at the peak.
        sums.at_peak += size
        if stack.caller is not None:
            sums.callers[stack.caller] += size


def _allocated(device: _DeviceReplay) -> int:
    return sum(sums.allocated for sums in device.sums.values())


def _line(index: int, key: _Key, sums: _LineSums, code: Code, peak_known: bool) -> LineMemory:
    place = key if isinstance(key, _Place) else None
    caller = sums.callers.most_common(1)[0][0] if sums.callers else None
    return LineMemory(
        file=None if place is None else code.name(place.filename),
        line=None if place is None else place.line,
        function=None if place is None or place.function.startswith(_NO_FUNCTION) else place.function,
        source=str(key) if place is None else code.source(place.filename, place.line),
        called_from=None if caller is None else f"{code.name(caller.filename)} line {caller.line}",
        device=f"cuda:{index}",
        allocated=sums.allocated,
        held=sums.held,
        at_peak=sums.at_peak if peak_known else None,
    )
