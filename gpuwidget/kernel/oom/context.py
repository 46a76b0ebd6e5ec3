"""Collect the context of an out-of-memory error while its frames still exist."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, TracebackType
from typing import Any

from gpuwidget import pytorch
from gpuwidget.heap.find_holders import find_holders, gc_paused
from gpuwidget.heap.heap_walk import Root
from gpuwidget.heap.retention import Retained, Role
from gpuwidget.kernel.attribution import memory_holders
from gpuwidget.kernel.attribution.cell_memory import CELL_MEMORY
from gpuwidget.kernel.attribution.memory_holders import HolderSearch
from gpuwidget.kernel.devices import non_torch_memory
from gpuwidget.kernel.oom.failed_cell import FailedCell
from gpuwidget.kernel.oom.growth import FailedCode, Growth, last_line, read_failed_code, with_method
from gpuwidget.kernel.shell.name_references import names_read
from gpuwidget.kernel.shell.shell_references import excluded_objects
from gpuwidget.kernel.shell.user_code import UserCode
from gpuwidget.measure.cell_allocations import UNKNOWN_CELL
from gpuwidget.measure.holder_ranking import LAST_ERROR, DeviceMemory
from gpuwidget.measure.oom.facts import (
    CellShare,
    CodeLine,
    LibraryPool,
    OomContext,
    OomFacts,
    OomHolder,
    OtherMemory,
    Retention,
)
from gpuwidget.measure.oom.message import OomMessage, RoundedBytes, parse_message
from gpuwidget.model import units
from gpuwidget.model.boundary import Boundary, foreign_attribute, stopped
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.report import Holder, HolderKind
from gpuwidget.model.torch_state import AllocatorState, DeviceBlocks, Stage, same_gpu
from gpuwidget.model.translation import translatable, with_english
from gpuwidget.sampler import process_sampler
from gpuwidget.system import processes
from gpuwidget.system.memory_owners import group_of

_LOG = logging.getLogger(__name__)

_NO_STATE = AllocatorState(None, None, None, None, None, None, (), False)
_FLUSH_CUPY = "cupy.get_default_memory_pool().free_all_blocks()"
_NO_DRIVER = translatable(
    "Couldn't tell what other processes hold, because the driver was not queried or did not answer."
)
_NOT_FOUND = translatable(
    "Couldn't tell who holds torch's memory, because gpuwidget could not search the variables."
)
_NOT_ALL_FOUND = translatable(
    "Couldn't tell all holders of torch's memory, because the search reached a limit and left out some "
    "objects."
)
_EARLIER = translatable("an earlier error's frames, not collected yet")
_TIME_LIMIT_S = 0.8
"""Maximum CPU time of the search in seconds. With this limit, the card appears within about a second of the
error in any notebook. A notebook of usual size takes a fraction of it."""
_ADAM = 3
"""Adam's first step needs this many times the parameters' memory: two values for each, and one while it
runs."""
_TENSOR_TYPES = ("Tensor", "Parameter")
_MIN_STEPS = 3
"""What has fewer items is no evidence that memory rises step by step."""
_SEARCH_FROM_BYTES = units.MIB
"""If at least this many bytes have no holder, the search includes the frames of tracebacks that are no longer
in use but have not been garbage-collected yet."""


def collect_context(shell: Any, error: BaseException, cell: FailedCell | None) -> OomContext:
    """Return the context of an out-of-memory error, from torch, the notebook and the driver.

    The result contains no references to the user's objects.
    """
    error_text = pytorch.error_message(error)
    message = parse_message(error_text)
    index = message.index if message.index is not None else _only_device()
    # Pause garbage collection: memory that it frees during the search would appear to have no holder.
    with gc_paused():
        state = pytorch.allocator_state(index) if index is not None else _NO_STATE
        found = _holders(shell, index, error, cell)
    blocks, incomplete = found.blocks, found.incomplete
    unknown = [incomplete] if incomplete is not None else []
    no_counters = pytorch.no_counters_reason()
    if no_counters is not None:
        unknown.append(
            translatable("Couldn't tell who holds torch's memory, because {reason}.", reason=no_counters)
        )
    gpu, others, reasons = _non_torch_memory(index, state)
    unknown += reasons
    counted = state.allocated is not None and index is not None
    allocated = state.allocated if message.allocated is None else message.allocated.exact(state.allocated)
    agrees = message.allocated is None or state.allocated is None or message.allocated.high >= state.allocated
    stage = pytorch.failed_stage(error)
    needed = None if message.requested is None else message.requested.high
    freed = max(0, (allocated or 0) - (state.allocated or 0)) if agrees and counted else 0
    facts = OomFacts(
        device=None if index is None else f"cuda:{index}",
        requested=None if message.requested is None else message.requested.middle,
        needed=None if needed is None else max(needed, _still_needed(stage, found.uses)),
        total=state.total if message.total is None else message.total.exact(state.total),
        free=None if message.free is None else message.free.at_least(state.free),
        limit=state.limit if message.limit is None else message.limit.at_least(state.limit),
        allocated=allocated,
        reserved=_reserved(message, state),
        fragmented=_fragmented(message, state),
        at_start=cell.at_start.get(index or 0, 0) if cell is not None and counted else None,
        older_now=_older_bytes(blocks, cell),
        segments=state.segments,
        held=found.held,
        others=others or _processes_in_message(message),
        pools=() if index is None else _pools(index),
        expandable=state.expandable,
        setting=pytorch.allocator_setting(error_text),
        stage=stage,
        uses=found.uses,
        cell_uses=found.cell_uses,
        retained=found.retained,
        gradients=found.gradients,
        freed=freed,
        comprehension=None if stage == "parameters" else found.comprehension,
    )
    return OomContext(
        facts=facts,
        gpu=gpu,
        cells=_cells(blocks),
        recent=_recent_memory(index),
        unknown=tuple(unknown),
    )


# -- torch's memory in this process ----------------------------------------------------------------------


def _only_device() -> int | None:
    in_use = pytorch.devices_with_context()
    return in_use[0] if len(in_use) == 1 else None


def _reserved(message: OomMessage, state: AllocatorState) -> int | None:
    """Return the bytes that torch had reserved at the error, or the upper bound if only a range is known."""
    if message.reserved is not None:
        most = message.reserved
    elif message.allocated is not None and message.unallocated is not None:
        parts = [
            part for part in (message.allocated, message.private, message.unallocated) if part is not None
        ]
        most = RoundedBytes(sum(part.low for part in parts), sum(part.high for part in parts))
    else:
        return state.reserved
    known = state.reserved
    return known if known is not None and most.low <= known <= most.high else most.high


def _fragmented(message: OomMessage, state: AllocatorState) -> int | None:
    """Return the bytes that were reserved at the error, but not used by tensors and not releasable."""
    if message.unallocated is not None:
        least = message.unallocated.at_least(state.fragmented)
    elif message.reserved is not None and message.allocated is not None:
        least = max(0, message.reserved.low - message.allocated.high)
    else:
        return state.fragmented
    return least if state.fragmented is None else min(least, state.fragmented)


@dataclass(frozen=True, slots=True)
class _OwnedBlocks:
    """One device's allocated blocks. ``rows`` has a tuple per block: address, size, owning root and cell."""

    index: int
    blocks: DeviceBlocks
    rows: tuple[tuple[int, int, int | None, int], ...]
    has_cells: bool
    """Whether gpuwidget has recorded which cell allocated each block."""


@dataclass(frozen=True, slots=True)
class _Found:
    blocks: _OwnedBlocks | None = None
    held: tuple[OomHolder, ...] = ()
    uses: tuple[tuple[Role, int], ...] = ()
    cell_uses: tuple[tuple[Role, int], ...] = ()
    retained: tuple[Retention, ...] = ()
    gradients: tuple[tuple[str, frozenset[int]], ...] = ()
    comprehension: CodeLine | None = None
    incomplete: str | None = None
    """Why holders are missing, if the search failed or left out objects."""


def _holders(shell: Any, index: int | None, error: BaseException, cell: FailedCell | None) -> _Found:
    """Search for the holders of the device's blocks, first in what the failed code refers to."""
    try:
        user_code = UserCode(shell)
        codes: list[CodeType] = []
        names_needed = _names_needed(shell, error, cell, user_code, codes)
        code = _failed_code(cell, error, codes, user_code)
        counts = pytorch.allocation_counts()
        searched = memory_holders.search(
            shell,
            time_limit_s=_TIME_LIMIT_S,
            first=names_needed or (),
            failed=index,
            growing=code.identifiers,
        )
        memory_holders.keep_for_report(searched, counts)
        blocks = _blocks(searched, index)
        incomplete = None if searched.found.complete else _NOT_ALL_FOUND
        if blocks is None or searched.found.failed is None:
            return _Found(blocks, incomplete=incomplete)
        roles = searched.found.failed.roles
        return _Found(
            blocks=blocks,
            held=tuple(_oom_holders(shell, searched, blocks, error, cell, names_needed)),
            uses=_uses(blocks, roles, None),
            cell_uses=_uses(blocks, roles, None if cell is None else cell.number, only_cell=True),
            retained=tuple(_retained(searched, blocks, code, user_code, names_needed)),
            gradients=_old_gradients(searched, blocks, roles, cell, code),
            comprehension=code.comprehension(error.__traceback__, user_code),
            incomplete=incomplete,
        )
    except BaseException as error:
        stopped(_LOG, "who holds torch's memory was not found", error)
        return _Found(incomplete=_NOT_FOUND)


def _failed_code(
    cell: FailedCell | None, error: BaseException, codes: list[CodeType], user_code: UserCode
) -> FailedCode:
    try:
        return read_failed_code(cell, error.__traceback__, codes, user_code)
    except BaseException as error:
        stopped(_LOG, "the failed code could not be read", error)
        return FailedCode()


def _uses(
    blocks: _OwnedBlocks, roles: Sequence[Role | None], number: int | None, *, only_cell: bool = False
) -> tuple[tuple[Role, int], ...]:
    sums: dict[Role, int] = {}
    for (_, size, _, origin), role in zip(blocks.rows, roles, strict=True):
        if role is not None and (not only_cell or (number is not None and origin == number)):
            sums[role] = sums.get(role, 0) + size
    return tuple(sorted(sums.items(), key=lambda item: -item[1]))


def _still_needed(stage: Stage, uses: tuple[tuple[Role, int], ...]) -> int:
    """Return how many bytes an optimizer needs until its first step is complete.

    An error in the first step names only the state of one parameter. Adam's states take twice the parameters'
    memory, and its step as much as the parameters.
    """
    if stage != "optimizer":
        return 0
    sizes = dict(uses)
    return max(0, _ADAM * sizes.get("parameters", 0) - sizes.get("optimizer states", 0))


def _old_gradients(
    searched: HolderSearch,
    blocks: _OwnedBlocks,
    roles: Sequence[Role | None],
    cell: FailedCell | None,
    code: FailedCode,
) -> tuple[tuple[str, frozenset[int]], ...]:
    """Return the modules and optimizers with gradients that the failed cell certainly did not allocate."""
    found: dict[str, set[int]] = {}
    number = None if cell is None else cell.number
    for (address, _, owner, origin), role in zip(blocks.rows, roles, strict=True):
        # Only backward() makes gradients: without it, they are old even if their cell is unknown.
        is_old = origin != number and (origin != UNKNOWN_CELL or not code.calls_backward)
        if role == "gradients" and owner is not None and is_old:
            roots = [searched.roots[leading] for leading in searched.found.leading_roots[owner]]
            name = next((root.name for root in roots if pytorch.has_zero_grad(root.value)), None)
            if blocks.has_cells and name is not None:
                found.setdefault(name, set()).add(address)
    return tuple((name, frozenset(addresses)) for name, addresses in found.items())


def _retained(
    searched: HolderSearch,
    blocks: _OwnedBlocks,
    code: FailedCode,
    user_code: UserCode,
    names_needed: frozenset[str] | None,
) -> Iterator[Retention]:
    """Yield what the failed code keeps from each step."""
    failed = searched.found.failed
    assert failed is not None
    hooks = {_lines_of(hook, user_code) for hook in failed.hooks}
    for found in failed.retained:
        where, lines = (None, None) if found.code is None else _lines_of(found.code, user_code)
        growth = code.find(found.identifier, where, lines, is_container=found.is_container)
        if growth is None or not _grows(found, growth, code, is_hook=_is_in(growth, hooks)):
            continue
        yield _retention(searched, blocks, found, growth, code, hooks, names_needed)


def _is_in(growth: Growth, functions: Iterable[tuple[str | None, tuple[int, int]]]) -> bool:
    return any(where == growth.where and lines[0] <= growth.line <= lines[1] for where, lines in functions)


def _grows(found: Retained, growth: Growth, code: FailedCode, *, is_hook: bool) -> bool:
    """Return whether something has certainly grown from step to step, rather than within one step."""
    if growth.kind == "carry" or found.is_one_graph:
        # Without retain_graph, backward() fails for the graphs of earlier steps: this is the graph of one
        # step, such as a model's hidden states.
        return code.retains_graph
    if growth.kind == "sum" and growth.value is not None:
        return found.items >= _MIN_STEPS
    if growth.kind == "item":
        if found.items < _MIN_STEPS or (not found.is_scalar and code.is_used_in_backward(found.identifier)):
            return False
        if growth.sets_item and growth.loop is None and not is_hook:
            return False  # such as a cache with an item for each layer
        # Data that was loaded before the loop that failed does not grow.
        is_suspended = found.identifier is None
        return bool(found.graph_bytes) or is_suspended or code.is_running(growth)
    return True


def _retention(
    searched: HolderSearch,
    blocks: _OwnedBlocks,
    found: Retained,
    growth: Growth,
    code: FailedCode,
    hooks: set[tuple[str | None, tuple[int, int]]],
    names_needed: frozenset[str] | None,
) -> Retention:
    rows = [blocks.rows[position] for position in found.positions]
    size = sum(row[1] for row in rows)
    in_graphs = 2 * found.graph_bytes >= size
    is_hook = _is_in(growth, hooks)
    is_tensor = found.item_type in _TENSOR_TYPES
    used_in_backward = code.is_used_in_backward(found.identifier)
    root = searched.roots[found.root]
    name = found.name or root.name
    if found.code is not None:
        name = translatable("{name} in {function}()", name=name, function=found.code.co_name)
    if growth.kind == "carry":
        carried = "tuple(part.detach() for part in {0})" if found.is_container else "{0}.detach()"
        change = f"{found.identifier} = {carried.format(found.identifier)}"
    elif growth.kind == "retain_graph" or used_in_backward or not is_tensor:
        change = None
    elif found.is_scalar and in_graphs:
        change = with_method(growth, ".item()")
    elif growth.kind == "sum":
        change = with_method(growth, ".detach()")
    else:
        change = with_method(growth, ".detach().cpu()" if in_graphs or is_hook else ".cpu()")
    must_clear = found.can_clear and (
        names_needed is None or root.name in names_needed or name.partition(".")[0] in names_needed
    )
    return Retention(
        name=name,
        kind=growth.kind,
        at=CodeLine(growth.where.replace("In[", "In ["), growth.line, growth.statement),
        bytes=size,
        blocks=frozenset(row[0] for row in rows),
        in_graphs=in_graphs,
        is_scalar=found.is_scalar,
        items=found.items,
        operations=found.operations,
        is_tensor=is_tensor,
        change=change,
        clear=f"{name}.clear()" if must_clear else None,
        is_hook=is_hook,
        is_used_in_backward=used_in_backward,
        calls_backward=code.calls_backward,
        retains_graph=code.retains_graph,
    )


def _lines_of(code: CodeType, user_code: UserCode) -> tuple[str | None, tuple[int, int]]:
    """Return the cell or file of a function, and its first and last line there."""
    file = code.co_filename
    lines = [user_code.cell_line(file, line) or line for line in (code.co_firstlineno, last_line(code))]
    return user_code.name(file), (lines[0], lines[1])


def _blocks(searched: HolderSearch, index: int | None) -> _OwnedBlocks | None:
    if index is None or index not in searched.blocks:
        return None
    device = searched.blocks[index]
    owners = searched.found.owners[index]
    origins = (
        [UNKNOWN_CELL] * len(device.addresses)
        if searched.origins is None
        else [searched.origins.origin(index, address) for address in device.addresses]
    )
    rows = tuple(zip(device.addresses, device.sizes, owners, origins, strict=True))
    return _OwnedBlocks(index, device, rows, searched.origins is not None)


@dataclass(slots=True)
class _OwnerGroup:
    """The blocks of one holder."""

    sizes: dict[int, int] = field(default_factory=dict)
    older: set[int] = field(default_factory=set)
    owners: set[int] = field(default_factory=set)
    cells: dict[int | None, int] = field(default_factory=dict)


def _oom_holders(
    shell: Any,
    searched: HolderSearch,
    blocks: _OwnedBlocks,
    error: BaseException,
    cell: FailedCell | None,
    names_needed: frozenset[str] | None,
) -> list[OomHolder]:
    """Return the holders of the device's blocks, the largest first."""
    error_frame_blocks = _error_frame_blocks(shell, blocks, error)
    number = None if cell is None else cell.number
    groups: dict[tuple[HolderKind, str], _OwnerGroup] = {}
    for address, size, owner, origin in blocks.rows:
        root = None if owner is None else searched.roots[owner]
        key: tuple[HolderKind, str] = ("unknown", "") if root is None else (root.kind, root.name)
        if address in error_frame_blocks:
            key = ("notebook", _EARLIER)
        group = groups.setdefault(key, _OwnerGroup())
        group.sizes[address] = size
        if owner is not None:
            group.owners.add(owner)
        if blocks.has_cells:
            cell_number = origin if origin > 0 else None
            group.cells[cell_number] = group.cells.get(cell_number, 0) + size
        # Count a block as older than the failed cell only if that cell certainly did not allocate it.
        if number is not None and origin not in (number, UNKNOWN_CELL):
            group.older.add(address)
    found = [_holder_of(searched, blocks, key, group, names_needed) for key, group in groups.items()]
    return sorted(found, key=lambda group: -group.holder.bytes)


def _holder_of(
    searched: HolderSearch,
    blocks: _OwnedBlocks,
    key: tuple[HolderKind, str],
    group: _OwnerGroup,
    names_needed: frozenset[str] | None,
) -> OomHolder:
    kind, name = key
    numbers = sorted(group.owners)
    names = tuple(dict.fromkeys(name for number in numbers for name in searched.found.names[number]))
    cells = group.cells
    holder = Holder(
        kind=kind,
        names=names or (name,) * (kind != "unknown"),
        type=searched.found.types[numbers[0]] if numbers else None,
        device=blocks.blocks.name,
        bytes=sum(group.sizes.values()),
        cell=max(cells, key=lambda cell: (cells[cell], cell is None)) if cells else None,
    )
    return OomHolder(
        holder=holder,
        blocks=frozenset(group.sizes),
        before=frozenset(group.older),
        variables=_variables_to(searched, numbers, names_needed),
        is_error=name == LAST_ERROR,
        is_exception=any(
            searched.roots[number].kind == "variable"
            and issubclass(type(searched.roots[number].value), BaseException)
            for number in numbers
        ),
    )


def _error_frame_blocks(shell: Any, blocks: _OwnedBlocks, error: BaseException) -> frozenset[int]:
    """Return the addresses of unowned blocks that the frames of an earlier error keep alive.

    These frames form a reference cycle with IPython's frames. No name leads to them, but they exist until the
    garbage collector runs.
    """
    unowned = {address: size for address, size, owner, _ in blocks.rows if owner is None}
    if sum(unowned.values()) < _SEARCH_FROM_BYTES:
        return frozenset()
    own = set()
    trace = error.__traceback__
    while trace is not None:
        own.add(id(trace))
        trace = trace.tb_next
    found = [value for value in gc.get_objects() if type(value) is TracebackType and id(value) not in own]
    roots = [Root(_EARLIER, traceback, "notebook") for traceback in found]
    reached = find_holders(roots, {blocks.index: blocks.blocks}, excluded=excluded_objects(shell))
    owned = zip(reached.owners[blocks.index], blocks.blocks.addresses, strict=True)
    return frozenset(address for owner, address in owned if owner is not None and address in unowned)


def _names_needed(
    shell: Any,
    error: BaseException,
    cell: FailedCell | None,
    user_code: UserCode,
    codes: list[CodeType],
) -> frozenset[str] | None:
    """Return the names of the variables that the failed code reads; None if they are unknown.

    Add the code of the user's functions that the failed code may call to ``codes``.
    """
    source = cell.source if cell is not None else ""
    namespace: Mapping[str, object] = vars(sys.modules["__main__"]) if shell is None else shell.user_ns
    excluded = [] if shell is None else [*excluded_objects(shell), *shell.user_ns_hidden.values()]
    try:
        return names_read(source, error.__traceback__, user_code, namespace, excluded, codes)
    except BaseException as error:
        stopped(_LOG, "what the failed code reads was not found", error)
        return None


def _variables_to(
    searched: HolderSearch, numbers: Sequence[int], names_needed: frozenset[str] | None
) -> tuple[str, ...] | None:
    """Return the variables whose deletion frees the memory of the roots in ``numbers``.

    Return None if there are no such variables, if one of them is not a plain variable name, if the failed
    code may read one of them, or if the search left out objects, which may also hold the memory.
    """
    if names_needed is None or not searched.found.complete:
        return None
    roots = [
        searched.roots[root_number]
        for number in numbers
        for root_number in searched.found.leading_roots[number]
    ]
    names = dict.fromkeys(root.name for root in roots if root.kind == "variable")
    named = all(name.isidentifier() for name in names) and not any(root.is_namespace for root in roots)
    return tuple(names) if names and named and not names_needed.intersection(names) else None


def _older_bytes(blocks: _OwnedBlocks | None, cell: FailedCell | None) -> int | None:
    """Return the bytes of blocks that the failed cell did not allocate, or None if this is not recorded.

    Blocks whose cell is unknown are included.
    """
    if blocks is None or not blocks.has_cells or cell is None or cell.number is None:
        return None
    return sum(size for _, size, _, origin in blocks.rows if origin != cell.number)


def _cells(blocks: _OwnedBlocks | None) -> tuple[CellShare, ...]:
    if blocks is None or not blocks.has_cells:
        return ()
    sums: dict[int | None, int] = {}
    for _, size, _, origin in blocks.rows:
        cell = origin if origin > 0 else None
        sums[cell] = sums.get(cell, 0) + size
    return tuple(
        CellShare(cell, "" if cell is None else CELL_MEMORY.first_line(cell) or "", size)
        for cell, size in sorted(sums.items(), key=lambda item: -item[1])
    )


# -- memory outside torch --------------------------------------------------------------------------------


def _non_torch_memory(
    index: int | None, state: AllocatorState
) -> tuple[str | None, tuple[OtherMemory, ...], list[str]]:
    """Return the GPU's name, the memory outside torch that the driver reports, and what is unknown."""
    if index is None or state.allocated is None or state.reserved is None:
        return None, (), [_NO_DRIVER]
    name = f"cuda:{index}"
    known = DeviceMemory(name, state.allocated, state.reserved, 0, None)
    devices, reason = non_torch_memory.by_device([known])
    found = devices.get(name)
    if found is None:
        return (
            None,
            (),
            [
                _NO_DRIVER
                if reason is None
                else translatable(
                    "Couldn't tell what other processes hold ({reason}).",
                    reason=with_english(reason, reason.rstrip(".")),
                )
            ],
        )
    libraries = (
        non_torch_memory.CONTEXT,
        non_torch_memory.WITH_NCCL,
        non_torch_memory.CUPY,
        non_torch_memory.REMAINING,
    )
    others = tuple(
        OtherMemory(holder.names[0], holder.bytes, holder.names[0] not in libraries)
        for holder in found.holders
    )
    return found.gpu, others, list(found.notes)


def _processes_in_message(message: OomMessage) -> tuple[OtherMemory, ...]:
    directory = processes.ProcessDirectory()
    known = processes.in_host_pid_namespace()
    found = []
    for pid, size in message.others:
        group = group_of(pid, directory.look_up(pid) if known else processes.UNKNOWN, pids_match=known)
        found.append(OtherMemory(group.label(), size.middle, True))
    return tuple(found)


def _pools(index: int) -> tuple[LibraryPool, ...]:
    """Return CuPy's memory pool, or an empty tuple if the user has not imported CuPy."""
    pool = foreign_attribute("cupy", "get_default_memory_pool")
    if not callable(pool):
        return ()
    # The pool's functions use the current device.
    with Boundary(_LOG, "CuPy's pool could not be read", foreign=True), pytorch.on_device(index):
        return (LibraryPool(translatable("CuPy's pool"), int(pool().free_bytes()), _FLUSH_CUPY),)
    return ()


def _recent_memory(index: int | None) -> tuple[tuple[float, int | None], ...]:
    uuid = next((device.uuid for device in pytorch.devices() if device.index == index), None)
    sampler = process_sampler()
    gpu = next((gpu for gpu in sampler.known_gpus if same_gpu(gpu.uuid, uuid)), None)
    return () if gpu is None else sampler.recent.memory(gpu.uuid, SYSTEM_CLOCK.monotonic())
