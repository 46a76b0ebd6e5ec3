"""Track the running cells of this kernel, and match each ``post_run_cell`` event with its ``pre_run_cell``.

IPython's events do not always come in pairs. An empty cell, and the cell that loads the extension, trigger
only ``post_run_cell``. Some cells trigger no ``post_run_cell``. If a cell is cancelled, its ``post_run_cell``
has no result. If an exception escapes from the IPython function that runs cells, the info object of
``post_run_cell`` is not the one of ``pre_run_cell``.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

RUN_CELL = "run_cell_async"
"""Name of the IPython function that runs every cell."""


@dataclass(eq=False)
class RunningCell:
    """A running cell."""

    info: object
    """IPython's ExecutionInfo."""
    thread: int
    number: int | None
    """The N of In[N]; None for a cell that is not stored in the history."""
    on_lost: list[Callable[[], None]] = field(default_factory=list)
    """Functions that are called if the cell ends without a ``post_run_cell`` event. They must not raise."""


class RunningCells:
    """The running cells, outermost first.

    :meth:`before` must be the first ``pre_run_cell`` hook, :meth:`ending` the first ``post_run_cell`` hook
    and :meth:`after` the last one, so that all other hooks can find their cell with :meth:`find`.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._cells: list[RunningCell] = []
        self._loading_thread = threading.get_ident() if cells_on_this_thread() else None
        """Thread of the cell that loads the extension, which had no ``pre_run_cell``; None once that cell has
        ended."""

    def __len__(self) -> int:
        return len(self._cells)

    @property
    def busy(self) -> bool:
        return bool(self._cells) or self._loading_thread is not None

    @property
    def nested(self) -> bool:
        """Whether a cell is running inside another one."""
        return len(self._cells) > 1 or (bool(self._cells) and self._loading_thread is not None)

    @property
    def outermost(self) -> RunningCell | None:
        """The outermost running cell; None if no cell is running."""
        return self._cells[0] if self._cells else None

    def before(self, info: Any) -> None:
        """Handle ``pre_run_cell``: add the cell, and remove cells of this thread that ended without an
        event."""
        depth = cells_on_this_thread()
        if self._loading_thread == threading.get_ident() and depth == 1:
            self._loading_thread = None
        # ``depth`` includes the new cell, so only ``depth - 1`` of this thread's older cells still run.
        if depth:
            self._lose(self._on_this_thread()[depth - 1 :])
        stored = getattr(info, "store_history", False)
        # Do not use shell.execution_count: IPython 9 has already incremented it, but older versions have not.
        number = self._shell.displayhook.prompt_count if stored else None
        self._cells.append(RunningCell(info, threading.get_ident(), number))

    def ending(self, result: Any) -> None:
        """Handle ``post_run_cell``, as the first hook: remove nested cells that ended without an event."""
        ending = self.find(getattr(result, "info", None))
        on_thread = self._on_this_thread()
        if ending is not None and ending in on_thread:
            self._lose(on_thread[on_thread.index(ending) + 1 :])

    def after(self, result: Any) -> None:
        """Handle ``post_run_cell``, as the last hook: remove the cell that has ended."""
        ended = self.find(getattr(result, "info", None))
        if ended is not None:
            self._cells.remove(ended)
        elif self._loading_thread == threading.get_ident():
            self._loading_thread = None

    def find(self, info: object) -> RunningCell | None:
        """Return the cell with this info object, or else this thread's newest cell with the same code.

        If ``info`` is None, as in the event of a cancelled cell, return this thread's newest cell.
        """
        return next(self._candidates(info), None)

    def clear(self) -> None:
        """Remove all cells, as if they had ended without an event."""
        self._lose(list(self._cells))

    def _candidates(self, info: object) -> Iterator[RunningCell]:
        if info is None:
            yield from reversed(self._on_this_thread())
            return
        yield from (cell for cell in reversed(self._cells) if cell.info is info)
        code = _code(info)
        if code:
            yield from (cell for cell in reversed(self._on_this_thread()) if _code(cell.info) == code)

    def _on_this_thread(self) -> list[RunningCell]:
        thread = threading.get_ident()
        return [cell for cell in self._cells if cell.thread == thread]

    def _lose(self, cells: list[RunningCell]) -> None:
        for cell in reversed(cells):
            self._cells.remove(cell)
            for callback in cell.on_lost:
                callback()


def _code(info: object) -> str:
    code: Any = getattr(info, "raw_cell", None)
    return code.strip() if isinstance(code, str) else ""


def cells_on_this_thread() -> int:
    """Return how many cells, outer and nested ones, IPython is running on this thread."""
    frame, found = sys._getframe(1), 0
    while frame.f_back is not None:
        frame = frame.f_back
        found += frame.f_code.co_name == RUN_CELL
    return found
