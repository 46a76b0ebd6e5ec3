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
_MAX_PIECES = 50

TextCallback = Callable[[str], None]


class _LineSplitter:
    """Splits a stream's text into lines, and passes each complete line on.

    ``print`` writes several pieces per line, so :meth:`write` does as little as possible.
    """

    def __init__(self, printed: PrintedLines) -> None:
        self._printed = printed
        self._pieces: list[str] = []
        """The pieces of the line that is not complete yet."""

    def write(self, text: str) -> None:
        if self._printed.of_pieces:
            self._printed.on_piece(text)
        pieces = self._pieces
        pieces.append(text)
        if "\n" in text or len(pieces) > _MAX_PIECES or len(text) > _MAX_LENGTH:
            *complete, incomplete = "".join(pieces).split("\n")
            self._pieces = [_visible(incomplete)] if incomplete else []
            for line in complete:
                visible = _visible(line).strip()
                if visible:
                    self._printed.on_line(visible)

    def clear(self) -> None:
        """Forget the line that is not complete yet."""
        self._pieces = []


def _visible(line: str) -> str:
    """Return the text after a line's last carriage return, as a terminal shows it, cut to 200 characters.

    Carriage returns at the end of the line are kept as one.
    """
    if "\r" not in line:
        return line[:_MAX_LENGTH]
    text = line.rstrip("\r")
    return text.rpartition("\r")[2][:_MAX_LENGTH] + ("\r" if text != line else "")


class _EchoHook:
    """Reads an output stream of ipykernel. Such a stream also writes its text to its ``echo`` attribute."""

    def __init__(self, stream: Any, on_text: TextCallback) -> None:
        self._stream = stream
        self._on_text = on_text
        stream.echo = self

    def write(self, text: str) -> None:
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
        # Tuples, so that a thread that prints can iterate over them while another thread subscribes.
        self._of_lines: tuple[tuple[TextCallback, Callable[[], None]], ...] = ()
        self.of_pieces: tuple[TextCallback, ...] = ()
        self._hooks: list[_EchoHook | _WriteHook] = []
        self._splitters: list[_LineSplitter] = []

    def subscribe(self, callback: TextCallback, on_clear: Callable[[], None] = lambda: None) -> None:
        """Call ``callback`` with each complete line, on the thread that prints.

        Call ``on_clear`` when the cell has cleared the lines that it printed so far.
        """
        with self._lock:
            self._of_lines += ((callback, on_clear),)
            self._add_hooks()

    def subscribe_to_pieces(self, callback: TextCallback) -> None:
        """Call ``callback`` with every piece of text as it is written."""
        with self._lock:
            self.of_pieces += (callback,)
            self._add_hooks()

    def unsubscribe(self, callback: TextCallback) -> None:
        """Stop calling ``callback``. If no subscriber remains, restore the streams. Safe to call twice."""
        with self._lock:
            self._of_lines = tuple(known for known in self._of_lines if known[0] != callback)
            self.of_pieces = tuple(known for known in self.of_pieces if known != callback)
            if not self._of_lines and not self.of_pieces:
                self._remove_hooks()

    def clear(self) -> None:
        """Tell subscribers that the text that was printed so far is no longer shown."""
        for splitter in self._splitters:
            splitter.clear()
        for _, on_clear in self._of_lines:
            on_clear()

    def _add_hooks(self) -> None:
        if not self._hooks:
            hooks = (self._hook(stream) for stream in (sys.stdout, sys.stderr))
            self._hooks = [hook for hook in hooks if hook is not None]

    def _hook(self, stream: Any) -> _EchoHook | _WriteHook | None:
        lines = _LineSplitter(self)
        self._splitters.append(lines)
        if getattr(stream, "echo", stream) is None:
            return _EchoHook(stream, lines.write)
        # Without a __dict__, the stream's ``write`` can't be replaced, so the stream is not hooked.
        return _WriteHook(stream, lines.write) if hasattr(stream, "__dict__") else None

    def on_piece(self, text: str) -> None:
        for callback in self.of_pieces:
            callback(text)

    def on_line(self, line: str) -> None:
        """Pass a complete line on."""
        for callback, _ in self._of_lines:
            callback(line)

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._splitters.clear()

    def reset_in_child(self) -> None:
        """Drop all subscribers in a forked child. Replace the lock, which another thread may have held."""
        self._lock = threading.RLock()
        self._of_lines = self.of_pieces = ()
        self._remove_hooks()


PRINTED_LINES = PrintedLines()
"""The single instance of this process."""

reset_after_fork(PRINTED_LINES.reset_in_child)
