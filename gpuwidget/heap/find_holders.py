"""Find which of the user's variables keep which blocks of torch's allocator alive."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any

from gpuwidget import pytorch
from gpuwidget.heap.heap_walk import MAX_OBJECTS, HeapWalk, Limits, Root
from gpuwidget.heap.object_references import type_name
from gpuwidget.heap.reachability import NameWriter, names_of_owners
from gpuwidget.heap.retention import Retained, Retention, Role, hook_codes
from gpuwidget.heap.storages import StorageWeakRef
from gpuwidget.model.torch_state import DeviceBlocks

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
    failed: FailedDevice | None = None
    """What uses the memory of the device that was passed as ``failed``."""


@dataclass(frozen=True, slots=True)
class FailedDevice:
    """What uses the memory of a device that has run out of it."""

    roles: Sequence[Role | None]
    """What each block is used for; None for blocks to which no root leads."""
    retained: Sequence[Retained]
    """The objects that have grown with each step, the largest first."""
    hooks: frozenset[CodeType]
    """The code of the hooks of all modules."""


def find_holders(
    roots: Sequence[Root],
    blocks: Mapping[int, DeviceBlocks],
    *,
    excluded: Iterable[object] = (),
    max_objects: int = MAX_OBJECTS,
    time_limit_s: float | None = None,
    on_storage: OnStorage | None = None,
    failed: int | None = None,
    growing: frozenset[str] = frozenset(),
) -> FoundHolders:
    """Find which of ``roots`` own which ``blocks``. ``HeapWalk.run`` defines which root owns a block.

    The search skips ``excluded`` objects. ``time_limit_s`` limits the CPU time of this thread. ``on_storage``
    is called for each block that has an owner. ``failed`` is the index of a device that has run out of
    memory, and ``growing`` contains the names of what the failed code adds to.
    """
    torch: Any = pytorch.loaded_torch()
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
            failed=None if failed is None or failed not in blocks else _failed_device(walk, failed, growing),
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
    torch: Any = pytorch.loaded_torch()
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


def _failed_device(walk: HeapWalk, index: int, growing: frozenset[str]) -> FailedDevice:
    retention = Retention(walk, growing, index)
    found = retention.find(NameWriter(walk.torch, walk.roots, walk.visited).name)
    return FailedDevice(retention.roles, found, hook_codes(walk))


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
