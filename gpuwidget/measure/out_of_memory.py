"""Out of GPU memory: what the error's message says, and what would have been enough.

The figures in a message are rounded, so that each is a range: arithmetic takes the end that promises less.
Nothing is recommended that would not have been enough on what is known here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuwidget.model import units
from gpuwidget.model.report import Holder
from gpuwidget.pytorch.allocator import LARGE_PAGE, Segment

RemedyKind = Literal["again", "limit", "free", "delete", "batch", "expandable", "pool", "process"]

_SIZES = {
    "bytes": 1,
    "kib": units.KIB,
    "mib": units.MIB,
    "gib": units.GIB,
    # As versions before 2.0 called them, of 1024 each.
    "kb": units.KIB,
    "mb": units.MIB,
    "gb": units.GIB,
}
_IMPOSSIBLE = 1 << 60
"""A driver that does not say what a process holds gives 2**64 - 1."""
_MOST_VARIABLES = 3
_MOST_PARTS = 64
"""So many times smaller a batch is no remedy any more."""

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
class Rounded:
    """Bytes as a message gives them: somewhere from ``low`` to ``high``."""

    low: int
    high: int

    @property
    def middle(self) -> int:
        """What the message says."""
        return (self.low + self.high) // 2

    def exact(self, value: int | None) -> int:
        """``value`` where it agrees with what was said, else what was said."""
        return self._agreeing(value, self.middle)

    def at_least(self, value: int | None) -> int:
        """``value`` where it agrees with what was said, else the least that it may stand for."""
        return self._agreeing(value, self.low)

    def _agreeing(self, value: int | None, otherwise: int) -> int:
        return value if value is not None and self.low <= value <= self.high else otherwise


@dataclass(frozen=True, slots=True)
class Said:
    """What an out-of-memory error's message says; None for what it does not."""

    index: int | None
    """The N of ``cuda:N``."""
    requested: Rounded | None
    total: Rounded | None
    free: Rounded | None
    limit: Rounded | None
    """What this process lets itself have (torch.cuda.set_per_process_memory_fraction)."""
    process: Rounded | None
    """What this process holds with all its libraries."""
    allocated: Rounded | None
    """In tensors, without graphs' private pools."""
    private: Rounded | None
    unallocated: Rounded | None
    """Reserved by torch and not in tensors."""
    reserved: Rounded | None
    others: tuple[tuple[int, Rounded], ...]
    """Process ids and what they hold."""


@dataclass(frozen=True, slots=True)
class Held:
    """A holder on the device, with the blocks that letting go of it would free."""

    holder: Holder
    blocks: frozenset[int]
    """Addresses of its blocks."""
    before: frozenset[int]
    """Those that were there when the failing cell began: to have them free is of use to its next try."""
    variables: tuple[str, ...] | None
    """The variables to delete to let go of it; None where it is not held by variables alone, or where the
    failing code needs one of them."""
    is_error: bool
    """Whether it is the frames of the error itself."""


@dataclass(frozen=True, slots=True)
class Other:
    """A process or a library that holds memory on the device."""

    name: str
    bytes: int
    is_process: bool
    """Whether it could be ended."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Memory that another library of this process keeps for later."""

    name: str
    free: int
    """Bytes that it would give back."""
    flush: str
    """The statement that does."""


@dataclass(frozen=True, slots=True)
class Facts:
    """An out-of-memory error and all that is known around it, in bytes; None for what is not."""

    device: str | None
    """``cuda:N``."""
    requested: int | None
    needed: int | None
    """The most that ``requested`` may stand for."""
    total: int | None
    free: int | None
    """Free for everybody, at the error."""
    limit: int | None
    """What this process lets itself have of it; None without such a limit."""
    allocated: int | None
    reserved: int | None
    stuck: int | None
    """Reserved, not in tensors, and nothing that torch could give back."""
    at_start: int | None
    """Allocated when the failing cell began."""
    before_now: int | None
    """Allocated now, of what was there when the failing cell began."""
    segments: tuple[Segment, ...]
    held: tuple[Held, ...]
    others: tuple[Other, ...]
    pools: tuple[Pool, ...]
    expandable: bool | None
    """Whether torch uses expandable segments already."""
    setting: str
    """The environment variable that sets them."""

    @property
    def room(self) -> int | None:
        """What torch could still have got."""
        if self.free is None:
            return None
        under = self._under_the_limit
        return self.free if under is None else min(self.free, under)

    @property
    def grown(self) -> int | None:
        """What the failing cell had allocated above its start."""
        if self.allocated is None or self.at_start is None:
            return None
        return max(0, self.allocated - self.at_start)

    @property
    def _under_the_limit(self) -> int | None:
        if self.limit is None or self.reserved is None:
            return None
        return max(0, self.limit - self.reserved)

    def enough(self, freed: frozenset[int] = frozenset(), *, own: int = 0, others: int = 0) -> bool:
        """Whether the request would have been met with these blocks freed, and so many bytes besides.

        ``own`` are bytes of this process, which its own limit counts too, ``others`` those of anybody else.
        """
        if self.needed is None:
            return False
        # What was let go of since the error, torch could not give back when it was asked.
        since, largest_since = _free_after(self.segments, frozenset())
        released, largest = _free_after(self.segments, freed)
        if largest >= self.needed > largest_since:
            return True
        if self.free is None:
            return False
        own += released - since
        under = self._under_the_limit
        free = self.free + own + others
        return (free if under is None else min(free, under + own)) >= self.needed


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing that would have been enough."""

    kind: RemedyKind
    text: str
    """What it does and why it is enough, with its figures."""
    code: str | None
    """What to run."""
    bytes: int | None
    """What it gives; None where that is no sum of bytes."""


@dataclass(frozen=True, slots=True)
class CellShare:
    """What one cell allocated on the device and is still there."""

    cell: int | None
    source: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Story:
    """An out-of-memory error and its surroundings, without a reference to any of them."""

    facts: Facts
    gpu: str | None
    """``GPU 0 H200``; None where the driver does not say."""
    let_go: int
    """Bytes that were allocated at the error and are not any more."""
    cells: tuple[CellShare, ...]
    recent: tuple[tuple[float, int | None], ...]
    """Seconds ago, and bytes in use of the whole GPU, over the last minute; empty where nobody sampled."""
    unknown: tuple[str, ...]
    """What could not be told, and why."""


def parse(message: str) -> Said:
    """What a message says, whichever version of torch wrote it."""
    found = {name: _size(re.search(pattern, message)) for name, pattern in _PATTERNS.items()}
    index = _INDEX.search(message)
    others = ((int(match[1]), _rounded(match[2], match[3])) for match in _PROCESS.finditer(message))
    return Said(
        index=None if index is None else int(index[1] or index[2]),
        others=tuple((pid, size) for pid, size in others if size is not None),
        **found,
    )


def first_step(facts: Facts) -> Remedy | None:
    """What to do before any next try: let go of what this error's frames hold, or it has that much less."""
    size = sum(held.holder.bytes for held in facts.held if held.is_error)
    if not size:
        return None
    return Remedy(
        "free",
        f"Before the next try let go of this error: its frames keep {units.memory(size)} alive, which that "
        "try would lack (%debug is then gone).",
        "%gpu free --yes",
        size,
    )


def remedies(facts: Facts) -> list[Remedy]:
    """What would have been enough, the simplest first; empty where nothing known would have been."""
    if facts.needed is None or contradicts_itself(facts):
        return []
    found = [
        _again(facts),
        _limit(facts),
        _notebook(facts),
        _pool(facts),
        _expandable(facts),
        _batch(facts),
        _variables(facts),
        *_processes(facts),
    ]
    return [remedy for remedy in found if remedy is not None]


def contradicts_itself(facts: Facts) -> bool:
    """Whether the request fits in what was free: then somebody else took it, and gave it back, meanwhile."""
    return facts.needed is not None and facts.room is not None and facts.room >= facts.needed


def _again(facts: Facts) -> Remedy | None:
    """What was let go of since the error, as an earlier error's frames are, is there for the next try."""
    if facts.at_start is None or facts.before_now is None:
        return None
    gone = facts.at_start - facts.before_now
    if gone <= 0 or not facts.enough(own=gone):
        return None
    return Remedy(
        "again",
        f"Run it again: {units.memory(gone)} from before this cell, such as an earlier error's frames, were "
        "let go of since, which is enough.",
        None,
        gone,
    )


def _limit(facts: Facts) -> Remedy | None:
    if facts.limit is None or facts.reserved is None or facts.free is None or not facts.total:
        return None
    needed = facts.needed or 0
    fraction = math.ceil((facts.reserved + needed) / facts.total * 100) / 100
    if facts.free < needed or fraction > 1:
        return None
    return Remedy(
        "limit",
        f"Raise this process's own limit: it lets itself have {units.memory(facts.limit)} "
        f"(set_per_process_memory_fraction), and the GPU had {units.memory(facts.free)} free.",
        f"torch.cuda.set_per_process_memory_fraction({fraction:.2f}, {(facts.device or 'cuda:0')!r})",
        None,
    )


def _notebook(facts: Facts) -> Remedy | None:
    own = _notebooks(facts)
    blocks = _blocks(own)
    if not blocks or not facts.enough(blocks):
        return None
    names = _listed(name for held in own for name in held.holder.names[:1])
    size = _bytes(facts, blocks)
    return Remedy(
        "free",
        f"Let go of what the notebook itself keeps, {names}: {units.memory(size)} from before this cell.",
        "%gpu free --yes",
        size,
    )


def _variables(facts: Facts) -> Remedy | None:
    """The fewest of the largest variables that the failing code does not name."""
    own = _notebooks(facts)
    spare = sorted(
        (held for held in facts.held if held.holder.kind == "variable" and held.before and held.variables),
        key=lambda held: -held.holder.bytes,
    )[:_MOST_VARIABLES]
    for also in ((), own) if own else ((),):
        for count in range(1, len(spare) + 1):
            chosen = spare[:count]
            blocks = _blocks([*chosen, *also])
            if facts.enough(blocks):
                return _without(facts, chosen, blocks, with_notebook=bool(also))
    return None


def _without(facts: Facts, chosen: Sequence[Held], blocks: frozenset[int], *, with_notebook: bool) -> Remedy:
    names = dict.fromkeys(name for held in chosen for name in held.variables or ())
    sizes = _listed(f"{held.holder.names[0]} ({units.memory(held.holder.bytes)})" for held in chosen)
    also = ", and of what the notebook itself keeps" if with_notebook else ""
    it = "it" if len(chosen) == 1 else "them"
    return Remedy(
        "delete",
        f"Let go of {sizes}{also}, if you need no more of {it}: the code that failed was not seen to read "
        f"{it}.",
        f"%gpu free {' '.join(names)} --yes",
        _bytes(facts, blocks),
    )


def _batch(facts: Facts) -> Remedy | None:
    grown, room, needed = facts.grown, facts.room, facts.needed
    if grown is None or room is None or needed is None or grown + room <= 0:
        return None
    there = grown + room
    parts = math.ceil((grown + needed) / there)
    if not 1 < parts <= _MOST_PARTS:
        return None
    return Remedy(
        "batch",
        f"Make the batch {parts} times smaller, or go through it in {parts} parts (gradient accumulation): "
        f"the cell had {units.memory(grown)} above its start and asked for {units.memory(facts.requested)} "
        f"more, where {units.memory(there)} were to be had. That is enough as far as the cell came, if what "
        "it needs grows with the batch.",
        None,
        None,
    )


def _expandable(facts: Facts) -> Remedy | None:
    if facts.stuck is None or facts.needed is None or facts.expandable:
        return None
    if min(facts.stuck, _joinable(facts.segments)) < facts.needed:
        return None
    return Remedy(
        "expandable",
        f"Use expandable segments: {units.memory(facts.stuck)} that torch has reserved are in no tensor, in "
        "pieces that can't be joined without. Restart the kernel, and run this before torch is imported.",
        f"%env {facts.setting}=expandable_segments:True",
        facts.stuck,
    )


def _joinable(segments: Sequence[Segment]) -> int:
    """Of what is free in segments that are in use, whole pages: one is lost at the edge of each piece."""
    total = 0
    for segment in segments:
        pieces = segment.free_ranges()
        if segment.shared and sum(size for _, size in pieces) < segment.size:
            total += sum(max(0, size // LARGE_PAGE - 1) * LARGE_PAGE for _, size in pieces)
    return total


def _pool(facts: Facts) -> Remedy | None:
    for pool in facts.pools:
        if pool.free and facts.enough(others=pool.free):
            return Remedy(
                "pool",
                f"Let {pool.name} give back what it keeps for later: {units.memory(pool.free)}.",
                pool.flush,
                pool.free,
            )
    return None


def _processes(facts: Facts) -> list[Remedy]:
    """The smallest of those that would do, and the largest."""
    able = sorted(
        (other for other in facts.others if other.is_process and facts.enough(others=other.bytes)),
        key=lambda other: other.bytes,
    )
    return [
        Remedy(
            "process",
            f"Shut down {other.name} if no longer needed: this frees {units.memory(other.bytes)}.",
            None,
            other.bytes,
        )
        for other in dict.fromkeys((*able[:1], *able[-1:]))
    ]


def _notebooks(facts: Facts) -> list[Held]:
    """What the notebook itself keeps, without the error's own frames."""
    return [
        held for held in facts.held if held.holder.kind == "notebook" and held.before and not held.is_error
    ]


def _blocks(held: Iterable[Held]) -> frozenset[int]:
    return frozenset().union(*(one.before for one in held))


def _bytes(facts: Facts, blocks: frozenset[int]) -> int:
    return sum(size for seg in facts.segments for address, size, _ in seg.blocks if address in blocks)


def _free_after(segments: Sequence[Segment], freed: frozenset[int]) -> tuple[int, int]:
    """Bytes that torch could give back with these blocks freed, and the largest piece it could hand out."""
    released = largest = 0
    for segment in segments:
        returnable = segment.returnable(freed)
        released += returnable
        if returnable < segment.size and segment.shared and not segment.small:
            largest = max([largest, *(size for _, size in segment.free_ranges(freed))])
    return released, largest


def _listed(names: Iterable[str]) -> str:
    found = list(dict.fromkeys(names))
    if len(found) > 4:
        return f"{', '.join(found[:3])} and {len(found) - 3} more"
    return " and ".join(filter(None, (", ".join(found[:-1]), *found[-1:])))


def _size(match: re.Match[str] | None) -> Rounded | None:
    if match is None:
        return None
    number, unit = [group for group in match.groups() if group is not None]
    return _rounded(number, unit)


def _rounded(number: str, unit: str) -> Rounded | None:
    size = _SIZES[unit.lower()]
    half = 0.5 * 10 ** -len(number.partition(".")[2]) * size if size > 1 else 0.0
    value = float(number) * size
    if value >= _IMPOSSIBLE:
        return None
    return Rounded(max(0, math.ceil(value - half)), math.floor(value + half))
