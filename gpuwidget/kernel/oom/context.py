"""All that is known around an out-of-memory error, put together while its frames are still there."""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from gpuwidget.heap.find_holders import find_holders, gc_paused
from gpuwidget.heap.heap_walk import Root
from gpuwidget.kernel.attribution import memory_holders
from gpuwidget.kernel.attribution.cell_memory import CELL_MEMORY
from gpuwidget.kernel.attribution.memory_holders import HolderSearch
from gpuwidget.kernel.devices import non_torch_memory
from gpuwidget.kernel.devices.device_choices import group_of
from gpuwidget.kernel.shell.name_references import names_read
from gpuwidget.kernel.shell.shell_references import excluded_objects
from gpuwidget.kernel.shell.user_code import UserCode
from gpuwidget.measure.cell_allocations import UNKNOWN_CELL
from gpuwidget.measure.memory_holders import LAST_ERROR, DeviceMemory
from gpuwidget.measure.out_of_memory import CellShare, Facts, Held, Other, Pool, Rounded, Said, Story, parse
from gpuwidget.model import units
from gpuwidget.model.report import Holder, HolderKind
from gpuwidget.pytorch import cuda_state, oom_error
from gpuwidget.pytorch.allocator import DeviceBlocks
from gpuwidget.pytorch.oom_error import AllocatorState
from gpuwidget.sampler import process_sampler
from gpuwidget.system import processes

_LOG = logging.getLogger(__name__)

_NO_BOOKS = AllocatorState(None, None, None, None, None, None, (), False)
_FLUSH_CUPY = "cupy.get_default_memory_pool().free_all_blocks()"
_NO_DRIVER = "other processes: the driver was not asked, or did not answer"
_NO_COUNTERS = "who holds torch's memory"
_NOT_FOUND = f"{_NO_COUNTERS}: gpuwidget could not look through the variables"
_EARLIER = "an earlier error's frames, not collected yet"
_TIME_LIMIT_S = 0.15
"""Of this thread's CPU: the card stands there within 300 ms of the error, whatever the notebook holds."""
_WORTH_A_LOOK = units.MIB
"""Bytes that no name leads to, from which on what Python has not collected yet is looked through."""


@dataclass(slots=True)
class FailedCell:
    """The cell that ran out of memory."""

    info: object
    number: int | None
    """The N of its In[N]; None where it has none."""
    at_start: dict[int, int] = field(default_factory=dict)
    """Bytes allocated when it began, by device index."""

    @property
    def source(self) -> str:
        """Its code, with magics as IPython has put them into Python."""
        info = self.info
        return str(getattr(info, "transformed_cell", None) or getattr(info, "raw_cell", ""))


def gather(shell: Any, error: BaseException, cell: FailedCell | None) -> Story:
    """Look at torch, at the notebook and at the driver; keeps nothing of what it has seen."""
    message = oom_error.error_message(error)
    said = parse(message)
    index = said.index if said.index is not None else _only_device()
    # Memory that a garbage collection frees in between would be listed as held by no name.
    with gc_paused():
        books = oom_error.allocator_state(index) if index is not None else _NO_BOOKS
        blocks, held, failed = _holders(shell, index, error, cell)
    unknown = [failed] if failed is not None else []
    if cuda_state.no_counters_reason() is not None:
        unknown.append(f"{_NO_COUNTERS}: {cuda_state.no_counters_reason()}")
    gpu, others, doubts = _beside(index, books)
    unknown += doubts
    counted = books.allocated is not None and index is not None
    allocated = books.allocated if said.allocated is None else said.allocated.exact(books.allocated)
    facts = Facts(
        device=None if index is None else f"cuda:{index}",
        requested=None if said.requested is None else said.requested.middle,
        needed=None if said.requested is None else said.requested.high,
        total=books.total if said.total is None else said.total.exact(books.total),
        free=None if said.free is None else said.free.at_least(books.free),
        limit=books.limit if said.limit is None else said.limit.at_least(books.limit),
        allocated=allocated,
        reserved=_reserved(said, books),
        stuck=_stuck(said, books),
        at_start=cell.at_start.get(index or 0, 0) if cell is not None and counted else None,
        before_now=_older(blocks, cell),
        segments=books.segments,
        held=tuple(held),
        others=others or _in_message(said),
        pools=() if index is None else _pools(index),
        expandable=books.expandable,
        setting=oom_error.allocator_setting(message),
    )
    agrees = said.allocated is None or books.allocated is None or said.allocated.high >= books.allocated
    return Story(
        facts=facts,
        gpu=gpu,
        let_go=max(0, (allocated or 0) - (books.allocated or 0)) if agrees and counted else 0,
        cells=_cells(blocks),
        recent=_recent(index),
        unknown=tuple(unknown),
    )


# -- this process ----------------------------------------------------------------------------------------


def _only_device() -> int | None:
    in_use = cuda_state.devices_with_context()
    return in_use[0] if len(in_use) == 1 else None


def _reserved(said: Said, books: AllocatorState) -> int | None:
    """At the error; where that is not exact, the most that it may have been."""
    if said.reserved is not None:
        most = said.reserved
    elif said.allocated is not None and said.unallocated is not None:
        parts = [part for part in (said.allocated, said.private, said.unallocated) if part is not None]
        most = Rounded(sum(part.low for part in parts), sum(part.high for part in parts))
    else:
        return books.reserved
    known = books.reserved
    return known if known is not None and most.low <= known <= most.high else most.high


def _stuck(said: Said, books: AllocatorState) -> int | None:
    """What was reserved and in no tensor at the error, and can't be given back."""
    if said.unallocated is not None:
        least = said.unallocated.at_least(books.fragmented)
    elif said.reserved is not None and said.allocated is not None:
        least = max(0, said.reserved.low - said.allocated.high)
    else:
        return books.fragmented
    return least if books.fragmented is None else min(least, books.fragmented)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The device's allocated blocks: address, bytes, the root that leads there, and the cell that made it."""

    index: int
    blocks: DeviceBlocks
    rows: tuple[tuple[int, int, int | None, int], ...]
    known: bool
    """Whether cells were looked at."""


def _holders(
    shell: Any, index: int | None, error: BaseException, cell: FailedCell | None
) -> tuple[_Blocks | None, list[Held], str | None]:
    """The device's blocks and who holds them; why they are not known, where looking failed."""
    try:
        seen = memory_holders.search(shell, time_limit_s=_TIME_LIMIT_S)
        blocks = _blocks(seen, index)
        return blocks, _held(shell, seen, blocks, error, cell), None
    except Exception:
        _LOG.debug("who holds torch's memory was not found", exc_info=True)
        return None, [], _NOT_FOUND


def _blocks(seen: HolderSearch, index: int | None) -> _Blocks | None:
    if index is None or index not in seen.blocks:
        return None
    device = seen.blocks[index]
    owners = seen.found.owners[index]
    origins = (
        [UNKNOWN_CELL] * len(device.addresses)
        if seen.origins is None
        else [seen.origins.origin(index, address) for address in device.addresses]
    )
    rows = tuple(zip(device.addresses, device.sizes, owners, origins, strict=True))
    return _Blocks(index, device, rows, seen.origins is not None)


@dataclass(slots=True)
class _Pile:
    """What one holder has."""

    sizes: dict[int, int] = field(default_factory=dict)
    older: set[int] = field(default_factory=set)
    owners: set[int] = field(default_factory=set)
    cells: dict[int | None, int] = field(default_factory=dict)


def _held(
    shell: Any, seen: HolderSearch, blocks: _Blocks | None, error: BaseException, cell: FailedCell | None
) -> list[Held]:
    """Who leads to which of the device's blocks, the largest first."""
    if blocks is None:
        return []
    left_over = _left_over(shell, blocks, error)
    number = None if cell is None else cell.number
    piles: dict[tuple[HolderKind, str], _Pile] = {}
    for address, size, owner, origin in blocks.rows:
        root = None if owner is None else seen.roots[owner]
        key: tuple[HolderKind, str] = ("unknown", "") if root is None else (root.kind, root.name)
        if address in left_over:
            key = ("notebook", _EARLIER)
        pile = piles.setdefault(key, _Pile())
        pile.sizes[address] = size
        if owner is not None:
            pile.owners.add(owner)
        if blocks.known:
            made_by = origin if origin > 0 else None
            pile.cells[made_by] = pile.cells.get(made_by, 0) + size
        # Was it there when the failing cell began? Only what is certain counts.
        if number is not None and origin not in (number, UNKNOWN_CELL):
            pile.older.add(address)
    names_needed = _needed(shell, error, cell)
    found = [_of_pile(seen, blocks, key, pile, names_needed) for key, pile in piles.items()]
    return sorted(found, key=lambda one: -one.holder.bytes)


def _of_pile(
    seen: HolderSearch,
    blocks: _Blocks,
    key: tuple[HolderKind, str],
    pile: _Pile,
    names_needed: frozenset[str] | None,
) -> Held:
    kind, name = key
    numbers = sorted(pile.owners)
    names = tuple(dict.fromkeys(one for number in numbers for one in seen.found.names[number]))
    cells = pile.cells
    holder = Holder(
        kind=kind,
        names=names or (name,) * (kind != "unknown"),
        type=seen.found.types[numbers[0]] if numbers else None,
        device=blocks.blocks.name,
        bytes=sum(pile.sizes.values()),
        cell=max(cells, key=lambda cell: (cells[cell], cell is None)) if cells else None,
    )
    return Held(
        holder=holder,
        blocks=frozenset(pile.sizes),
        before=frozenset(pile.older),
        variables=_variables_to(seen, numbers, names_needed),
        is_error=name == LAST_ERROR,
    )


def _left_over(shell: Any, blocks: _Blocks, error: BaseException) -> frozenset[int]:
    """Of the blocks that no name leads to, those in frames of an earlier error.

    Such frames refer to each other in a circle (IPython's own among them), so that they live on until
    Python's collector comes by, though nothing leads to them any more.
    """
    nobodys = {address: size for address, size, owner, _ in blocks.rows if owner is None}
    if sum(nobodys.values()) < _WORTH_A_LOOK:
        return frozenset()
    own = set()
    trace = error.__traceback__
    while trace is not None:
        own.add(id(trace))
        trace = trace.tb_next
    found = [one for one in gc.get_objects() if type(one) is TracebackType and id(one) not in own]
    roots = [Root(_EARLIER, one, "notebook") for one in found]
    reached = find_holders(roots, {blocks.index: blocks.blocks}, excluded=excluded_objects(shell))
    led_to = zip(reached.owners[blocks.index], blocks.blocks.addresses, strict=True)
    return frozenset(address for owner, address in led_to if owner is not None and address in nobodys)


def _needed(shell: Any, error: BaseException, cell: FailedCell | None) -> frozenset[str] | None:
    """The variables that the failing code reads; None where that can't be told."""
    source = cell.source if cell is not None else ""
    namespace: Mapping[str, object] = vars(sys.modules["__main__"]) if shell is None else shell.user_ns
    excluded = [] if shell is None else [*excluded_objects(shell), *shell.user_ns_hidden.values()]
    try:
        return names_read(source, error.__traceback__, UserCode(shell), namespace, excluded)
    except Exception:
        _LOG.debug("what the failed code reads was not found", exc_info=True)
        return None


def _variables_to(
    seen: HolderSearch, numbers: Sequence[int], names_needed: frozenset[str] | None
) -> tuple[str, ...] | None:
    """The variables without which nothing leads there; None where one may not be spared, or is none."""
    if names_needed is None:
        return None
    ways = [seen.roots[way] for number in numbers for way in seen.found.leading_roots[number]]
    names = dict.fromkeys(root.name for root in ways if root.kind == "variable")
    named = all(name.isidentifier() for name in names) and not any(root.is_namespace for root in ways)
    return tuple(names) if names and named and not names_needed.intersection(names) else None


def _older(blocks: _Blocks | None, cell: FailedCell | None) -> int | None:
    """What is allocated now and was so when the failing cell began; what is uncertain counts as such."""
    if blocks is None or not blocks.known or cell is None or cell.number is None:
        return None
    return sum(size for _, size, _, origin in blocks.rows if origin != cell.number)


def _cells(blocks: _Blocks | None) -> tuple[CellShare, ...]:
    if blocks is None or not blocks.known:
        return ()
    sums: dict[int | None, int] = {}
    for _, size, _, origin in blocks.rows:
        cell = origin if origin > 0 else None
        sums[cell] = sums.get(cell, 0) + size
    return tuple(
        CellShare(cell, "" if cell is None else CELL_MEMORY.first_line(cell) or "", size)
        for cell, size in sorted(sums.items(), key=lambda item: -item[1])
    )


# -- everybody else --------------------------------------------------------------------------------------


def _beside(index: int | None, books: AllocatorState) -> tuple[str | None, tuple[Other, ...], list[str]]:
    """The GPU's name, who holds memory there beside torch as the driver says, and what it does not say."""
    if index is None or books.allocated is None or books.reserved is None:
        return None, (), [_NO_DRIVER]
    name = f"cuda:{index}"
    known = DeviceMemory(name, books.allocated, books.reserved, 0, None)
    devices, reason = non_torch_memory.look([known])
    found = devices.get(name)
    if found is None:
        return None, (), [_NO_DRIVER if reason is None else f"other processes: {reason.rstrip('.')}"]
    libraries = (
        non_torch_memory.CONTEXT,
        non_torch_memory.WITH_NCCL,
        non_torch_memory.CUPY,
        non_torch_memory.ALL_ELSE,
    )
    others = tuple(Other(one.names[0], one.bytes, one.names[0] not in libraries) for one in found.holders)
    return found.gpu, others, [note.rstrip(".") for note in found.notes]


def _in_message(said: Said) -> tuple[Other, ...]:
    """The processes that torch's own message tells of."""
    directory = processes.ProcessDirectory()
    known = processes.in_host_pid_namespace()
    found = []
    for pid, size in said.others:
        group = group_of(pid, directory.look_up(pid) if known else processes.UNKNOWN)
        found.append(Other(group.label(), size.middle, True))
    return tuple(found)


def _pools(index: int) -> tuple[Pool, ...]:
    """What CuPy keeps for later, where the user has loaded it."""
    cupy: Any = sys.modules.get("cupy")
    torch: Any = cuda_state.loaded_torch()
    pool = getattr(cupy, "get_default_memory_pool", None)
    if not callable(pool):
        return ()
    try:
        with torch.cuda.device(index):  # the pool answers for the current device
            return (Pool("CuPy's pool", int(pool().free_bytes()), _FLUSH_CUPY),)
    except Exception:
        return ()


def _recent(index: int | None) -> tuple[tuple[float, int | None], ...]:
    uuid = next((device.uuid for device in cuda_state.devices() if device.index == index), None)
    sampler = process_sampler()
    gpu = next((gpu for gpu in sampler.known_gpus if cuda_state.same_gpu(gpu.uuid, uuid)), None)
    return () if gpu is None else sampler.recent.memory(gpu.uuid, time.time())
