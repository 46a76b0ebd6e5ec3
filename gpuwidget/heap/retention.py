"""Find what has grown with each step of a loop: containers of outputs, and tensors whose graphs grow.

The code that makes them grow is known by the names that it assigns or appends to (``growing``). This module
finds the objects with these names and measures how much memory they retain.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from gc import get_referents
from types import CellType, CodeType, FrameType, FunctionType, GeneratorType
from typing import Any, Literal

from gpuwidget.heap.heap_walk import NO_PARENT, HeapWalk, Limits, Root
from gpuwidget.heap.object_references import CONTAINERS, attribute_name, instance_dict
from gpuwidget.heap.storages import AutogradGraph
from gpuwidget.model.boundary import Boundary

_LOG = logging.getLogger(__name__)

NameOf = Callable[[int, int, int], str]
"""Given the number of a root, of an object's parent and of the object, returns the object's name."""
Role = Literal["parameters", "gradients", "optimizer states", "activations", "other"]
"""What a block of torch's memory is used for. ``activations`` are kept only by autograd graphs."""

_MIN_PART = 0.05
"""Smallest fraction of a device's allocated memory for which a growing object is reported."""
_MIN_ITEMS = 2
_MAX_DEPTH = 64
_MAX_COMPARED = 3
_MAX_COMPARED_NODES = 3_000
_MAX_SUMS = 1_000_000
_MAX_MEASURED = 50
_MEASURE_TIME_S = 0.2
"""Maximum CPU time in seconds for the graphs of all growing tensors."""
_SUMS = ("AddBackward0", "SubBackward0")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True, slots=True)
class Retained:
    """An object that has grown with each step, and the memory that it retains on one device."""

    name: str
    """The object as users write it, such as ``trainer.history``; an empty string if it has no name."""
    identifier: str | None
    """The name of the variable or attribute, such as ``history``; None in a generator's frame."""
    root: int
    """Number of the root that leads to the object."""
    code: CodeType | None
    """The function whose variable the object is; None for a global variable or an attribute."""
    is_container: bool
    """Whether this is a container. Otherwise it is a tensor with an autograd graph."""
    items: int
    """Number of the container's items, or of the terms that were added up to get the tensor; 0 if unknown."""
    operations: int
    """Number of operations in the tensor's autograd graph."""
    item_type: str
    """Type name of most items."""
    is_scalar: bool
    """Whether the items, or the tensor itself, have only one element."""
    graph_bytes: int
    """The part of the memory that only autograd graphs keep alive."""
    positions: frozenset[int]
    """The retained blocks, by their position among the device's blocks."""
    is_one_graph: bool
    """Whether the items or terms share operations, because they are computed from each other or from the same
    result. This is so for a model's hidden states in one step, and for several losses of one step."""
    can_clear: bool
    """Whether :attr:`name` is an expression on which ``.clear()`` releases the items."""


def hook_codes(walk: HeapWalk) -> frozenset[CodeType]:
    """Return the code of all functions that are registered as hooks of the modules that were found."""
    module_type = walk.torch.nn.Module
    found = set()
    for value in walk.visited.values:
        if issubclass(type(value), module_type):
            attributes = instance_dict(value) or {}
            for name in _HOOKS:
                hooks: Any = attributes.get(name)
                if issubclass(type(hooks), dict):
                    for hook in dict.values(hooks):
                        function = (
                            getattr(hook, "__func__", hook) if type(hook).__name__ == "method" else hook
                        )
                        if type(function) is FunctionType:
                            found.add(function.__code__)
    return frozenset(found)


class Retention:
    """What the blocks of one device are used for, and which growing objects retain them."""

    def __init__(self, walk: HeapWalk, growing: frozenset[str], index: int) -> None:
        self._walk = walk
        self._growing = growing
        self._visited = walk.visited
        self._tensor: Any = walk.torch.Tensor
        self._blocks = walk.owners.blocks[index]
        self._first: dict[int, int] = {
            position: number
            for number, blocks, position in walk.owners.first_references()
            if blocks.index == index
        }
        """The number of the first object found in each block."""
        self._buffers = self._buffer_ids()
        self.roles: list[Role | None] = [
            self._role(self._first[position]) if position in self._first else None
            for position in range(len(self._blocks.addresses))
        ]
        """What each block is used for; None if nothing leads to the block."""

    def find(self, name_of: NameOf) -> list[Retained]:
        """Return the objects with a name in ``growing`` that retain memory, the largest first.

        Lists in the frames of generators are returned too, because the names of a running generator's
        variables can't be read without side effects. ``name_of(root, parent, number)`` writes an object's
        name.
        """
        found = [*self._containers(name_of), *self._tensors(name_of)]
        return sorted(found, key=lambda one: -self._size(one.positions))

    def _size(self, positions: frozenset[int]) -> int:
        return sum(self._blocks.sizes[position] for position in positions)

    # -- roles -------------------------------------------------------------------------------------------

    def _role(self, number: int) -> Role:
        value = self._visited.values[number]
        if number in self._visited.gradients:
            return "gradients"
        if issubclass(type(value), self._walk.torch.nn.Parameter) or id(value) in self._buffers:
            return "parameters"
        if number in self._visited.saved_by_autograd:
            return "activations"
        return "optimizer states" if self._belongs_to_optimizer(number) else "other"

    def _buffer_ids(self) -> set[int]:
        module_type = self._walk.torch.nn.Module
        found: set[int] = set()
        for value in self._visited.values:
            if issubclass(type(value), module_type):
                buffers: Any = (instance_dict(value) or {}).get("_buffers")
                if issubclass(type(buffers), dict):
                    found.update(map(id, dict.values(buffers)))
        return found

    def _belongs_to_optimizer(self, number: int) -> bool:
        optimizer = self._walk.torch.optim.Optimizer
        return any(
            issubclass(type(self._visited.values[ancestor]), optimizer)
            for _, ancestor in self._ancestors(number)
        )

    def _ancestors(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield (child, parent) from an object to its root."""
        for _ in range(_MAX_DEPTH):
            parent = self._visited.parents[number]
            if parent == NO_PARENT:
                return
            yield number, parent
            number = parent

    # -- containers --------------------------------------------------------------------------------------

    def _containers(self, name_of: NameOf) -> Iterator[Retained]:
        """Yield the growing containers of which several items retain memory."""
        held: dict[int, dict[int, set[int]]] = {}
        for position, number in self._first.items():
            if self.roles[position] in ("activations", "other") and not self._is_leaf(number):
                for child, parent in self._ancestors(number):
                    held.setdefault(parent, {}).setdefault(child, set()).add(position)
        least = _MIN_PART * sum(self._blocks.sizes)
        groups: dict[tuple[int, str | None, CodeType | None], list[tuple[int, int, frozenset[int]]]] = {}
        for number, children in held.items():
            if len(children) < _MIN_ITEMS or not self._may_grow(number):
                continue
            positions = frozenset().union(*children.values())
            if self._size(positions) < least:
                continue
            identifier, code = self._identifier(number)
            if identifier in self._growing or (identifier is None and code is not None):
                key = (self._visited.roots[number], identifier, code)
                groups.setdefault(key, []).append((number, len(children), positions))
        for (root, identifier, code), members in groups.items():
            # A dict of lists has one name. Count the items of the lists, which grow, but name the whole.
            outer = max(members, key=lambda member: self._size(member[2]))
            half = self._size(outer[2]) / 2
            inner = max(
                (member for member in members if self._size(member[2]) >= half), key=lambda member: member[1]
            )
            yield self._container(root, identifier, code, outer, inner, list(held[inner[0]]), name_of)

    def _is_leaf(self, number: int) -> bool:
        """Return whether a tensor requires gradients but is not computed, as parameters are."""
        value = self._visited.values[number]
        if not issubclass(type(value), self._tensor):
            return False
        return bool(self._tensor.requires_grad.__get__(value) and self._tensor.is_leaf.__get__(value))

    def _may_grow(self, number: int) -> bool:
        value = self._visited.values[number]
        if issubclass(type(value), deque) and deque.maxlen.__get__(value) is not None:
            return False
        if issubclass(type(value), CONTAINERS):
            return not (
                self._visited.parents[number] == NO_PARENT
                and self._walk.roots[self._visited.roots[number]].is_namespace
            )
        leaves = (self._tensor, FrameType, FunctionType, CellType, GeneratorType, BaseException, type)
        return not issubclass(type(value), leaves) and instance_dict(value) is not None

    def _container(
        self,
        root: int,
        identifier: str | None,
        code: CodeType | None,
        outer: tuple[int, int, frozenset[int]],
        inner: tuple[int, int, frozenset[int]],
        children: Sequence[int],
        name_of: NameOf,
    ) -> Retained:
        values = self._visited.values
        types = Counter(type(values[child]) for child in children)
        item_type = types.most_common(1)[0][0]
        container: Any = values[inner[0]]
        items = len(children)
        if issubclass(type(container), CONTAINERS):
            referents = get_referents(container)
            items = max(items, sum(type(item) is item_type for item in referents))
        first = next(values[child] for child in children if type(values[child]) is item_type)
        name = self._name(outer[0], root, identifier, code, name_of)
        return Retained(
            name=name,
            identifier=identifier,
            root=root,
            code=code,
            is_container=True,
            items=items,
            operations=0,
            item_type=item_type.__name__,
            is_scalar=issubclass(item_type, self._tensor) and self._numel(first) == 1,
            graph_bytes=self._graph_bytes(outer[2]),
            positions=outer[2],
            is_one_graph=self._is_one_graph(self._nodes([values[child] for child in children])),
            can_clear=code is None
            and issubclass(type(values[outer[0]]), CONTAINERS)
            and not issubclass(type(values[outer[0]]), tuple)
            and all(part.isidentifier() for part in name.split(".")),
        )

    def _is_one_graph(self, nodes: Sequence[Any]) -> bool:
        """Return whether the graphs that begin with the last nodes share operations."""
        seen: dict[int, Any] = {}
        for start in nodes[-_MAX_COMPARED:]:
            own: dict[int, Any] = {}
            pending = deque([start])
            while pending and len(own) < _MAX_COMPARED_NODES:
                node = pending.popleft()
                # Nodes that accumulate the gradients of parameters have no inputs. All steps share them.
                if node is None or not node.next_functions or id(node) in own:
                    continue
                if id(node) in seen:
                    return True
                own[id(node)] = node
                pending.extend(previous for previous, _ in node.next_functions)
            seen |= own
        return False

    def _nodes(self, items: Sequence[Any]) -> list[Any]:
        """Return the last operation of each tensor that has an autograd graph."""
        tensors = [item for item in items if issubclass(type(item), self._tensor)]
        nodes = [self._tensor.grad_fn.__get__(item) for item in tensors]
        return [node for node in nodes if node is not None]

    def _graph_bytes(self, positions: frozenset[int]) -> int:
        return sum(self._blocks.sizes[p] for p in positions if self.roles[p] == "activations")

    # -- tensors -----------------------------------------------------------------------------------------

    def _tensors(self, name_of: NameOf) -> Iterator[Retained]:
        """Yield the growing tensors whose autograd graphs retain memory."""
        least = _MIN_PART * sum(self._blocks.sizes)
        limits = Limits(1, _MEASURE_TIME_S)
        measured = 0
        for number in self._visited.with_graph:
            if measured >= _MAX_MEASURED or limits.exceeded():
                return
            if number in self._visited.saved_by_autograd or not self._has_own_name(number):
                continue
            identifier, code = self._identifier(number)
            if identifier not in self._growing:
                continue
            measured += 1
            positions, operations = self._behind(self._visited.values[number], limits)
            if self._size(positions) < least:
                continue
            root = self._visited.roots[number]
            terms = _terms(self._tensor.grad_fn.__get__(self._visited.values[number]))
            yield Retained(
                name=self._name(number, root, identifier, code, name_of),
                identifier=identifier,
                root=root,
                code=code,
                is_container=False,
                items=len(terms),
                operations=operations,
                item_type="Tensor",
                is_scalar=self._numel(self._visited.values[number]) == 1,
                graph_bytes=self._size(positions),
                positions=positions,
                is_one_graph=self._is_one_graph(terms),
                can_clear=False,
            )

    def _has_own_name(self, number: int) -> bool:
        """Return whether a tensor is a variable or an attribute, and not an item of a sequence."""
        parent = self._visited.parents[number]
        return parent == NO_PARENT or not issubclass(
            type(self._visited.values[parent]), (list, tuple, set, frozenset, self._tensor)
        )

    def _behind(self, value: Any, limits: Limits) -> tuple[frozenset[int], int]:
        """Return the positions of the blocks that a tensor's graph keeps, except parameters, and the number
        of the graph's operations."""
        graph = AutogradGraph(self._walk.torch, limits.exceeded)
        found = set()
        with Boundary(_LOG, "an autograd graph could not be read", foreign=True):
            for saved in graph.saved_behind(value):
                if issubclass(type(saved), self._tensor):
                    with Boundary(_LOG, "a tensor has no storage", foreign=True):
                        position = self._blocks.find(self._walk.address_of(saved))
                        if position is not None and self.roles[position] not in ("parameters", "gradients"):
                            found.add(position)
        return frozenset(found), graph.nodes

    def _numel(self, value: Any) -> int:
        return int(self._tensor.numel(value)) if issubclass(type(value), self._tensor) else 0

    # -- names -------------------------------------------------------------------------------------------

    def _name(
        self,
        number: int,
        root: int,
        identifier: str | None,
        code: CodeType | None,
        name_of: NameOf,
    ) -> str:
        if code is not None:
            return identifier or ""
        return name_of(root, self._visited.parents[number], number)

    def _identifier(self, number: int) -> tuple[str | None, CodeType | None]:
        """Return the name of the variable or attribute to which an object belongs, and the function whose
        local variable it is, if any. An item of a container has the container's name."""
        visited = self._visited
        for child, parent in self._ancestors(number):
            value = visited.values[child]
            holder: Any = visited.values[parent]
            kind = type(holder)
            if issubclass(kind, FrameType):
                return self._local_name(parent, value), holder.f_code
            if issubclass(kind, GeneratorType):
                return None, holder.gi_code
            if issubclass(kind, CellType):
                return self._cell_name(parent, value)
            if issubclass(kind, self._tensor):
                return None, None
            if issubclass(kind, dict):
                key = self._attribute_key(parent, value)
                if key is not None:
                    return key, None
            elif not issubclass(kind, CONTAINERS) and instance_dict(holder) is not value:
                return attribute_name(holder, instance_dict(holder), value), None
        root: Root = self._walk.roots[visited.roots[number]]
        return root.name.rpartition(".")[2], None

    def _attribute_key(self, number: int, value: object) -> str | None:
        """Return the key of ``value`` in a dict whose items users write as attributes; None for other
        dicts."""
        holder: Any = self._visited.values[number]
        parent = self._visited.parents[number]
        if parent == NO_PARENT:
            is_namespace = self._walk.roots[self._visited.roots[number]].is_namespace
        else:
            is_namespace = instance_dict(self._visited.values[parent]) is holder
        if not is_namespace:
            return None
        return next((key for key, item in dict.items(holder) if item is value and type(key) is str), None)

    def _cell_name(self, number: int, value: object) -> tuple[str | None, CodeType | None]:
        """Return the name of the variable in a closure's cell, and the closure's function."""
        cell = self._visited.values[number]
        for _, parent in self._ancestors(number):
            holder: Any = self._visited.values[parent]
            if type(holder) is FunctionType:
                cells = holder.__closure__ or ()
                at = next((n for n, one in enumerate(cells) if one is cell), None)
                return (None if at is None else holder.__code__.co_freevars[at]), holder.__code__
            if issubclass(type(holder), FrameType):
                return self._local_name(parent, value), holder.f_code
            if issubclass(type(holder), GeneratorType):
                return None, holder.gi_code
        return None, None

    def _local_name(self, number: int, value: object) -> str | None:
        """Return the name of a local variable, also if the variable is in a closure's cell.

        Before Python 3.13, reading ``f_locals`` stores the variables in the frame. That is harmless for a
        failed frame, which has ended, but not for a suspended generator's.
        """
        frame: Any = self._visited.values[number]
        parent = self._visited.parents[number]
        if parent != NO_PARENT and issubclass(type(self._visited.values[parent]), GeneratorType):
            return None
        local: Mapping[str, object] = frame.f_locals
        return next((name for name, item in local.items() if item is value), None)


def _terms(node: Any) -> list[Any]:
    """Return what a tensor is the sum of, the first term last. ``total = total + loss`` adds a term in each
    step. A term without a graph, such as the initial 0, is left out."""
    found: list[Any] = []
    while node is not None and type(node).__name__ in _SUMS and len(found) < _MAX_SUMS:
        terms = [term for term, _ in node.next_functions]
        node = next((term for term in terms if type(term).__name__ in _SUMS), None)
        found += [term for term in terms if term is not node]
    return [term for term in found if term is not None]
