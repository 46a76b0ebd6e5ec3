"""Tests of finding the variables that a failed cell reads.

The fix for an out-of-memory error never deletes these variables.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwidget.kernel.shell.name_references import names_read
from gpuwidget.kernel.shell.user_code import UserCode


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("y = model(x)", {"model", "x"}),
        ("model = Model(n)", {"Model", "n"}),
        ("x = x + 1", {"x"}),
        ("x += y", {"x", "y"}),
        ("x = 1\nx + y", {"y"}),
        ("if flag:\n    x = 1\nx", {"flag", "x"}),
        ("for x in xs:\n    total = total + x\nx", {"xs", "total", "x"}),
        ("a, (b, *c) = d\na + b + c[0]", {"d"}),
        ("xs[0] = y", {"xs", "y"}),
        ("net.weight = w", {"net", "w"}),
        ("def f():\n    return cache\nf()", {"cache", "f"}),
        ("z: int = 3\nz", set()),
        ("try:\n    x = f()\nexcept E:\n    pass\nx", {"f", "E", "x"}),
        ("[x for x in xs]", {"x", "xs"}),
        ("%time y = model(x)", {"time", "y", "model", "x"}),
        ("", set()),
    ],
)
def test_names_read_before_they_are_assigned(cell: str, names: set[str]) -> None:
    """A variable counts as read unless the cell certainly assigns the variable before reading it."""
    assert names_read(cell, None, UserCode(SimpleNamespace()), {}) == frozenset(names)


def run_cell(source: str, scope: dict[str, Any], name: str = "/tmp/ipykernel_7/1.py") -> None:
    """Run ``source`` as the code of a cell, compiled under the file name ``name``."""
    exec(compile(source, name, "exec"), scope)


def names_read_by(source: str, scope: dict[str, Any]) -> frozenset[str]:
    """Run a cell that fails; return which of the variables big, model and other the cell reads."""
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map={"/tmp/ipykernel_7/2.py": 2}))
    with pytest.raises(ZeroDivisionError) as raised:
        run_cell(source, scope, "/tmp/ipykernel_7/2.py")
    found = names_read(source, raised.tb, UserCode(shell), scope)
    assert found is not None
    return found & {"big", "model", "other"}


@pytest.mark.parametrize(
    "definition",
    [
        "def evaluate(): return big.mean()\ndef train():\n    evaluate()",
        "def train(): return [t for t in (lambda: [big])()]",
        "def train():\n    def inner():\n        class Local:\n            kept = big\n    inner()",
        "import functools\ntrain = functools.partial(lambda n: big, 3)",
        "import functools\n@functools.wraps(print)\ndef inner(): big\n"
        "def outer(f):\n    return lambda: f()\ntrain = outer(inner)",
        "class Trainer:\n    def __call__(self): return self.step()\n    def step(self): return big\n"
        "train = Trainer()",
        "class Base:\n    @property\n    def data(self): return big\nclass Trainer(Base): pass\n"
        "def train(): return Trainer().data",
        "class Hook:\n    @staticmethod\n    def run(x): return big\nregistered = {'hooks': [Hook()]}\n"
        "def train(): registered",
        "def steps():\n    yield 1\n    yield big\nstepping = steps()\nnext(stepping)\n"
        "def train(): next(stepping)",
        "from collections import OrderedDict\ntrain = OrderedDict(a=lambda: big)",
    ],
)
def test_names_in_called_functions(definition: str) -> None:
    """A variable counts as read if a function that the cell refers to, directly or indirectly, reads it.

    The function need not be on the traceback.
    """
    scope: dict[str, Any] = {"__name__": "__main__", "big": [1], "model": 2, "other": 3}
    run_cell(f"{definition}\ndef unused(): return other", scope)
    assert names_read_by("result = train, 1 / 0", scope) == {"big"}


def test_names_in_functions_passed_as_arguments() -> None:
    """A variable counts as read if a local variable on the traceback holds a function that reads it."""
    scope: dict[str, Any] = {"__name__": "__main__", "big": 1, "model": 2, "other": 3}
    run_cell(
        "def make(): return lambda: big\n"
        "def train(f):\n    f()\n    1 / 0\n"
        "registry = {}\n"
        "def start():\n    f = registry.pop('f')\n    train(f)",
        scope,
    )
    run_cell("registry['f'] = make()", scope)
    assert names_read_by("start()", scope) == {"big"}


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("get_ipython().run_cell_magic('time', '', 'out = [big, model.sum()]\\n')", {"big", "model"}),
        ("get_ipython().run_line_magic('time', 'out=[big]')", {"big"}),
        ("get_ipython().run_cell_magic('time', '', 'model = build(8)\\nmodel(big)\\n')", {"big"}),
        (
            "get_ipython().run_cell_magic('timeit', '-n 1 -r 1', '%matplotlib\\nother = big')",
            {"big", "other"},
        ),
        ("exec('big[:1]')", {"big"}),
        ("globals()['big']", {"big"}),
        ("f'of {model} big {other}'", {"big", "model", "other"}),
        ("del big", {"big"}),
    ],
)
def test_names_in_strings(cell: str, names: set[str]) -> None:
    """Names in string literals count as read, because IPython turns the code below a cell magic into a
    string."""
    found = names_read(cell, None, UserCode(SimpleNamespace()), {})
    assert found is not None
    assert found & {"big", "model", "other"} == names


def test_too_many_objects_to_follow() -> None:
    """If there are too many objects to follow, it is unknown which names the cell reads.

    A single container with many items does not count as too many objects.
    """
    chain: list[Any] = []
    for _ in range(30_000):
        chain = [chain]
    assert names_read("x", None, UserCode(SimpleNamespace()), {"x": chain}) is None
    found = names_read("x", None, UserCode(SimpleNamespace()), {"x": ["a sentence"] * 1_000_000})
    assert found == frozenset({"x"})


def test_user_code_never_runs() -> None:
    """Traversing an object's references calls no special method of the object, its class or its metaclass."""
    scope: dict[str, Any] = {"__name__": "__main__", "big": 1}
    run_cell(
        "class Meta(type):\n"
        "    def __eq__(self, other): raise AssertionError\n"
        "class Odd(metaclass=Meta):\n"
        "    __slots__ = ('f',)\n"
        "    def __getattribute__(self, name): raise AssertionError\n"
        "    __hash__ = __eq__ = __len__ = __iter__ = __getattribute__\n"
        "class List(list):\n"
        "    def __iter__(self): raise AssertionError\n"
        "    __len__ = __iter__\n"
        "odd = Odd()\n"
        "object.__setattr__(odd, 'f', List([lambda: big]))",
        scope,
    )
    found = names_read("odd", None, UserCode(SimpleNamespace()), scope)
    assert found is not None
    assert {"odd", "big"} <= found


def test_names_in_functions_on_the_traceback(tmp_path: Path) -> None:
    """A variable counts as read if one of the user's functions on the traceback reads it.

    Variables that only library functions on the traceback read do not count.
    """
    (tmp_path / "mine.py").write_text("def step():\n    return cache[big]\n")
    scope: dict[str, Any] = {}
    exec(compile((tmp_path / "mine.py").read_text(), str(tmp_path / "mine.py"), "exec"), scope)
    library: dict[str, Any] = {}
    exec(compile("def call(f):\n    hidden\n", "/env/lib/python3/site-packages/lib.py", "exec"), library)
    scope["call"] = library["call"]
    for function in ("step()", "call(step)"):
        try:
            exec(function, scope)
        except NameError as error:
            found = names_read("", error.__traceback__, UserCode(SimpleNamespace()), scope)
            assert found is not None
            assert found >= {"cache", "big"} if function == "step()" else "hidden" not in found
