"""Parse an out-of-memory error's message and find changes that would have made the request fit.

The figures in a message are rounded, so each figure stands for a range. Calculations use the end of the range
that is less favourable. A fix is offered only if the known figures show that the request would have fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from gpuwidget.heap.retention import Role
from gpuwidget.model import units
from gpuwidget.model.report import Holder
from gpuwidget.model.translation import translatable
from gpuwidget.pytorch.allocator import LARGE_PAGE, Segment
from gpuwidget.pytorch.oom_error import Stage

FixKind = Literal[
    "retention",
    "exception",
    "comprehension",
    "clear",
    "frames",
    "again",
    "limit",
    "free",
    "delete",
    "gradients",
    "expandable",
    "pool",
    "process",
    "batch",
    "optimizer",
    "parameters",
    "backward",
    "tensor",
]
RetentionKind = Literal["item", "sum", "carry", "retain_graph"]
"""``item``: a container keeps something from each step. ``sum``: a tensor is the sum of all steps. ``carry``:
a tensor is computed from its value in the step before. ``retain_graph``: a graph is kept after
``backward()``."""

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
_FREE = "%gpu free --yes"
_MAX_VARIABLES = 3
_EXPLAINS_PART = 0.5
"""Something that holds at least this fraction of torch's memory explains the error, even if the request would
not have fit without it: the memory would have risen further."""
_MAX_PARTS = 64
"""Maximum number of parts into which a fix suggests splitting a batch. More parts would not be realistic."""

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


@dataclass(frozen=True, slots=True)
class OomHolder:
    """A holder on the device, with the blocks that are freed when the holder is released."""

    holder: Holder
    blocks: frozenset[int]
    """Addresses of the blocks."""
    before: frozenset[int]
    """Addresses of the blocks allocated before the failing cell began. Only freeing these blocks helps when
    the cell is run again."""
    variables: tuple[str, ...] | None
    """The variables to delete to release the holder. None if there are none, if one of them is not a plain
    variable, if the failing code may read one of them, or if not all variables were searched."""
    is_error: bool
    """Whether the holder is the traceback of the error itself."""
    is_exception: bool = False
    """Whether the holder is a variable whose value is an exception. Its traceback keeps the memory."""


@dataclass(frozen=True, slots=True)
class OtherMemory:
    """A process or a library with memory on the device."""

    name: str
    bytes: int
    is_process: bool
    """Whether this is a process, which the user can shut down."""


@dataclass(frozen=True, slots=True)
class LibraryPool:
    """The cache of another library in this process."""

    name: str
    free: int
    """Bytes that :attr:`flush` would release."""
    flush: str
    """The statement that empties the library's cache."""


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A statement of the user's code."""

    where: str
    """The cell or file: ``In [3]`` or ``train.py``."""
    line: int
    statement: str

    @property
    def text(self) -> str:
        """The statement and its place, in one line."""
        return translatable(
            "{where}, line {line}: {statement}", where=self.where, line=self.line, statement=self.statement
        )


@dataclass(frozen=True, slots=True)
class Retention:
    """Something that the failed code keeps from each step, so that memory rises step by step."""

    name: str
    """What keeps it, such as ``losses`` or ``losses in train()``."""
    kind: RetentionKind
    at: CodeLine
    """The statement that keeps it."""
    bytes: int
    blocks: frozenset[int]
    """Addresses of the blocks that would be free without it."""
    in_graphs: bool
    """Whether autograd graphs keep most of the memory, and not the results themselves."""
    is_scalar: bool
    """Whether the results have one element, as losses have."""
    items: int
    """Number of results that are kept; 0 if unknown."""
    operations: int
    """Number of operations in the autograd graph, if this is a single tensor."""
    is_tensor: bool
    """Whether the results are tensors themselves, and not objects that contain tensors."""
    change: str | None
    """The statement to write instead; None if there is no such statement."""
    clear: str | None
    """The statement that frees what is kept now; None if nothing has to be done."""
    is_hook: bool
    """Whether the statement is in a hook of a module."""
    is_used_in_backward: bool
    """Whether the failed code calls ``backward()`` on what is kept."""
    calls_backward: bool
    """Whether the failed code calls ``backward()`` at all."""
    retains_graph: bool
    """Whether the failed code calls ``backward(retain_graph=True)``."""


@dataclass(frozen=True, slots=True)
class OomFacts:
    """An out-of-memory error and the state of the device, in bytes. Unknown values are None."""

    device: str | None
    """``cuda:N``."""
    requested: int | None
    needed: int | None
    """Upper limit of the requested bytes: the message contains only a rounded figure."""
    total: int | None
    free: int | None
    """Bytes that were free on the device at the error."""
    limit: int | None
    """torch's memory limit for this process, or None if there is no limit."""
    allocated: int | None
    reserved: int | None
    fragmented: int | None
    """Bytes reserved by torch that are neither in tensors nor releasable."""
    at_start: int | None
    """Bytes allocated when the failing cell began."""
    older_now: int | None
    """The part of :attr:`at_start` that is still allocated."""
    segments: tuple[Segment, ...]
    held: tuple[OomHolder, ...]
    others: tuple[OtherMemory, ...]
    pools: tuple[LibraryPool, ...]
    expandable: bool | None
    """Whether torch already uses expandable segments."""
    setting: str
    """The environment variable that enables expandable segments."""
    stage: Stage = "other"
    uses: tuple[tuple[Role, int], ...] = ()
    """Bytes of the blocks with a known holder, by what they are used for."""
    cell_uses: tuple[tuple[Role, int], ...] = ()
    """The part of :attr:`uses` that the failing cell allocated."""
    retained: tuple[Retention, ...] = ()
    """What the failing code keeps from each step, the largest first."""
    gradients: tuple[tuple[str, frozenset[int]], ...] = ()
    """Modules and optimizers by name, and the addresses of their gradients from before the failing cell."""
    freed: int = 0
    """Bytes that were allocated at the error and have been freed since."""
    comprehension: CodeLine | None = None
    """The comprehension in which the error was raised, if any. It has kept all of its results."""

    def use(self, role: Role, *, in_cell: bool = False) -> int:
        """Return the bytes that are used for ``role``."""
        return dict(self.cell_uses if in_cell else self.uses).get(role, 0)

    @property
    def available(self) -> int | None:
        """Bytes that torch could still have reserved when the error occurred."""
        if self.free is None:
            return None
        below_limit = self._below_limit
        return self.free if below_limit is None else min(self.free, below_limit)

    @property
    def is_limited(self) -> bool:
        """Whether torch's limit for this process left less memory than was free on the device."""
        return self.limit is not None and self.available != self.free

    @property
    def cell_growth(self) -> int | None:
        """Bytes that the failing cell had allocated in addition to :attr:`at_start`."""
        if self.allocated is None or self.at_start is None:
            return None
        return max(0, self.allocated - self.at_start)

    @property
    def _below_limit(self) -> int | None:
        if self.limit is None or self.reserved is None:
            return None
        return max(0, self.limit - self.reserved)

    def would_fit(self, freed: frozenset[int] = frozenset(), *, own: int = 0, others: int = 0) -> bool:
        """Return whether the request would have fit if the ``freed`` blocks and further bytes had been free.

        ``own`` is the number of further bytes that torch in this process gives back, which also leaves more
        room below torch's limit. ``others`` is the number of bytes that other libraries or processes give
        back, which does not affect that limit.
        """
        if self.needed is None:
            return False
        # Count only what freeing these blocks adds. Memory that is already releasable now was freed after the
        # error, so it was still in use when the error occurred.
        since, largest_since = _free_after(self.segments, frozenset())
        released, largest = _free_after(self.segments, freed)
        if largest >= self.needed > largest_since:
            return True
        if self.free is None:
            return False
        own += released - since
        below_limit = self._below_limit
        free = self.free + own + others
        return (free if below_limit is None else min(free, below_limit + own)) >= self.needed


@dataclass(frozen=True, slots=True)
class OomFix:
    """A change by the user."""

    kind: FixKind
    text: str
    """What to do, without a full stop."""
    code: str | None = None
    """The code to run or to write, or None if the change is not made by code."""
    bytes: int | None = None
    """Bytes that the change frees, or None if it frees no known number of bytes."""
    why: tuple[str, ...] = ()
    """The evidence and the limits, in a few words each."""


class OomAdvice(NamedTuple):
    """What the user can do, in this order."""

    first: list[OomFix]
    """To do in any case."""
    enough: list[OomFix]
    """Each of these would have made the request fit. The simplest is first."""
    unsure: list[OomFix]
    """Changes that reduce the memory of the failing code. Whether one is enough is unknown."""
    rises: bool
    """Whether memory rises with each step, so that a smaller batch or more memory only delays the error."""


@dataclass(frozen=True, slots=True)
class CellShare:
    """Memory on the device that one cell allocated and that has not been freed."""

    cell: int | None
    source: str
    bytes: int


@dataclass(frozen=True, slots=True)
class OomContext:
    """Everything that the card shows about an out-of-memory error, without references to user objects."""

    facts: OomFacts
    gpu: str | None
    """The GPU's name, such as ``GPU 0 H200``, or None if the driver does not report it."""
    cells: tuple[CellShare, ...]
    recent: tuple[tuple[float, int | None], ...]
    """Memory in use on the whole GPU during the last minute, as pairs (seconds ago, bytes). Empty if there
    are no samples."""
    unknown: tuple[str, ...]
    """Sentences that state what is unknown and why."""


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


def advise(facts: OomFacts) -> OomAdvice:
    """Return what the user can do."""
    causes = _causes(facts)
    first = [*causes, *(_clear(facts) if causes else []), *_frames(facts)]
    rises = any(cause.kind != "exception" for cause in causes)
    if causes or facts.needed is None or contradicts_itself(facts):
        return OomAdvice(first, [], [], rises)
    enough = (
        _retry(facts),
        _limit(facts),
        _notebook(facts),
        _pool(facts),
        _expandable(facts),
        _variables(facts),
        _gradients(facts),
        *_processes(facts),
    )
    unsure = _reduction(facts)
    return OomAdvice(
        first, [fix for fix in enough if fix is not None], [] if unsure is None else [unsure], rises
    )


def contradicts_itself(facts: OomFacts) -> bool:
    """Return whether the request fits into the free memory, so that the figures cannot explain the error.

    In that case, another process probably held memory for a moment.
    """
    return facts.needed is not None and facts.available is not None and facts.available >= facts.needed


# -- what rises with each step ---------------------------------------------------------------------------


def _causes(facts: OomFacts) -> list[OomFix]:
    """Return what has to change in the failing code, because it keeps more memory with each step.

    Everything else, such as a smaller batch or a larger limit, would only delay the error.
    """
    found = [_retention(one) for one in facts.retained if _explains(facts, one.blocks, one.bytes)]
    found += [
        _exception(held)
        for held in facts.held
        if held.is_exception and not held.before and _explains(facts, held.blocks, held.holder.bytes)
    ]
    if not found and facts.comprehension is not None and facts.cell_growth:
        with_freed = facts.needed is not None and facts.would_fit(own=facts.freed)
        if with_freed or facts.freed >= _EXPLAINS_PART * (facts.allocated or 0) > 0:
            found.append(_comprehension(facts, facts.comprehension))
    return found


def _explains(facts: OomFacts, blocks: frozenset[int], size: int) -> bool:
    """Return whether the error would not have occurred without these blocks."""
    return facts.would_fit(blocks) or size >= _EXPLAINS_PART * (facts.allocated or math.inf)


def _retention(kept: Retention) -> OomFix:
    no_retain_graph = translatable("Call backward() without retain_graph=True")
    if kept.kind == "retain_graph":
        text = no_retain_graph
    elif kept.kind == "carry":
        text = translatable("Detach it from the earlier steps before each step")
    elif kept.is_used_in_backward:
        text = translatable("Call backward() on each result in the loop; the gradients add up")
    elif not kept.is_tensor:
        text = translatable("Keep loss.item() instead of a loss, tensor.detach().cpu() instead of a tensor")
    elif kept.in_graphs and kept.is_scalar:
        text = translatable("Keep the number, not the graph")
    elif kept.in_graphs:
        text = translatable("Keep it without its graph (.detach()), on the CPU (.cpu()) if it is large")
    else:
        text = translatable("Keep on the CPU (.cpu()) what you need later, and delete the rest")
    why = _what_is_kept(kept)
    if kept.retains_graph and kept.kind != "retain_graph":
        why.append(no_retain_graph)
    if kept.is_hook:
        why.append(translatable("remove the hook (handle.remove()) when you no longer need it"))
    if kept.in_graphs and not kept.calls_backward:
        why.append(translatable('run the loop in "with torch.no_grad():" if you need no gradients'))
    return OomFix("retention", text, kept.change, kept.bytes, (*why, kept.at.text))


def _what_is_kept(kept: Retention) -> list[str]:
    name, number = kept.name, kept.items
    if kept.kind == "retain_graph":
        return [translatable("{name} still keeps its graph, because of retain_graph=True", name=name)]
    if kept.kind == "carry":
        return [
            translatable(
                "{name} is computed from its value in the step before, so it keeps the graphs of all steps",
                name=name,
            )
        ]
    if kept.kind == "sum" and number:
        return [
            translatable(
                "{name} is the sum of {number:,} results and keeps the graph of each",
                name=name,
                number=number,
            )
        ]
    if kept.kind == "sum":
        return [
            translatable(
                "{name} keeps the graphs of all steps, with {number:,} operations",
                name=name,
                number=kept.operations,
            )
        ]
    kept_results = (
        translatable("{name} keeps {number:,} results with their graphs", name=name, number=number)
        if kept.in_graphs
        else translatable("{name} keeps {number:,} results on the GPU", name=name, number=number)
    )
    return [kept_results, translatable("about {each} each", each=units.memory(kept.bytes / max(1, number)))]


def _exception(held: OomHolder) -> OomFix:
    name = held.holder.names[0]
    return OomFix(
        "exception",
        translatable("Keep only the text of the exception"),
        f"{name} = str({name})" if name.isidentifier() else None,
        held.holder.bytes,
        (
            translatable(
                "the traceback of {name} keeps the variables of all functions that it passed", name=name
            ),
        ),
    )


def _comprehension(facts: OomFacts, at: CodeLine) -> OomFix:
    return OomFix(
        "comprehension",
        translatable("Use a loop that keeps only numbers (.item()) or tensors on the CPU (.detach().cpu())"),
        None,
        facts.freed,
        (
            translatable("the comprehension kept all of its results; Python freed them with the error"),
            at.text,
        ),
    )


def _clear(facts: OomFacts) -> list[OomFix]:
    text = translatable("Free what is kept now, before you try again")
    return [OomFix("clear", text, one.clear, one.bytes) for one in facts.retained if one.clear is not None]


def _frames(facts: OomFacts) -> list[OomFix]:
    """Return the step that frees what the error's own frames keep alive, if that is at least 1 MiB."""
    size = sum(held.holder.bytes for held in facts.held if held.is_error)
    if size < units.MIB:
        return []
    text = translatable("Free this error's frames before you try again")
    return [OomFix("frames", text, _FREE, size, (translatable("%debug is not possible after that"),))]


# -- what would have been enough -------------------------------------------------------------------------


def _retry(facts: OomFacts) -> OomFix | None:
    """Suggest running the cell again if enough older memory has been freed since the error."""
    if facts.at_start is None or facts.older_now is None:
        return None
    freed = facts.at_start - facts.older_now
    if freed <= 0 or not facts.would_fit(own=freed):
        return None
    why = translatable("freed since: memory from before this cell, such as an earlier error's frames")
    return OomFix("again", translatable("Run the cell again"), None, freed, (why,))


def _limit(facts: OomFacts) -> OomFix | None:
    if facts.limit is None or facts.reserved is None or facts.free is None or not facts.total:
        return None
    needed = facts.needed or 0
    fraction = math.ceil((facts.reserved + needed) / facts.total * 100) / 100
    if facts.free < needed or fraction > 1:
        return None
    return OomFix(
        "limit",
        translatable(
            "Raise this process's own limit from {limit} to {size}",
            limit=units.memory(facts.limit),
            size=units.memory(fraction * facts.total),
        ),
        f"torch.cuda.set_per_process_memory_fraction({fraction:.2f}, {(facts.device or 'cuda:0')!r})",
        None,
        (
            translatable("the GPU had {free} free", free=units.memory(facts.free)),
            translatable("if your code sets the limit, change the number there"),
        ),
    )


def _notebook(facts: OomFacts) -> OomFix | None:
    own = _notebooks(facts)
    blocks = _blocks(own)
    if not blocks or not facts.would_fit(blocks):
        return None
    names = _listed(name for held in own for name in held.holder.names[:1])
    text = translatable("Free what the notebook itself keeps ({names})", names=names)
    return OomFix("free", text, _FREE, _bytes(facts, blocks))


def _pool(facts: OomFacts) -> OomFix | None:
    for pool in facts.pools:
        if pool.free and facts.would_fit(others=pool.free):
            text = translatable("Free the unused memory that {name} keeps", name=pool.name)
            return OomFix("pool", text, pool.flush, pool.free)
    return None


def _expandable(facts: OomFacts) -> OomFix | None:
    if facts.fragmented is None or facts.needed is None or facts.expandable:
        return None
    if min(facts.fragmented, _joinable_bytes(facts.segments)) < facts.needed:
        return None
    return OomFix(
        "expandable",
        translatable("Restart the kernel, and run this before torch is imported"),
        f"%env {facts.setting}=expandable_segments:True",
        facts.fragmented,
        (translatable("torch reserves this memory in pieces that only expandable segments can join"),),
    )


def _joinable_bytes(segments: Sequence[Segment]) -> int:
    """Return how many free bytes expandable segments could join into one range.

    These are the whole free pages of segments that are partly in use, less one page for the edges of each
    free range.
    """
    total = 0
    for segment in segments:
        ranges = segment.free_ranges()
        if segment.shared and sum(size for _, size in ranges) < segment.size:
            total += sum(max(0, size // LARGE_PAGE - 1) * LARGE_PAGE for _, size in ranges)
    return total


def _variables(facts: OomFacts) -> OomFix | None:
    """Suggest deleting as few of the largest variables as possible, and none that the failing code reads."""
    own = _notebooks(facts)
    candidates = sorted(
        (
            held
            for held in facts.held
            if held.holder.kind == "variable"
            and held.before
            and held.variables
            and held.holder.bytes >= units.MIB
        ),
        key=lambda held: -held.holder.bytes,
    )[:_MAX_VARIABLES]
    for notebook_holders in ((), own) if own and not facts.would_fit(_blocks(own)) else ((),):
        for count in range(1, len(candidates) + 1):
            chosen = candidates[:count]
            blocks = _blocks([*chosen, *notebook_holders])
            if facts.would_fit(blocks):
                return _delete(facts, chosen, blocks, with_notebook=bool(notebook_holders))
    return None


def _delete(
    facts: OomFacts, chosen: Sequence[OomHolder], blocks: frozenset[int], *, with_notebook: bool
) -> OomFix:
    variables = dict.fromkeys(name for held in chosen for name in held.variables or ())
    names = _listed(held.holder.names[0] for held in chosen)
    return OomFix(
        "delete",
        translatable("Free {names} if no longer needed, and what the notebook itself keeps", names=names)
        if with_notebook
        else translatable("Free {names} if no longer needed", names=names),
        f"%gpu free {' '.join(variables)} --yes",
        _bytes(facts, blocks),
        (translatable("no use was found in the code that failed"),),
    )


def _gradients(facts: OomFacts) -> OomFix | None:
    """Suggest freeing gradients from before the cell, unless the failing code may be accumulating them."""
    if facts.stage in ("backward", "optimizer"):
        return None
    for name, blocks in facts.gradients:
        if name.isidentifier() and facts.would_fit(blocks):
            return OomFix(
                "gradients",
                translatable("Free the gradients of {name} if the optimizer has used them", name=name),
                f"{name}.zero_grad(set_to_none=True)",
                _bytes(facts, blocks),
                (translatable("from before this cell"),),
            )
    return None


def _processes(facts: OomFacts) -> list[OomFix]:
    """Suggest up to two processes to shut down: the smallest that frees enough memory, and the largest."""
    sufficient = sorted(
        (other for other in facts.others if other.is_process and facts.would_fit(others=other.bytes)),
        key=lambda other: other.bytes,
    )
    return [
        OomFix(
            "process",
            translatable("Shut down {name} if no longer needed", name=other.name),
            None,
            other.bytes,
        )
        for other in dict.fromkeys((*sufficient[:1], *sufficient[-1:]))
    ]


# -- what reduces the memory of the failing code ---------------------------------------------------------


def _reduction(facts: OomFacts) -> OomFix | None:
    """Return what reduces the memory that the failing code needs. Whether that is enough is unknown."""
    parameters = units.memory(facts.use("parameters"))
    if facts.stage == "optimizer":
        return _model_fix(
            "optimizer",
            translatable(
                "Use an optimizer with smaller states (8-bit Adam, SGD without momentum) or a smaller data "
                "type, or train fewer parameters"
            ),
            translatable(
                "the optimizer was creating its states: {states} so far, for {parameters} of parameters",
                states=units.memory(facts.use("optimizer states")),
                parameters=parameters,
            ),
        )
    if facts.stage == "parameters":
        return _model_fix(
            "parameters",
            translatable("Use a smaller data type (bfloat16 halves float32) or a smaller model"),
            translatable(
                "the model's parameters were being created or moved: {parameters} so far",
                parameters=parameters,
            ),
        )
    if facts.stage == "other" and not facts.use("activations", in_cell=True):
        text = translatable("Compute the tensor in parts, use a smaller data type, or keep it on the CPU")
        return OomFix("tensor", text) if facts.available is not None else None
    if facts.stage == "backward" and facts.use("gradients", in_cell=True) > _step_bytes(facts):
        return _model_fix(
            "backward",
            translatable("Use a smaller data type, or train fewer parameters"),
            translatable(
                "backward() was creating the gradients: {gradients} so far, for {parameters} of parameters",
                gradients=units.memory(facts.use("gradients")),
                parameters=parameters,
            ),
        )
    return _batch(facts)


def _model_fix(kind: FixKind, text: str, why: str) -> OomFix:
    return OomFix(kind, text, why=(why, translatable("a smaller batch doesn't change this")))


def _fixed_bytes(facts: OomFacts) -> int:
    """Return the bytes that the failing cell allocated and that do not depend on the batch."""
    fixed: tuple[Role, ...] = ("parameters", "gradients", "optimizer states")
    return sum(facts.use(role, in_cell=True) for role in fixed)


def _step_bytes(facts: OomFacts) -> int:
    return max(0, (facts.cell_growth or 0) - _fixed_bytes(facts))


def _batch(facts: OomFacts) -> OomFix | None:
    cell_growth, room, needed = facts.cell_growth, facts.available, facts.needed
    if cell_growth is None or room is None or needed is None:
        return None
    room_for_step = cell_growth + room - _fixed_bytes(facts)
    if room_for_step <= 0:
        return None
    parts = math.ceil((_step_bytes(facts) + needed) / room_for_step)
    if not 1 < parts <= _MAX_PARTS:
        return None
    return OomFix(
        "batch",
        translatable(
            "Make the batch {parts} times smaller, or process it in {parts} parts (gradient accumulation)",
            parts=parts,
        ),
        why=(
            translatable(
                "the step had {step} and requested {requested} more, but only {room_for_step} was available "
                "to it",
                step=units.memory(_step_bytes(facts)),
                requested=units.memory(facts.requested),
                room_for_step=units.memory(room_for_step),
            ),
            translatable("enough up to the point of the error, if memory grows with the batch"),
            translatable("mixed precision and activation checkpointing reduce a step's memory too"),
        ),
    )


# -- helpers ---------------------------------------------------------------------------------------------


def _notebooks(facts: OomFacts) -> list[OomHolder]:
    """Return the holders of kind ``notebook`` with memory from before the cell, except the error's own
    frames."""
    return [
        held for held in facts.held if held.holder.kind == "notebook" and held.before and not held.is_error
    ]


def _blocks(held: Iterable[OomHolder]) -> frozenset[int]:
    return frozenset().union(*(holder.before for holder in held))


def _bytes(facts: OomFacts, blocks: frozenset[int]) -> int:
    return sum(size for seg in facts.segments for address, size, _ in seg.blocks if address in blocks)


def _free_after(segments: Sequence[Segment], freed: frozenset[int]) -> tuple[int, int]:
    """Return the bytes that torch could release and the size of its largest free range if the blocks at the
    addresses ``freed`` were free."""
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
        return translatable("{found} and {number} more", found=", ".join(found[:3]), number=len(found) - 3)
    if len(found) < 2:
        return "".join(found)
    return translatable("{names} and {last}", names=", ".join(found[:-1]), last=found[-1])


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
