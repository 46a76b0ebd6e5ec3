"""Which line allocated it: torch's allocation history, added up by the lines of the user's own code.

Sizes are those the code asked for. torch hands out a little more (it rounds up to 512 bytes, and may leave up
to 1 MiB of a large block unused), so these add up to its ``requested_bytes``, not to its ``allocated_bytes``.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from gpuwidget.model.cell_source import TIMED_FILES
from gpuwidget.model.report import LineMemory
from gpuwidget.pytorch.allocation_history import blocks_in_use

BACKWARD = "allocated on torch's own threads, as in backward()"
"""Stands in for the source where there was no Python code on the thread."""
LIBRARY = "allocated by libraries, on threads without a line of yours"
"""Stands in for the source where no frame was the user's."""
_AUTOGRAD = "/torch/autograd/__init__.py"
_NO_FUNCTION = ("<module>", "<cell line")


class Code(Protocol):
    """Whose code a file is."""

    def name(self, filename: str) -> str | None:
        """``In[N]`` or the path of a file of the user's; None for a library's."""

    def source(self, filename: str, line: int) -> str:
        """The line's text, empty where nobody has it."""

    def lines_above_timed(self, filename: str) -> int | None:
        """How many lines of a cell stand above those that its ``%%time`` runs; None where there is none."""


@dataclass(frozen=True, slots=True)
class Requested:
    """torch's own count of the bytes asked for on one device (``requested_bytes``)."""

    during: int
    """Bytes asked for in all, from the run's start to its end."""
    end: int
    """Bytes in use at the run's end."""
    peak: int
    """The most in use since somebody last reset that counter."""


@dataclass(frozen=True, slots=True)
class Lines:
    """What a run's lines allocated, and how much of the run that is."""

    lines: tuple[LineMemory, ...]
    """The largest at the peak first."""
    unseen: Mapping[int, int]
    """Bytes that torch counted on a device and its history does not hold (any more), by device index."""
    peak_unknown: tuple[int, ...]
    """Devices whose peak was in what the history does not hold."""


class _Place(NamedTuple):
    """A line of the user's."""

    filename: str
    line: int
    function: str


_Key = _Place | str
"""A line, or the words that stand in for one."""
_Frames = Sequence[Mapping[str, Any]]
"""A stack, the innermost frame first."""


@dataclass(slots=True)
class _Tally:
    """One line on one device."""

    allocated: int = 0
    held: int = 0
    at_peak: int = 0
    callers: Counter[_Place] = field(default_factory=Counter)


@dataclass(slots=True)
class _Device:
    """One device's memory, as its history has it; ``total`` counts from the run's start."""

    tallies: dict[_Key, _Tally] = field(default_factory=dict)
    live: dict[int, tuple[_Key, int]] = field(default_factory=dict)
    changes: list[tuple[_Key, int]] = field(default_factory=list)
    total: int = 0
    highest: int = 0
    highest_after: int = 0
    """How many of the changes came before the highest total."""

    def tally(self, key: _Key) -> _Tally:
        return self.tallies.setdefault(key, _Tally())

    def allocate(self, address: int, size: int, key: _Key, caller: _Place | None) -> None:
        self.free(address, 0)  # its end was not recorded
        tally = self.tally(key)
        tally.allocated += size
        if caller is not None:
            tally.callers[caller] += size
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
        else:  # a block from before
            self.total -= size

    def settle(self) -> None:
        """Work out what each line held at the end and at the peak."""
        for place, (key, change) in enumerate(self.changes):
            tally = self.tallies[key]
            tally.held += change
            if place < self.highest_after:
                tally.at_peak += change


class _Stack(NamedTuple):
    """What a stack says."""

    key: _Key
    caller: _Place | None
    """The cell's line that led there."""
    bottom: tuple[str, str]
    """Its outermost frame, which tells threads apart."""
    in_backward: bool


class _Stacks:
    """Reads stacks, each only once: a loop allocates from the same few again and again."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._read: dict[tuple[int, ...], _Stack] = {}

    def read(self, frames: _Frames) -> _Stack:
        """What ``frames`` say; torch shares the frames of a snapshot, which all live as long as it does."""
        known = tuple(map(id, frames))
        found = self._read.get(known)
        if found is None:
            found = self._read[known] = self._whose(frames)
        return found

    def _whose(self, frames: _Frames) -> _Stack:
        """The innermost line of the user's, and the line of the cell that led there."""
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
            if timed is not None and name.startswith("In["):
                above, below, timed = self._code.lines_above_timed(filename), timed, None
                line = line if above is None else above + below
            place = _Place(filename, line, str(frame.get("name", "")))
            if inner is None:
                inner = place
            if name.startswith("In["):
                cell = place
        bottom = (str(frames[-1].get("filename")), str(frames[-1].get("name")))
        if inner is None:
            return _Stack(LIBRARY, None, bottom, False)
        return _Stack(inner, cell if cell != inner else None, bottom, in_backward)


class _Backward:
    """Finds the line that called ``backward()`` for what autograd allocates on threads of its own.

    The call makes its first gradient on the caller's thread; what comes next without any Python frame is
    its doing, until that thread allocates again.
    """

    def __init__(self) -> None:
        self._caller: tuple[_Key, _Place | None] = (BACKWARD, None)
        self._thread: tuple[str, str] | None = None

    def note(self, stack: _Stack) -> None:
        """An allocation with Python frames."""
        if stack.in_backward:
            self._caller, self._thread = (stack.key, stack.caller), stack.bottom
        elif stack.bottom == self._thread:
            self._caller, self._thread = (BACKWARD, None), None

    @property
    def line(self) -> tuple[_Key, _Place | None]:
        """Whose an allocation without frames is."""
        return self._caller


def by_line(
    snapshot: Mapping[str, Any],
    code: Code,
    *,
    since_us: float | None = None,
    until_us: float | None = None,
    requested: Mapping[int, Requested] | None = None,
    recorded_before: frozenset[int] | None = None,
) -> Lines:
    """Add up a snapshot's ``device_traces`` by line.

    ``since_us`` and ``until_us`` (epoch microseconds) leave out what came before and after the run.
    ``recorded_before`` are the addresses whose frames an earlier recording left: then a block that is still
    there, though the history has lost its beginning, counts for its line too. None where that is not known.
    """
    devices: dict[int, _Device] = {}
    stacks, backward = _Stacks(code), _Backward()
    for index, entry in _events(snapshot.get("device_traces") or (), since_us, until_us):
        device = devices.setdefault(index, _Device())
        address, size = int(entry.get("addr", 0)), int(entry.get("size", 0))
        if entry["action"] != "alloc":
            device.free(address, size)
            continue
        frames = entry.get("frames")
        key, caller = backward.line
        if frames:
            stack = stacks.read(frames)
            key, caller = stack.key, stack.caller
            backward.note(stack)
        device.allocate(address, size, key, caller)
    if recorded_before is not None and _incomplete(devices, requested):
        _add_what_is_left(devices, snapshot, stacks, recorded_before)
    unseen, peak_unknown, lines = {}, [], []
    for index, device in sorted(devices.items()):
        device.settle()
        truth = (requested or {}).get(index)
        missing = 0 if truth is None else truth.during - _allocated(device)
        if missing > 0:
            unseen[index] = missing
        known = truth is None or missing <= 0 or truth.end + device.highest - device.total == truth.peak
        if not known:
            peak_unknown.append(index)
        lines += [_line(index, key, tally, code, known) for key, tally in device.tallies.items()]
    for index, truth in (requested or {}).items():
        if index not in devices and truth.during > 0:
            unseen[index] = truth.during
    lines.sort(key=lambda line: (-(line.at_peak or 0), -line.held, -line.allocated, line.file or "~"))
    return Lines(tuple(lines), unseen, tuple(peak_unknown))


def _events(
    traces: Sequence[Sequence[Mapping[str, Any]]], since_us: float | None, until_us: float | None
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Allocations and frees of all devices, in the order of time."""

    def of(index: int) -> Iterator[tuple[float, int, Mapping[str, Any]]]:
        # A recording may leave out one of the two: to ask for a block's end, and that it came.
        wanted = {str(entry.get("action")) for entry in traces[index]}
        end = "free_requested" if "free_requested" in wanted else "free_completed"
        for entry in traces[index]:
            at = entry.get("time_us")
            if at is not None and (
                (since_us is not None and at < since_us) or (until_us is not None and at > until_us)
            ):
                continue
            if entry.get("action") in ("alloc", end):
                yield at or 0.0, index, entry

    each = [of(index) for index in range(len(traces))]
    for _, index, entry in heapq.merge(*each, key=lambda event: event[0]):
        yield index, entry


def _incomplete(devices: Mapping[int, _Device], requested: Mapping[int, Requested] | None) -> bool:
    return any(
        truth.during > (_allocated(devices[index]) if index in devices else 0)
        for index, truth in (requested or {}).items()
    )


def _add_what_is_left(
    devices: dict[int, _Device], snapshot: Mapping[str, Any], stacks: _Stacks, recorded_before: frozenset[int]
) -> None:
    """Count blocks that the run allocated so long ago that the history has lost it: they are there to see."""
    for index, address, size, frames in blocks_in_use(snapshot):
        device = devices.setdefault(index, _Device())
        if not frames or address in device.live or address in recorded_before:
            continue
        stack = stacks.read(frames)
        tally = device.tally(stack.key)
        tally.allocated += size
        tally.held += size
        # It was there all the time that the history still knows.
        tally.at_peak += size
        if stack.caller is not None:
            tally.callers[stack.caller] += size


def _allocated(device: _Device) -> int:
    return sum(tally.allocated for tally in device.tallies.values())


def _line(index: int, key: _Key, tally: _Tally, code: Code, peak_known: bool) -> LineMemory:
    place = key if isinstance(key, _Place) else None
    caller = tally.callers.most_common(1)[0][0] if tally.callers else None
    return LineMemory(
        file=None if place is None else code.name(place.filename),
        line=None if place is None else place.line,
        function=None if place is None or place.function.startswith(_NO_FUNCTION) else place.function,
        source=str(key) if place is None else code.source(place.filename, place.line),
        called_from=None if caller is None else f"{code.name(caller.filename)} line {caller.line}",
        device=f"cuda:{index}",
        allocated=tally.allocated,
        held=tally.held,
        at_peak=tally.at_peak if peak_known else None,
    )
