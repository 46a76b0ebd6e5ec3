"""Classify an object by its type and list what it refers to, without running user code."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum, auto
from gc import get_referents
from itertools import islice
from types import (
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any
from weakref import ReferenceType

from gpuwidget.model.raw_attributes import class_dict, class_mro, class_name
from gpuwidget.model.user_files import class_module_name

MAX_ITEMS = 100_000
"""Maximum number of items of one container that a search follows."""
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
"""Container types whose items a search reads, also in instances of subclasses that users define."""
BUILTIN_CONTAINER_IDS = frozenset(map(id, (*CONTAINERS, OrderedDict, defaultdict)))
"""Ids of container types whose ``len()`` is Python's own and therefore runs no user code."""

# A search skips objects of these packages, such as widgets and asyncio tasks, because they lead to the shell
# and thus to every variable.
_EXCLUDED_PACKAGES = frozenset(
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
_LEAF_TYPE_IDS = frozenset(
    map(
        id,
        (
            *(int, float, complex, str, bytes, bytearray, bool, range, slice, memoryview),
            *(type(None), type(Ellipsis), type(NotImplemented), property, staticmethod, classmethod),
            *(CodeType, ReferenceType, GetSetDescriptorType, MemberDescriptorType),
        ),
    )
)
"""Ids of types whose instances a search does not follow, because they normally lead to no tensor."""


# -- kinds -----------------------------------------------------------------------------------------------


class ObjectKind(IntEnum):
    """How a search treats an object. Every member is truthy, so that ``or`` can tell a cached kind from
    None."""

    SKIPPED = auto()
    """The search does not follow the object."""
    TENSOR = auto()
    STORAGE = auto()
    MODULE = auto()
    """A ``torch.nn.Module``."""
    OPTIMIZER = auto()
    CONTAINER = auto()
    FUNCTION = auto()
    FRAME = auto()
    CLASS = auto()
    OTHER = auto()


class ObjectKinds:
    """Determines the kinds of objects, and caches one kind per type."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.by_type_id: dict[int, ObjectKind] = dict.fromkeys(_LEAF_TYPE_IDS, ObjectKind.SKIPPED)
        """The kind of each type's instances, keyed by the type's id. It contains the types classified so
        far."""
        self._types: list[type] = []
        """Keeps the classified types alive, so that no other type can get one of the cached ids."""

    def kind_of(self, value: object) -> ObjectKind:
        """Return the kind of an object, which is cached for its type."""
        cls = type(value)
        kind = self.by_type_id.get(id(cls))
        if kind is None:
            self._types.append(cls)
            kind = self.by_type_id[id(cls)] = self._classify(cls)
        return kind

    def _classify(self, cls: type) -> ObjectKind:
        torch = self._torch
        by_base = (
            (torch.Tensor, ObjectKind.TENSOR),
            (torch.UntypedStorage, ObjectKind.STORAGE),
            (torch.nn.Module, ObjectKind.MODULE),
            (torch.optim.Optimizer, ObjectKind.OPTIMIZER),
            (ModuleType, ObjectKind.SKIPPED),
            (type, ObjectKind.CLASS),
            (FunctionType, ObjectKind.FUNCTION),
            (FrameType, ObjectKind.FRAME),
            (CONTAINERS, ObjectKind.CONTAINER),
        )
        for base, kind in by_base:
            if issubclass(cls, base):
                return kind
        excluded = class_module_name(cls).partition(".")[0] in _EXCLUDED_PACKAGES
        return ObjectKind.SKIPPED if excluded else ObjectKind.OTHER


# -- references ------------------------------------------------------------------------------------------


def container_items(value: Any) -> Sequence[object]:
    """Return the objects that a container refers to, limited to its first ``MAX_ITEMS`` items."""
    if id(type(value)) in BUILTIN_CONTAINER_IDS and len(value) <= MAX_ITEMS:
        return get_referents(value)
    if omitted_count(value) == 0:
        return get_referents(value)
    return list(islice(_items(value), MAX_ITEMS))


def omitted_count(value: Any) -> int:
    """Return the number of items that :func:`container_items` leaves out."""
    length: int = _container_type(value).__len__(value)
    return max(0, length - MAX_ITEMS)


def omitted_items(value: Any) -> Iterator[object]:
    """Return an iterator over the items that :func:`container_items` leaves out."""
    return islice(_items(value), MAX_ITEMS, None)


def _items(value: Any) -> Iterator[object]:
    base = _container_type(value)
    return iter(dict.values(value)) if base is dict else base.__iter__(value)


def _container_type(value: object) -> Any:
    return next(base for base in CONTAINERS if issubclass(type(value), base))


def function_references(function: Any) -> Sequence[object]:
    """Return the objects that a function refers to, such as its closure, but not its module's variables."""
    module_variables = id(function.__globals__)
    return [referent for referent in get_referents(function) if id(referent) != module_variables]


def frame_references(frame: Any) -> Sequence[object]:
    """Return the objects that a frame refers to, such as local variables, but not its caller and globals."""
    module_variables = id(frame.f_globals)
    return [
        referent
        for referent in get_referents(frame)
        if id(referent) != module_variables and type(referent) is not FrameType
    ]


# -- attributes ------------------------------------------------------------------------------------------


def type_name(value: object) -> str:
    """Return the name of the type of ``value``, even if its class overrides ``__class__``."""
    return class_name(type(value))


def instance_dict(value: object) -> dict[str, object] | None:
    """Return the ``__dict__`` of ``value`` without running user code; None if there is no ``__dict__``."""
    for cls in class_mro(type(value)):
        descriptor = class_dict(cls).get("__dict__")
        kind = type(descriptor)
        if kind is GetSetDescriptorType or kind is MemberDescriptorType:
            found: Any = descriptor.__get__(value)
            return found if issubclass(type(found), dict) else None
        if descriptor is not None:
            return None
    return None


def attribute_name(holder: object, attributes: Mapping[str, object] | None, value: object) -> str | None:
    """Return the name of the attribute of ``holder`` whose value is ``value``, or None if there is none.

    ``attributes`` is the ``__dict__`` of ``holder``. Slots are searched too.
    """
    for key, item in (attributes or {}).items():
        if item is value and type(key) is str:
            return key
    for cls in class_mro(type(holder)):
        for key, descriptor in class_dict(cls).items():
            if type(descriptor) is MemberDescriptorType and _slot_value(descriptor, holder) is value:
                return str(key)
    return None


def _slot_value(descriptor: Any, holder: object) -> object:
    try:
        return descriptor.__get__(holder)
    except AttributeError:  # the slot was never assigned
        return None
