"""Tests of which modules and classes count as the user's."""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType
from typing import Any

import pytest

from gpuwidget.heap import user_modules


def module(name: str, file: str | None) -> ModuleType:
    """Return a module with this ``__name__`` and ``__file__``."""
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
def test_user_modules(what: Any, expected: bool) -> None:
    """A module is the user's if its file is neither in an installed package nor in Python's own library.

    Modules of torch, IPython and gpuwidget are never the user's.
    """
    assert user_modules.is_user_module(what) is expected


def test_user_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes defined in the notebook or in a user's module are the user's.

    A class without ``__module__`` does not count as the user's.
    """
    monkeypatch.setitem(sys.modules, "train", module("train", "/home/ada/work/train.py"))
    named = {
        name: type("Made", (), {"__module__": name}) for name in ("__main__", "train", "json", "gone", 3)
    }
    assert {name: user_modules.is_user_class(made) for name, made in named.items()} == {
        "__main__": True,
        "train": True,
        "json": False,
        "gone": False,
        3: False,
    }
    nameless = type("Meta", (type,), {})("Made", (), {})
    del nameless.__module__
    assert [user_modules.class_module_name(made) for made in (named["train"], named[3], nameless)] == [
        "train",
        "",
        "",
    ]
    assert user_modules.is_user_class(nameless) is False
