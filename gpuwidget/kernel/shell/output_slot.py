"""The output that gpuwidget adds to a cell without disturbing the cell's outputs.

An empty output takes no space. :class:`OutputSlot` sends one early and fills it later with an update: unlike
a new output, an update never splits the output of a progress bar and never triggers a pending
``clear_output(wait=True)``. The live chart and then the card appear in the same output.
"""

from __future__ import annotations

import contextvars
import logging
import math
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from gpuwidget.measure.printed_lines import PRINTED_LINES
from gpuwidget.model.boundary import Boundary, stopped
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.views.saved_outputs import output_metadata

_LOG = logging.getLogger(__name__)

EMPTY: Mapping[str, Any] = {}
"""The mime bundle of an empty output."""

_IDENT = b"display_data"
"""First frame of a message on the IOPub socket: the topic that subscribers filter by."""
_OFTEN_S = 5.0
_MARGIN_S = 1.0
"""A cell that cleared its outputs twice within ``_OFTEN_S`` probably does so again, unless it has not for
twice as long and ``_MARGIN_S``."""
_Message = dict[str, Any]


class OutputSlot:
    """One output of gpuwidget in the running cell. Create and close it on the thread that runs the cell.

    If a cell ends with ``clear_output(wait=True)``, its outputs stay until a new output arrives, so a new
    output with the card would clear them. Unless there is an output to update, an empty one is therefore sent
    just before each ``clear_output(wait=True)``.
    """

    def __init__(self, shell: Any, channel: IOPubChannel, *, for_card: bool) -> None:
        self.channel = channel
        self._shell = shell
        self._display_id: str | None = None
        """Id of the newest output; None until one is sent."""
        before_pending = self._reserve_after_text if for_card else lambda: None
        self._clears = _ClearOutputWatch(shell, channel.message_id, before_pending)
        self._open = True
        self._lock = threading.RLock()
        """Held while another thread may send, so that nothing of it follows what :meth:`close` shows, and so
        that two threads don't add two outputs."""

    @classmethod
    def reserve(cls, shell: Any, *, for_card: bool = False) -> OutputSlot | None:
        """Send the empty output now; return None outside a Jupyter kernel."""
        slot = cls.at_end(shell, for_card=for_card)
        if slot is not None:
            slot._send_new(EMPTY)
        return slot

    @classmethod
    def at_end(cls, shell: Any, *, for_card: bool = True) -> OutputSlot | None:
        """Return a slot for an output below all others; None outside a Jupyter kernel."""
        channel = IOPubChannel.of_running_cell(shell)
        if channel is None:
            return None
        slot = cls(shell, channel, for_card=for_card)
        slot._clears.start()
        return slot

    def close(self, data: Mapping[str, Any] = EMPTY) -> None:
        """Show ``data`` for good, or leave nothing visible. Only the first call has an effect.

        ``data`` replaces the slot's content. If the cell has cleared the slot, or if an update does not reach
        it, ``data`` is shown below the cell's outputs instead.
        """
        with self._lock:
            if not self._open:
                return
            self._open = False
        clears = self._clears
        clears.stop()
        if self._display_id is not None and (clears.pending or not clears.cleared) and self._updatable:
            self._update(data)
            return
        self._update(EMPTY)
        if data:
            self._append(data)

    @property
    def _updatable(self) -> bool:
        """Whether the front end applies an update to the slot.

        JupyterLab discards updates while an Output widget captures the cell's outputs.
        """
        return (self._clears.pending or self.channel.from_notebook) and not self.captured

    def ends_with_result(self) -> None:
        """Note that the cell has shown a result or a traceback, which triggered a pending clear."""
        if self._open and self._clears.pending:
            self._clears.take_effect()

    @property
    def cleared(self) -> bool:
        """Whether the cell has cleared its outputs, including the slot."""
        return self._clears.cleared

    @property
    def clear_pending(self) -> bool:
        """Whether the next new output clears all outputs.

        While this is True, only :meth:`fill` can be called safely.
        """
        return self._clears.pending

    @property
    def captured(self) -> bool:
        """Whether an Output widget currently captures the cell's outputs."""
        return _is_captured(self.channel.message_id)

    @property
    def clears_often(self) -> bool:
        """Whether the cell clears its outputs every few seconds, as a progress display does.

        False once it has not done so for twice as long as before.
        """
        return self._clears.often

    def fill(self, data: Mapping[str, Any]) -> None:
        """Replace the content of the slot, unless it is closed. Any thread may call this method."""
        with self._lock:
            if self._open:
                self._update(data)

    def renew(self, data: Mapping[str, Any]) -> None:
        """Show a new output below the others, after the cell cleared the slot, unless the slot is closed.

        Any thread may call this method.
        """
        with self._lock:
            if self._open:
                self._clears.cleared = False
                self._update(EMPTY)
                self._send_new(data)

    def _update(self, data: Mapping[str, Any]) -> None:
        if self._display_id is not None:
            self.channel.update(data, self._display_id)

    def _append(self, data: Mapping[str, Any]) -> None:
        publisher = self._shell.display_pub
        if any(_may_have_text(stream) for stream in (sys.stdout, sys.stderr)):
            publisher.publish(data=dict(data), metadata=output_metadata())
            return
        # ipykernel's publisher would flush both streams, which waits for the sending thread although there is
        # no text to send.
        publisher._flush_streams = lambda: None
        try:
            publisher.publish(data=dict(data), metadata=output_metadata())
        finally:
            del publisher._flush_streams

    def _reserve_after_text(self) -> None:
        if not self._is_missing:
            return
        # The publisher flushes both streams before it sends the clear message. Streams that the user has
        # installed would then pass on text after the empty output. Flush them now, so that the text is shown
        # above the card.
        with Boundary(_LOG, "the user's stream could not be flushed", foreign=True):
            sys.stdout.flush()
            sys.stderr.flush()
        with self._lock:
            if self._is_missing:  # unless the live thread renewed it during the flush
                self._send_new(EMPTY)

    @property
    def _is_missing(self) -> bool:
        """Whether the cell has no output of the slot that could be updated."""
        return self._display_id is None or self.cleared

    def _send_new(self, data: Mapping[str, Any]) -> None:
        display_id = f"gpuwidget-live-{uuid.uuid4().hex}"
        self._display_id = display_id
        self.channel.display(data, display_id)


class IOPubChannel:
    """Sends display messages of the running cell from any thread, even if its outputs are captured.

    A cell's messages contain the header of the execute request. ipykernel 7 keeps the request in context
    variables, ipykernel 6 in a global, and ``%%capture`` replaces the shell's publisher. So this class copies
    the request and the context on the cell's thread, and sends messages directly to the kernel's socket.
    """

    def __init__(self, kernel: Any, parent: Mapping[str, Any]) -> None:
        self._kernel = kernel
        self._parent = dict(parent)
        self._context = contextvars.copy_context()
        self.message_id: str = parent["header"]["msg_id"]
        """Id of the execute request."""
        self.from_notebook = bool(parent.get("metadata"))
        """Whether the request says which of a notebook's cells it runs. A request without this may come from
        a console, which shows new outputs only and ignores updates."""

    @classmethod
    def of_running_cell(cls, shell: Any) -> IOPubChannel | None:
        """Return the channel of the cell that this thread runs; None outside a Jupyter kernel."""
        kernel = getattr(shell, "kernel", None)
        if kernel is None or not hasattr(shell, "get_parent"):
            return None
        parent = shell.get_parent()
        return cls(kernel, parent) if parent and parent.get("header", {}).get("msg_id") else None

    def in_context(self, function: Callable[[], None]) -> Callable[[], None]:
        """Wrap ``function`` so that widgets find the cell's request even on another thread."""
        return lambda: self._context.run(function)

    def display(self, data: Mapping[str, Any], display_id: str) -> None:
        """Send a new output, below the text that the cell has printed so far."""
        # The kernel's streams buffer printed text until a timer sends it. Do not flush a stream that the user
        # installed, because this may not be the cell's thread. Do not flush an empty buffer, because a flush
        # always waits for the sending thread.
        for stream in (sys.stdout, sys.stderr):
            if _is_kernel_stream(stream) and _may_have_text(stream):
                stream.flush()
        self._send("display_data", data, display_id)

    def update(self, data: Mapping[str, Any], display_id: str) -> None:
        """Replace the content of the output that has this id; do nothing if that output was cleared."""
        self._send("update_display_data", data, display_id)

    def _send(self, message_type: str, data: Mapping[str, Any], display_id: str) -> None:
        content = {"data": dict(data), "metadata": output_metadata(), "transient": {"display_id": display_id}}
        self._kernel.session.send(
            self._kernel.iopub_socket, message_type, content, parent=self._parent, ident=_IDENT
        )


def _is_kernel_stream(stream: object) -> bool:
    return type(stream).__module__ == "ipykernel.iostream"


def _may_have_text(stream: object) -> bool:
    """Return whether the stream may have text that was printed but not sent yet."""
    return not _is_kernel_stream(stream) or getattr(stream, "_flush_pending", True)


class _ClearOutputWatch:
    """Detects when a cell's ``clear_output`` calls take effect.

    ``clear_output(wait=True)`` takes effect with the next output, regardless of its sender.
    """

    def __init__(self, shell: Any, message_id: str, before_pending: Callable[[], None]) -> None:
        """``before_pending`` is called just before a ``clear_output(wait=True)`` is sent."""
        self._message_id = message_id
        self._before_pending = before_pending
        self._publisher: Any = shell.display_pub
        self._original: Callable[..., Any] = self._publisher.clear_output
        self._previous_override = vars(self._publisher).get("clear_output")
        self._override: Callable[..., Any] = self._clear_output
        # The publisher that %%capture installs has no hooks, because it stores messages instead of sending
        # them.
        self._has_hooks = hasattr(self._publisher, "register_hook")
        self.pending = False
        """Whether a ``clear_output(wait=True)`` has not taken effect yet."""
        self.cleared = False
        """Whether the cell's outputs have been cleared. :meth:`OutputSlot.renew` resets this."""
        self._cleared_at = self._interval_s = math.inf

    @property
    def often(self) -> bool:
        """Whether the last two clears were a few seconds apart, and a third one may follow soon."""
        quiet_s = SYSTEM_CLOCK.monotonic() - self._cleared_at
        return self._interval_s < _OFTEN_S and quiet_s < 2 * self._interval_s + _MARGIN_S

    def start(self) -> None:
        """Start watching. Call it on the thread that runs the cell: the publisher's hooks are thread-local.

        Older versions of ipykernel do not call the hooks for ``clear_output``, so ``clear_output`` is
        overridden.
        """
        if not self._has_hooks:
            return
        self._publisher.clear_output = self._override
        self._publisher.register_hook(self._on_message)

    def stop(self) -> None:
        """Stop watching; call it on the thread that called :meth:`start`.

        If other code has overridden ``clear_output`` in the meantime, the other code's override stays.
        """
        if not self._has_hooks:
            return
        PRINTED_LINES.unsubscribe(self._on_text)
        self._publisher.unregister_hook(self._on_message)
        if vars(self._publisher).get("clear_output") == self._override:
            if self._previous_override is None:
                del self._publisher.clear_output
            else:
                self._publisher.clear_output = self._previous_override

    def _clear_output(self, *args: Any, **kwargs: Any) -> Any:
        wait = bool(kwargs.get("wait", args[0] if args else False))
        if wait and not self.pending:
            try:
                if self._is_from_cell(self._publisher.parent_header):
                    self._before_pending()
            except BaseException as error:
                stopped(_LOG, "the output slot could not be reserved", error)
        sent = True
        try:
            return self._original(*args, **kwargs)
        except Exception:
            sent = False  # a stream could not be flushed, which happens before the message is sent
            raise
        finally:  # even if an interrupt arrives after the message was sent
            if sent:
                self._note_clear(wait=wait)

    def _note_clear(self, *, wait: bool) -> None:
        try:
            parent = self._publisher.parent_header
            if self._is_from_cell(parent):
                if wait:
                    self._await_output()
                else:
                    self.take_effect()
            elif parent.get("msg_id") == self._message_id:
                PRINTED_LINES.clear()  # an Output widget that may have captured some of the lines
        except BaseException as error:
            stopped(_LOG, "clear_output could not be observed", error)

    def _on_message(self, message: _Message) -> _Message:
        try:
            displayed = self.pending and message["header"]["msg_type"] == "display_data"
            if displayed and self._is_from_cell(message["parent_header"]):
                self.take_effect()
        except BaseException as error:
            stopped(_LOG, "a message of the cell could not be read", error)
        return message

    def _on_text(self, text: str) -> None:
        if text and self.pending and not _is_captured(self._message_id):
            self.take_effect()

    def _await_output(self) -> None:
        # Printed text is read only while a clear is pending, because reading it costs time.
        if not self.pending:
            self.pending = True
            PRINTED_LINES.subscribe_to_pieces(self._on_text)

    def take_effect(self) -> None:
        """Note that the cell's outputs are cleared now."""
        now = SYSTEM_CLOCK.monotonic()
        self._interval_s, self._cleared_at = abs(now - self._cleared_at), now
        self.pending = False
        self.cleared = True
        PRINTED_LINES.unsubscribe(self._on_text)
        PRINTED_LINES.clear()

    def _is_from_cell(self, parent: Mapping[str, Any]) -> bool:
        return parent.get("msg_id") == self._message_id and not _is_captured(self._message_id)


def _is_captured(message_id: str) -> bool:
    """Return whether an Output widget (``with out:``) currently captures the outputs of the request."""
    ipywidgets = sys.modules.get("ipywidgets")
    # Without the attribute, another thread is importing the module.
    if ipywidgets is None or not hasattr(ipywidgets, "Output"):
        return False
    module = ipywidgets.widgets.widget
    # All widgets of this kernel by model id; ipywidgets 7 keeps them on the class.
    instances = module._instances if hasattr(module, "_instances") else ipywidgets.Widget.widgets
    return any(
        isinstance(widget, ipywidgets.Output) and widget.msg_id == message_id
        for widget in tuple(instances.values())
    )
