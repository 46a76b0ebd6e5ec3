"""Find the holders of the GPU's memory: ``gpuwidget.holders()``, ``%gpu memory`` and a report's holders.

A search does not initialize CUDA, runs no user code and keeps none of the user's objects alive.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuwidget import pytorch
from gpuwidget.heap.find_holders import FoundHolders, find_holders, gc_paused
from gpuwidget.heap.heap_walk import Root
from gpuwidget.kernel.attribution.cell_memory import CELL_MEMORY
from gpuwidget.kernel.devices import non_torch_memory
from gpuwidget.kernel.shell import shell_references
from gpuwidget.kernel.shell.interrupts import drop_frames_on_interrupt
from gpuwidget.measure.cell_allocations import BEFORE_LOAD, OUTSIDE_CELLS, CellBlocks
from gpuwidget.measure.holder_ranking import CellAllocation, DeviceMemory, rank_holders
from gpuwidget.model.boundary import foreign_attribute, stopped
from gpuwidget.model.messages import message
from gpuwidget.model.report import Holder, Report
from gpuwidget.model.torch_state import AllocationCounts, DeviceBlocks
from gpuwidget.model.translation import translatable
from gpuwidget.views import holders_view
from gpuwidget.views.saved_outputs import output_metadata

_LOG = logging.getLogger(__name__)

_MAX_REPORTED = 30
_REPORT_TIME_LIMIT_S = 0.3
"""Maximum CPU time in seconds of the search after a watched cell that has left memory allocated."""
_FAILED = translatable("gpuwidget could not read torch's memory")
_LIMIT_REACHED = translatable(
    "The search for holders reached a limit and left out some objects. Memory that only these objects hold "
    "counts as unknown."
)


class Holders(list[Holder]):
    """The holders of the GPU's memory, the largest first. IPython displays the list as a table.

    For each device, the bytes of all holders except those of kind ``outside torch`` add up to torch's
    allocated memory.
    """

    devices: tuple[DeviceMemory, ...] = ()
    """State of torch's allocator on each device on which it has reserved memory."""
    cells: tuple[CellAllocation, ...] = ()
    """The sum of torch's memory per cell that allocated it, the largest first; empty if gpuwidget does not
    record which cell allocates memory."""
    gpus: Mapping[str, str] = {}
    """Name of the GPU for each ``cuda:N``; empty if the driver was not queried."""
    saved: tuple[tuple[str, str, int], ...] = ()
    """Memory that only autograd graphs keep alive: tuples of the holder's name, the device and the bytes."""
    graphs: tuple[str, ...] = ()
    """Names of tensors whose autograd graphs can't be read. Some of the ``unknown`` memory may be held by
    these graphs."""
    notes: tuple[str, ...] = ()
    """Sentences that state what is unknown, and why."""
    reason: str | None = None
    """Why torch's memory is not listed; None if it is listed."""

    def on(self, device: str) -> list[Holder]:
        """Return the holders of memory on ``device``, such as ``cuda:0``."""
        return [holder for holder in self if holder.device == device]

    def __repr__(self) -> str:
        return holders_view.text(holders_view.of(self))

    def bundle(self) -> dict[str, str]:
        """Return the mime bundle of the tables."""
        return {"text/plain": repr(self), "text/html": holders_view.html(holders_view.of(self))}

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        return self.bundle(), output_metadata()


@dataclass(frozen=True, slots=True)
class HolderSearch:
    """The result of one search: torch's blocks and the names that lead to them."""

    blocks: Mapping[int, DeviceBlocks]
    roots: Sequence[Root]
    found: FoundHolders
    origins: CellBlocks | None
    """Which cell allocated each block; None if gpuwidget does not record this."""


def holders() -> Holders:
    """Return the holders of the GPU's memory: variables, IPython's references, and holders outside torch.

    Each byte is counted for exactly one holder. A holder lists all names that lead to the holder's memory.
    """
    return holders_of(_current_shell())


@drop_frames_on_interrupt
def holders_of(shell: Any, *, outside: bool = True) -> Holders:
    """Return the holders of the GPU's memory; ``shell`` is None in a plain Python program.

    ``outside=False`` leaves out memory outside torch and does not query the driver. If the search fails, the
    result contains the reason instead of holders.
    """
    try:
        return _holders_of(shell, outside)
    except BaseException as error:
        stopped(_LOG, "the holders of torch's memory could not be found", error)
        failed = Holders()
        failed.reason = _FAILED
        return failed


@drop_frames_on_interrupt
def search(
    shell: Any,
    *,
    time_limit_s: float | None = None,
    first: Container[str] = (),
    failed: int | None = None,
    growing: frozenset[str] = frozenset(),
) -> HolderSearch:
    """Take a snapshot of torch's blocks and find their holders.

    The search stops after ``time_limit_s`` seconds of CPU time. It begins with the variables in ``first``.
    ``failed`` is the index of a device that has run out of memory, and ``growing`` contains the names of what
    the failed code adds to.
    """
    # Pause garbage collection, because memory that it frees after the snapshot would appear to have no
    # holder.
    with gc_paused():
        origins = CELL_MEMORY.current_blocks(track_storages=False) if CELL_MEMORY.attached else None
        blocks = pytorch.memory_blocks()
        on_storage = CELL_MEMORY.track_storage if origins is not None else None
        variables = (
            root._replace(first=root.name in first) for root in shell_references.variable_roots(shell)
        )
        roots = [*variables, *shell_references.notebook_roots(shell)]
        excluded = shell_references.excluded_objects(shell)
        found = find_holders(
            roots,
            blocks,
            excluded=excluded,
            time_limit_s=time_limit_s,
            on_storage=on_storage,
            failed=failed,
            growing=growing,
        )
    return HolderSearch(blocks, roots, found, origins)


@dataclass(frozen=True, slots=True)
class CellHolders:
    """The holders of the memory that one cell allocated. Refers to none of the user's objects."""

    cell: int
    counts: Mapping[int, AllocationCounts]
    """torch's allocations when the search began: if these have changed, the holders may have changed too."""
    holders: tuple[Holder, ...]
    complete: bool

    @classmethod
    def of(cls, searched: HolderSearch, cell: int, counts: Mapping[int, AllocationCounts]) -> CellHolders:
        """Return the holders that a search has found, the largest first."""
        assert searched.origins is not None
        ranked = rank_holders(
            searched.roots, searched.found, searched.blocks, searched.origins.cell, only_cell=cell
        )
        return cls(cell, counts, tuple(ranked), searched.found.complete)


_failed_cell: CellHolders | None = None


def keep_for_report(searched: HolderSearch, counts: Mapping[int, AllocationCounts]) -> None:
    """Keep what the out-of-memory card's search has found, so that the watched cell's card agrees with it."""
    global _failed_cell
    cell = CELL_MEMORY.running_cell
    _failed_cell = (
        None if cell is None or searched.origins is None else CellHolders.of(searched, cell, counts)
    )


class HolderCollector:
    """Adds to a cell's report the holders of the memory that the cell allocated.

    The collector searches only after the cell, and only if some of that memory is still allocated.
    """

    measures: str = translatable("who holds the new memory")

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def start(self) -> None:
        """Do nothing: :data:`CELL_MEMORY` has already recorded the blocks that existed before the cell."""

    def stop(self) -> None:
        """Do nothing: the search runs later, so that its time does not count as part of the run."""

    def annotate(self, report: Report) -> Report:
        """Return the report with the holders of the memory that the cell allocated, the largest first."""
        cell = CELL_MEMORY.running_cell
        if cell is None or not CELL_MEMORY.current_blocks(track_storages=False).has(cell):
            return report
        found = self._failed_cell(cell)
        if found is None:
            counts = pytorch.allocation_counts()
            found = CellHolders.of(search(self._shell, time_limit_s=_REPORT_TIME_LIMIT_S), cell, counts)
        left_out = not found.complete and any(holder.kind == "unknown" for holder in found.holders)
        notes = (message("holder-search-limit", _LIMIT_REACHED),) if left_out else ()
        return replace(report, holders=found.holders[:_MAX_REPORTED]).with_notes(*notes)

    def _failed_cell(self, cell: int) -> CellHolders | None:
        """Return what the out-of-memory card of this cell has found, if the memory is still the same."""
        global _failed_cell
        found, _failed_cell = _failed_cell, None
        same = found is not None and (found.cell, found.counts) == (cell, pytorch.allocation_counts())
        return found if same else None

    def abandon(self) -> None:
        """Do nothing: no search is running."""


def _holders_of(shell: Any, outside: bool) -> Holders:
    found = Holders()
    no_counters = pytorch.no_counters_reason()
    if no_counters is not None:
        found.reason = no_counters
        return found
    searched = search(shell)
    counters = pytorch.allocator_counters()
    found.devices = tuple(
        DeviceMemory(
            device=device.name,
            allocated=device.allocated,
            reserved=device.reserved,
            returnable=device.returnable,
            alloc_retries=counters[index].alloc_retries if index in counters else None,
            pending_free=device.pending_free,
            private_pools=device.private_pools,
        )
        for index, device in searched.blocks.items()
    )
    cell_of = searched.origins.cell if searched.origins is not None else None
    found += rank_holders(searched.roots, searched.found, searched.blocks, cell_of)
    found.saved = tuple(
        (searched.roots[root].name, searched.blocks[index].name, size)
        for root, sizes in searched.found.saved_for_backward.items()
        for index, size in sizes.items()
    )
    found.graphs = tuple(searched.found.unreadable_graphs)
    found.cells = (
        tuple(_cell_allocations(searched.blocks.values(), searched.origins))
        if searched.origins is not None
        else ()
    )
    notes: list[str] = [] if searched.found.complete else [_LIMIT_REACHED]
    if outside:
        non_torch, reason = non_torch_memory.by_device(found.devices)
        notes += [reason] if reason is not None else []
        found.gpus = {name: device.gpu for name, device in non_torch.items()}
        found += [holder for device in non_torch.values() for holder in device.holders]
        notes += dict.fromkeys(note for device in non_torch.values() for note in device.notes)
    found.notes = tuple(notes)
    found.sort(key=lambda holder: -holder.bytes)
    return found


def _cell_allocations(blocks: Iterable[DeviceBlocks], origins: CellBlocks) -> list[CellAllocation]:
    sums: dict[tuple[int, str], int] = {}
    for device in blocks:
        for address, size in zip(device.addresses, device.sizes, strict=True):
            key = (origins.origin(device.index, address), device.name)
            sums[key] = sums.get(key, 0) + size
    found = [
        CellAllocation(cell=cell if cell > 0 else None, source=_source(cell), device=device, bytes=size)
        for (cell, device), size in sums.items()
    ]
    return sorted(found, key=lambda cell: (-cell.bytes, cell.cell or 0, cell.device))


def _source(origin: int) -> str:
    if origin > 0:
        return CELL_MEMORY.first_line(origin) or ""
    descriptions = {
        BEFORE_LOAD: translatable("from before gpuwidget was loaded"),
        OUTSIDE_CELLS: translatable(
            "allocated while no cell ran (a thread or callback), or by code without an In [N]"
        ),
    }
    return descriptions.get(origin, translatable("unknown: the memory's address may have been reused"))


def _current_shell() -> Any:
    get = foreign_attribute("IPython", "get_ipython")
    return get() if get is not None else None
