"""Display messages of one cell, sent from any thread and past whatever captures the cell's outputs.

A cell's messages carry the header of the request that runs it. ipykernel keeps that request in context
variables (7) or in one global (6), and %%capture puts another publisher in place of the shell's: so
request and context are taken on the cell's own thread, and messages go to the kernel's socket directly.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Mapping
from typing import Any

_LOG = logging.getLogger(__name__)
_IDENTITY = b"display_data"

Message = dict[str, Any]


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
        """A new output of the cell."""
        self._send("display_data", data, display_id)

    def update(self, data: Mapping[str, Any], display_id: str) -> None:
        """New content for the output of that id; nothing happens where it was cleared away."""
        self._send("update_display_data", data, display_id)

    def _send(self, kind: str, data: Mapping[str, Any], display_id: str) -> None:
        content = {"data": dict(data), "metadata": {}, "transient": {"display_id": display_id}}
        self._kernel.session.send(
            self._kernel.iopub_socket, kind, content, parent=self._parent, ident=_IDENTITY
        )


class ClearWatch:
    """Notices that the cell clears its outputs, ours among them.

    ``clear_output(wait=True)`` takes effect at the next output, whoever sends it: until then it is
    ``pending``, and an output of ours would clear the user's too early.
    """

    def __init__(self, shell: Any, message_id: str, is_captured: Callable[[str], bool]) -> None:
        self._message_id = message_id
        self._is_captured = is_captured
        self._publisher: Any = shell.display_pub
        self._original: Callable[..., Any] = self._publisher.clear_output
        self._shadowed = vars(self._publisher).get("clear_output")
        self._replacement: Callable[..., Any] = self._clear_output
        self.pending = False
        """Whether a ``clear_output(wait=True)`` has not taken effect yet."""
        self.cleared = False
        """Whether the outputs sent so far were cleared; set back by whoever sends a new one."""

    def start(self) -> None:
        """Begin, on the thread that runs the cell: the publisher's hooks are a thread's own.

        Those of older ipykernels see no clearing, so that the publisher's method is shadowed for it.
        """
        self._publisher.clear_output = self._replacement
        self._publisher.register_hook(self._see)

    def stop(self) -> None:
        """End, on the same thread, unless other code has shadowed the method since: then see no more."""
        self._publisher.unregister_hook(self._see)
        if vars(self._publisher).get("clear_output") == self._replacement:
            if self._shadowed is None:
                del self._publisher.clear_output
            else:
                self._publisher.clear_output = self._shadowed

    def saw_output(self) -> None:
        """The cell put something out: a clearing that waited for it has happened."""
        if self.pending:
            self.pending = False
            self.cleared = True

    def _clear_output(self, *args: Any, **kwargs: Any) -> Any:
        result = self._original(*args, **kwargs)
        wait = kwargs.get("wait", args[0] if args else False)
        try:
            if self._concerns_us(self._publisher.parent_header):
                self.pending = bool(wait)
                self.cleared = self.cleared or not wait
        except Exception:
            _LOG.debug("A clearing was not understood", exc_info=True)
        return result

    def _see(self, message: Message) -> Message:
        try:
            shown = self.pending and message["header"]["msg_type"] == "display_data"
            if shown and self._concerns_us(message["parent_header"]):
                self.saw_output()
        except Exception:
            _LOG.debug("A message of the cell was not understood", exc_info=True)
        return message

    def _concerns_us(self, parent: Mapping[str, Any]) -> bool:
        # Another request's outputs, and those that an Output widget keeps to itself, are apart from ours.
        return parent.get("msg_id") == self._message_id and not self._is_captured(self._message_id)
