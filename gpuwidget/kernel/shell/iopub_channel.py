"""Display messages of one cell, sent from any thread and past whatever captures the cell's outputs.

A cell's messages carry the header of the request that runs it. ipykernel keeps that request in context
variables (7) or in one global (6), and %%capture puts another publisher in place of the shell's: so
request and context are taken on the cell's own thread, and messages go to the kernel's socket directly.
"""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable, Mapping
from typing import Any

_IDENTITY = b"display_data"


class CellChannel:
    """Where the outputs of the cell that runs now are sent; made on the thread that runs it."""

    def __init__(self, kernel: Any, parent: Mapping[str, Any]) -> None:
        self._kernel = kernel
        self._parent = dict(parent)
        self._context = contextvars.copy_context()
        self.message_id: str = parent["header"]["msg_id"]
        """Id of the request that runs the cell."""

    @classmethod
    def of_this_cell(cls, shell: Any) -> CellChannel | None:
        """The channel of the cell that the calling thread runs; None outside a Jupyter kernel."""
        kernel = getattr(shell, "kernel", None)
        if kernel is None or not hasattr(shell, "get_parent"):
            return None
        parent = shell.get_parent()
        return cls(kernel, parent) if parent and parent.get("header", {}).get("msg_id") else None

    def in_context(self, function: Callable[[], None]) -> Callable[[], None]:
        """``function`` for another thread: there it finds the cell's request, as widgets' messages need."""
        return lambda: self._context.run(function)

    def display(self, data: Mapping[str, Any], display_id: str) -> None:
        """A new output of the cell, below what it has printed so far."""
        # Printed text waits in the kernel's streams until a timer sends it. A user's stream in place of one
        # is left alone: this may be another thread than the cell's.
        for stream in (sys.stdout, sys.stderr):
            if type(stream).__module__ == "ipykernel.iostream":
                stream.flush()
        self._send("display_data", data, display_id)

    def update(self, data: Mapping[str, Any], display_id: str) -> None:
        """New content for the output of that id; nothing happens where it was cleared away."""
        self._send("update_display_data", data, display_id)

    def _send(self, kind: str, data: Mapping[str, Any], display_id: str) -> None:
        content = {"data": dict(data), "metadata": {}, "transient": {"display_id": display_id}}
        self._kernel.session.send(
            self._kernel.iopub_socket, kind, content, parent=self._parent, ident=_IDENTITY
        )
