"""Show a card after an out-of-memory error: the request, the holders of the memory, and possible fixes.

The card is an output after the traceback: the first part of a watched cell's card, or else a separate output.
The traceback, the kernel's reply and ``sys.last_*`` stay unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from gpuwidget import pytorch
from gpuwidget.kernel.oom.failed_cell import FailedCell
from gpuwidget.kernel.shell.interrupts import ignore_interrupts
from gpuwidget.kernel.shell.running_cells import RunningCell, RunningCells
from gpuwidget.model.boundary import stopped
from gpuwidget.views.saved_outputs import output_metadata

_LOG = logging.getLogger(__name__)


class WatchedCell(Protocol):
    """A watched cell, whose card can begin with the card of an out-of-memory error."""

    oom: dict[str, Any] | None

    @property
    def has_card(self) -> bool:
        """Whether a card will be shown below the cell."""


class OutOfMemoryCards:
    """Shows a card below each of a shell's cells that runs out of GPU memory."""

    def __init__(
        self, shell: Any, running: RunningCells, watch_of: Callable[[Any], WatchedCell | None]
    ) -> None:
        """``watch_of`` returns the watched cell of a result."""
        self._shell = shell
        self._running = running
        self._watch_of = watch_of
        self._cells: WeakKeyDictionary[RunningCell, FailedCell] = WeakKeyDictionary()
        self._shown: int | None = None
        """``id`` of the last error with a card. If an outer cell fails with the same error, no second card is
        shown."""

    def before(self, info: Any) -> None:
        """Handle ``pre_run_cell``: record torch's allocated memory, which takes 8 µs per device in use."""
        running = self._running.find(info)
        if running is None:
            return
        cell = self._cells[running] = FailedCell(info, running.number)
        if len(self._running) == 1:
            self._shown = None
        try:
            cell.at_start = pytorch.allocated_memory()
        except BaseException as error:
            stopped(_LOG, "the allocated memory could not be read", error)

    def after(self, result: Any) -> None:
        """Handle ``post_run_cell``: show a card if the cell ran out of memory."""
        error = getattr(result, "error_in_exec", None)
        if error is None:
            return
        running = self._running.find(getattr(result, "info", None))
        cell = None if running is None else self._cells.get(running)
        try:
            with ignore_interrupts():
                self._explain(error, cell, self._watch_of(result))
        except BaseException as error:
            stopped(_LOG, "the card for an out-of-memory error failed", error)

    def _explain(self, error: BaseException, cell: FailedCell | None, watch: WatchedCell | None) -> None:
        found = pytorch.find_oom_error(error)
        if found is None or id(found) == self._shown:
            return
        self._shown = id(found)
        # Imported here, because most notebooks never need these modules and %load_ext must be quick.
        from gpuwidget.kernel.oom.context import collect_context
        from gpuwidget.views import oom_card

        context = collect_context(self._shell, found, cell)
        if watch is not None and watch.has_card:
            watch.oom = oom_card.bundle(context, is_part=True)
        else:
            self._shell.display_pub.publish(data=oom_card.bundle(context), metadata=output_metadata())
