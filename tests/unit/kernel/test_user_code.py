"""Tests of the names shown for cells and for the user's files, and of the source of their lines."""

from __future__ import annotations

import linecache
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuwidget.kernel.shell.user_code import UserCode


class Shell(SimpleNamespace):
    """A fake of IPython's shell that stores cells and their file names as IPython 9 does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(
            compile=SimpleNamespace(_filename_map={}),
            execution_count=1,
            history_manager=SimpleNamespace(input_hist_raw=[""], input_hist_parsed=[""]),
            user_ns={},
        )
        self._monkeypatch = monkeypatch

    def run(self, raw: str, transformed: str) -> str:
        """Run a cell and store it in the history. Return its file name."""
        file = self.compile_cell(transformed)
        self.history_manager.input_hist_raw.append(raw)
        self.history_manager.input_hist_parsed.append(transformed)
        self.user_ns[f"_i{self.execution_count}"] = raw
        self.execution_count += 1
        return file

    def run_magic(self, raw: str, body: str, compiled: str) -> str:
        """Run a cell whose magic runs ``body`` as a nested cell. Return the body's file name."""
        self.run(raw, f"get_ipython().run_cell_magic('capture', '', {body!r})")
        return self.compile_cell(compiled)

    def compile_cell(self, transformed: str) -> str:
        """Compile code without storing it in the history. Return its file name."""
        lines = [line + "\n" for line in transformed.splitlines()]
        file = f"/tmp/ipykernel_7/{hash(transformed)}.py"
        self.compile._filename_map[file] = self.execution_count
        self._monkeypatch.setitem(linecache.cache, file, (len(transformed), None, lines, file))
        return file


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Return a shell that has run one cell, In[1]."""
    shell = Shell(monkeypatch)
    shell.run("x = 1", "x = 1")
    return shell


def test_names_of_files(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a cell is shown as In[N], and a user's module as a short path.

    A library's file has no name.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ann")
    code = UserCode(shell)
    assert code.name(shell.run("y = 2", "y = 2")) == "In[2]"
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


@pytest.mark.parametrize(
    ("above", "body", "compiled"),
    [
        pytest.param("%%capture\n", "x = 1\ny = 2\n", "x = 1\ny = 2", id="body"),
        pytest.param("%%capture\n", "\n\nx = 1\ny = 2\n\n", "x = 1\ny = 2\n\n", id="blank lines"),
        pytest.param("%%gpuwatch\n\n%%capture out\n", "x = 1\ny = 2\n", "x = 1\ny = 2", id="watched"),
        pytest.param(
            "%%capture\n", "%%gpuwatch\nx = 1\ny = 2\n", "# %%gpuwatch\nx = 1\ny = 2", id="watched body"
        ),
        pytest.param(
            "%%capture\n",
            "x = %time f(1)\ny = 2\n",
            "x = get_ipython().run_line_magic('time', 'f(1)')\ny = 2",
            id="line magic",
        ),
        pytest.param("%%time\n%%capture\n", "x = 1\ny = 2\n", "x = 1\ny = 2", id="two magics"),
        pytest.param("%%own\n", "    x = 1\n    y = 2\n", "x = 1\ny = 2", id="indented, other magic"),
    ],
)
def test_code_below_a_cell_magic(shell: Shell, above: str, body: str, compiled: str) -> None:
    """Code below a cell magic such as %%capture has the number of its cell and the line numbers of the cell.

    IPython runs the code as a nested cell, to which it gives the number of the next cell.
    """
    file = shell.run_magic(above + body.rstrip("\n"), body, compiled)
    code, last = UserCode(shell), (above + body.rstrip("\n")).count("\n") + 1
    assert code.name(file) == "In[2]"
    assert code.cell_line(file, compiled.rstrip("\n").count("\n") + 1) == last
    assert code.source(file, last) == "y = 2"


def test_a_magic_in_the_body_of_a_magic(shell: Shell) -> None:
    """If a cell has two cell magics, the line of the second magic and the lines of the code that it runs have
    the line numbers of the cell."""
    body = "\n%%time\n\ny = 2\n"
    nested = "get_ipython().run_cell_magic('time', '', '\\ny = 2\\n')"
    file = shell.run_magic("%%capture\n" + body, body, nested)
    code = UserCode(shell)
    assert (code.name(file), code.cell_line(file, 1), code.cell_line(file, 1, timed=1)) == ("In[2]", 3, 5)
    assert (code.source(file, 3), code.source(file, 5)) == ("%%time", "y = 2")


@pytest.mark.parametrize(
    "compiled",
    [
        pytest.param("start()\nx = 1\ny = 2", id="line added"),
        pytest.param("x = 1\ny = 3", id="line changed"),
        pytest.param("x = 1\ny = get_ipython().run_line_magic('time', 'f()')", id="line replaced by a magic"),
    ],
)
def test_code_that_a_magic_changed(shell: Shell, compiled: str) -> None:
    """If a cell magic changes the code before it runs it, the cell of this code is unknown.

    The line numbers are those of the code that ran.
    """
    file = shell.run_magic("%%own\nx = 1\ny = 2", "x = 1\ny = 2\n", compiled)
    code = UserCode(shell)
    assert (code.name(file), code.cell_line(file, 2)) == ("a cell", 2)
    assert code.source(file, 2) == compiled.splitlines()[1]


def test_a_cell_outside_the_history(shell: Shell) -> None:
    """A cell that IPython does not store in its history has no number."""
    file = shell.compile_cell("z = 3")
    shell.run("y = 2", "y = 2")
    code = UserCode(shell)
    assert (code.name(file), code.cell_line(file, 1), code.source(file, 1)) == ("a cell", 1, "z = 3")


def test_the_number_is_not_the_position_in_the_history(shell: Shell) -> None:
    """After %reset, which clears IPython's history, new cells still have their own numbers."""
    before = shell.run("def f(): pass", "def f(): pass")
    del shell.history_manager.input_hist_raw[1:], shell.history_manager.input_hist_parsed[1:]
    shell.user_ns.clear()
    body = shell.run_magic("%%capture\ny = 2", "y = 2\n", "y = 2")
    after = shell.run("z = 3", "z = 3")
    assert [UserCode(shell).name(file) for file in (before, body, after)] == ["a cell", "In[3]", "In[4]"]


def test_a_cell_and_a_body_with_the_same_text(shell: Shell) -> None:
    """If a cell's code equals the code below another cell's magic, both have the same file name. The newest
    cell counts."""
    file = shell.run("y = 2", "y = 2")
    assert UserCode(shell).name(file) == "In[2]"
    assert shell.run_magic("%%capture\ny = 2", "y = 2\n", "y = 2") == file
    assert (UserCode(shell).name(file), UserCode(shell).cell_line(file, 1)) == ("In[3]", 2)
    assert shell.run("y = 2", "y = 2") == file
    assert (UserCode(shell).name(file), UserCode(shell).cell_line(file, 1)) == ("In[4]", 1)


def test_code_with_the_text_of_an_earlier_cell(shell: Shell) -> None:
    """Code that a magic changes before it runs it, and that then equals an earlier cell, does not get the
    number of that cell."""
    shell.run("y = 2", "y = 2")
    shell.run("z = 3", "z = 3")
    file = shell.run_magic("%%capture\n>>> y = 2", ">>> y = 2\n", "y = 2")
    assert (UserCode(shell).name(file), UserCode(shell).cell_line(file, 1)) == ("a cell", 1)


def test_a_cell_with_other_line_separators(shell: Shell) -> None:
    """Lines of a cell may end with any separator that Python's splitlines() knows."""
    text = "y = 2\r\nz = 'a\u2028b'\x0c\nu = 4"
    file = shell.run(text, text)
    assert UserCode(shell).name(file) == "In[2]"


def test_the_source_of_a_line(tmp_path: Path) -> None:
    """The source of a line is read from the file as it is now, and returned without indentation. It is empty
    if there is no such line."""
    module, code = tmp_path / "model.py", UserCode(SimpleNamespace())
    module.write_text("def f():\n    return 1\n", encoding="utf-8")
    assert code.source(str(module), 2) == "return 1"
    assert code.source(str(module), 99) == ""
    assert code.source(str(tmp_path / "gone.py"), 1) == ""
    assert code.source(linecache.__file__, 1).startswith('"""')
    module.write_text("def f():\n    return 1 + 1\n", encoding="utf-8")
    assert code.source(str(module), 2) == "return 1 + 1"
