"""What an object refers to, and what it has of its own, without running anything of the user's."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from gc import get_referents
from itertools import islice
from types import FrameType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

from gpuwidget.model.raw_attributes import class_dict, class_mro, class_name

MOST_ITEMS = 100_000
"""Items of one container that are looked at."""
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
"""Python's own, from which others may be derived."""
COMMON = frozenset(map(id, (*CONTAINERS, OrderedDict, defaultdict)))
"""Ids of types of containers whose ``len()`` is Python's own."""


def type_name(value: object) -> str:
    """Name of the type of ``value``, whatever its class makes of attributes."""
    return class_name(type(value))


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


def attribute_name(holder: object, own: Mapping[str, object] | None, value: object) -> str | None:
    """Which attribute of ``holder`` is ``value``: one of ``own``, its :func:`attributes`, or a slot."""
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


def items(value: Any) -> Sequence[object]:
    """What a container of Python's refers to: a bounded part of a huge one."""
    of = type(value)
    if id(of) in COMMON and len(value) <= MOST_ITEMS:
        return get_referents(value)
    base: Any = next(base for base in CONTAINERS if issubclass(of, base))
    if base.__len__(value) <= MOST_ITEMS:
        return get_referents(value)
    found = dict.values(value) if base is dict else base.__iter__(value)
    return list(islice(found, MOST_ITEMS))


def of_function(value: Any) -> Sequence[object]:
    """What a function closes over, and its defaults; not the variables of its module."""
    elsewhere = id(value.__globals__)
    return [one for one in get_referents(value) if id(one) != elsewhere]


def of_frame(value: Any) -> Sequence[object]:
    """A frame's local variables, not its caller and not its module's variables."""
    elsewhere = id(value.f_globals)
    return [one for one in get_referents(value) if id(one) != elsewhere and type(one) is not FrameType]
