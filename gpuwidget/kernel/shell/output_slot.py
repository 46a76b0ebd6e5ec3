"""A place among a cell's outputs that is kept before the cell puts out anything of its own.

It is an empty output, which takes no space, filled later by an update. An update never splits the output of
a progress bar in two and never sets off a ``clear_output(wait=True)``, as a new output would.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from gpuwidget.kernel.shell.clear_output_watch import ClearWatch, is_captured
from gpuwidget.kernel.shell.iopub_channel import CellChannel

DISPLAY_ID_PREFIX = "gpuwidget-live-"
"""How the display ids of such places begin."""

EMPTY: Mapping[str, Any] = {}


class CellPlace:
    """The first output of one cell; kept and released on the thread that runs it, filled from any."""

    def __init__(self, shell: Any, channel: CellChannel) -> None:
        self.channel = channel
        self._clears = ClearWatch(shell, channel.message_id)
        self._display_id = new_display_id()

    @classmethod
    def keep(cls, shell: Any) -> CellPlace | None:
        """Keep a place in the cell that the calling thread runs; None outside a Jupyter kernel."""
        channel = CellChannel.of_this_cell(shell)
        if channel is None:
            return None
        place = cls(shell, channel)
        channel.display(EMPTY, place._display_id)
        place._clears.start()
        return place

    def release(self) -> None:
        """Watch no longer whether the cell clears it."""
        self._clears.stop()

    @property
    def cleared(self) -> bool:
        """Whether the cell cleared its outputs, and this place with them."""
        return self._clears.cleared

    @property
    def clear_pending(self) -> bool:
        """Whether the next new output of anyone clears all before it: then only :meth:`fill` is harmless."""
        return self._clears.pending

    @property
    def captured(self) -> bool:
        """Whether an Output widget would swallow what is put here now."""
        return is_captured(self.channel.message_id)

    def fill(self, data: Mapping[str, Any]) -> None:
        """Show that mime bundle here, in place of what was here."""
        self.channel.update(data, self._display_id)

    def renew(self, data: Mapping[str, Any]) -> None:
        """Show that mime bundle in a new place at the outputs' end, after this one was cleared."""
        self._clears.cleared = False
        self.fill(EMPTY)
        self._display_id = new_display_id()
        self.channel.display(data, self._display_id)


def new_display_id() -> str:
    """A display id of ours, never used before."""
    return f"{DISPLAY_ID_PREFIX}{uuid.uuid4().hex}"
