"""What a watched cell leaves behind: who holds the memory that it allocated and that is still there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuwidget.kernel.attribution import memory_holders
from gpuwidget.kernel.attribution.cell_memory import CELLS
from gpuwidget.measure.memory_holders import rank_holders
from gpuwidget.model.report import Report

_MOST = 30
_TIME_LIMIT_S = 0.3
"""For the look at what the cell has left behind."""


class HolderCollector:
    """Looks only once the cell has ended, and only where something of its own is left."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def start(self) -> None:
        """Nothing: the cells' own ledger knows what there was."""

    def stop(self) -> None:
        """Nothing, so that the run's time is its own."""

    def annotate(self, report: Report) -> Report:
        """The report with the holders of what the cell has left behind, the largest first."""
        cell = CELLS.number
        if cell is None or not CELLS.settle(watch=False).has(cell):
            return report
        seen = memory_holders.search(self._shell, time_limit_s=_TIME_LIMIT_S)
        assert seen.origins is not None
        found = rank_holders(seen.roots, seen.reached, seen.blocks, seen.origins.cell, only=cell)
        return replace(report, holders=tuple(found[:_MOST]))

    def abandon(self) -> None:
        """Nothing is under way."""
