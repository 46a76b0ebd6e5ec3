"""Which cell has ended: told even where IPython's events do not come in pairs."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from gpuwidget.kernel.shell.running_cells import RunningCells


def info(code: str = "pass") -> SimpleNamespace:
    """What IPython says of a cell."""
    return SimpleNamespace(raw_cell=code)


def run_cell_async(cells: RunningCells[str], name: str, *inner: str, heard: bool = True) -> None:
    """Run a cell, with others inside it, as IPython's function of that name; its end may be unheard of."""
    cells.forget_lost()
    about = info(name)
    cells.begin(about, name)
    if inner:
        run_cell_async(cells, *inner)
    if heard:
        assert cells.end(about) == name


def test_cells_within_cells() -> None:
    """The outermost cell stays that until it has ended, whatever it runs."""
    cells = RunningCells[str]()
    outer, inner = info("outer"), info("inner")
    cells.begin(outer, "outer")
    cells.begin(inner, "inner")
    assert (cells.outermost, len(cells)) == ("outer", 2)
    assert cells.end(inner) == "inner"
    assert cells.end(info(" \n")) is None  # an empty cell only ends
    assert cells.outermost == "outer"
    assert cells.end(outer) == "outer"
    assert not cells
    assert cells.end(info()) is None  # so does the one that loads the extension


def test_a_cancelled_cell() -> None:
    """An end without a result is the newest cell's of its thread."""
    cells = RunningCells[str]()
    cells.begin(info(), "cancelled")
    elsewhere = threading.Thread(target=cells.begin, args=(info(), "another thread's"))
    elsewhere.start()
    elsewhere.join()
    assert cells.end(None) == "cancelled"
    assert cells.outermost == "another thread's"
    assert cells.end(None) is None


def test_a_cell_that_an_exception_leaves() -> None:
    """Its end comes under another info object with the same code, and takes what ran in it along."""
    cells = RunningCells[str]()
    for name in ("outer", "await forever()", "inner"):
        cells.begin(info(name), name)
    assert cells.end(info("await forever()")) == "await forever()"
    assert (cells.outermost, len(cells)) == ("outer", 1)


def test_a_cell_whose_end_nobody_heard_of() -> None:
    """It is gone as the next one begins, which is then the outermost; who keeps something for it is told."""
    lost: list[str] = []
    cells = RunningCells[str](lost.append)
    run_cell_async(cells, "lost", heard=False)
    assert (cells.outermost, lost) == ("lost", [])
    run_cell_async(cells, "next", "within the next")
    assert (len(cells), lost) == (0, ["lost"])
    outer = info("outer")
    cells.begin(outer, "outer")
    cells.begin(info("inner"), "inner")
    assert (cells.find(outer), lost) == ("outer", ["lost"])
    assert (cells.end(outer), lost) == ("outer", ["lost", "inner"])
    cells.begin(outer, "outer")
    cells.clear()
    assert (len(cells), lost) == (0, ["lost", "inner", "outer"])


def test_only_what_is_lost_is_forgotten() -> None:
    """A cell that runs others keeps its place, and so do cells that something else than IPython runs."""
    cells = RunningCells[str]()
    run_cell_async(cells, "outer", "middle", "inner")
    assert not cells
    cells.begin(info("of another shell"), "of another shell")
    cells.forget_lost()
    assert cells.outermost == "of another shell"
