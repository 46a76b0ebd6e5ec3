"""Pass printed lines to subscribers, such as a run's timeline.

The output streams of ipykernel are read through their ``echo`` attribute. For any other stream, the stream
object's ``write`` method is replaced. ``sys.stdout`` and ``sys.stderr`` remain the same objects and behave as
before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from gpuwidget.model.fork import reset_after_fork

_MAX_LENGTH = 200

TextCallback = Callable[[str], None]


class _LineSplitter:
    """Splits a stream's text into lines and calls ``on_line`` with each complete line."""

    def __init__(self, on_line: TextCallback) -> None:
        self._on_line = on_line
        self._incomplete = ""

    def write(self, text: str) -> None:
        *complete, self._incomplete = (self._incomplete + text).split("\n")
        for line in complete:
            visible = _visible(line).strip()
            if visible:
                self._on_line(visible)
        self._incomplete = _visible(self._incomplete)


def _visible(line: str) -> str:
    """Return the text after a line's last carriage return, as a terminal shows it, cut to 200 characters.

    Carriage returns at the end of the line are kept as one.
    """
    text = line.rstrip("\r")
    return text.rpartition("\r")[2][:_MAX_LENGTH] + ("\r" if text != line else "")


class _EchoHook:
    """Reads an output stream of ipykernel. Such a stream also writes its text to its ``echo`` attribute."""

    def __init__(self, stream: Any, on_text: TextCallback) -> None:
        self._stream = stream
        self._on_text = on_text
        stream.echo = self

    def write(self, text: str) -> None:
        """Receive the text that is written to the stream."""
        # KeyboardInterrupt may be raised while this method runs. The next variable makes IPython omit this
        # frame from the user's traceback.
        __tracebackhide__ = True
        try:
            self._on_text(text)
        except KeyboardInterrupt as interrupt:
            raise interrupt.with_traceback(None)  # noqa: B904 - the interrupt keeps its own context

    def flush(self) -> None:
        """Do nothing: the stream calls this method, but there is nothing to flush."""

    def remove(self) -> None:
        if self._stream.echo is self:
            self._stream.echo = None


class _WriteHook:
    """Reads a stream that has no ``echo`` attribute by replacing the stream object's ``write`` method."""

    def __init__(self, stream: Any, on_text: TextCallback) -> None:
        self._stream = stream
        self._on_text = on_text
        self._replaced = stream.__dict__.get("write")
        self._original: Callable[..., Any] = stream.write
        self._replacement: Callable[..., Any] = self._write
        stream.write = self._replacement

    def _write(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        result = self._original(*args, **kwargs)
        if args and isinstance(args[0], str):
            try:
                self._on_text(args[0])
            except KeyboardInterrupt as interrupt:
                raise interrupt.with_traceback(None)  # noqa: B904 - the interrupt keeps its own context
        return result

    def remove(self) -> None:
        # Restore ``write``, unless other code has replaced it since.
        if self._stream.__dict__.get("write") == self._replacement:
            if self._replaced is None:
                del self._stream.write
            else:
                self._stream.write = self._replaced


class PrintedLines:
    """Passes printed text (stdout and stderr) to subscribers. The streams are hooked only while there are
    subscribers."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._subscribers: list[tuple[TextCallback, bool]] = []
        self._hooks: list[_EchoHook | _WriteHook] = []

    def subscribe(self, callback: TextCallback, *, whole_lines: bool = True) -> None:
        """Call ``callback`` with each complete line, on the thread that prints.

        If ``whole_lines`` is False, call it with every piece of text as it is written.
        """
        with self._lock:
            self._subscribers.append((callback, whole_lines))
            if len(self._subscribers) == 1:
                hooks = (self._hook(stream) for stream in (sys.stdout, sys.stderr))
                self._hooks = [hook for hook in hooks if hook is not None]

    def unsubscribe(self, callback: TextCallback) -> None:
        """Stop calling ``callback``. If no subscriber remains, restore the streams. Safe to call twice."""
        with self._lock:
            self._subscribers = [known for known in self._subscribers if known[0] != callback]
            if not self._subscribers:
                self._remove_hooks()

    def _hook(self, stream: Any) -> _EchoHook | _WriteHook | None:
        lines = _LineSplitter(self._on_line)

        def on_text(text: str) -> None:
            for callback, whole_lines in tuple(self._subscribers):
                if not whole_lines:
                    callback(text)
            lines.write(text)

        if getattr(stream, "echo", stream) is None:
            return _EchoHook(stream, on_text)
        # Without a __dict__, the stream's ``write`` can't be replaced, so the stream is not hooked.
        return _WriteHook(stream, on_text) if hasattr(stream, "__dict__") else None

    def _on_line(self, line: str) -> None:
        for callback, whole_lines in tuple(self._subscribers):
            if whole_lines:
                callback(line)

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def reset_in_child(self) -> None:
        """Drop all subscribers in a forked child. Replace the lock, which another thread may have held."""
        self._lock = threading.RLock()
        self._subscribers = []
        self._remove_hooks()


PRINTED_LINES = PrintedLines()
"""The single instance of this process."""

reset_after_fork(PRINTED_LINES.reset_in_child)
