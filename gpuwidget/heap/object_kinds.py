"""What kinds of objects a search tells apart, by their types."""

from __future__ import annotations

from enum import IntEnum, auto
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

from gpuwidget.heap.object_references import CONTAINERS
from gpuwidget.heap.user_modules import module_name

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


class Kind(IntEnum):
    """How an object is looked at; each is true."""

    NOTHING = auto()
    """It is not."""
    TENSOR = auto()
    STORAGE = auto()
    MODULE = auto()
    """Of torch.nn."""
    OPTIMIZER = auto()
    CONTAINER = auto()
    FUNCTION = auto()
    FRAME = auto()
    CLASS = auto()
    OTHER = auto()


class Kinds:
    """The kinds of objects, each type classified once."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.known: dict[int, Kind] = dict.fromkeys(_PLAIN, Kind.NOTHING)
        """By the type's id, of the types met so far."""
        self._types: list[type] = []
        """Those whose ids were noted: no other type may have such an id meanwhile."""

    def of(self, value: object) -> Kind:
        """The kind of an object, which is known from then on."""
        of = type(value)
        kind = self.known.get(id(of))
        if kind is None:
            self._types.append(of)
            kind = self.known[id(of)] = self._classify(of)
        return kind

    def _classify(self, of: type) -> Kind:
        torch = self._torch
        if issubclass(of, torch.Tensor):
            return Kind.TENSOR
        if issubclass(of, torch.UntypedStorage):
            return Kind.STORAGE
        if issubclass(of, torch.nn.Module):
            return Kind.MODULE
        if issubclass(of, torch.optim.Optimizer):
            return Kind.OPTIMIZER
        if issubclass(of, ModuleType):
            return Kind.NOTHING
        if issubclass(of, type):
            return Kind.CLASS
        if issubclass(of, FunctionType):
            return Kind.FUNCTION
        if issubclass(of, FrameType):
            return Kind.FRAME
        if issubclass(of, CONTAINERS):
            return Kind.CONTAINER
        if module_name(of).partition(".")[0] in _BARRED:
            return Kind.NOTHING
        return Kind.OTHER
