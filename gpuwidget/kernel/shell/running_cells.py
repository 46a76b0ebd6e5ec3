"""The cells that run now: which end belongs to which beginning.

IPython's events do not always come in pairs: an empty cell and the one that loads the extension only end, a
cancelled one ends without a result, one that an exception leaves altogether ends under another info object,
and some never end.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

RUNS_A_CELL = "run_cell_async"
"""The function of IPython's that runs every cell, and says so from within."""


@dataclass(frozen=True, slots=True, eq=False)
class _Cell(Generic[T]):
    info: object
    thread: int
    known: T


class RunningCells(Generic[T]):
    """The cells that run, outermost first, and what is known about each."""

    def __init__(self, on_lost: Callable[[T], None] = lambda known: None) -> None:
        """``on_lost`` is told of each cell whose end was never heard of, the innermost first."""
        self._cells: list[_Cell[T]] = []
        self._on_lost = on_lost

    def __bool__(self) -> bool:
        return bool(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    @property
    def outermost(self) -> T | None:
        """What is known about the outermost one."""
        return self._cells[0].known if self._cells else None

    def forget_lost(self) -> None:
        """``pre_run_cell``, before :meth:`begin`: let go of cells of this thread that ended unheard of."""
        here = self._of_this_thread()
        running = cells_on_this_thread() if here else 0
        if running:  # this one is among them
            self._lose(here[running - 1 :])

    def begin(self, info: object, known: T) -> None:
        """``pre_run_cell``."""
        self._cells.append(_Cell(info, threading.get_ident(), known))

    def end(self, info: object) -> T | None:
        """``post_run_cell``, with the result's ``info``: what is known about that cell; None without it."""
        ended = next(self._candidates(info), None)
        if ended is None:
            return None
        here = self._of_this_thread()
        # What began later on this thread never heard of its end.
        self._lose(here[here.index(ended) + 1 :] if ended in here else [])
        self._cells.remove(ended)
        return ended.known

    def find(self, info: object) -> T | None:
        """What is known about the cell that :meth:`end` would end."""
        found = next(self._candidates(info), None)
        return None if found is None else found.known

    def clear(self) -> None:
        """Let go of all of them, as of cells that were lost."""
        self._lose(list(self._cells))

    def _candidates(self, info: object) -> Iterator[_Cell[T]]:
        """The newest comes first: the cell itself, else one of this thread with the same code."""
        if info is None:
            yield from reversed(self._of_this_thread())
            return
        yield from (cell for cell in reversed(self._cells) if cell.info is info)
        code = _code(info)
        if code:
            yield from (cell for cell in reversed(self._of_this_thread()) if _code(cell.info) == code)

    def _of_this_thread(self) -> list[_Cell[T]]:
        here = threading.get_ident()
        return [cell for cell in self._cells if cell.thread == here]

    def _lose(self, cells: list[_Cell[T]]) -> None:
        for cell in reversed(cells):
            self._cells.remove(cell)
            self._on_lost(cell.known)


def _code(info: object) -> str:
    code: Any = getattr(info, "raw_cell", None)
    return code.strip() if isinstance(code, str) else ""


def cells_on_this_thread() -> int:
    """How many cells run here, one within the other; 0 where something else than IPython runs them."""
    frame, found = sys._getframe(1), 0
    while frame.f_back is not None:
        frame = frame.f_back
        found += frame.f_code.co_name == RUNS_A_CELL
    return found
