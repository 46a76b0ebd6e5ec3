"""Which variables functions read, those among them that other functions of the user's call.

Goes from objects to whatever they lead to, and runs none of the user's code.
"""

from __future__ import annotations

import builtins
import gc
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    ModuleType,
    TracebackType,
)
from typing import Any

from gpuwidget.kernel.shell.user_code import UserCode
from gpuwidget.model.raw_attributes import class_dict, class_module, class_mro, module_dict

_MOST_OBJECTS = 20_000
_MOST_ITEMS = 1_000
"""Of a container so many are looked at: those of a huge one are alike."""
# By identity: to look a class up in a set may run its metaclass's code.
_LEADS_NOWHERE = frozenset(
    map(
        id,
        (
            *(int, float, complex, str, bytes, bytearray, bool, type(None), range, slice),
            *(CodeType, BuiltinFunctionType, TracebackType),
        ),
    )
)
_CONTAINERS = frozenset(map(id, (list, tuple, dict, set, frozenset)))


class Reads:
    """Collects the variables of one namespace that code may read."""

    def __init__(self, namespace: Mapping[str, object], code: UserCode, barred: Iterable[object]) -> None:
        self._namespace = namespace
        self._code = code
        self._kept: list[object] = [namespace, vars(builtins), *barred]
        """Alive as long as their identities are compared."""
        self._met = {id(one) for one in self._kept}
        self._ahead: list[object] = []
        self.names: set[str] = set()

    def name(self, name: str) -> None:
        """A variable is read: so is what the functions read that it leads to."""
        if name not in self.names:
            self.names.add(name)
            if name in self._namespace:
                self._push(self._namespace[name])

    def frame(self, frame: FrameType) -> None:
        """A frame on the way to the error: its code, and what its local variables lead to."""
        self._read(frame.f_code, frame.f_globals)
        for one in gc.get_referents(frame):
            if one is not frame.f_globals:
                self._push(one)

    def follow(self) -> bool:
        """Go wherever it leads; False where that was too much to look at."""
        while self._ahead:
            if len(self._kept) > _MOST_OBJECTS:
                return False
            for one in self._behind(self._ahead.pop()):
                self._push(one)
        return True

    def _push(self, one: object) -> None:
        kind = type(one)
        if id(kind) in _LEADS_NOWHERE or id(one) in self._met or issubclass(kind, FrameType):
            return
        self._met.add(id(one))
        self._kept.append(one)
        self._ahead.append(one)

    def _behind(self, one: Any) -> Iterator[object]:
        kind = type(one)
        if issubclass(kind, ModuleType):
            own = module_dict(one)
            if self._is_users(own.get("__file__")):
                values = list(own.values())
                yield from (value for value in values if issubclass(type(value), (FunctionType, type)))
        elif issubclass(kind, type):
            yield kind
            for cls in class_mro(one):
                if self._is_users_class(cls):
                    yield from list(class_dict(cls).values())
        elif kind is FunctionType:
            around = one.__globals__
            if around is self._namespace or self._is_users(one.__code__.co_filename):
                self._read(one.__code__, around)
            yield from (value for value in gc.get_referents(one) if value is not around)
        elif kind is GeneratorType:
            if one.gi_frame is not None:
                self.frame(one.gi_frame)
        elif id(kind) in _CONTAINERS and len(one) > _MOST_ITEMS:
            yield from list(islice(one.values() if kind is dict else one, _MOST_ITEMS))
        else:
            yield kind
            yield from gc.get_referents(one)[:_MOST_ITEMS]

    def _read(self, code: CodeType, around: Mapping[str, object]) -> None:
        """The names in a function's code are variables, or lead to other code in its module."""
        found = set(_names(code))
        if around is self._namespace or "__main__" in found:
            for name in found:
                self.name(name)
        else:
            for name in found.intersection(around):
                self._push(around[name])

    def _is_users(self, file: object) -> bool:
        return type(file) is str and self._code.name(file) is not None

    def _is_users_class(self, cls: type) -> bool:
        try:
            name = class_module(cls)
        except AttributeError:  # deleted
            return True
        if type(name) is not str:
            return True
        module = sys.modules.get(name)
        if name == "__main__" or not issubclass(type(module), ModuleType):
            return True
        return self._is_users(module_dict(module).get("__file__"))


def _names(code: CodeType) -> Iterator[str]:
    """What a function's code names beside its own variables, with the functions written within it."""
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _names(constant)
