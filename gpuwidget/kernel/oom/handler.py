"""Under an out-of-memory error: a card with what was asked, who held the rest, and what would have helped.

It is an output of its own after the traceback, which stays as it is, and so do the reply and ``sys.last_*``.
"""

from __future__ import annotations

import logging
from typing import Any
from weakref import WeakKeyDictionary

from gpuwidget.kernel.oom.context import FailedCell, gather
from gpuwidget.kernel.shell.interrupts import ignore_interrupts
from gpuwidget.kernel.shell.running_cells import RunningCell, RunningCells
from gpuwidget.pytorch import oom_error
from gpuwidget.views import oom_card

_LOG = logging.getLogger(__name__)


class OutOfMemoryCards:
    """Looks at a shell's failed cells."""

    def __init__(self, shell: Any, running: RunningCells) -> None:
        self._shell = shell
        self._running = running
        self._cells: WeakKeyDictionary[RunningCell, FailedCell] = WeakKeyDictionary()
        self._shown: int | None = None
        """Identity of the error that was shown last: an outer cell may fail with the same."""

    def before(self, info: Any) -> None:
        """``pre_run_cell``: note how much is allocated. Costs 8 µs a device in use."""
        running = self._running.find(info)
        if running is None:
            return
        cell = self._cells[running] = FailedCell(info, running.number)
        if len(self._running) == 1:
            self._shown = None
        try:
            cell.at_start = oom_error.allocated()
        except Exception:
            _LOG.debug("torch's memory was not looked at", exc_info=True)

    def after(self, result: Any) -> None:
        """``post_run_cell``: show a card where the cell ran out of memory."""
        error = getattr(result, "error_in_exec", None)
        if error is None:
            return
        running = self._running.find(getattr(result, "info", None))
        cell = None if running is None else self._cells.get(running)
        try:
            with ignore_interrupts():
                self._explain(error, cell)
        except Exception:
            _LOG.debug("an out-of-memory error was not explained", exc_info=True)

    def _explain(self, error: BaseException, cell: FailedCell | None) -> None:
        found = oom_error.find_oom_error(error)
        if found is None or id(found) == self._shown:
            return
        self._shown = id(found)
        story = gather(self._shell, found, cell)
        self._shell.display_pub.publish(data=oom_card.bundle(story), metadata={})
