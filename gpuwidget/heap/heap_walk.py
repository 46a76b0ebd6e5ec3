"""Follow references from root variables through Python objects to blocks of torch's allocator."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from gc import get_referents, is_tracked
from itertools import islice
from types import ModuleType
from typing import Any, Literal, NamedTuple

from gpuwidget.heap.object_references import (
    BUILTIN_CONTAINER_IDS,
    MAX_ITEMS,
    ObjectKind,
    ObjectKinds,
    container_items,
    frame_references,
    function_references,
    instance_dict,
    omitted_count,
    omitted_items,
)
from gpuwidget.heap.storages import (
    AutogradGraph,
    can_read_saved_tensors,
    sparse_components,
    storage_address_function,
)
from gpuwidget.model.boundary import Boundary, stopped
from gpuwidget.model.raw_attributes import class_dict, module_dict
from gpuwidget.model.torch_state import DeviceBlocks
from gpuwidget.model.user_files import is_user_class

_LOG = logging.getLogger(__name__)

MAX_OBJECTS = 300_000
"""Maximum number of objects that one search visits. The search reports memory as unknown if only objects
beyond this limit refer to it."""
NO_PARENT = -1
_FIRST_PART, _VARIABLES_PART = 0.6, 0.8
"""Fractions of the limits that a search may have used after the variables with ``first``, and after all
variables."""
_ITEMS_PER_OBJECT = 20
"""A search may read this many times as many references (such as list items) as it may visit objects."""
_OBJECTS_PER_LIMIT_CHECK = 128
_MAX_OMITTED_ITEMS = 2_000_000
"""Maximum number of items beyond ``MAX_ITEMS``, and of items in these items, that a search checks in all
containers together. Checking this many takes about 50 ms."""
_CHECKED_AT_ONCE = 256
_SMALL_CONTAINER = 64
_EXCLUDED = -1
# The innermost loop uses module-level names because reading an attribute of an enum takes too long.
_SKIPPED, _CLASS, _CONTAINER, _OTHER = (
    ObjectKind.SKIPPED,
    ObjectKind.CLASS,
    ObjectKind.CONTAINER,
    ObjectKind.OTHER,
)
_TENSOR, _STORAGE = ObjectKind.TENSOR, ObjectKind.STORAGE


class Root(NamedTuple):
    """A name from which a search starts, and its value."""

    name: str
    """The name as a user writes it, such as ``model`` or ``Out[3]``."""
    value: object
    kind: Literal["variable", "notebook"]
    is_namespace: bool = False
    """Whether ``value`` is the dict of a namespace. Users write the dict's items as ``name.item``."""
    names_parts: bool = True
    """Whether the results may contain names of parts of the value, such as ``Out[3][0]``."""
    first: bool = False
    """Whether the search follows this variable, and the autograd graphs behind it, before other variables."""


class Limits:
    """The limits of one search: visited objects, references read, and CPU time of the searching thread.

    The time limit is CPU time, so that other load on the machine does not change the result.
    """

    def __init__(self, max_objects: int, time_limit_s: float | None) -> None:
        self._all_objects = max_objects
        self._all_items = max_objects * _ITEMS_PER_OBJECT
        self._time_limit_s = time_limit_s
        self._began = time.thread_time()
        self.items_left = self._all_items
        self.allow(1.0)

    def allow(self, part: float) -> None:
        """Let the search use this fraction of each limit, counted from the beginning of the search.

        The rest is left for what the search follows later.
        """
        self.max_objects = round(part * self._all_objects)
        self.items_kept = round((1 - part) * self._all_items)
        """The search may read references until this many of ``items_left`` are left."""
        limit_s = self._time_limit_s
        self._deadline = None if limit_s is None else self._began + part * limit_s

    def exceeded(self) -> bool:
        """Return whether the search has read too many references or used up its CPU time."""
        return self.items_left < self.items_kept or (
            self._deadline is not None and time.thread_time() >= self._deadline
        )


@dataclass(slots=True)
class Visited:
    """The objects that one search has found, numbered in the order in which they were found."""

    values: list[object] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    """For each object, the number of the object through which it was first found; NO_PARENT for a root's
    value."""
    roots: list[int] = field(default_factory=list)
    """For each object, the number of the root from which it was first found."""
    repeats: list[int] = field(default_factory=list)
    """Numbers of objects that were found again after they had been recorded. An object that was found again
    twice has two entries."""
    repeat_parents: list[int] = field(default_factory=list)
    """For each entry of ``repeats``, the number of the object that refers to the found object, or ``~root``
    if it is the value of a root."""
    saved_by_autograd: set[int] = field(default_factory=set)
    """Numbers of objects that were found only through autograd graphs."""
    gradients: set[int] = field(default_factory=set)
    """Numbers of objects that were found only as gradients."""
    with_graph: list[int] = field(default_factory=list)
    """Numbers of the tensors that have an autograd graph."""


class BlockOwners:
    """Assigns each allocator block to the first root that leads to it."""

    def __init__(self, blocks: Mapping[int, DeviceBlocks]) -> None:
        self.blocks = blocks
        self._spans = [(b.addresses[0], b.addresses[-1] + b.sizes[-1], b) for b in blocks.values() if b.sizes]
        self.by_device: dict[int, list[int | None]] = {
            index: [None] * len(device.addresses) for index, device in blocks.items()
        }
        """For each device index, the root number of each block; None if no root has led to the block yet."""
        self.references: list[tuple[int, int, int]] = []
        """All references into blocks: object number, device index, and position of the block."""

    def claim(self, number: int, root: int, address: int) -> int | None:
        """Assign the block at ``address`` to ``root`` unless the block already has an owner.

        Return the device index, or None if no block contains the address.
        """
        for start, end, blocks in self._spans:
            position = blocks.find(address) if start <= address < end else None
            if position is not None:
                owners = self.by_device[blocks.index]
                if owners[position] is None:
                    owners[position] = root
                self.references.append((number, blocks.index, position))
                return blocks.index
        return None

    def devices_with_unowned_blocks(self) -> set[int]:
        """Return the indices of devices that have blocks without an owner."""
        return {index for index, owners in self.by_device.items() if None in owners}

    def first_references(self) -> Iterator[tuple[int, DeviceBlocks, int]]:
        """For each owned block, yield the number of the first object found in it, the blocks of the block's
        device, and the block's position among them."""
        seen: set[tuple[int, int]] = set()
        for number, index, position in self.references:
            if (index, position) not in seen:
                seen.add((index, position))
                yield number, self.blocks[index], position


class HeapWalk:
    """One walk from the roots through all objects that they refer to, directly or indirectly."""

    def __init__(
        self,
        torch: Any,
        roots: Sequence[Root],
        blocks: Mapping[int, DeviceBlocks],
        excluded: Iterable[object],
        limits: Limits,
        *,
        record_repeats: bool = True,
    ) -> None:
        """Objects in ``excluded`` are skipped. ``record_repeats`` is needed only to build the names that lead
        to the blocks."""
        self.torch = torch
        self.roots = roots
        self._limits = limits
        self._limit_reached = False
        """Whether a limit has been reached. The walk then visits only tensors and storages that it has
        already found."""
        self._truncated = False
        """Whether the walk left out objects because of a limit."""
        self._unchecked_items = _MAX_OMITTED_ITEMS
        """How many more omitted items may be checked."""
        self._record_repeats = record_repeats
        self.address_of = storage_address_function(torch)
        """Returns the address of a tensor's storage; raises if the tensor has none."""
        self.owners = BlockOwners(blocks)
        self.visited = visited = Visited()
        self.unreadable_graphs: tuple[str, ...] = ()
        """Names of the tensor roots with an autograd graph whose contents this torch version cannot list."""
        kinds = ObjectKinds(torch)
        # These attributes are bound once to speed up the innermost loop.
        self._kinds, self._kind_of = kinds.by_type_id, kinds.kind_of
        self._values, self._parents, self._object_roots = visited.values, visited.parents, visited.roots
        self._repeats, self._repeat_parents = visited.repeats, visited.repeat_parents
        self._expanded = 0
        """Number of found objects whose references have been followed."""
        self._numbers: dict[int, int] = {}
        """An object's number, or ``_EXCLUDED``, keyed by the object's id."""
        self._optimizers: list[int] = []
        """Numbers of optimizers whose parameter groups have not been followed yet."""
        self._with_grad: list[tuple[int, int | None]] = []
        """Number and device index of each tensor that may have a gradient. The index is None for a tensor
        that only wraps others, such as a DTensor."""
        self._non_leaves: list[int] = []
        """Numbers of tensors with an autograd graph."""
        self._graph = AutogradGraph(torch, limits.exceeded) if can_read_saved_tensors(torch) else None
        self._exclude(excluded)

    def _exclude(self, excluded: Iterable[object]) -> None:
        # Do not follow the dicts of modules. A function refers to its module's dict, so the walk would get
        # from a function to all variables of its module.
        for module in list(sys.modules.values()):
            if issubclass(type(module), ModuleType):
                self._numbers[id(module_dict(module))] = _EXCLUDED
        for value in excluded:
            self._numbers[id(value)] = _EXCLUDED

    def run(self) -> None:
        """Visit everything to which the roots lead. The first root that leads to a block owns the block.

        The walk follows the roots in this order: tensors, storages, modules, optimizers (for their state),
        and other variables, breadth first. Next it follows optimizers' parameter groups, gradients and
        autograd graphs. The references that IPython keeps to results and errors come last.

        Of the other variables, those with ``first`` and their graphs come before the rest. The rest can't use
        up the limits: something is left for the references of IPython, such as a failed cell's frames.
        """
        by_kind: dict[ObjectKind, list[int]] = {}
        notebook: list[int] = []
        kind_of = self._kinds.get
        for number, root in enumerate(self.roots):
            kind = kind_of(id(type(root.value))) or self._kind_of(root.value)
            if kind is _SKIPPED:
                continue
            if root.kind == "notebook":
                notebook.append(number)
            else:
                by_kind.setdefault(kind, []).append(number)
        if self._graph is None:
            self.unreadable_graphs = self._roots_with_graph(by_kind.get(ObjectKind.TENSOR, ()))
        for kind in (ObjectKind.TENSOR, ObjectKind.STORAGE, ObjectKind.MODULE, ObjectKind.OPTIMIZER):
            self._follow_roots(by_kind.pop(kind, []))
        others = sorted(number for numbers in by_kind.values() for number in numbers)
        first = [number for number in others if self.roots[number].first]
        rest = [number for number in others if not self.roots[number].first]
        for part, numbers in ((_FIRST_PART, first), (_VARIABLES_PART, rest), (1.0, notebook)):
            self._limits.allow(part)
            self._limit_reached = False
            if numbers or numbers is not first:
                self._follow_roots(numbers)
                self._follow_deferred()

    @property
    def complete(self) -> bool:
        """Whether the walk visited everything and left out no objects because of a limit."""
        unread = self._non_leaves and self.owners.devices_with_unowned_blocks()
        return not self._truncated and (self._graph is None or (self._graph.complete and not unread))

    def _follow_roots(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            root = self.roots[number]
            if root.is_namespace:
                # _exclude() has excluded the dicts of all modules. Include the dict of this root again.
                self._numbers.pop(id(root.value), None)
            if is_tracked(root.value):
                self._record((root.value,), number, NO_PARENT)
        self._expand_all()

    def _follow_deferred(self) -> None:
        """Follow optimizers' parameters, then, if blocks without an owner are left, gradients and graphs."""
        optimizers, self._optimizers = self._optimizers, []
        for number in optimizers:
            self._record_tracked(get_referents(self._values[number]), self._object_roots[number], number)
        self._expand_all()
        with_grad, self._with_grad = self._with_grad, []
        first_gradient = len(self._values)
        # Reading .grad creates a Python object that lives as long as the gradient. Therefore read it only if
        # the tensor's device has blocks without an owner.
        unowned = self.owners.devices_with_unowned_blocks()
        grad = self.torch.Tensor.grad.__get__
        for number, device in with_grad:
            if device in unowned or (device is None and unowned):
                self._record_tracked((grad(self._values[number]),), self._object_roots[number], number)
        self._expand_all()
        self.visited.gradients.update(range(first_gradient, len(self._values)))
        self._follow_graphs()

    def _follow_graphs(self) -> None:
        """Follow the tensors that autograd graphs have saved, until every block has an owner."""
        while self._non_leaves and self._graph is not None and self.owners.devices_with_unowned_blocks():
            non_leaves, self._non_leaves = self._non_leaves, []
            first = len(self._values)
            for followed, number in enumerate(non_leaves):
                if followed % _OBJECTS_PER_LIMIT_CHECK == 0 and self._limits.exceeded():
                    self._non_leaves = non_leaves[followed:]  # a later call may have a higher limit
                    break
                # saved_behind() may raise for a tensor type of another library.
                with Boundary(_LOG, "an autograd graph could not be read", foreign=True):
                    saved = self._graph.saved_behind(self._values[number])
                    self._record_tracked(saved, self._object_roots[number], number)
            self._expand_all()
            self.visited.saved_by_autograd.update(range(first, len(self._values)))
            if self._limits.exceeded():
                return

    def _record_tracked(self, found: Iterable[object], root: int, parent: int) -> None:
        self._record(filter(is_tracked, found), root, parent)

    def _expand_all(self) -> None:
        """Follow the references of all recorded objects, including those that are recorded meanwhile."""
        values, roots, kinds, limits = self._values, self._object_roots, self._kinds, self._limits
        while self._expanded < len(values):
            self._limit_reached = self._limit_reached or limits.exceeded()
            start, end = self._expanded, min(len(values), self._expanded + _OBJECTS_PER_LIMIT_CHECK)
            self._expanded = end
            for number in range(start, end):
                value = values[number]
                cls = type(value)
                kind = kinds[id(cls)]
                if self._limit_reached and kind is not _TENSOR and kind is not _STORAGE:
                    self._truncated = True
                    continue
                parts = get_referents(value) if kind is _OTHER else self._parts(number, value, kind)
                limits.items_left -= len(parts)
                if limits.items_left < limits.items_kept:
                    self._limit_reached = True
                # An object that the garbage collector does not track has no references to follow.
                found = [part for part in filter(is_tracked, parts) if part is not cls]
                if found:
                    self._record(found, roots[number], number)

    def _record(self, found: Iterable[object], root: int, parent: int) -> None:
        """Record the objects in ``found`` that are new. Their references are followed later.

        If ``record_repeats`` is set, also record that the known objects have been found again.
        """
        kind_of, number_of, max_objects = self._kinds.get, self._numbers.get, self._limits.max_objects
        values, record_repeats = self._values, self._record_repeats
        for value in found:
            kind = kind_of(id(type(value))) or self._kind_of(value)
            known = number_of(id(value))
            if known is None:
                if kind is _SKIPPED:
                    continue
                if (len(values) >= max_objects or self._limit_reached) and parent != NO_PARENT:
                    self._truncated = True
                    continue
                if kind is _CONTAINER and self._has_only_leaves(value):
                    continue
                if kind is _CLASS and not is_user_class(value):
                    self._numbers[id(value)] = _EXCLUDED
                    continue
                self._numbers[id(value)] = len(values)
                values.append(value)
                self._parents.append(parent)
                self._object_roots.append(root)
            elif known != _EXCLUDED and kind is not _CLASS and record_repeats:
                self._repeats.append(known)
                self._repeat_parents.append(~root if parent == NO_PARENT else parent)

    def _has_only_leaves(self, value: Any) -> bool:
        """Return whether ``value`` is a small container of objects without references, such as numbers."""
        if id(type(value)) not in BUILTIN_CONTAINER_IDS or len(value) > _SMALL_CONTAINER:
            return False
        parts = get_referents(value)
        self._limits.items_left -= len(parts)
        return True not in map(is_tracked, parts)

    def _parts(self, number: int, value: object, kind: ObjectKind) -> Sequence[object]:
        """Return the objects to which ``value`` refers.

        If ``value`` is a tensor or storage, also make its root the owner of its memory block, unless the
        block already has an owner.
        """
        if kind is _CONTAINER:
            items = container_items(value)
            if len(items) >= MAX_ITEMS and not self._truncated:
                self._check_omitted_items(value)
            return items
        if kind is _TENSOR:
            return self._tensor_parts(number)
        if kind is ObjectKind.MODULE:
            return get_referents(value)
        if kind is ObjectKind.OPTIMIZER:
            self._optimizers.append(number)
            state: Any = (instance_dict(value) or {}).get("state")
            return list(dict.values(state)) if issubclass(type(state), dict) else ()
        if kind is ObjectKind.FUNCTION:
            return function_references(value)
        if kind is ObjectKind.FRAME:
            return frame_references(value)
        if kind is _CLASS:
            return list(class_dict(value).values())
        if kind is _STORAGE:
            address = self.torch.UntypedStorage.data_ptr(value)
            self.owners.claim(number, self._object_roots[number], address)
        return ()

    def _check_omitted_items(self, container: object) -> None:
        """Record that the walk left out objects if an item beyond ``MAX_ITEMS`` may lead to a tensor.

        Numbers, and containers of only numbers and texts, can't. A large data set of these does not make the
        walk incomplete.
        """
        self._unchecked_items -= omitted_count(container)
        if self._unchecked_items < 0:
            self._truncated = True
            return
        tracked = filter(is_tracked, omitted_items(container))
        while not self._truncated and (some := list(islice(tracked, _CHECKED_AT_ONCE))):
            parts = get_referents(*some)
            self._unchecked_items -= len(parts)
            # An instance of a class refers to its class, so this is true for it.
            self._truncated = self._unchecked_items < 0 or any(map(is_tracked, parts))

    def _tensor_parts(self, number: int) -> Sequence[object]:
        value = self._values[number]
        tensor = self.torch.Tensor
        # Follow the tensor's attributes, because they may contain tensors that a subclass wraps or that the
        # user has set.
        parts = get_referents(value)
        device = None
        has_memory = False
        try:
            address = self.address_of(value)
        except BaseException as error:  # a sparse tensor, or another tensor without a storage
            stopped(_LOG, "a tensor has no storage", error, foreign=True)
            parts = [*sparse_components(self.torch, value), *parts]
        else:
            has_memory = bool(address)
            device = self.owners.claim(number, self._object_roots[number], address)
        if tensor.requires_grad.__get__(value):
            is_leaf = tensor.is_leaf.__get__(value)
            if not is_leaf:
                self._non_leaves.append(number)
                self.visited.with_graph.append(number)
            on_device = device is not None or (not has_memory and self._contains_tensor(parts))
            if on_device and (is_leaf or tensor.retains_grad.__get__(value)):
                self._with_grad.append((number, device))
        return parts

    def _contains_tensor(self, parts: Iterable[object]) -> bool:
        """Return whether a tensor's attributes include other tensors, as the attributes of DTensor do."""
        for part in parts:
            values = dict.values(part) if type(part) is dict else (part,)
            if any(self._kind_of(value) is _TENSOR for value in values):
                return True
        return False

    def _roots_with_graph(self, numbers: Iterable[int]) -> tuple[str, ...]:
        tensor = self.torch.Tensor
        return tuple(
            root.name
            for root in (self.roots[number] for number in numbers)
            if tensor.requires_grad.__get__(root.value) and not tensor.is_leaf.__get__(root.value)
        )
