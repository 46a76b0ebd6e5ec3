"""From a user's variables to the memory they keep alive: which names lead to which of torch's blocks.

Nothing of the user's runs: no property, no ``__getattr__``, no ``__len__`` of their classes. What an object
refers to is asked of Python's garbage collector, which knows without asking the object. Objects are held only
while the search lasts, and no ``__dict__`` comes into being by being looked at.
"""

from __future__ import annotations

import gc
import sys
from collections import OrderedDict, defaultdict
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

from gpuwidget import torch_state
from gpuwidget.torch_allocator import DeviceBlocks
from gpuwidget.torch_graphs import Graphs, can_look

MOST_OBJECTS = 300_000
"""Objects that one search looks at; what lies beyond stays unknown, and is said to."""
_MOST_ITEMS = 100_000
"""Items of one container."""
_FEW_ITEMS = 64
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
PLAIN = frozenset(
    (
        *(
            int,
            float,
            complex,
            str,
            bytes,
            bytearray,
            bool,
            range,
            slice,
            memoryview,
            CodeType,
            ReferenceType,
        ),
        *(type(None), type(Ellipsis), type(NotImplemented), property, staticmethod, classmethod),
        *(GetSetDescriptorType, MemberDescriptorType),
    )
)
"""Types whose values lead nowhere."""
_CONTAINERS = (list, tuple, dict, set, frozenset)
_SHOWN_AS_ATTRIBUTES = ("_parameters", "_buffers", "_modules")
_COMPONENTS = {
    "sparse_coo": ("_indices", "_values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}
"""By layout, what gives the parts of a sparse tensor."""

_dict_of: Callable[[Any], Any] = type.__dict__["__dict__"].__get__
_module_of: Callable[[Any], Any] = type.__dict__["__module__"].__get__
_name_of: Callable[[Any], str] = type.__dict__["__name__"].__get__
_mro_of: Callable[[Any], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_module_dict: Callable[[Any], Any] = vars(ModuleType)["__dict__"].__get__


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
    remember: Callable[[int, int, Callable[[], Storage]], None] | None = None,
) -> Reached:
    """Follow ``roots`` to ``blocks``. What several lead to belongs to one: see :meth:`_Search.run`.

    ``barred`` are objects that nothing is searched behind. ``remember`` is told of the storage in each block
    that was reached, with the device's index and the block's address.
    """
    torch: Any = torch_state.loaded()
    without_hooks = getattr(getattr(torch, "_C", None), "DisableTorchFunction", None)
    if without_hooks is None:
        owners = {index: (None,) * len(found.addresses) for index, found in blocks.items()}
        return Reached(owners, {}, {}, {}, {}, (), True)
    with uncollected(), without_hooks():
        search = _Search(torch, roots, blocks, barred, most_objects)
        reached = search.run()
        if remember is not None:
            for index, address, tensor in search.found():
                remember(index, address, partial(Storage, torch, tensor))
        return reached


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
    return _name_of(type(value))


# Looked up in the innermost loop.
_NOTHING, _CLASS, _CONTAINER, _OTHER = _Kind.NOTHING, _Kind.CLASS, _Kind.CONTAINER, _Kind.OTHER
_COMMON = frozenset((*_CONTAINERS, OrderedDict, defaultdict))
_NOBODY = -1
_WALL = -1


class _Search:
    """One search. What was met is numbered in the order of meeting; a root is met from nobody."""

    def __init__(
        self,
        torch: Any,
        roots: Sequence[Root],
        blocks: Mapping[int, DeviceBlocks],
        barred: Iterable[object],
        most_objects: int,
    ) -> None:
        self._torch = torch
        self._roots = roots
        self._spans = [(b.addresses[0], b.addresses[-1] + b.sizes[-1], b) for b in blocks.values() if b.sizes]
        self._most = most_objects
        self._kinds: dict[type, _Kind] = {}
        self._plain: set[type] = set(PLAIN)
        """Types whose instances lead nowhere."""
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
        self._again: list[tuple[int, int, int]] = []
        """What was met again: for which root, from where, what."""
        self._in_block: list[tuple[int, int, int]] = []
        """A tensor's number, and the device and the number of the block that it is in."""
        self._late: list[int] = []
        self._with_grad: list[tuple[int, int | None]] = []
        self._results: list[int] = []
        """Tensors that were computed from others that are trained."""
        self._walk = Graphs(torch) if can_look(torch) else None
        self._from_graphs: set[int] = set()
        """Numbers of what only a graph leads to."""
        self._build_walls(barred)

    def _build_walls(self, barred: Iterable[object]) -> None:
        # Each module's variables: a function leads to those of its module.
        for module in list(sys.modules.values()):
            if issubclass(type(module), ModuleType):
                self._numbers[id(_module_dict(module))] = _WALL
        for value in barred:
            self._numbers[id(value)] = _WALL

    def run(self) -> Reached:
        """Owners in this order: tensors, modules, optimizers for their state, the other variables by depth,
        what only an optimizer's groups or a parameter's gradient leads to, the notebook itself.
        """
        by_kind: dict[_Kind, list[int]] = {}
        notebook: list[int] = []
        plain, kind_of = self._plain, self._kinds.get
        for number, (_, value, kept_by, _, _) in enumerate(self._roots):
            of = type(value)
            if of in plain:
                continue
            if kept_by == "notebook":
                notebook.append(number)
            else:
                by_kind.setdefault(kind_of(of) or self._kind(value), []).append(number)
        graphs = self._with_graph(by_kind.get(_Kind.TENSOR, ())) if self._walk is None else ()
        for kind in (_Kind.TENSOR, _Kind.STORAGE, _Kind.MODULE, _Kind.OPTIMIZER):
            self._follow(by_kind.pop(kind, []))
        self._follow(sorted(number for numbers in by_kind.values() for number in numbers))
        self._finish()
        self._follow(notebook)
        self._finish()
        names, ways = self._names()
        return Reached(
            owners=self._owners,
            names=names,
            ways=ways,
            types={number: type_name(self._roots[number].value) for number in names},
            saved=self._saved(),
            graphs=graphs,
            complete=len(self._values) <= self._most and (self._walk is None or self._walk.complete),
        )

    # -- the way through the objects -----------------------------------------------------------------

    def _follow(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            root = self._roots[number]
            if root.attributes:
                self._numbers.pop(id(root.value), None)  # a module's variables, which are a wall otherwise
            self._note((root.value,), number, _NOBODY)
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
            if device in unexplained:
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
        self._note([value for value in found if type(value) not in self._plain], root, parent)

    def _drain(self) -> None:
        values, roots, kinds, plain = self._values, self._root, self._kinds, self._plain
        while self._looked_at < len(values):
            number = self._looked_at
            if number >= self._most:
                return
            self._looked_at += 1
            value = values[number]
            of = type(value)
            kind = kinds[of]
            parts = get_referents(value) if kind is _OTHER else self._parts(number, value, kind)
            found = [part for part in parts if type(part) not in plain and part is not of]
            if found:
                self._note(found, roots[number], number)

    def _note(self, found: Iterable[object], root: int, parent: int) -> None:
        """Take note of objects, which are looked at later; what is known already is only met again."""
        kind_of, number_of = self._kinds.get, self._numbers.get
        for value in found:
            kind = kind_of(type(value)) or self._kind(value)
            known = number_of(id(value))
            if known is None:
                # What the collector does not track refers to nothing, and so do most containers.
                if kind is _NOTHING or not is_tracked(value) or (kind is _CONTAINER and self._is_dull(value)):
                    continue
                if kind is _CLASS and not _users_own(value):
                    self._numbers[id(value)] = _WALL
                    continue
                self._numbers[id(value)] = len(self._values)
                self._values.append(value)
                self._from.append(parent)
                self._root.append(root)
            elif known != _WALL and kind is not _CLASS:
                self._again.append((root, parent, known))

    def _is_dull(self, value: Any) -> bool:
        """Whether a small container has nothing but numbers, texts and the like in it."""
        if type(value) not in _COMMON or len(value) > _FEW_ITEMS:
            return False
        return self._plain.issuperset(map(type, get_referents(value)))

    def _parts(self, number: int, value: object, kind: _Kind) -> Iterable[object]:
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
            return list(_dict_of(value).values())
        if kind is _Kind.STORAGE:
            self._take(number, self._torch.UntypedStorage.data_ptr(value))
        return ()

    def _tensor(self, number: int) -> Iterable[object]:
        value = self._values[number]
        tensor = self._torch.Tensor
        try:
            device = self._take(number, self._address(value))
        except Exception:  # sparse, or another tensor without a storage of its own
            return [*_components(self._torch, value), *get_referents(value)]
        if tensor.requires_grad.__get__(value):
            leaf = tensor.is_leaf.__get__(value)
            if not leaf:
                self._results.append(number)
            if device is not None and (leaf or tensor.retains_grad.__get__(value)):
                self._with_grad.append((number, device))
        return get_referents(value)  # its attributes: what a subclass wraps, or a user has put there

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
        kind = self._kinds.get(of)
        if kind is None:
            kind = self._kinds[of] = _NOTHING if of in self._plain else self._classify(of)
            if kind is _NOTHING:
                self._plain.add(of)
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
        module = _module_of(of)
        if isinstance(module, str) and module.partition(".")[0] in _BARRED:
            return _Kind.NOTHING
        return _Kind.OTHER

    def found(self) -> Iterator[tuple[int, int, object]]:
        """Of each block that was reached: the device's index, the address and a tensor in it."""
        seen: set[tuple[int, int]] = set()
        for _, _, blocks in self._spans:
            for number, device, place in self._in_block:
                if device == blocks.index and (device, place) not in seen:
                    seen.add((device, place))
                    yield device, blocks.addresses[place], self._values[number]

    # -- names ---------------------------------------------------------------------------------------

    def _names(self) -> tuple[dict[int, tuple[str, ...]], dict[int, tuple[int, ...]]]:
        owning = {owner for owners in self._owners.values() for owner in owners if owner is not None}
        ways: dict[int, dict[int, list[tuple[int, int]]]] = {number: {} for number in owning}
        for number, device, place in self._in_block:
            owner = self._owners[device][place]
            assert owner is not None
            ways[owner].setdefault(self._root[number], []).append((self._from[number], number))
        leading = self._leading()
        for root, parent, number in self._again:
            for owner in leading.get(number, ()):
                ways[owner].setdefault(root, []).append((parent, number))
        found = {}
        for owner, by_root in ways.items():
            by_root.pop(owner, None)
            names = [self._roots[owner].name]
            for root, steps in sorted(by_root.items()):
                # One way in has a name of its own; of many, their common beginning is named.
                alone = len({number for _, number in steps}) == 1 and self._roots[root].parts
                names.append(self._path(root, *steps[0]) if alone else self._roots[root].name)
            found[owner] = tuple(dict.fromkeys(names))
        return found, {owner: (owner, *by_root) for owner, by_root in ways.items()}

    def _leading(self) -> dict[int, set[int]]:
        """By number of an object: the roots that own something of what it leads to."""
        leading: dict[int, set[int]] = {}

        def lead(number: int, owners: set[int]) -> None:
            while number != _NOBODY:
                before = leading.setdefault(number, set())
                if owners <= before:
                    return
                before |= owners
                number = self._from[number]

        for number, device, place in self._in_block:
            owner = self._owners[device][place]
            assert owner is not None
            lead(number, {owner})
        changed = True
        while changed:
            changed = False
            for _, parent, number in self._again:
                owners = leading.get(number)
                if owners and parent != _NOBODY and not owners <= leading.get(parent, set()):
                    lead(parent, set(owners))
                    changed = True
        return leading

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
            key = next((key for key, item in list(dict.items(holder)) if item is value), None)
            if type(key) is str and self._is_namespace(number):
                return "" if key in _SHOWN_AS_ATTRIBUTES else f".{key}"
            return f"[{key!r}]" if type(key) in (str, int, bool, float) else "[…]"
        if issubclass(type(holder), (list, tuple)):
            sequence: Any = list if issubclass(type(holder), list) else tuple
            place = next((n for n, item in enumerate(sequence.__iter__(holder)) if item is value), None)
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
            and any(holder.get(name) is self._values[number] for name in _SHOWN_AS_ATTRIBUTES)
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
    for cls in _mro_of(type(value)):
        descriptor = _dict_of(cls).get("__dict__")
        if type(descriptor) in (GetSetDescriptorType, MemberDescriptorType):
            found = descriptor.__get__(value)
            return found if isinstance(found, dict) else None
        if descriptor is not None:
            return None
    return None


def _attribute(holder: object, own: Mapping[str, object] | None, value: object) -> str | None:
    for key, item in (own or {}).items():
        if item is value and type(key) is str:
            return key
    for cls in _mro_of(type(holder)):
        for key, descriptor in _dict_of(cls).items():
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


def _users_own(cls: object) -> bool:
    try:
        return bool(_module_of(cls) == "__main__")
    except AttributeError:  # deleted
        return False


def _items(value: Any) -> Sequence[object]:
    """What a container of Python's refers to: a bounded part of a huge one."""
    of = type(value)
    if of in _COMMON and len(value) <= _MOST_ITEMS:
        return get_referents(value)
    base: Any = of if of in _CONTAINERS else next(base for base in _CONTAINERS if issubclass(of, base))
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
