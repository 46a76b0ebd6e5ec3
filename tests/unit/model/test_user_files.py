"""Tests of which files, modules and classes count as the user's code."""

from __future__ import annotations

import json
import linecache
import os
import sys
from types import ModuleType
from typing import Any

import pytest

import gpuwidget
from gpuwidget.model import user_files


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        pytest.param("/home/ada/work/train.py", True, id="beside the notebook"),
        pytest.param("/srv/shared/model.py", True, id="any other folder"),
        pytest.param("/home/ada/src/tool/src/tool/core.py", True, id="editable install"),
        pytest.param("/tmp/ipykernel_7/123.py", True, id="cell of ipykernel"),
        pytest.param("<ipython-input-12-0a1b2c>", True, id="cell of IPython"),
        pytest.param(os.path.join(sys.prefix, "train.py"), True, id="project in the environment's folder"),
        pytest.param("/home/ada/work/.venv/lib/python3.12/site-packages/timm/data.py", False, id="installed"),
        pytest.param("/home/ada/.local/lib/python3.12/site-packages/x.py", False, id="installed by the user"),
        pytest.param("/usr/lib/python3/dist-packages/thing.py", False, id="installed by Debian"),
        pytest.param(linecache.__file__, False, id="standard library"),
        pytest.param("", False, id="no name"),
        pytest.param("train.py", False, id="relative name"),
        pytest.param("<frozen importlib._bootstrap>", False, id="frozen module"),
        pytest.param(gpuwidget.__file__, False, id="gpuwidget"),
        pytest.param("/tmp/torchinductor_ada/qz/cqz.py", False, id="compiled by torch"),
        pytest.param("/home/ada/.triton/cache/ab/kernel.py", False, id="compiled by Triton"),
        pytest.param("<timed exec>", False, id="body of %%time"),
        pytest.param("<timed eval>", False, id="argument of %time"),
        pytest.param("<magic-timeit>", False, id="body of %%timeit"),
        pytest.param("<string>", False, id="exec"),
        pytest.param("<__array_function__ internals>", False, id="generated function"),
    ],
)
def test_user_files(filename: str, expected: bool) -> None:
    """A file is the user's unless it belongs to Python, gpuwidget or an installed package.

    Code that was compiled from a string, such as generated code, does not count as the user's. Only the cells
    of a notebook do.
    """
    assert user_files.is_user_file(filename) is expected


def test_a_checkout_of_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch is not the user's code even if a developer imports it from a project folder."""
    torch = module("torch", "/home/ada/pytorch/torch/__init__.py")
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert not user_files.is_user_file("/home/ada/pytorch/torch/nn/modules/linear.py")
    assert user_files.is_user_file("/home/ada/pytorch/benchmarks/fast.py")


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
        (module("__main__", None), False),
        (json, False),
        (sys, False),
        ("train", False),
        (None, False),
    ],
)
def test_user_modules(what: Any, expected: bool) -> None:
    """A module is the user's if its file is the user's and it is not torch, IPython or gpuwidget."""
    assert user_files.is_user_module(what) is expected


def test_user_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes of the notebook and of user modules are the user's. A class without ``__module__`` is not."""
    monkeypatch.setitem(sys.modules, "train", module("train", "/home/ada/work/train.py"))
    named = {
        name: type("Made", (), {"__module__": name}) for name in ("__main__", "train", "json", "gone", 3)
    }
    assert {name: user_files.is_user_class(made) for name, made in named.items()} == {
        "__main__": True,
        "train": True,
        "json": False,
        "gone": False,
        3: False,
    }
    nameless = type("Meta", (type,), {})("Made", (), {})
    del nameless.__module__
    assert [user_files.class_module_name(made) for made in (named["train"], named[3], nameless)] == [
        "train",
        "",
        "",
    ]
    assert user_files.is_user_class(nameless) is False
