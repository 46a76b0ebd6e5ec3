"""``gpuwidget.holders()`` and ``%gpu memory``: who holds the GPU's memory.

Looking starts no CUDA, runs none of the user's code, and keeps nothing alive.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuwidget.heap.find_holders import FoundHolders, find_holders, gc_paused
from gpuwidget.heap.heap_walk import MAX_OBJECTS, Root
from gpuwidget.kernel.attribution.cell_memory import CELLS
from gpuwidget.kernel.devices import non_torch_memory
from gpuwidget.kernel.shell import shell_references
from gpuwidget.kernel.shell.interrupts import drop_frames_on_interrupt
from gpuwidget.measure.cell_allocations import BEFORE, BETWEEN, CellBlocks
from gpuwidget.measure.memory_holders import CellMemory, DeviceMemory, rank_holders
from gpuwidget.model.errors import OptionError
from gpuwidget.model.report import Holder
from gpuwidget.pytorch import allocator, cuda_state
from gpuwidget.pytorch.allocator import DeviceBlocks
from gpuwidget.views import holders_view

_LOG = logging.getLogger(__name__)

_FAILED = "gpuwidget could not look at torch's memory."
_CELLS_USAGE = (
    "%gpu memory: who holds the GPU's memory; with --cells, which cell allocated what is still held."
)


class Holders(list[Holder]):
    """Who holds what, the largest first; displays as a table.

    For each device, the bytes of all but the kind ``outside torch`` add up to what torch has allocated there.
    """

    devices: tuple[DeviceMemory, ...] = ()
    """torch's allocator, of each device on which it holds memory."""
    cells: tuple[CellMemory, ...] = ()
    """Which cell allocated it, the largest first; adds up to the same. Empty where no cell was looked at."""
    gpus: Mapping[str, str] = {}
    """Which GPU is behind a ``cuda:N``, as far as that was asked."""
    saved: tuple[tuple[str, str, int], ...] = ()
    """Name, device and bytes: what of a holder's memory only autograd's graphs keep, for ``backward()``."""
    graphs: tuple[str, ...] = ()
    """Tensors with an autograd graph behind them, which may hold some of what is unknown."""
    notes: tuple[str, ...] = ()
    """What could not be told, and why."""
    reason: str | None = None
    """Why torch holds no memory that could be looked at."""

    def on(self, device: str) -> list[Holder]:
        """Those on ``device``, as ``cuda:0``."""
        return [holder for holder in self if holder.device == device]

    def __repr__(self) -> str:
        return holders_view.text(holders_view.of(self))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": holders_view.html(holders_view.of(self))}


@dataclass(frozen=True, slots=True)
class Look:
    """One look at what torch holds, and at the names that lead there."""

    blocks: Mapping[int, DeviceBlocks]
    roots: Sequence[Root]
    reached: FoundHolders
    origins: CellBlocks | None
    """Which cell made each block; None where no cells were looked at."""


def holders() -> Holders:
    """Who holds the GPU's memory: variables, the notebook itself, and what torch does not know of.

    Each byte counts once, for one holder, with all names that lead to it.
    """
    return look(_shell())


@drop_frames_on_interrupt
def look(shell: Any, *, outside: bool = True) -> Holders:
    """As :func:`holders`, of a shell (None: a plain Python program); never raises.

    ``outside=False`` asks torch only, not the driver.
    """
    try:
        return _look(shell, outside)
    except Exception:
        _LOG.debug("memory was not looked at", exc_info=True)
        failed = Holders()
        failed.reason = _FAILED
        return failed


@drop_frames_on_interrupt
def search(shell: Any, *, time_limit_s: float | None = None) -> Look:
    """torch's blocks now, and who leads to them, as far as ``time_limit_s`` seconds suffice to find it."""
    # Memory that a garbage collection frees after the snapshot would be listed as held by no name.
    with gc_paused():
        origins = CELLS.settle(watch=False) if CELLS.attached else None
        blocks = allocator.snapshot()
        remember = CELLS.remember if origins is not None else None
        roots = [*shell_references.variable_roots(shell), *shell_references.notebook_roots(shell)]
        excluded = shell_references.excluded_objects(shell)
        reached = find_holders(
            roots, blocks, excluded=excluded, time_limit_s=time_limit_s, on_storage=remember
        )
    return Look(blocks, roots, reached, origins)


def show(shell: Any, words: Sequence[str]) -> None:
    """``%gpu memory [--cells]``."""
    if list(words) not in ([], ["--cells"]):
        raise OptionError(f"{'%gpu memory ' + ' '.join(words)!r} is not known. {_CELLS_USAGE}")
    found = look(shell, outside=not words)
    if words:
        data = holders_view.cells_bundle(holders_view.of(found), attached=CELLS.attached)
    else:
        data = found._repr_mimebundle_()
    shell.display_pub.publish(data=data, metadata={})


def _look(shell: Any, outside: bool) -> Holders:
    found = Holders()
    found.reason = cuda_state.no_counters_reason()
    if found.reason is not None:
        return found
    seen = search(shell)
    counters = cuda_state.counters()
    found.devices = tuple(
        DeviceMemory(
            device=device.name,
            allocated=device.allocated,
            reserved=device.reserved,
            returnable=device.returnable,
            flushes=counters[index].alloc_retries if index in counters else None,
            waiting=device.pending_free,
            private=device.private_pools,
        )
        for index, device in seen.blocks.items()
    )
    cell_of = seen.origins.cell if seen.origins is not None else None
    found += rank_holders(seen.roots, seen.reached, seen.blocks, cell_of)
    found.saved = tuple(
        (seen.roots[root].name, seen.blocks[index].name, size)
        for root, sizes in seen.reached.saved_for_backward.items()
        for index, size in sizes.items()
    )
    found.graphs = tuple(seen.reached.unreadable_graphs)
    found.cells = tuple(_cells(seen.blocks.values(), seen.origins)) if seen.origins is not None else ()
    notes = [] if seen.reached.complete else [_too_many()]
    if outside:
        beside, reason = non_torch_memory.look(found.devices)
        notes += [reason] if reason is not None else []
        found.gpus = {device: of.gpu for device, of in beside.items()}
        found += [holder for of in beside.values() for holder in of.holders]
        notes += dict.fromkeys(note for of in beside.values() for note in of.notes)
    found.notes = tuple(notes)
    found.sort(key=lambda holder: -holder.bytes)
    return found


def _cells(blocks: Iterable[DeviceBlocks], origins: CellBlocks) -> list[CellMemory]:
    sums: dict[tuple[int, str], int] = {}
    for device in blocks:
        for address, size in zip(device.addresses, device.sizes, strict=True):
            key = (origins.origin(device.index, address), device.name)
            sums[key] = sums.get(key, 0) + size
    found = [
        CellMemory(cell=cell if cell > 0 else None, source=_source(cell), device=device, bytes=size)
        for (cell, device), size in sums.items()
    ]
    return sorted(found, key=lambda cell: (-cell.bytes, cell.cell or 0, cell.device))


def _source(cell: int) -> str:
    if cell > 0:
        return CELLS.source(cell) or ""
    words = {BEFORE: "from before gpuwidget was loaded", BETWEEN: "between cells, or in one without a number"}
    return words.get(cell, "unknown: its address may have been used again")


def _too_many() -> str:
    return (
        f"There is more to look through than one look takes on (up to {MAX_OBJECTS:,} objects): what lies "
        "behind the rest counts as unknown."
    )


def _shell() -> Any:
    ipython: Any = sys.modules.get("IPython")
    get = getattr(ipython, "get_ipython", None)
    return get() if get is not None else None
