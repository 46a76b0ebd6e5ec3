"""Which modules and classes are the user's own."""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType
from typing import Any

import pytest

from gpuwidget.heap import user_modules


def module(name: str, file: str | None) -> ModuleType:
    """A module that says so of itself."""
    made = ModuleType(name)
    made.__file__ = file
    return made


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (module("train", "/home/ada/work/train.py"), True),
        (module("train", "/home/ada/venv/lib/python3.12/site-packages/train.py"), False),
        (module("torch.nn", "/home/ada/pytorch/torch/nn/__init__.py"), False),
        (module("gpuwidget", "/home/ada/gpuwidget/__init__.py"), False),
        (module("inside", os.path.join(sys.prefix, "inside.py")), False),
        (module("__main__", None), False),
        (json, False),
        ("train", False),
        (None, False),
    ],
)
def test_whose_a_module_is(what: Any, expected: bool) -> None:
    """The user's are those with a file that was not installed, and that belong to no tool of ours."""
    assert user_modules.is_users(what) is expected


def test_whose_a_class_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a notebook and of the user's modules are; one that names none, or a strange one, is not."""
    monkeypatch.setitem(sys.modules, "train", module("train", "/home/ada/work/train.py"))
    named = {
        name: type("Made", (), {"__module__": name}) for name in ("__main__", "train", "json", "gone", 3)
    }
    assert {name: user_modules.is_users_class(made) for name, made in named.items()} == {
        "__main__": True,
        "train": True,
        "json": False,
        "gone": False,
        3: False,
    }
    nameless = type("Meta", (type,), {})("Made", (), {})
    del nameless.__module__
    assert [user_modules.module_name(made) for made in (named["train"], named[3], nameless)] == [
        "train",
        "",
        "",
    ]
    assert user_modules.is_users_class(nameless) is False
