"""Which cell allocated what: the blocks of torch's allocator are looked at after each cell that used it.

Costs eight microseconds a device and cell where no memory was allocated, and nothing before CUDA is up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from gpuwidget.heap.find_holders import find_storages, gc_paused
from gpuwidget.heap.storages import StorageWeakRef
from gpuwidget.kernel.shell import shell_references
from gpuwidget.kernel.shell.interrupts import defer_interrupts
from gpuwidget.kernel.shell.running_cells import RunningCells
from gpuwidget.measure.cell_allocations import BEFORE, BETWEEN, CellBlocks
from gpuwidget.pytorch import allocator
from gpuwidget.pytorch.allocator import DeviceBlocks

_LOG = logging.getLogger(__name__)

_MAX_OBJECTS = 20_000
_TIME_LIMIT_S = 0.05
"""Objects looked at after a cell, to find the storages that are there, and the time for it."""


class CellMemory:
    """The origin of each block, as long as it is attached to a shell."""

    def __init__(self) -> None:
        self._shell: Any = None
        self._blocks = CellBlocks()
        self._to_be_watched = False
        """Whether there are new blocks whose storages are not remembered yet."""
        self._running: RunningCells | None = None

    @property
    def attached(self) -> bool:
        """Whether cells are looked at."""
        return self._shell is not None

    def attach(self, shell: Any, running: RunningCells) -> None:
        """Begin: what there is now was there before."""
        self._shell = shell
        self._blocks = CellBlocks()
        self._running = running
        self._quietly(BEFORE)

    def detach(self) -> None:
        """Look no longer, and forget."""
        self._shell = None
        self._blocks = CellBlocks()
        self._running = None

    def before(self, info: Any) -> None:
        """``pre_run_cell``."""
        # Allocations by a thread or a callback since the last cell are not this cell's.
        if self._running is not None and len(self._running) == 1:
            self._quietly(BETWEEN)

    def after(self, result: Any) -> None:
        """``post_run_cell``."""
        # Allocations of a cell within a cell belong to the outer one.
        if self._running is not None and len(self._running) <= 1:
            self._quietly(self._number)

    def settle(self, *, watch: bool = True) -> CellBlocks:
        """The origins as of now, what the cell that runs has allocated so far included.

        Without ``watch``, the caller sees to it that the storages are remembered
        (:meth:`~gpuwidget.measure.cell_allocations.CellBlocks.watch`), or they are after the cell.
        """
        if self.attached:
            self._quietly(self._number, watch=watch)
        return self._blocks

    @property
    def number(self) -> int | None:
        """The N of the cell that runs; None where none runs, or it has none."""
        return self._number if self._number > 0 else None

    def source(self, cell: int) -> str | None:
        """The first line of In[N]; None where it is not in the history."""
        history = getattr(getattr(self._shell, "history_manager", None), "input_hist_raw", None)
        if not isinstance(history, list) or not 0 < cell < len(history):
            return None
        lines = (line.strip() for line in str(history[cell]).splitlines())
        return next((line for line in lines if line and not line.startswith("%%")), None)

    @property
    def _number(self) -> int:
        outermost = None if self._running is None else self._running.outermost
        return BETWEEN if outermost is None or outermost.number is None else outermost.number

    def _quietly(self, cell: int, *, watch: bool = True) -> None:
        try:
            churn = allocator.allocation_counts()
            idle = self._blocks.idle(churn)
            if idle and not (watch and self._to_be_watched):
                return
            with defer_interrupts():
                blocks = allocator.snapshot()
                if not idle:
                    self._to_be_watched |= self._blocks.settle(cell, blocks, churn)
                if watch and self._to_be_watched:
                    self._watch(blocks)
        except Exception:
            _LOG.debug("a cell's memory was not looked at", exc_info=True)

    def _watch(self, blocks: Mapping[int, DeviceBlocks]) -> None:
        """Remember the storages that names lead to: the next cell may use their addresses again."""
        self._to_be_watched = False  # what fails now would fail after every cell
        excluded = shell_references.excluded_objects(self._shell)
        with gc_paused():
            roots = [
                *shell_references.variable_roots(self._shell),
                *shell_references.notebook_roots(self._shell),
            ]
            find_storages(
                roots,
                blocks,
                self.remember,
                excluded=excluded,
                max_objects=_MAX_OBJECTS,
                time_limit_s=_TIME_LIMIT_S,
            )

    def remember(self, index: int, address: int, storage: Callable[[], StorageWeakRef]) -> None:
        """``storage`` gives what lies at ``address`` now."""
        self._to_be_watched = False
        self._blocks.watch(index, address, storage)


CELLS = CellMemory()
"""The process's one."""
