"""Tests of finding an object's kind and references without running the object's code."""

from __future__ import annotations

import json
import logging
import sys
from collections import OrderedDict, deque
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from helpers_allocator import ROUND, StandInGpu
from helpers_heap import holders_of, names_and_bytes

from gpuwidget.heap import object_references
from gpuwidget.heap.find_holders import find_holders
from gpuwidget.heap.heap_walk import Root
from gpuwidget.heap.object_references import ObjectKind, ObjectKinds
from gpuwidget.pytorch import allocator

torch: Any = pytest.importorskip("torch")


def frame() -> object:
    """Return the frame of this call."""
    return sys._getframe()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (torch.nn.Parameter(torch.zeros(1)), ObjectKind.TENSOR),
        (torch.zeros(1).untyped_storage(), ObjectKind.STORAGE),
        (torch.nn.Linear(1, 1), ObjectKind.MODULE),
        (torch.optim.SGD([torch.zeros(1)]), ObjectKind.OPTIMIZER),
        (OrderedDict(), ObjectKind.CONTAINER),
        (type("Derived", (list,), {})(), ObjectKind.CONTAINER),
        (frame, ObjectKind.FUNCTION),
        (frame(), ObjectKind.FRAME),
        (SimpleNamespace, ObjectKind.CLASS),
        (SimpleNamespace(), ObjectKind.OTHER),
        (1.5, ObjectKind.SKIPPED),
        ("text", ObjectKind.SKIPPED),
        (None, ObjectKind.SKIPPED),
        (json, ObjectKind.SKIPPED),
        (logging.getLogger(), ObjectKind.SKIPPED),
    ],
)
def test_kinds(value: object, kind: ObjectKind) -> None:
    """An object's kind depends on its type; a subclass has the kind of its base class.

    Numbers, texts, Python modules and loggers are skipped.
    """
    kinds = ObjectKinds(torch)
    assert kinds.kind_of(value) is kind
    assert kinds.by_type_id[id(type(value))] is kind


def test_a_type_that_cannot_be_compared() -> None:
    """Finding the kind of an object calls neither ``__hash__`` nor ``__eq__`` of its metaclass."""

    def forbidden(*_: object) -> Any:
        raise AssertionError("user code ran")

    odd = type("Meta", (type,), {"__eq__": forbidden, "__hash__": None})("Odd", (), {})
    kinds = ObjectKinds(torch)
    assert (kinds.kind_of(odd()), kinds.kind_of(odd)) == (ObjectKind.OTHER, ObjectKind.CLASS)


def forbidden(*_: object) -> Any:
    """Raise an error in place of user code, which a search must not run."""
    raise AssertionError("user code ran")


class Slots:
    """A class with two slots, the second of which is never assigned."""

    __slots__ = ("kept", "never")
    kept: object


def test_instance_dict() -> None:
    """``instance_dict`` returns the real ``__dict__`` of an object, whatever the object's class overrides.

    It returns None for an object without a ``__dict__``.
    """
    hostile = type("Hostile", (), {"__getattribute__": forbidden, "__getattr__": forbidden})()
    object.__setattr__(hostile, "kept", 1)
    made_up = type("MadeUp", (), {"__dict__": property(forbidden)})()
    assert object_references.instance_dict(hostile) == {"kept": 1}
    assert [object_references.instance_dict(one) for one in (made_up, Slots(), 1, "text")] == [None] * 4


def test_attribute_names() -> None:
    """``attribute_name`` returns the name of the attribute or slot that holds a value, or None if there is no
    such attribute or slot."""
    slots, part = Slots(), object()
    slots.kept = part
    space = SimpleNamespace(first=1.5, part=part)
    assert object_references.attribute_name(slots, None, part) == "kept"
    assert object_references.attribute_name(space, object_references.instance_dict(space), part) == "part"
    assert object_references.attribute_name(space, None, part) is None
    assert object_references.attribute_name(slots, None, object()) is None


def test_type_name() -> None:
    """``type_name`` returns the real name of an object's type, whatever the class or its metaclass
    overrides."""
    odd = type("Meta", (type,), {"__name__": property(forbidden)})(
        "Odd", (), {"__class__": property(forbidden)}
    )
    assert object_references.type_name(odd()) == "Odd"


@pytest.mark.parametrize("kind", [list, deque])
def test_a_huge_container_is_followed_in_part(gpu: StandInGpu, kind: Any) -> None:
    """A search follows only the first 100,000 items of a huge list or deque. It is incomplete if other items
    may refer to tensors, but not if they are numbers or lists of numbers."""
    huge = kind([gpu.empty(1), *([0] * 100_000), gpu.empty(1)])
    assert names_and_bytes(holders_of(gpu, {"huge": huge})) == [((), ROUND), (("huge",), ROUND)]
    assert is_complete(huge) is False
    for rest in (0, [1, "text"], [[1]], Config()):
        huge[-1] = rest
        assert is_complete(huge) is (rest in (0, [1, "text"]))


class Config:
    """An object that may refer to tensors."""


def is_complete(variable: object) -> bool:
    """Return whether a search left out no objects to which a variable leads."""
    return find_holders([Root("variable", variable, "variable")], allocator.memory_blocks()).complete


def test_container_subclasses() -> None:
    """The items of a user's container are read without calling its ``__len__``, ``__iter__`` or ``values``
    method."""
    body = {"__len__": forbidden, "__iter__": forbidden, "values": forbidden}
    part = [1]
    derived = type("List", (list,), body)()
    list.append(derived, part)
    assert part in object_references.container_items(derived)
    huge = type("Dict", (dict,), body)()
    dict.update(huge, dict.fromkeys(range(object_references.MAX_ITEMS + 1), part))
    assert object_references.container_items(huge) == [part] * object_references.MAX_ITEMS


def test_functions_and_frames_do_not_lead_to_their_module() -> None:
    """A search follows a function's closure and defaults, and a frame's local variables.

    It follows neither the variables of the function's module nor the frame's caller.
    """
    kept, default = ["kept"], ["default"]

    def function(value: object = default) -> tuple[object, FrameType]:
        return (kept, value), sys._getframe()

    _, frame = function()
    of_function = [id(one) for one in object_references.function_references(function)]
    assert id(function.__closure__) in of_function
    assert id(function.__defaults__) in of_function
    assert id(globals()) not in of_function
    of_frame = [id(one) for one in object_references.frame_references(frame)]
    assert id(default) in of_frame
    assert not {id(globals()), id(sys._getframe())} & set(of_frame)
