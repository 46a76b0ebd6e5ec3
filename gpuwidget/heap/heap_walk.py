"""The way from the roots through all that they refer to, each object once, and to torch's blocks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from gc import get_referents, is_tracked
from types import ModuleType
from typing import Any

from gpuwidget.heap.autograd_graph import Graphs, can_look
from gpuwidget.heap.limits import Bounds
from gpuwidget.heap.object_kinds import Kind, Kinds
from gpuwidget.heap.object_references import COMMON, attributes, items, of_frame, of_function
from gpuwidget.heap.owners import Owners
from gpuwidget.heap.reachability import NOBODY
from gpuwidget.heap.roots import Root
from gpuwidget.heap.storages import address_of, components
from gpuwidget.heap.user_modules import is_users_class
from gpuwidget.heap.visited import Trail
from gpuwidget.model.raw_attributes import class_dict, module_dict
from gpuwidget.pytorch.allocator import DeviceBlocks

_OBJECTS_PER_TIME = 128
"""Objects that are looked at between two looks at the clock."""
_FEW_ITEMS = 64
_WALL = -1
# Looked up in the innermost loop.
_NOTHING, _CLASS, _CONTAINER, _OTHER = Kind.NOTHING, Kind.CLASS, Kind.CONTAINER, Kind.OTHER
_TENSOR, _STORAGE = Kind.TENSOR, Kind.STORAGE


class Walk:
    """One search's way through the objects; a root is met from nobody."""

    def __init__(
        self,
        torch: Any,
        roots: Sequence[Root],
        blocks: Mapping[int, DeviceBlocks],
        barred: Iterable[object],
        bounds: Bounds,
        *,
        named: bool = True,
    ) -> None:
        """Without ``named``, what is met again is not noted: the names need it, nothing else."""
        self._torch = torch
        self._roots = roots
        self._bounds = bounds
        self._over = False
        """Whether a bound was met: only tensors that are known already are looked at."""
        self._cut = False
        """Whether something was left out."""
        self._named = named
        self._address = address_of(torch)
        self.owners = Owners(blocks)
        self.trail = trail = Trail()
        self.with_graph: tuple[str, ...] = ()
        """Names of roots that are tensors with a graph, where torch does not say what that holds."""
        kinds = Kinds(torch)
        # Looked up in the innermost loop, as they are.
        self._kinds, self._kind = kinds.known, kinds.of
        self._values, self._from, self._root = trail.values, trail.parents, trail.roots
        self._again, self._again_from = trail.again, trail.again_from
        self._looked_at = 0
        self._numbers: dict[int, int] = {}
        """By id of an object: its number, or that it is a wall."""
        self._late: list[int] = []
        self._with_grad: list[tuple[int, int | None]] = []
        """A tensor's number and its device, None of one that wraps others."""
        self._results: list[int] = []
        """Tensors that were computed from others that are trained."""
        self._graphs = Graphs(torch, bounds.over) if can_look(torch) else None
        self._build_walls(barred)

    def _build_walls(self, barred: Iterable[object]) -> None:
        # Each module's variables: a function leads to those of its module.
        for module in list(sys.modules.values()):
            if issubclass(type(module), ModuleType):
                self._numbers[id(module_dict(module))] = _WALL
        for value in barred:
            self._numbers[id(value)] = _WALL

    def run(self) -> None:
        """Owners in this order: tensors, modules, optimizers for their state, the other variables by depth,
        what only an optimizer's groups or a parameter's gradient leads to, the notebook itself.
        """
        by_kind: dict[Kind, list[int]] = {}
        notebook: list[int] = []
        kind_of = self._kinds.get
        for number, (_, value, kept_by, _, _) in enumerate(self._roots):
            kind = kind_of(id(type(value))) or self._kind(value)
            if kind is _NOTHING:
                continue
            if kept_by == "notebook":
                notebook.append(number)
            else:
                by_kind.setdefault(kind, []).append(number)
        if self._graphs is None:
            self.with_graph = self._with_graph(by_kind.get(Kind.TENSOR, ()))
        for kind in (Kind.TENSOR, Kind.STORAGE, Kind.MODULE, Kind.OPTIMIZER):
            self._follow(by_kind.pop(kind, []))
        self._follow(sorted(number for numbers in by_kind.values() for number in numbers))
        self._finish()
        self._follow(notebook)
        self._finish()

    @property
    def complete(self) -> bool:
        """False where there were too many objects to look at them all."""
        return not self._cut and (self._graphs is None or self._graphs.complete)

    def _follow(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            _, value, _, attributes, _ = self._roots[number]
            if attributes:
                self._numbers.pop(id(value), None)  # a module's variables, which are a wall otherwise
            if is_tracked(value):
                self._note((value,), number, NOBODY)
        self._drain()

    def _finish(self) -> None:
        """What was put off: optimizers' parameters, then gradients, as long as memory is unexplained."""
        late, self._late = self._late, []
        for number in late:
            self._meet(get_referents(self._values[number]), self._root[number], number)
        self._drain()
        with_grad, self._with_grad = self._with_grad, []
        # To touch a gradient makes a Python object of it that stays as long as the gradient does.
        unexplained = self.owners.without()
        grad = self._torch.Tensor.grad.__get__
        for number, device in with_grad:
            if device in unexplained or (device is None and unexplained):
                self._meet((grad(self._values[number]),), self._root[number], number)
        self._drain()
        self._follow_graphs()

    def _follow_graphs(self) -> None:
        """What autograd has saved, as long as memory is unexplained."""
        while self._results and self._graphs is not None and self.owners.without():
            results, self._results = self._results, []
            first = len(self._values)
            for number in results:
                with suppress(Exception):  # a tensor that is none of torch's own kinds
                    self._meet(self._graphs.saved(self._values[number]), self._root[number], number)
            self._drain()
            self.trail.from_graphs.update(range(first, len(self._values)))

    def _meet(self, found: Iterable[object], root: int, parent: int) -> None:
        self._note(filter(is_tracked, found), root, parent)

    def _drain(self) -> None:
        values, roots, kinds, bounds = self._values, self._root, self._kinds, self._bounds
        while self._looked_at < len(values):
            self._over = self._over or bounds.over()
            since, until = self._looked_at, min(len(values), self._looked_at + _OBJECTS_PER_TIME)
            self._looked_at = until
            for number in range(since, until):
                value = values[number]
                of = type(value)
                kind = kinds[id(of)]
                if self._over and kind is not _TENSOR and kind is not _STORAGE:
                    self._cut = True
                    continue
                parts = get_referents(value) if kind is _OTHER else self._parts(number, value, kind)
                bounds.items -= len(parts)
                if bounds.items < 0:
                    self._over = True
                # What the collector does not track refers to nothing.
                found = [part for part in filter(is_tracked, parts) if part is not of]
                if found:
                    self._note(found, roots[number], number)

    def _note(self, found: Iterable[object], root: int, parent: int) -> None:
        """Take note of objects, which are looked at later; what is known already is only met again."""
        kind_of, number_of, most = self._kinds.get, self._numbers.get, self._bounds.objects
        values, named = self._values, self._named
        for value in found:
            kind = kind_of(id(type(value))) or self._kind(value)
            known = number_of(id(value))
            if known is None:
                if kind is _NOTHING:
                    continue
                if (len(values) >= most or self._over) and parent != NOBODY:
                    self._cut = True
                    continue
                if kind is _CONTAINER and self._is_dull(value):
                    continue
                if kind is _CLASS and not is_users_class(value):
                    self._numbers[id(value)] = _WALL
                    continue
                self._numbers[id(value)] = len(values)
                values.append(value)
                self._from.append(parent)
                self._root.append(root)
            elif known != _WALL and kind is not _CLASS and named:
                self._again.append(known)
                self._again_from.append(~root if parent == NOBODY else parent)

    def _is_dull(self, value: Any) -> bool:
        """Whether a small container has nothing but numbers, texts and the like in it."""
        if id(type(value)) not in COMMON or len(value) > _FEW_ITEMS:
            return False
        parts = get_referents(value)
        self._bounds.items -= len(parts)
        return True not in map(is_tracked, parts)

    def _parts(self, number: int, value: object, kind: Kind) -> Sequence[object]:
        if kind is _CONTAINER:
            return items(value)
        if kind is _TENSOR:
            return self._tensor(number)
        if kind is Kind.MODULE:
            return get_referents(value)
        if kind is Kind.OPTIMIZER:
            self._late.append(number)
            state: Any = (attributes(value) or {}).get("state")
            return list(dict.values(state)) if issubclass(type(state), dict) else ()
        if kind is Kind.FUNCTION:
            return of_function(value)
        if kind is Kind.FRAME:
            return of_frame(value)
        if kind is _CLASS:
            return list(class_dict(value).values())
        if kind is _STORAGE:
            self.owners.take(number, self._root[number], self._torch.UntypedStorage.data_ptr(value))
        return ()

    def _tensor(self, number: int) -> Sequence[object]:
        value = self._values[number]
        tensor = self._torch.Tensor
        parts = get_referents(value)  # its attributes: what a subclass wraps, or a user has put there
        device = None
        without = False
        try:
            address = self._address(value)
        except Exception:  # sparse, or another tensor without a storage of its own
            without = True
            parts = [*components(self._torch, value), *parts]
        else:
            without = not address
            device = self.owners.take(number, self._root[number], address)
        if tensor.requires_grad.__get__(value):
            leaf = tensor.is_leaf.__get__(value)
            if not leaf:
                self._results.append(number)
            graded = device is not None or (without and self._wraps(parts))
            if graded and (leaf or tensor.retains_grad.__get__(value)):
                self._with_grad.append((number, device))
        return parts

    def _wraps(self, parts: Iterable[object]) -> bool:
        """Whether tensors are among the parts of one, as they are of DTensor's."""
        for part in parts:
            inner = dict.values(part) if type(part) is dict else (part,)
            if any(self._kind(one) is _TENSOR for one in inner):
                return True
        return False

    def _with_graph(self, numbers: Iterable[int]) -> tuple[str, ...]:
        tensor = self._torch.Tensor
        return tuple(
            root.name
            for root in (self._roots[number] for number in numbers)
            if tensor.requires_grad.__get__(root.value) and not tensor.is_leaf.__get__(root.value)
        )
