"""What an object has and refers to, told without asking it."""

from __future__ import annotations

import sys
from collections import deque
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from helpers_allocator import ROUND, StandInGpu
from helpers_search import briefly, found

from gpuwidget.heap import object_references


def forbidden(*_: object) -> Any:
    """Of the user's, and not to be run."""
    raise AssertionError("user code ran")


class Slots:
    """Keeps its attributes in two slots, the second never assigned."""

    __slots__ = ("kept", "never")
    kept: object


def test_attributes_are_pythons_own() -> None:
    """An object's dictionary, whatever its class says it has; None where it keeps none, or a made up one."""
    hostile = type("Hostile", (), {"__getattribute__": forbidden, "__getattr__": forbidden})()
    object.__setattr__(hostile, "kept", 1)
    made_up = type("MadeUp", (), {"__dict__": property(forbidden)})()
    assert object_references.attributes(hostile) == {"kept": 1}
    assert [object_references.attributes(one) for one in (made_up, Slots(), 1, "text")] == [None] * 4


def test_which_attribute_it_is() -> None:
    """An attribute or a slot is told by what is in it; other things have no such name."""
    slots, part = Slots(), object()
    slots.kept = part
    space = SimpleNamespace(first=1.5, part=part)
    assert object_references.attribute_name(slots, None, part) == "kept"
    assert object_references.attribute_name(space, object_references.attributes(space), part) == "part"
    assert object_references.attribute_name(space, None, part) is None
    assert object_references.attribute_name(slots, None, object()) is None


def test_the_name_of_a_type() -> None:
    """A type's own name, where its class or metaclass pretends another."""
    odd = type("Meta", (type,), {"__name__": property(forbidden)})(
        "Odd", (), {"__class__": property(forbidden)}
    )
    assert object_references.type_name(odd()) == "Odd"


@pytest.mark.parametrize("kind", [list, deque])
def test_a_huge_container_is_looked_at_in_part(gpu: StandInGpu, kind: Any) -> None:
    """A list of millions costs no copy of it; its first hundred thousand items are looked at."""
    huge = kind([gpu.empty(1), *([0] * 100_000), gpu.empty(1)])
    assert briefly(found(gpu, {"huge": huge})) == [((), ROUND), (("huge",), ROUND)]


def test_containers_of_the_users_are_read_as_pythons() -> None:
    """A class derived from a container does not say how many items there are, nor which."""
    body = {"__len__": forbidden, "__iter__": forbidden, "values": forbidden}
    part = [1]
    derived = type("List", (list,), body)()
    list.append(derived, part)
    assert part in object_references.items(derived)
    huge = type("Dict", (dict,), body)()
    dict.update(huge, dict.fromkeys(range(object_references.MOST_ITEMS + 1), part))
    assert object_references.items(huge) == [part] * object_references.MOST_ITEMS


def test_functions_and_frames_end_at_their_module() -> None:
    """A function leads to what it closes over and its defaults, a frame to its local variables; neither to
    the variables of its module, nor a frame to its caller."""
    kept, default = ["kept"], ["default"]

    def function(value: object = default) -> tuple[object, FrameType]:
        return (kept, value), sys._getframe()

    _, frame = function()
    of_function = [id(one) for one in object_references.of_function(function)]
    assert id(function.__closure__) in of_function
    assert id(function.__defaults__) in of_function
    assert id(globals()) not in of_function
    of_frame = [id(one) for one in object_references.of_frame(frame)]
    assert id(default) in of_frame
    assert not {id(globals()), id(sys._getframe())} & set(of_frame)
