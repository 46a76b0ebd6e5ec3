"""Which of a user's names lead to which of torch's blocks: one search, and what it found."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuwidget.heap.heap_walk import Walk
from gpuwidget.heap.limits import MOST_OBJECTS, Bounds
from gpuwidget.heap.names import names
from gpuwidget.heap.object_references import type_name
from gpuwidget.heap.paths import Paths
from gpuwidget.heap.roots import Root
from gpuwidget.heap.storages import Storage
from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.allocator import DeviceBlocks

Remember = Callable[[int, int, Callable[[], Storage]], None]
"""Takes a device's index, a block's address, and what gives the storage that lies there now."""


@dataclass(frozen=True, slots=True)
class Reached:
    """Which of the roots each block belongs to, each block to one."""

    owners: Mapping[int, Sequence[int | None]]
    """By device index, for each of its blocks: the number of the root, None where no name leads to it."""
    names: Mapping[int, Sequence[str]]
    """By number of a root that owns something: all names that lead to what it owns, its own first."""
    ways: Mapping[int, Sequence[int]]
    """By number of a root that owns something: the numbers of all roots that lead to some of it."""
    types: Mapping[int, str]
    """By number of a root that owns something: the name of its value's type."""
    saved: Mapping[int, Mapping[int, int]]
    """By number of a root, and by device index: bytes of its own that only autograd's graphs lead to, which
    keep them for ``backward()``."""
    graphs: Sequence[str]
    """Names of roots that are tensors with a graph behind them, where torch does not say what that holds."""
    complete: bool
    """False where there were too many objects to look at them all."""


def reach(
    roots: Sequence[Root],
    blocks: Mapping[int, DeviceBlocks],
    *,
    barred: Iterable[object] = (),
    most_objects: int = MOST_OBJECTS,
    within_s: float | None = None,
    remember: Remember | None = None,
) -> Reached:
    """Follow ``roots`` to ``blocks``. What several lead to belongs to one: see :meth:`.Walk.run`.

    ``barred`` are objects that nothing is searched behind; after ``within_s`` seconds of this thread's own
    time no further object is looked at.
    ``remember`` is told of the storage in each block that was reached.
    """
    torch: Any = cuda_state.loaded()
    without_hooks = _without_hooks(torch)
    if without_hooks is None:
        owners = {index: (None,) * len(found.addresses) for index, found in blocks.items()}
        return Reached(owners, {}, {}, {}, {}, (), True)
    with uncollected(), without_hooks():
        walk = Walk(torch, roots, blocks, barred, Bounds(most_objects, within_s))
        walk.run()
        reached = _reached(torch, roots, walk)
        if remember is not None:
            _tell(remember, torch, walk)
        return reached


def remember_storages(
    roots: Sequence[Root],
    blocks: Mapping[int, DeviceBlocks],
    remember: Remember,
    *,
    barred: Iterable[object],
    most_objects: int,
    within_s: float,
) -> None:
    """As :func:`reach`, only to ``remember``: without names, which take longest in what is much entangled."""
    torch: Any = cuda_state.loaded()
    without_hooks = _without_hooks(torch)
    if without_hooks is not None:
        with uncollected(), without_hooks():
            walk = Walk(torch, roots, blocks, barred, Bounds(most_objects, within_s), named=False)
            walk.run()
            _tell(remember, torch, walk)


@contextmanager
def uncollected() -> Iterator[None]:
    """Our many short-lived objects must not set off the collector, which may free tensors of the user's."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _without_hooks(torch: Any) -> Any:
    return getattr(getattr(torch, "_C", None), "DisableTorchFunction", None)


def _reached(torch: Any, roots: Sequence[Root], walk: Walk) -> Reached:
    found, ways = names(roots, walk.trail, walk.owners, Paths(torch, roots, walk.trail))
    return Reached(
        owners=walk.owners.by_device,
        names=found,
        ways=ways,
        types={number: type_name(roots[number].value) for number in found},
        saved=_saved(walk),
        graphs=walk.with_graph,
        complete=walk.complete,
    )


def _saved(walk: Walk) -> dict[int, dict[int, int]]:
    sums: dict[int, dict[int, int]] = {}
    for number, blocks, place in walk.owners.first_comers():
        if number in walk.trail.from_graphs:
            of_root = sums.setdefault(walk.trail.roots[number], {})
            of_root[blocks.index] = of_root.get(blocks.index, 0) + blocks.sizes[place]
    return sums


def _tell(remember: Remember, torch: Any, walk: Walk) -> None:
    for number, blocks, place in walk.owners.first_comers():
        remember(blocks.index, blocks.addresses[place], partial(Storage, torch, walk.trail.values[number]))
