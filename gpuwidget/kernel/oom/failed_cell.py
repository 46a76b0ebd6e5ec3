"""Data about a cell, for the card that is shown if the cell runs out of memory.

To keep ``%load_ext`` quick, this module imports no other gpuwidget module.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class FailedCell:
    """A cell that may run out of memory. The data are recorded before the cell runs."""

    info: object
    number: int | None
    """The N of In[N]; None for a cell that is not stored in the history."""
    at_start: dict[int, int] = field(default_factory=dict)
    """Bytes that torch had allocated on each device when the cell began, keyed by device index."""

    @property
    def source(self) -> str:
        """The cell's code, with magics transformed to Python by IPython."""
        info = self.info
        return str(getattr(info, "transformed_cell", None) or getattr(info, "raw_cell", ""))
