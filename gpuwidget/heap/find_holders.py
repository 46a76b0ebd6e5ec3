"""Find which of the user's variables keep which blocks of torch's allocator alive."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuwidget.heap.heap_walk import MAX_OBJECTS, HeapWalk, Limits, Root
from gpuwidget.heap.object_references import type_name
from gpuwidget.heap.reachability import names_of_owners
from gpuwidget.heap.storages import StorageWeakRef
from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.allocator import DeviceBlocks

OnStorage = Callable[[int, int, Callable[[], StorageWeakRef]], None]
"""Function that receives a device index, a block's address, and a function that returns a weak reference to
the block's storage."""


@dataclass(frozen=True, slots=True)
class FoundHolders:
    """The result of a search. A root's number is its position in the ``roots`` argument of the search."""

    owners: Mapping[int, Sequence[int | None]]
    """For each device index, the number of the root that owns each block; None for blocks to which no root
    leads."""
    names: Mapping[int, Sequence[str]]
    """For each owning root (by number), all names that lead to its blocks. The root's own name comes
    first."""
    leading_roots: Mapping[int, Sequence[int]]
    """For each owning root (by number), the numbers of all roots that lead to any of its blocks."""
    types: Mapping[int, str]
    """For each owning root (by number), the type name of the root's value."""
    saved_for_backward: Mapping[int, Mapping[int, int]]
    """For each root number and device index, the bytes of the root's blocks that only autograd graphs keep
    alive."""
    unreadable_graphs: Sequence[str]
    """Names of the tensor roots with an autograd graph whose contents this torch version cannot list."""
    complete: bool
    """False if the search left objects out because of a limit."""


def find_holders(
    roots: Sequence[Root],
    blocks: Mapping[int, DeviceBlocks],
    *,
    excluded: Iterable[object] = (),
    max_objects: int = MAX_OBJECTS,
    time_limit_s: float | None = None,
    on_storage: OnStorage | None = None,
) -> FoundHolders:
    """Find which of ``roots`` own which ``blocks``. ``HeapWalk.run`` defines which root owns a block.

    The search skips ``excluded`` objects. ``time_limit_s`` limits the CPU time of this thread. ``on_storage``
    is called for each block that has an owner.
    """
    torch: Any = cuda_state.loaded_torch()
    disable_torch_function = _disable_torch_function(torch)
    if disable_torch_function is None:
        owners = {index: (None,) * len(device.addresses) for index, device in blocks.items()}
        return FoundHolders(owners, {}, {}, {}, {}, (), True)
    with gc_paused(), disable_torch_function():
        walk = HeapWalk(torch, roots, blocks, excluded, Limits(max_objects, time_limit_s))
        walk.run()
        names, leading_roots = names_of_owners(torch, roots, walk.visited, walk.owners)
        found = FoundHolders(
            owners=walk.owners.by_device,
            names=names,
            leading_roots=leading_roots,
            types={number: type_name(roots[number].value) for number in names},
            saved_for_backward=_saved_for_backward(walk),
            unreadable_graphs=walk.unreadable_graphs,
            complete=walk.complete,
        )
        if on_storage is not None:
            _report_storages(on_storage, torch, walk)
        return found


def find_storages(
    roots: Sequence[Root],
    blocks: Mapping[int, DeviceBlocks],
    on_storage: OnStorage,
    *,
    excluded: Iterable[object],
    max_objects: int,
    time_limit_s: float,
) -> None:
    """Call ``on_storage`` for each block that has an owner.

    Unlike :func:`find_holders`, this function does not build the names that lead to the blocks. If there are
    many references between the objects, building names takes most of a search's time.
    """
    torch: Any = cuda_state.loaded_torch()
    disable_torch_function = _disable_torch_function(torch)
    if disable_torch_function is not None:
        with gc_paused(), disable_torch_function():
            limits = Limits(max_objects, time_limit_s)
            walk = HeapWalk(torch, roots, blocks, excluded, limits, record_repeats=False)
            walk.run()
            _report_storages(on_storage, torch, walk)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable automatic garbage collection within the context.

    A search creates many short-lived objects, which could trigger a collection that frees the user's tensors.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _disable_torch_function(torch: Any) -> Any:
    return getattr(getattr(torch, "_C", None), "DisableTorchFunction", None)


def _saved_for_backward(walk: HeapWalk) -> dict[int, dict[int, int]]:
    sums: dict[int, dict[int, int]] = {}
    for number, blocks, position in walk.owners.first_references():
        if number in walk.visited.saved_by_autograd:
            of_root = sums.setdefault(walk.visited.roots[number], {})
            of_root[blocks.index] = of_root.get(blocks.index, 0) + blocks.sizes[position]
    return sums


def _report_storages(on_storage: OnStorage, torch: Any, walk: HeapWalk) -> None:
    for number, blocks, position in walk.owners.first_references():
        reference = partial(StorageWeakRef, torch, walk.visited.values[number])
        on_storage(blocks.index, blocks.addresses[position], reference)
