"""Where a cell's card goes: after all the cell put out, and never at the price of any of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from gpuwidget.kernel.shell.clear_output_watch import ClearWatch
from gpuwidget.kernel.shell.iopub_channel import CellChannel
from gpuwidget.kernel.shell.output_slot import EMPTY, new_display_id


class CardPlace:
    """Shows the card of one cell; made, started and used on the thread that runs the cell.

    A cell that ends on ``clear_output(wait=True)`` keeps its outputs until somebody puts out something new,
    which a card would be. Before such a clearing is sent an empty output is: should nothing follow, the card
    goes there by an update, which clears nothing.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._channel = CellChannel.of_this_cell(shell)
        self._reserved = ""
        self._clears: ClearWatch | None = None
        self._clear_pending = False

    def start(self) -> None:
        """Begin to watch what the cell clears."""
        if self._channel is not None:
            self._clears = ClearWatch(self._shell, self._channel.message_id, self._reserve)
            self._clears.start()

    def stop(self, *, followed: bool = False) -> None:
        """Watch no longer; safe to call twice.

        ``followed`` says that the cell ended on a result or a traceback, which cleared what waited.
        """
        if self._clears is not None:
            self._clear_pending = self._clears.pending and not followed
            self._clears.stop()
            self._clears = None

    def show(self, bundle: Mapping[str, Any]) -> None:
        """Show the card, after :meth:`stop`."""
        if self._clear_pending and self._channel is not None and self._reserved:
            self._channel.update(bundle, self._reserved)
        else:
            self._shell.display_pub.publish(data=dict(bundle), metadata={})

    def _reserve(self) -> None:
        assert self._channel is not None
        # The publisher flushes both before it sends the clearing, whatever streams they are. Flushed here,
        # too, text that a user's stream passes on to the kernel's stands above the card.
        sys.stdout.flush()
        sys.stderr.flush()
        self._reserved = new_display_id()
        self._channel.display(EMPTY, self._reserved)
