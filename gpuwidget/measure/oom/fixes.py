"""Find changes that would have made a request fit, from what is known about an out-of-memory error.

The figures in a message are rounded. Calculations use the end of the range that is less favorable. A fix is
offered only if the known figures show that the request would have fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpuwidget.heap.retention import Role
from gpuwidget.measure.oom import fix_templates as texts
from gpuwidget.measure.oom.facts import OomFacts, OomHolder, Retention
from gpuwidget.measure.oom.fix_templates import OomFix, OomFixTemplate
from gpuwidget.model import units
from gpuwidget.model.torch_state import LARGE_PAGE, Segment
from gpuwidget.model.translation import listed

_MAX_VARIABLES = 3
_EXPLAINS_PART = 0.5
"""Something that holds at least this fraction of torch's memory explains the error, even if the request would
not have fit without it: the memory would have risen further."""
_MAX_PARTS = 64
"""Maximum number of parts into which a fix suggests splitting a batch. More parts would not be realistic."""


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
            found.append(texts.COMPREHENSION(size=facts.freed, also=(facts.comprehension.text,)))
    return found


def _explains(facts: OomFacts, blocks: frozenset[int], size: int) -> bool:
    """Return whether the error would not have occurred without these blocks."""
    return facts.would_fit(blocks) or size >= _EXPLAINS_PART * (facts.allocated or math.inf)


def _retention(kept: Retention) -> OomFix:
    why = _what_is_kept(kept)
    if kept.retains_graph and kept.kind != "retain_graph":
        why.append(texts.NO_RETAIN_GRAPH().text)
    if kept.is_hook:
        why.append(texts.REMOVE_HOOK())
    if kept.in_graphs and not kept.calls_backward:
        why.append(texts.NO_GRAD())
    change = _change(kept)
    return change(size=kept.bytes, code=kept.change, also=(*why, kept.at.text))


def _change(kept: Retention) -> OomFixTemplate:
    if kept.kind == "retain_graph":
        return texts.NO_RETAIN_GRAPH
    if kept.kind == "carry":
        return texts.DETACH_FROM_STEPS
    if kept.is_used_in_backward:
        return texts.BACKWARD_IN_LOOP
    if not kept.is_tensor:
        return texts.KEEP_ITEMS
    if kept.in_graphs:
        return texts.KEEP_NUMBER if kept.is_scalar else texts.KEEP_DETACHED
    return texts.KEEP_ON_CPU


def _what_is_kept(kept: Retention) -> list[str]:
    name, items = kept.name, kept.items
    if kept.kind == "retain_graph":
        return [texts.KEEPS_ITS_GRAPH(name=name)]
    if kept.kind == "carry":
        return [texts.KEEPS_GRAPHS_OF_STEPS(name=name)]
    if kept.kind == "sum" and items:
        return [texts.SUM_OF_RESULTS(name=name, items=items)]
    if kept.kind == "sum":
        return [texts.SUM_OF_OPERATIONS(name=name, operations=kept.operations)]
    results = texts.KEEPS_RESULTS_WITH_GRAPHS if kept.in_graphs else texts.KEEPS_RESULTS
    return [results(name=name, items=items), texts.EACH(each=kept.bytes / max(1, items))]


def _exception(held: OomHolder) -> OomFix:
    name = held.holder.names[0]
    code = f"{name} = str({name})" if name.isidentifier() else None
    return texts.EXCEPTION(size=held.holder.bytes, code=code, name=name)


def _clear(facts: OomFacts) -> list[OomFix]:
    return [texts.CLEAR(size=one.bytes, code=one.clear) for one in facts.retained if one.clear is not None]


def _frames(facts: OomFacts) -> list[OomFix]:
    """Return the step that frees what the error's own frames keep alive, if that is at least 1 MiB."""
    size = sum(held.holder.bytes for held in facts.held if held.is_error)
    return [texts.FRAMES(size=size)] if size >= units.MIB else []


# -- what would have been enough -------------------------------------------------------------------------


def _retry(facts: OomFacts) -> OomFix | None:
    """Suggest running the cell again if enough older memory has been freed since the error."""
    if facts.at_start is None or facts.older_now is None:
        return None
    freed = facts.at_start - facts.older_now
    if freed <= 0 or not facts.would_fit(own=freed):
        return None
    return texts.AGAIN(size=freed)


def _limit(facts: OomFacts) -> OomFix | None:
    if facts.limit is None or facts.reserved is None or facts.free is None or not facts.total:
        return None
    needed = facts.needed or 0
    fraction = math.ceil((facts.reserved + needed) / facts.total * 100) / 100
    if facts.free < needed or fraction > 1:
        return None
    code = f"torch.cuda.set_per_process_memory_fraction({fraction:.2f}, {(facts.device or 'cuda:0')!r})"
    return texts.LIMIT(code=code, limit=facts.limit, raised=fraction * facts.total, free=facts.free)


def _notebook(facts: OomFacts) -> OomFix | None:
    own = _notebooks(facts)
    blocks = _blocks(own)
    if not blocks or not facts.would_fit(blocks):
        return None
    names = _listed(name for held in own for name in held.holder.names[:1])
    return texts.FREE_NOTEBOOK(size=_bytes(facts, blocks), names=names)


def _pool(facts: OomFacts) -> OomFix | None:
    for pool in facts.pools:
        if pool.free and facts.would_fit(others=pool.free):
            return texts.POOL(size=pool.free, code=pool.flush, name=pool.name)
    return None


def _expandable(facts: OomFacts) -> OomFix | None:
    if facts.fragmented is None or facts.needed is None or facts.expandable:
        return None
    if min(facts.fragmented, _joinable_bytes(facts.segments)) < facts.needed:
        return None
    return texts.EXPANDABLE(size=facts.fragmented, code=f"%env {facts.setting}=expandable_segments:True")


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
    template = texts.DELETE_WITH_NOTEBOOK if with_notebook else texts.DELETE
    return template(size=_bytes(facts, blocks), code=f"%gpu free {' '.join(variables)} --yes", names=names)


def _gradients(facts: OomFacts) -> OomFix | None:
    """Suggest freeing gradients from before the cell, unless the failing code may be accumulating them."""
    if facts.stage in ("backward", "optimizer"):
        return None
    for name, blocks in facts.gradients:
        if name.isidentifier() and facts.would_fit(blocks):
            code = f"{name}.zero_grad(set_to_none=True)"
            return texts.GRADIENTS(size=_bytes(facts, blocks), code=code, name=name)
    return None


def _processes(facts: OomFacts) -> list[OomFix]:
    """Suggest up to two processes to shut down: the smallest that frees enough memory, and the largest."""
    sufficient = sorted(
        (other for other in facts.others if other.is_process and facts.would_fit(others=other.bytes)),
        key=lambda other: other.bytes,
    )
    chosen = dict.fromkeys((*sufficient[:1], *sufficient[-1:]))
    return [texts.PROCESS(size=other.bytes, name=other.name) for other in chosen]


# -- what reduces the memory of the failing code ---------------------------------------------------------


def _reduction(facts: OomFacts) -> OomFix | None:
    """Return what reduces the memory that the failing code needs. Whether that is enough is unknown."""
    parameters = facts.use("parameters")
    if facts.stage == "optimizer":
        return texts.OPTIMIZER(states=facts.use("optimizer states"), parameters=parameters)
    if facts.stage == "parameters":
        return texts.PARAMETERS(parameters=parameters)
    if facts.stage == "other" and not facts.use("activations", in_cell=True):
        return texts.TENSOR() if facts.available is not None else None
    if facts.stage == "backward" and facts.use("gradients", in_cell=True) > _step_bytes(facts):
        return texts.BACKWARD(gradients=facts.use("gradients"), parameters=parameters)
    return _batch(facts)


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
    return texts.BATCH(
        parts=parts, step=_step_bytes(facts), requested=facts.requested, room_for_step=room_for_step
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


def _listed(names: Iterable[str]) -> str:
    found = list(dict.fromkeys(names))
    return listed(found, 3 if len(found) > 4 else None)
