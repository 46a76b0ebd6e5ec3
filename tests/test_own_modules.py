"""Which modules are the user's own."""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType
from typing import Any

import pytest

from gpuwidget import own_modules


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
    assert own_modules.is_users(what) is expected
