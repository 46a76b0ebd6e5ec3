"""From a user's variables to the memory they keep alive: which names lead to which of torch's blocks.

Nothing of the user's runs: no property, no ``__getattr__``, no ``__len__`` of their classes. What an object
refers to is asked of Python's garbage collector, which knows without asking the object. Objects are held only
while the search lasts. Where an object keeps its attributes without a ``__dict__``, one comes into being only
if a further name leads through it, which cannot be written otherwise.

Types are told by their ``id``: to hash or to compare a class runs its metaclass.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import partial
from gc import get_referents, is_tracked
from itertools import islice
from types import (
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any, Literal, NamedTuple
from weakref import ReferenceType

from gpuwidget import own_modules, torch_state, ways
from gpuwidget.descriptors import class_dict, class_module, class_mro, class_name, module_dict
from gpuwidget.torch_allocator import DeviceBlocks
from gpuwidget.torch_graphs import Graphs, can_look

MOST_OBJECTS = 300_000
"""Objects that one search looks at; what lies beyond stays unknown, and is said to."""
_MOST_ITEMS = 100_000
"""Items of one container."""
_ITEMS_PER_OBJECT = 20
"""Items of all containers together, for each object that a search may look at."""
_OBJECTS_PER_TIME = 128
"""Objects that are looked at between two looks at the clock."""
_FEW_ITEMS = 64
_MOST_PATHS = 50
"""Names of one holder that are written in full."""
_MOST_WORDS = 60
"""Characters of a name that leads deep into something."""
_DEEPEST_NAME = 16

# Infrastructure: from a widget or a task it leads to the shell, and so to everything.
_BARRED = frozenset(
    (
        "IPython",
        "asyncio",
        "comm",
        "gpuwidget",
        "ipykernel",
        "jupyter_client",
        "logging",
        "tornado",
        "traitlets",
        "zmq",
    )
)
_PLAIN = frozenset(
    map(
        id,
        (
            *(int, float, complex, str, bytes, bytearray, bool, range, slice, memoryview),
            *(type(None), type(Ellipsis), type(NotImplemented), property, staticmethod, classmethod),
            *(CodeType, ReferenceType, GetSetDescriptorType, MemberDescriptorType),
        ),
    )
)
"""Ids of types whose values lead nowhere."""
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_SEQUENCES: tuple[Any, ...] = (list, tuple, deque)
_WRITTEN = frozenset(map(id, (str, int, bool, float)))
"""Ids of types of keys that are written as they are."""
_SHOWN_AS_ATTRIBUTES = ("_parameters", "_buffers", "_modules")
_COMPONENTS = {
    "sparse_coo": ("_indices", "_values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}
"""By layout, what gives the parts of a sparse tensor."""


class Root(NamedTuple):
    """A name from which a search starts."""

    name: str
    """As a person writes it: ``model``, ``Out[3]``."""
    value: object
    kind: Literal["variable", "notebook"]
    attributes: bool = False
    """Whether ``value`` is a namespace, whose items are ``name.item``."""
    parts: bool = True
    """Whether what it leads to has a name of its own, as ``Out[3][0]``."""


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


class Storage:
    """Knows whether the memory of a storage of torch's is still where it was, and keeps none of it."""

    __slots__ = ("_address", "_free", "_kind", "_weak")

    def __init__(self, torch: Any, tensor: object) -> None:
        self._kind: Any = torch.UntypedStorage
        self._free: Callable[[int], None] = self._kind._free_weak_ref
        of_tensor = not issubclass(type(tensor), self._kind)
        storage: Any = torch.Tensor.untyped_storage(tensor) if of_tensor else tensor
        self._weak: int = self._kind._weak_ref(storage)
        self._address: int = self._kind.data_ptr(storage)

    def __del__(self) -> None:
        self._free(self._weak)

    def expired(self) -> bool:
        """Whether its memory is gone.

        A storage may outlive its memory, or have it elsewhere: FSDP resizes its storages to nothing and back.
        """
        if self._kind._expired(self._weak):
            return True
        storage = self._kind._new_with_weak_ptr(self._weak)
        return storage is None or self._kind.data_ptr(storage) != self._address


Remember = Callable[[int, int, Callable[[], Storage]], None]
"""Takes a device's index, a block's address, and what gives the storage that lies there now."""


class _Kind(IntEnum):
    NOTHING = auto()
    TENSOR = auto()
    STORAGE = auto()
    MODULE = auto()
    OPTIMIZER = auto()
    CONTAINER = auto()
    FUNCTION = auto()
    FRAME = auto()
    CLASS = auto()
    OTHER = auto()


def reach(
    roots: Sequence[Root],
    blocks: Mapping[int, DeviceBlocks],
    *,
    barred: Iterable[object] = (),
    most_objects: int = MOST_OBJECTS,
    within_s: float | None = None,
    remember: Remember | None = None,
) -> Reached:
    """Follow ``roots`` to ``blocks``. What several lead to belongs to one: see :meth:`_Search.run`.

    ``barred`` are objects that nothing is searched behind; after ``within_s`` seconds of this thread's own
    time no further object is looked at.
    ``remember`` is told of the storage in each block that was reached.
    """
    torch: Any = torch_state.loaded()
    without_hooks = _without_hooks(torch)
    if without_hooks is None:
        owners = {index: (None,) * len(found.addresses) for index, found in blocks.items()}
        return Reached(owners, {}, {}, {}, {}, (), True)
    with uncollected(), without_hooks():
        search = _Search(torch, roots, blocks, barred, _Bounds(most_objects, within_s))
        search.run()
        reached = search.reached()
        if remember is not None:
            search.remember(remember)
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
    torch: Any = torch_state.loaded()
    without_hooks = _without_hooks(torch)
    if without_hooks is not None:
        with uncollected(), without_hooks():
            search = _Search(torch, roots, blocks, barred, _Bounds(most_objects, within_s), named=False)
            search.run()
            search.remember(remember)


def _without_hooks(torch: Any) -> Any:
    return getattr(getattr(torch, "_C", None), "DisableTorchFunction", None)


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


def type_name(value: object) -> str:
    """Name of the type of ``value``, whatever its class makes of attributes."""
    return class_name(type(value))


# Looked up in the innermost loop.
_NOTHING, _CLASS, _CONTAINER, _OTHER = _Kind.NOTHING, _Kind.CLASS, _Kind.CONTAINER, _Kind.OTHER
_TENSOR, _STORAGE = _Kind.TENSOR, _Kind.STORAGE
_COMMON = frozenset(map(id, (*_CONTAINERS, OrderedDict, defaultdict)))
_NOBODY = -1
_WALL = -1


class _Bounds:
    """How much one search looks at: objects, items of containers, and time.

    The time is this thread's own, so that a busy machine does not change what is found.
    """

    def __init__(self, objects: int, within_s: float | None) -> None:
        self.objects = objects
        self.items = objects * _ITEMS_PER_OBJECT
        """How many more items are looked at."""
        self._until = None if within_s is None else time.thread_time() + within_s

    def over(self) -> bool:
        """Whether nothing more is to be looked at."""
        return self.items < 0 or (self._until is not None and time.thread_time() >= self._until)


class _Search:
    """One search. What was met is numbered in the order of meeting; a root is met from nobody."""

    def __init__(
        self,
        torch: Any,
        roots: Sequence[Root],
        blocks: Mapping[int, DeviceBlocks],
        barred: Iterable[object],
        bounds: _Bounds,
        *,
        named: bool = True,
    ) -> None:
        self._torch = torch
        self._roots = roots
        self._spans = [(b.addresses[0], b.addresses[-1] + b.sizes[-1], b) for b in blocks.values() if b.sizes]
        self._bounds = bounds
        self._over = False
        """Whether a bound was met: only tensors that are known already are looked at."""
        self._cut = False
        """Whether something was left out."""
        self._named = named
        self._kinds: dict[int, _Kind] = dict.fromkeys(_PLAIN, _NOTHING)
        """By the type's id."""
        self._types: list[type] = []
        """Those whose ids were noted: no other type may have such an id meanwhile."""
        self._address = _addresses(torch)
        self._owners: dict[int, list[int | None]] = {
            index: [None] * len(found.addresses) for index, found in blocks.items()
        }
        self._values: list[object] = []
        self._from: list[int] = []
        self._root: list[int] = []
        self._looked_at = 0
        self._numbers: dict[int, int] = {}
        """By id of an object: its number, or that it is a wall."""
        self._again: list[int] = []
        """What was met again."""
        self._again_from: list[int] = []
        """From where, each of those; of a root itself, the complement of the root's number."""
        self._in_block: list[tuple[int, int, int]] = []
        """A tensor's number, and the device and the number of the block that it is in."""
        self._late: list[int] = []
        self._with_grad: list[tuple[int, int | None]] = []
        """A tensor's number and its device, None of one that wraps others."""
        self._results: list[int] = []
        """Tensors that were computed from others that are trained."""
        self._walk = Graphs(torch, bounds.over) if can_look(torch) else None
        self._graphs: tuple[str, ...] = ()
        self._from_graphs: set[int] = set()
        """Numbers of what only a graph leads to."""
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
        by_kind: dict[_Kind, list[int]] = {}
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
        if self._walk is None:
            self._graphs = self._with_graph(by_kind.get(_Kind.TENSOR, ()))
        for kind in (_Kind.TENSOR, _Kind.STORAGE, _Kind.MODULE, _Kind.OPTIMIZER):
            self._follow(by_kind.pop(kind, []))
        self._follow(sorted(number for numbers in by_kind.values() for number in numbers))
        self._finish()
        self._follow(notebook)
        self._finish()

    def reached(self) -> Reached:
        """What :meth:`run` has found."""
        names, ways = self._names()
        return Reached(
            owners=self._owners,
            names=names,
            ways=ways,
            types={number: type_name(self._roots[number].value) for number in names},
            saved=self._saved(),
            graphs=self._graphs,
            complete=not self._cut and (self._walk is None or self._walk.complete),
        )

    def remember(self, remember: Remember) -> None:
        """Tell of the storage in each block that was reached."""
        seen: set[tuple[int, int]] = set()
        by_index = {blocks.index: blocks for _, _, blocks in self._spans}
        for number, index, place in self._in_block:
            if (index, place) not in seen:
                seen.add((index, place))
                address = by_index[index].addresses[place]
                remember(index, address, partial(Storage, self._torch, self._values[number]))

    # -- the way through the objects -----------------------------------------------------------------

    def _follow(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            _, value, _, attributes, _ = self._roots[number]
            if attributes:
                self._numbers.pop(id(value), None)  # a module's variables, which are a wall otherwise
            if is_tracked(value):
                self._note((value,), number, _NOBODY)
        self._drain()

    def _finish(self) -> None:
        """What was put off: optimizers' parameters, then gradients, as long as memory is unexplained."""
        late, self._late = self._late, []
        for number in late:
            self._meet(get_referents(self._values[number]), self._root[number], number)
        self._drain()
        with_grad, self._with_grad = self._with_grad, []
        # To touch a gradient makes a Python object of it that stays as long as the gradient does.
        unexplained = self._unexplained()
        grad = self._torch.Tensor.grad.__get__
        for number, device in with_grad:
            if device in unexplained or (device is None and unexplained):
                self._meet((grad(self._values[number]),), self._root[number], number)
        self._drain()
        self._follow_graphs()

    def _unexplained(self) -> set[int]:
        return {index for index, owners in self._owners.items() if None in owners}

    def _follow_graphs(self) -> None:
        """What autograd has saved, as long as memory is unexplained."""
        while self._results and self._walk is not None and self._unexplained():
            results, self._results = self._results, []
            first = len(self._values)
            for number in results:
                with suppress(Exception):  # a tensor that is none of torch's own kinds
                    self._meet(self._walk.saved(self._values[number]), self._root[number], number)
            self._drain()
            self._from_graphs.update(range(first, len(self._values)))

    def _saved(self) -> dict[int, dict[int, int]]:
        sums: dict[int, dict[int, int]] = {}
        by_index = {blocks.index: blocks for _, _, blocks in self._spans}
        first: set[tuple[int, int]] = set()
        for number, index, place in self._in_block:
            if (index, place) in first:
                continue
            first.add((index, place))
            if number in self._from_graphs:
                of_root = sums.setdefault(self._root[number], {})
                of_root[index] = of_root.get(index, 0) + by_index[index].sizes[place]
        return sums

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
                if (len(values) >= most or self._over) and parent != _NOBODY:
                    self._cut = True
                    continue
                if kind is _CONTAINER and self._is_dull(value):
                    continue
                if kind is _CLASS and not _users_own(value):
                    self._numbers[id(value)] = _WALL
                    continue
                self._numbers[id(value)] = len(values)
                values.append(value)
                self._from.append(parent)
                self._root.append(root)
            elif known != _WALL and kind is not _CLASS and named:
                self._again.append(known)
                self._again_from.append(~root if parent == _NOBODY else parent)

    def _is_dull(self, value: Any) -> bool:
        """Whether a small container has nothing but numbers, texts and the like in it."""
        if id(type(value)) not in _COMMON or len(value) > _FEW_ITEMS:
            return False
        parts = get_referents(value)
        self._bounds.items -= len(parts)
        return True not in map(is_tracked, parts)

    def _parts(self, number: int, value: object, kind: _Kind) -> Sequence[object]:
        if kind is _CONTAINER:
            return _items(value)
        if kind is _Kind.MODULE:
            return get_referents(value)
        if kind is _Kind.TENSOR:
            return self._tensor(number)
        if kind is _Kind.OPTIMIZER:
            self._late.append(number)
            state: Any = (attributes(value) or {}).get("state")
            return list(dict.values(state)) if issubclass(type(state), dict) else ()
        if kind is _Kind.FUNCTION:
            return _of_function(value)
        if kind is _Kind.FRAME:
            return _of_frame(value)
        if kind is _CLASS:
            return list(class_dict(value).values())
        if kind is _Kind.STORAGE:
            self._take(number, self._torch.UntypedStorage.data_ptr(value))
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
            parts = [*_components(self._torch, value), *parts]
        else:
            without = not address
            device = self._take(number, address)
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

    def _take(self, number: int, address: int) -> int | None:
        """Give the block at ``address`` to its first comer. Returns its device, None without one."""
        for since, until, blocks in self._spans:
            place = blocks.find(address) if since <= address < until else None
            if place is not None:
                owners = self._owners[blocks.index]
                if owners[place] is None:
                    owners[place] = self._root[number]
                self._in_block.append((number, blocks.index, place))
                return blocks.index
        return None

    def _kind(self, value: object) -> _Kind:
        of = type(value)
        kind = self._kinds.get(id(of))
        if kind is None:
            self._types.append(of)
            kind = self._kinds[id(of)] = self._classify(of)
        return kind

    def _classify(self, of: type) -> _Kind:
        torch = self._torch
        if issubclass(of, torch.Tensor):
            return _Kind.TENSOR
        if issubclass(of, torch.UntypedStorage):
            return _Kind.STORAGE
        if issubclass(of, torch.nn.Module):
            return _Kind.MODULE
        if issubclass(of, torch.optim.Optimizer):
            return _Kind.OPTIMIZER
        if issubclass(of, ModuleType):
            return _Kind.NOTHING
        if issubclass(of, type):
            return _Kind.CLASS
        if issubclass(of, FunctionType):
            return _Kind.FUNCTION
        if issubclass(of, FrameType):
            return _Kind.FRAME
        if issubclass(of, _CONTAINERS):
            return _Kind.CONTAINER
        if _module_name(of).partition(".")[0] in _BARRED:
            return _Kind.NOTHING
        return _Kind.OTHER

    # -- names ---------------------------------------------------------------------------------------

    def _names(self) -> tuple[dict[int, tuple[str, ...]], dict[int, tuple[int, ...]]]:
        owning = list(
            dict.fromkeys(one for owners in self._owners.values() for one in owners if one is not None)
        )
        bit_of = {owner: 1 << place for place, owner in enumerate(owning)}
        steps: dict[int, dict[int, tuple[int, int]]] = {owner: {} for owner in owning}
        """By owner and by root: from where, and what, the first time."""
        several: dict[int, int] = {}
        """By root: the bits of the owners that it leads to in several ways."""
        known: dict[int, int] = {}
        done: set[tuple[int, int]] = set()
        for root, parent, number, bits in self._steps(bit_of):
            if (root, number) in done:
                continue
            done.add((root, number))
            before = known.get(root, 0)
            several[root] = several.get(root, 0) | (bits & before)
            known[root] = before | bits
            new = bits & ~before
            while new:
                lowest = new & -new
                new ^= lowest
                steps[owning[lowest.bit_length() - 1]][root] = parent, number
        names = {}
        for owner, by_root in steps.items():
            found = [self._roots[owner].name]
            for root, step in sorted(by_root.items()):
                # One way in has a name of its own; of many, their common beginning is named.
                alone = not several[root] & bit_of[owner] and self._roots[root].parts
                short = not alone or len(found) >= _MOST_PATHS
                found.append(self._roots[root].name if short else self._path(root, *step))
            names[owner] = tuple(dict.fromkeys(found))
        return names, {owner: (owner, *by_root) for owner, by_root in steps.items()}

    def _steps(self, bit_of: Mapping[int, int]) -> Iterator[tuple[int, int, int, int]]:
        """A root, from where it leads on to what, and the bits of other roots that own something there."""
        own: dict[int, int] = {}
        for number, device, place in self._in_block:
            owner, root = self._owners[device][place], self._root[number]
            assert owner is not None
            own[number] = bit_of[owner]  # a tensor lies in one block
            if owner != root:
                yield root, self._from[number], number, bit_of[owner]
        parents: dict[int, list[int]] = {}
        for number, parent in zip(self._again, self._again_from, strict=True):
            if parent >= 0:
                parents.setdefault(number, []).append(parent)
        leading = ways.behind(own, self._from, parents)
        for number, parent in zip(self._again, self._again_from, strict=True):
            bits = leading.get(number)
            if bits is not None:
                root, start = (self._root[parent], parent) if parent >= 0 else (~parent, _NOBODY)
                bits &= ~bit_of.get(root, 0)
                if bits:
                    yield root, start, number, bits

    def _path(self, root: int, parent: int, number: int) -> str:
        name = self._roots[root].name
        steps: list[str] = []
        while parent != _NOBODY:
            if len(steps) >= _DEEPEST_NAME:
                return f"{name}…"
            steps.append(self._step(parent, number))
            parent, number = self._from[parent], parent
        words = name + "".join(reversed(steps))
        return words if len(words) <= _MOST_WORDS else f"{name}…"

    def _step(self, number: int, part: int) -> str:
        """How a person gets from one object to the next; empty for what nobody writes down."""
        holder: Any = self._values[number]
        value = self._values[part]
        if issubclass(type(holder), dict):
            items = list(islice(dict.items(holder), _MOST_ITEMS))
            key = next((key for key, item in items if item is value), None)
            if type(key) is str and self._is_namespace(number):
                return "" if key in _SHOWN_AS_ATTRIBUTES else f".{key}"
            return f"[{key!r}]" if id(type(key)) in _WRITTEN else "[…]"
        sequence = next((base for base in _SEQUENCES if issubclass(type(holder), base)), None)
        if sequence is not None:
            parts = list(islice(sequence.__iter__(holder), _MOST_ITEMS))
            place = next((n for n, item in enumerate(parts) if item is value), None)
            return "[…]" if place is None else f"[{place}]"
        own = attributes(holder)
        if own is value:
            return ""  # the next step names the attribute
        named = _attribute(holder, own, value)
        if named is not None:
            return f".{named}"
        tensor = self._torch.Tensor
        if not issubclass(type(holder), tensor):
            return "…"
        has_grad = tensor.is_leaf.__get__(holder) or tensor.retains_grad.__get__(holder)
        if has_grad and part not in self._from_graphs:
            return ".grad" if issubclass(type(value), tensor) else "…"
        return ".grad_fn…"

    def _is_namespace(self, number: int) -> bool:
        """Whether a dict is one whose items are written as attributes."""
        parent = self._from[number]
        if parent == _NOBODY:
            return self._roots[self._root[number]].attributes
        holder: Any = self._values[parent]
        if not issubclass(type(holder), dict):
            return attributes(holder) is self._values[number]
        # A module's parameters are in a dict in its attributes.
        above = self._from[parent]
        return (
            above != _NOBODY
            and issubclass(type(self._values[above]), self._torch.nn.Module)
            and any(dict.get(holder, name) is self._values[number] for name in _SHOWN_AS_ATTRIBUTES)
        )

    def _with_graph(self, numbers: Iterable[int]) -> tuple[str, ...]:
        tensor = self._torch.Tensor
        return tuple(
            root.name
            for root in (self._roots[number] for number in numbers)
            if tensor.requires_grad.__get__(root.value) and not tensor.is_leaf.__get__(root.value)
        )


def attributes(value: object) -> dict[str, object] | None:
    """The attributes of ``value``, by Python's own way to them; None where it has none of its own."""
    for cls in class_mro(type(value)):
        descriptor = class_dict(cls).get("__dict__")
        kind = type(descriptor)
        if kind is GetSetDescriptorType or kind is MemberDescriptorType:
            found: Any = descriptor.__get__(value)
            return found if issubclass(type(found), dict) else None
        if descriptor is not None:
            return None
    return None


def _attribute(holder: object, own: Mapping[str, object] | None, value: object) -> str | None:
    for key, item in (own or {}).items():
        if item is value and type(key) is str:
            return key
    for cls in class_mro(type(holder)):
        for key, descriptor in class_dict(cls).items():
            if type(descriptor) is MemberDescriptorType and _slot(descriptor, holder) is value:
                return str(key)
    return None


def _slot(descriptor: Any, holder: object) -> object:
    try:
        return descriptor.__get__(holder)
    except AttributeError:  # never assigned
        return None


def _addresses(torch: Any) -> Callable[[Any], int]:
    """Where a tensor's storage begins, without an object made of the storage and without a copy on write."""
    direct = getattr(torch._C, "_data_address", None)
    if direct is not None:
        return direct  # type: ignore[no-any-return]
    storage = torch.Tensor.untyped_storage
    return lambda tensor: int(storage(tensor).data_ptr())


def _components(torch: Any, value: object) -> list[object]:
    """The tensors that a sparse one is made of."""
    tensor = torch.Tensor
    layout = str(tensor.layout.__get__(value)).rpartition(".")[2]
    with torch.no_grad(), torch._C._DisableTorchDispatch():
        return [getattr(tensor, name)(value) for name in _COMPONENTS.get(layout, ())]


def _module_name(cls: object) -> str:
    """Name of the module that a class says it is from; empty where it says none."""
    try:
        name = class_module(cls)
    except AttributeError:  # deleted
        return ""
    return name if type(name) is str else ""


def _users_own(cls: object) -> bool:
    name = _module_name(cls)
    return name == "__main__" or own_modules.is_users(sys.modules.get(name))


def _items(value: Any) -> Sequence[object]:
    """What a container of Python's refers to: a bounded part of a huge one."""
    of = type(value)
    if id(of) in _COMMON and len(value) <= _MOST_ITEMS:
        return get_referents(value)
    base: Any = next(base for base in _CONTAINERS if issubclass(of, base))
    if base.__len__(value) <= _MOST_ITEMS:
        return get_referents(value)
    items = dict.values(value) if base is dict else base.__iter__(value)
    return list(islice(items, _MOST_ITEMS))


def _of_function(value: Any) -> Sequence[object]:
    """What a function closes over, and its defaults; not the variables of its module."""
    elsewhere = id(value.__globals__)
    return [one for one in get_referents(value) if id(one) != elsewhere]


def _of_frame(value: Any) -> Sequence[object]:
    """A frame's local variables, not its caller and not its module's variables."""
    elsewhere = id(value.f_globals)
    return [one for one in get_referents(value) if id(one) != elsewhere and type(one) is not FrameType]
