"""Parse an out-of-memory error's message and find changes that would have made the request fit.

The figures in a message are rounded, so each figure stands for a range. Calculations use the end of the range
that is less favourable. A fix is offered only if the known figures show that the request would have fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuwidget.heap.retention import Role
from gpuwidget.model import units
from gpuwidget.model.report import Holder
from gpuwidget.model.translation import joined, translatable
from gpuwidget.pytorch.allocator import LARGE_PAGE, Segment
from gpuwidget.pytorch.oom_error import Stage

FixKind = Literal[
    "retention",
    "exception",
    "comprehension",
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
    """A change by the user that would have made the request fit."""

    kind: FixKind
    text: str
    """What the change does and why it is enough, with figures."""
    code: str | None
    """The code to run, or None if the change is not made by code."""
    bytes: int | None
    """Bytes that the change frees, or None if it frees no known number of bytes."""


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
    freed: int
    """Bytes that were allocated at the error and have been freed since."""
    cells: tuple[CellShare, ...]
    recent: tuple[tuple[float, int | None], ...]
    """Memory in use on the whole GPU during the last minute, as pairs (seconds ago, bytes). Empty if there
    are no samples."""
    unknown: tuple[str, ...]
    """Texts that state what is unknown and why."""


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


def first_step(facts: OomFacts) -> OomFix | None:
    """Return the first fix to apply, if any: releasing the memory that the error's own frames keep alive."""
    size = sum(held.holder.bytes for held in facts.held if held.is_error)
    if size < units.MIB:
        return None
    return OomFix(
        "free",
        translatable(
            "Free this error's frames before you try again: they keep {size} allocated. "
            "(%debug is not possible after that.)",
            size=units.memory(size),
        ),
        "%gpu free --yes",
        size,
    )


def causes(facts: OomFacts) -> list[OomFix]:
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


def fixes(facts: OomFacts) -> list[OomFix]:
    """Return the changes that would have made the request fit, the simplest first."""
    if facts.needed is None or contradicts_itself(facts) or causes(facts):
        return []
    found = [
        _retry(facts),
        _limit(facts),
        _notebook(facts),
        _pool(facts),
        _expandable(facts),
        _variables(facts),
        _gradients(facts),
        *_processes(facts),
    ]
    return [fix for fix in found if fix is not None]


def reductions(facts: OomFacts) -> list[OomFix]:
    """Return changes that reduce the memory that the failing code needs. Whether one is enough is unknown."""
    if facts.needed is None or contradicts_itself(facts) or causes(facts):
        return []
    if facts.stage == "optimizer":
        return [_optimizer(facts)]
    if facts.stage == "parameters":
        return [_parameters(facts)]
    if facts.stage == "other" and not facts.use("activations", in_cell=True):
        return [_tensor(facts)] if facts.available is not None else []
    if facts.stage == "backward" and facts.use("gradients", in_cell=True) > _step_bytes(facts):
        return [_backward(facts)]
    batch = _batch(facts)
    return [batch] if batch is not None else []


def contradicts_itself(facts: OomFacts) -> bool:
    """Return whether the request fits into the free memory, so that the figures cannot explain the error.

    In that case, another process probably held memory for a moment.
    """
    return facts.needed is not None and facts.available is not None and facts.available >= facts.needed


def _retry(facts: OomFacts) -> OomFix | None:
    """Suggest running the cell again if enough older memory has been freed since the error."""
    if facts.at_start is None or facts.older_now is None:
        return None
    freed = facts.at_start - facts.older_now
    if freed <= 0 or not facts.would_fit(own=freed):
        return None
    return OomFix(
        "again",
        translatable(
            "Run the cell again: {freed} from before this cell, such as an earlier error's "
            "frames, has been freed since, which is enough.",
            freed=units.memory(freed),
        ),
        None,
        freed,
    )


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
            "Raise this process's own memory limit: it is {limit} "
            "(set_per_process_memory_fraction), and the GPU had {free} free. A fraction of "
            "{fraction:.2f} is {size}. If your code sets the limit, change the number there: "
            "otherwise the next run sets the old limit again.",
            limit=units.memory(facts.limit),
            free=units.memory(facts.free),
            fraction=fraction,
            size=units.memory(fraction * facts.total),
        ),
        f"torch.cuda.set_per_process_memory_fraction({fraction:.2f}, {(facts.device or 'cuda:0')!r})",
        None,
    )


def _notebook(facts: OomFacts) -> OomFix | None:
    own = _notebooks(facts)
    blocks = _blocks(own)
    if not blocks or not facts.would_fit(blocks):
        return None
    names = _listed(name for held in own for name in held.holder.names[:1])
    size = _bytes(facts, blocks)
    return OomFix(
        "free",
        translatable(
            "Free what the notebook itself keeps ({names}): {size} from before this cell.",
            names=names,
            size=units.memory(size),
        ),
        "%gpu free --yes",
        size,
    )


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
                return _without(facts, chosen, blocks, with_notebook=bool(notebook_holders))
    return None


def _without(
    facts: OomFacts, chosen: Sequence[OomHolder], blocks: frozenset[int], *, with_notebook: bool
) -> OomFix:
    names = dict.fromkeys(name for held in chosen for name in held.variables or ())
    sizes = _listed(f"{held.holder.names[0]} ({units.memory(held.holder.bytes)})" for held in chosen)
    notebook_text = translatable(" and what the notebook itself keeps") if with_notebook else ""
    pronoun = "it" if len(chosen) == 1 else "them"
    return OomFix(
        "delete",
        translatable(
            "Free {sizes}{notebook_text} if you no longer need {en_it}. No use of {en_it} was "
            "found in the code that failed.",
            sizes=sizes,
            notebook_text=notebook_text,
            en_it=pronoun,
        ),
        f"%gpu free {' '.join(names)} --yes",
        _bytes(facts, blocks),
    )


def _explains(facts: OomFacts, blocks: frozenset[int], size: int) -> bool:
    """Return whether the error would not have occurred without these blocks."""
    return facts.would_fit(blocks) or size >= _EXPLAINS_PART * (facts.allocated or math.inf)


def _retention(kept: Retention) -> OomFix:
    texts = [_what_is_kept(kept)]
    if kept.kind == "retain_graph":
        texts.append(translatable("Call backward() without retain_graph=True."))
    elif kept.kind == "carry":
        texts.append(translatable("Detach it from the earlier steps before each step."))
    elif kept.is_used_in_backward:
        texts.append(
            translatable(
                "Call backward() on each result in the loop instead. The gradients of all steps add up."
            )
        )
    elif kept.in_graphs and kept.is_scalar and kept.is_tensor:
        texts.append(translatable("Keep the number, not the tensor."))
    elif not kept.is_tensor:
        texts.append(
            translatable("Keep loss.item() instead of a loss, and tensor.detach().cpu() instead of a tensor.")
        )
    elif kept.in_graphs:
        texts.append(
            translatable("Keep it without its graph (.detach()), and on the CPU (.cpu()) if it is large.")
        )
    else:
        texts.append(translatable("Keep on the CPU (.cpu()) what you need later, and delete the rest."))
    if kept.retains_graph and kept.kind != "retain_graph":
        texts.append(translatable("Call backward() without retain_graph=True."))
    if kept.is_hook:
        texts.append(translatable("Remove the hook (handle.remove()) when you no longer need it."))
    if kept.in_graphs and not kept.calls_backward:
        texts.append(translatable('If you need no gradients, run the loop in "with torch.no_grad():".'))
    return OomFix("retention", joined(texts, " "), kept.change, kept.bytes)


def _what_is_kept(kept: Retention) -> str:
    size, name, at = units.memory(kept.bytes), kept.name, kept.at.text
    if kept.kind == "retain_graph":
        return translatable(
            "{name} still keeps its autograd graph, {size}, because backward() was called with "
            "retain_graph=True ({at}).",
            name=name,
            size=size,
            at=at,
        )
    if kept.kind == "carry":
        return translatable(
            "{name} is computed from its value in the step before, so it keeps the autograd graphs of all "
            "steps: {size} ({at}).",
            name=name,
            size=size,
            at=at,
        )
    if kept.kind == "sum" and kept.items:
        return translatable(
            "{name} is the sum of {number:,} results and keeps the autograd graph of each: {size} ({at}).",
            name=name,
            number=kept.items,
            size=size,
            at=at,
        )
    if kept.kind == "sum":
        return translatable(
            "{name} keeps the autograd graphs of all steps, with {number:,} operations: {size} ({at}).",
            name=name,
            number=kept.operations,
            size=size,
            at=at,
        )
    each = units.memory(kept.bytes / max(1, kept.items))
    if kept.in_graphs:
        return translatable(
            "{name} keeps {number:,} results with their autograd graphs: {size}, about {each} each ({at}).",
            name=name,
            number=kept.items,
            size=size,
            each=each,
            at=at,
        )
    return translatable(
        "{name} keeps {number:,} results on the GPU: {size}, about {each} each ({at}).",
        name=name,
        number=kept.items,
        size=size,
        each=each,
        at=at,
    )


def _exception(held: OomHolder) -> OomFix:
    name = held.holder.names[0]
    return OomFix(
        "exception",
        translatable(
            "{name} is an exception. Its traceback keeps {size}: the variables of all functions that it "
            "passed. Keep only its text.",
            name=name,
            size=units.memory(held.holder.bytes),
        ),
        f"{name} = str({name})" if name.isidentifier() else None,
        held.holder.bytes,
    )


def _comprehension(facts: OomFacts, at: CodeLine) -> OomFix:
    return OomFix(
        "comprehension",
        translatable(
            "The comprehension keeps all of its results until it ends ({at}). Python freed them with the "
            "error: {size}. Use a loop that keeps only numbers (.item()) or tensors on the CPU "
            "(.detach().cpu()).",
            at=at.text,
            size=units.memory(facts.freed),
        ),
        None,
        facts.freed,
    )


def _gradients(facts: OomFacts) -> OomFix | None:
    """Suggest freeing gradients from before the cell, unless the failing code may be accumulating them."""
    if facts.stage in ("backward", "optimizer"):
        return None
    for name, blocks in facts.gradients:
        if name.isidentifier() and facts.would_fit(blocks):
            return OomFix(
                "gradients",
                translatable(
                    "Free the gradients of {name} from before this cell if the optimizer has used them: "
                    "{size}.",
                    name=name,
                    size=units.memory(_bytes(facts, blocks)),
                ),
                f"{name}.zero_grad(set_to_none=True)",
                _bytes(facts, blocks),
            )
    return None


# -- the memory of one step ------------------------------------------------------------------------------


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
            "Make the batch {parts} times smaller, or process it in {parts} parts (gradient "
            "accumulation): the step had allocated {step} and requested {requested} "
            "more, but only {room_for_step} was available to it. This is enough up to the "
            "point of the error, if memory grows with the batch.",
            parts=parts,
            step=units.memory(_step_bytes(facts)),
            requested=units.memory(facts.requested),
            room_for_step=units.memory(room_for_step),
        ),
        None,
        None,
    )


def _optimizer(facts: OomFacts) -> OomFix:
    return OomFix(
        "optimizer",
        translatable(
            "The optimizer was creating its states: {states} so far, for {parameters} of parameters. (Adam "
            "keeps two values for each parameter.) A smaller batch doesn't change this. Use an optimizer "
            "with smaller states, such as an 8-bit Adam or SGD without momentum, a smaller data type, or "
            "train fewer parameters.",
            states=units.memory(facts.use("optimizer states")),
            parameters=units.memory(facts.use("parameters")),
        ),
        None,
        None,
    )


def _parameters(facts: OomFacts) -> OomFix:
    return OomFix(
        "parameters",
        translatable(
            "The model's parameters were being created on the GPU or moved to it: {parameters} so far. A "
            "smaller batch doesn't change this. Use a smaller data type (bfloat16 halves float32) or a "
            "smaller model.",
            parameters=units.memory(facts.use("parameters")),
        ),
        None,
        None,
    )


def _backward(facts: OomFacts) -> OomFix:
    return OomFix(
        "backward",
        translatable(
            "backward() was creating the gradients: {gradients} so far, for {parameters} of parameters. A "
            "smaller batch doesn't change this. Use a smaller data type, or train fewer parameters.",
            gradients=units.memory(facts.use("gradients")),
            parameters=units.memory(facts.use("parameters")),
        ),
        None,
        None,
    )


def _tensor(facts: OomFacts) -> OomFix:
    return OomFix(
        "tensor",
        translatable(
            "One tensor of {requested} was requested, and {available} was available. Compute it in parts, "
            "use a smaller data type, or keep it on the CPU.",
            requested=units.memory(facts.requested),
            available=units.memory(facts.available),
        ),
        None,
        None,
    )


def _expandable(facts: OomFacts) -> OomFix | None:
    if facts.fragmented is None or facts.needed is None or facts.expandable:
        return None
    if min(facts.fragmented, _joinable_bytes(facts.segments)) < facts.needed:
        return None
    return OomFix(
        "expandable",
        translatable(
            "Use expandable segments: {fragmented} reserved by torch is not in tensors, but in "
            "pieces that can't be joined without them. Restart the kernel, and run this before "
            "torch is imported.",
            fragmented=units.memory(facts.fragmented),
        ),
        f"%env {facts.setting}=expandable_segments:True",
        facts.fragmented,
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


def _pool(facts: OomFacts) -> OomFix | None:
    for pool in facts.pools:
        if pool.free and facts.would_fit(others=pool.free):
            return OomFix(
                "pool",
                translatable(
                    "Free the unused memory that {name} keeps: {free}.",
                    name=pool.name,
                    free=units.memory(pool.free),
                ),
                pool.flush,
                pool.free,
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
            translatable(
                "Shut down {name} if no longer needed: this frees {bytes}.",
                name=other.name,
                bytes=units.memory(other.bytes),
            ),
            None,
            other.bytes,
        )
        for other in dict.fromkeys((*sufficient[:1], *sufficient[-1:]))
    ]


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
