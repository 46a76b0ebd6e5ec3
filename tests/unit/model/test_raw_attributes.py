"""Tests of reading attributes of classes and modules without running code of their metaclasses."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from gpuwidget.model import raw_attributes


def test_no_metaclass_is_called() -> None:
    """The name, module, bases and attributes of a class or module are read without running user code."""

    def forbidden(*_: object) -> Any:
        raise AssertionError("user code ran")

    body = dict.fromkeys(("__getattribute__", "__getattr__", "__dir__", "__subclasscheck__"), forbidden)
    names = dict.fromkeys(("__dict__", "__mro__", "__name__", "__module__"), property(forbidden))
    odd = type("Meta", (type,), {**body, **names})("Odd", (int,), {"__module__": "train", "x": 1})
    assert raw_attributes.class_name(odd) == "Odd"
    assert raw_attributes.class_module(odd) == "train"
    assert [id(one) for one in raw_attributes.class_mro(odd)] == [id(odd), id(int), id(object)]
    assert raw_attributes.class_dict(odd)["x"] == 1
    module = type("OddModule", (ModuleType,), {**body, "__dict__": property(forbidden)})("odd")
    assert raw_attributes.module_dict(module)["__name__"] == "odd"


def test_a_module_name_that_was_deleted() -> None:
    """If the ``__module__`` attribute of a class was deleted, reading it raises AttributeError."""
    made = type("Meta", (type,), {})("Made", (), {})
    del made.__module__
    with pytest.raises(AttributeError):
        raw_attributes.class_module(made)
