"""Noticing that a cell clears its outputs, ours among them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from gpuwidget.measure.printed_lines import PRINTED_LINES

_LOG = logging.getLogger(__name__)

Message = dict[str, Any]


class ClearWatch:
    """Knows which of a cell's ``clear_output`` calls have taken effect, and which still wait.

    ``clear_output(wait=True)`` takes effect at the next output, whoever sends it: until then it is
    ``pending``, and an output of ours would clear the user's too early.
    """

    def __init__(self, shell: Any, message_id: str, before_waiting: Callable[[], None] | None = None) -> None:
        """``before_waiting`` is called just before a ``clear_output(wait=True)`` is sent."""
        self._message_id = message_id
        self._before_waiting = before_waiting
        self._publisher: Any = shell.display_pub
        self._original: Callable[..., Any] = self._publisher.clear_output
        self._shadowed = vars(self._publisher).get("clear_output")
        self._replacement: Callable[..., Any] = self._clear_output
        # Not where %%capture has put another publisher there, which keeps everything to itself.
        self._hears = hasattr(self._publisher, "register_hook")
        self.pending = False
        """Whether a ``clear_output(wait=True)`` has not taken effect yet."""
        self.cleared = False
        """Whether the outputs sent so far were cleared; set back by whoever sends a new one."""

    def start(self) -> None:
        """Begin, on the thread that runs the cell: the publisher's hooks are a thread's own.

        Those of older ipykernels see no clearing, so that the publisher's method is shadowed for it.
        """
        if not self._hears:
            return
        self._publisher.clear_output = self._replacement
        self._publisher.register_hook(self._see_message)
        PRINTED_LINES.subscribe(self._see_text, whole_lines=False)

    def stop(self) -> None:
        """End, on the same thread. Where other code has shadowed the method since, ours just goes on."""
        if not self._hears:
            return
        PRINTED_LINES.unsubscribe(self._see_text)
        self._publisher.unregister_hook(self._see_message)
        if vars(self._publisher).get("clear_output") == self._replacement:
            if self._shadowed is None:
                del self._publisher.clear_output
            else:
                self._publisher.clear_output = self._shadowed

    def _clear_output(self, *args: Any, **kwargs: Any) -> Any:
        wait = kwargs.get("wait", args[0] if args else False)
        if wait and not self.pending:
            self._announce()
        result = self._original(*args, **kwargs)
        try:
            if self._concerns_us(self._publisher.parent_header):
                self.pending = bool(wait)
                self.cleared = self.cleared or not wait
        except Exception:
            _LOG.debug("A clearing was not understood", exc_info=True)
        return result

    def _announce(self) -> None:
        try:
            if self._before_waiting is not None and self._concerns_us(self._publisher.parent_header):
                self._before_waiting()
        except Exception:
            _LOG.debug("A clearing was not prepared for", exc_info=True)

    def _see_message(self, message: Message) -> Message:
        try:
            shown = self.pending and message["header"]["msg_type"] == "display_data"
            if shown and self._concerns_us(message["parent_header"]):
                self._see_output()
        except Exception:
            _LOG.debug("A message of the cell was not understood", exc_info=True)
        return message

    def _see_text(self, text: str) -> None:
        if text and self.pending and not is_captured(self._message_id):
            self._see_output()

    def _see_output(self) -> None:
        self.pending = False
        self.cleared = True

    def _concerns_us(self, parent: Mapping[str, Any]) -> bool:
        # Another request's outputs, and those that an Output widget keeps to itself, are apart from ours.
        return parent.get("msg_id") == self._message_id and not is_captured(self._message_id)


def is_captured(message_id: str) -> bool:
    """Whether an Output widget keeps the outputs of that request to itself now (``with out:``)."""
    ipywidgets = sys.modules.get("ipywidgets")
    if ipywidgets is None:
        return False
    module = ipywidgets.widgets.widget
    # Every widget of this kernel, by model id; ipywidgets 7 keeps them on the class.
    instances = module._instances if hasattr(module, "_instances") else ipywidgets.Widget.widgets
    return any(
        isinstance(widget, ipywidgets.Output) and widget.msg_id == message_id
        for widget in tuple(instances.values())
    )
