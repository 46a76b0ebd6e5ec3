"""Which variables a failed cell needs as they are, so that nobody advises to delete them."""

from __future__ import annotations

import importlib.util
import linecache
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwidget.kernel.shell.names_read_first import needed
from gpuwidget.kernel.shell.user_code import CHANGED, UserCode


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
def test_what_a_cell_reads(cell: str, names: set[str]) -> None:
    """A name counts where it is read before it is given a new value for certain; doubt counts as read."""
    assert needed(cell, None, UserCode(SimpleNamespace()), {}) == frozenset(names)


def cell_code(source: str, scope: dict[str, Any], name: str = "/tmp/ipykernel_7/1.py") -> None:
    """Run a cell."""
    exec(compile(source, name, "exec"), scope)


def read_by(source: str, scope: dict[str, Any]) -> frozenset[str]:
    """What a cell that fails reads of the variables of ``scope``."""
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map={"/tmp/ipykernel_7/2.py": 2}))
    with pytest.raises(ZeroDivisionError) as raised:
        cell_code(source, scope, "/tmp/ipykernel_7/2.py")
    found = needed(source, raised.tb, UserCode(shell), scope)
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
def test_what_is_called_counts(definition: str) -> None:
    """A function that reads a variable counts though it has returned, however the cell comes to it."""
    scope: dict[str, Any] = {"__name__": "__main__", "big": [1], "model": 2, "other": 3}
    cell_code(f"{definition}\ndef unused(): return other", scope)
    assert read_by("result = train, 1 / 0", scope) == {"big"}


def test_functions_that_were_handed_on_count() -> None:
    """A local variable of a function on the traceback may lead to code that has returned."""
    scope: dict[str, Any] = {"__name__": "__main__", "big": 1, "model": 2, "other": 3}
    cell_code(
        "def make(): return lambda: big\n"
        "def train(f):\n    f()\n    1 / 0\n"
        "registry = {}\n"
        "def start():\n    f = registry.pop('f')\n    train(f)",
        scope,
    )
    cell_code("registry['f'] = make()", scope)
    assert read_by("start()", scope) == {"big"}


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
def test_strings_may_be_code(cell: str, names: set[str]) -> None:
    """What stands in a string, as IPython's magics put a cell there, is read as the code that it may be."""
    found = needed(cell, None, UserCode(SimpleNamespace()), {})
    assert found is not None
    assert found & {"big", "model", "other"} == names


def test_too_much_to_look_at() -> None:
    """Where what the cell reads leads to more than can be looked at, nothing is said to be unread."""
    chain: list[Any] = []
    for _ in range(30_000):
        chain = [chain]
    assert needed("x", None, UserCode(SimpleNamespace()), {"x": chain}) is None
    found = needed("x", None, UserCode(SimpleNamespace()), {"x": ["a sentence"] * 1_000_000})
    assert found == frozenset({"x"})


def test_no_code_of_the_users_runs_while_it_is_read() -> None:
    """Neither properties, nor __getattr__, nor __eq__ of what is met, nor of its class."""
    scope: dict[str, Any] = {"__name__": "__main__", "big": 1}
    cell_code(
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
    found = needed("odd", None, UserCode(SimpleNamespace()), scope)
    assert found is not None
    assert {"odd", "big"} <= found


def test_functions_on_the_way_count(tmp_path: Path) -> None:
    """What the user's own functions on the traceback use is needed; what libraries' use is not theirs."""
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
            found = needed("", error.__traceback__, UserCode(SimpleNamespace()), scope)
            assert found is not None
            assert found >= {"cache", "big"} if function == "step()" else "hidden" not in found


def test_whose_code_a_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells have their number, the user's modules a short path; Python's own and packages are nobody's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ann")
    cell = "/tmp/ipykernel_7/123.py"
    code = UserCode(SimpleNamespace(compile=SimpleNamespace(_filename_map={cell: 5})))
    assert code.name(cell) == "In[5]"
    assert code.name("<ipython-input-12-0a1b2c>") == "In[12]"
    assert code.name(str(tmp_path / "src" / "model.py")) == "src/model.py"
    assert code.name("/home/ann/lib/model.py") == "~/lib/model.py"
    assert code.name("/srv/shared/model.py") == "/srv/shared/model.py"
    for library in (
        linecache.__file__,
        "/env/lib/python3.11/site-packages/torch/nn/modules/linear.py",
        "/usr/lib/python3/dist-packages/thing.py",
        "/tmp/torchinductor_ann/ab/cab.py",
        sys.modules["gpuwidget"].__file__ or "",
        "<string>",
        "<frozen runpy>",
        "",
    ):
        assert code.name(library) is None


def test_the_source_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands in the file, without its indentation; nothing where there is no such line."""
    module = imported(tmp_path / "model.py", "def f():\n    return 1\n", monkeypatch)
    code = UserCode(SimpleNamespace())
    assert code.source(module, 2) == "return 1"
    assert code.source(module, 99) == ""
    assert code.source(str(tmp_path / "gone.py"), 1) == ""
    assert code.source(linecache.__file__, 1).startswith('"""')


def test_functions_that_are_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a decorator, a class or another function has around it is compared with the file too."""
    text = (
        "import functools\n"
        "def outer(f):\n    @functools.wraps(f)\n    def inner(): return f()\n    return inner\n"
        "@outer\ndef one():\n    return 1\n"
        "class Two:\n    @staticmethod\n    def two():\n        return 2\n"
        "    @property\n    def three(self):\n        return 3\n"
    )
    module = imported(tmp_path / "model.py", text, monkeypatch)
    assert [UserCode(SimpleNamespace()).source(module, n) for n in (4, 8, 12, 15)] == [
        "def inner(): return f()",
        "return 1",
        "return 2",
        "return 3",
    ]
    Path(module).write_text(text.replace("return 2", "return 22 "), encoding="utf-8")
    assert [UserCode(SimpleNamespace()).source(module, n) for n in (8, 12)] == ["return 1", CHANGED]
    Path(module).write_text(text[:-2] + "(", encoding="utf-8")
    assert UserCode(SimpleNamespace()).source(module, 8) == CHANGED


def imported(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's, made after this process began."""
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return str(path)
