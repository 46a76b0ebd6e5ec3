"""Which variables a failed cell needs as they are, so that nobody advises to delete them."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwidget.kernel.first_use import needed
from gpuwidget.kernel.user_code import UserCode


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
    assert needed(cell, None, UserCode(SimpleNamespace())) == names


def test_functions_on_the_way_count(tmp_path: Path) -> None:
    """What the user's own functions on the traceback use is needed; what libraries' use is not theirs."""
    (tmp_path / "mine.py").write_text("def step():\n    return cache[big]\n")
    scope: dict[str, Any] = {}
    exec(compile((tmp_path / "mine.py").read_text(), str(tmp_path / "mine.py"), "exec"), scope)
    exec(compile("def call(f):\n    hidden\n", "/env/lib/python3/site-packages/lib.py", "exec"), scope)
    for function in ("step()", "call(step)"):
        try:
            exec(function, scope)
        except NameError as error:
            found = needed("", error.__traceback__, UserCode(SimpleNamespace()))
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


def test_the_source_of_a_line(tmp_path: Path) -> None:
    """As it stands in the file, without its indentation; nothing where there is no such line."""
    path = tmp_path / "model.py"
    path.write_text("def f():\n    return 1\n")
    code = UserCode(SimpleNamespace())
    assert code.source(str(path), 2) == "return 1"
    assert code.source(str(path), 99) == ""
    assert code.source(str(tmp_path / "gone.py"), 1) == ""
