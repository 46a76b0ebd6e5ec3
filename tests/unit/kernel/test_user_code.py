"""Tests of the names shown for cells and for the user's files, and of the source of their lines."""

from __future__ import annotations

import importlib.util
import linecache
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuwidget.kernel.shell.user_code import CHANGED, UserCode


def test_names_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a cell is shown as In[N], and a user's module as a short path.

    A library's file has no name.
    """
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
        "/env/lib/python3.11/site-packages/torch/nn/linear.py",
        "<string>",
        "",
    ):
        assert code.name(library) is None


def test_the_source_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source of a line is returned without indentation. It is empty if there is no such line."""
    module = imported(tmp_path / "model.py", "def f():\n    return 1\n", monkeypatch)
    code = UserCode(SimpleNamespace())
    assert code.source(module, 2) == "return 1"
    assert code.source(module, 99) == ""
    assert code.source(str(tmp_path / "gone.py"), 1) == ""
    assert code.source(linecache.__file__, 1).startswith('"""')


def test_the_source_of_wrapped_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a file changed after its import, lines of changed functions have a note in place of their source.

    This also applies to decorated functions, methods and nested functions.
    """
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
    """Write a module to ``path``, import it and return the path.

    The file is newer than this process, so UserCode compares it with the imported code to find changes.
    """
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return str(path)
