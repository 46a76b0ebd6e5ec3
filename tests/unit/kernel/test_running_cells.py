"""Tests that the running cells are tracked exactly, even if IPython triggers a start event without an end
event, or an end event without a start event."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

from gpuwidget.kernel.shell.running_cells import RunningCells

SHELL = SimpleNamespace(displayhook=SimpleNamespace(prompt_count=7))


def info(code: str = "pass", *, stored: bool = False) -> SimpleNamespace:
    """Return a fake of the info object that IPython passes to ``pre_run_cell``."""
    return SimpleNamespace(raw_cell=code, store_history=stored)


def begin(cells: RunningCells, about: SimpleNamespace, lost: list[str] | None = None) -> None:
    """Record the start of a cell, as IPython's event ``pre_run_cell`` does.

    If the cell is later removed without an end event, its code is added to ``lost``.
    """
    cells.before(about)
    if lost is not None:
        cell = cells.find(about)
        assert cell is not None
        cell.on_lost.append(lambda: lost.append(about.raw_cell))


def end(cells: RunningCells, about: SimpleNamespace | None) -> str | None:
    """Record the end of a cell, as IPython's event ``post_run_cell`` does; return the code of the cell."""
    result = None if about is None else SimpleNamespace(info=about)
    cells.ending(result)
    cell = cells.find(about)
    cells.after(result)
    return None if cell is None else str(getattr(cell.info, "raw_cell", None))


def outermost(cells: RunningCells) -> str | None:
    """Return the code of the outermost cell."""
    return None if cells.outermost is None else str(getattr(cells.outermost.info, "raw_cell", None))


def run_cell_async(
    cells: RunningCells, code: str, *inner: str, ends: bool = True, lost: list[str] | None = None
) -> None:
    """Run a cell, which runs the cells ``inner``.

    This function has the same name as the IPython function that runs a cell, because gpuwidget counts the
    running cells by the functions of that name on the call stack.
    """
    about = info(code)
    begin(cells, about, lost)
    if inner:
        run_cell_async(cells, *inner)
    if ends:
        assert end(cells, about) == code


def test_cells_within_cells() -> None:
    """The outermost cell stays the outermost until it ends, whatever cells it runs."""
    cells = RunningCells(SHELL)
    outer, inner = info("outer"), info("inner")
    begin(cells, outer)
    assert (cells.busy, cells.nested) == (True, False)
    begin(cells, inner)
    assert (outermost(cells), len(cells), cells.nested) == ("outer", 2, True)
    assert end(cells, inner) == "inner"
    assert end(cells, info(" \n")) is None  # an empty cell has only an end event
    assert outermost(cells) == "outer"
    assert end(cells, outer) == "outer"
    assert (len(cells), cells.busy) == (0, False)
    assert end(cells, info()) is None  # the cell that loads the extension also has only an end event


def test_the_number_of_a_cell() -> None:
    """The number of a cell is the N of its In[N]. A cell that is not stored in the history has no number."""
    cells = RunningCells(SHELL)
    numbered, inner = info("numbered", stored=True), info("inner")
    begin(cells, numbered)
    begin(cells, inner)
    assert [cell.number for cell in map(cells.find, (numbered, inner)) if cell is not None] == [7, None]


def test_a_cancelled_cell() -> None:
    """If an end event has no result, as after a cancellation, it ends the newest cell of the thread on which
    the event occurs."""
    cells = RunningCells(SHELL)
    begin(cells, info("cancelled"))
    other = threading.Thread(target=begin, args=(cells, info("another thread's")))
    other.start()
    other.join()
    assert end(cells, None) == "cancelled"
    assert outermost(cells) == "another thread's"
    assert end(cells, None) is None


def test_a_cell_that_an_exception_leaves() -> None:
    """If an exception ends a cell, its end event may have a different info object than its start event.

    The end event is matched by the cell's code, and ends that cell and the cells inside it.
    """
    cells = RunningCells(SHELL)
    for code in ("outer", "await forever()", "inner"):
        begin(cells, info(code))
    assert end(cells, info("await forever()")) == "await forever()"
    assert (outermost(cells), len(cells)) == ("outer", 1)


def test_a_cell_whose_end_has_no_event() -> None:
    """A cell without an end event is removed when the next cell begins or when the cell that ran it ends.

    The ``on_lost`` callbacks of a cell are called when the cell is removed.
    """
    lost: list[str] = []
    cells = RunningCells(SHELL)
    run_cell_async(cells, "lost", ends=False, lost=lost)
    assert (outermost(cells), lost) == ("lost", [])
    run_cell_async(cells, "next", "within the next", lost=lost)
    assert (len(cells), lost) == (0, ["lost"])
    outer = info("outer")
    begin(cells, outer, lost)
    begin(cells, info("inner"), lost)
    assert lost == ["lost"]
    assert (end(cells, outer), lost) == ("outer", ["lost", "inner"])
    begin(cells, outer, lost)
    cells.clear()
    assert (len(cells), lost) == (0, ["lost", "inner", "outer"])


def test_only_lost_cells_are_removed() -> None:
    """A cell is not removed while it runs other cells.

    A cell that was started without IPython's ``run_cell_async``, for example by another shell, is not removed
    either.
    """
    cells = RunningCells(SHELL)
    run_cell_async(cells, "outer", "middle", "inner")
    assert len(cells) == 0
    begin(cells, info("of another shell"))
    begin(cells, info("the next"))
    assert (outermost(cells), len(cells)) == ("of another shell", 2)


def test_the_cell_that_loads_the_extension() -> None:
    """While the cell that loads the extension runs, the kernel counts as busy, and a cell that it runs counts
    as nested."""

    def run_cell_async(code: Callable[[], RunningCells]) -> RunningCells:
        return code()

    def load() -> RunningCells:
        cells = RunningCells(SHELL)
        assert (cells.busy, len(cells)) == (True, 0)
        return run_cell_async(lambda: nested(cells))

    def nested(cells: RunningCells) -> RunningCells:
        inner = info("inner")
        begin(cells, inner)
        assert cells.nested
        assert end(cells, inner) == "inner"
        return cells

    cells = run_cell_async(load)
    assert cells.busy
    assert end(cells, info("%load_ext gpuwidget")) is None
    assert not cells.busy
