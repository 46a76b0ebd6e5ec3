"""The lines that the user's code prints, with their moment, so that a log and the GPU are read together.

A kernel's streams are heard through their own ``echo``; on any other a function of ours stands before
``write`` on that one object. The stream itself, its type and everything it does stay as they are.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from gpuwidget.model.fork import reset_after_fork

_LONGEST = 200

Listener = Callable[[str], None]


class _Lines:
    """Puts a stream's text together to whole lines, and hands these on."""

    def __init__(self, on_line: Listener) -> None:
        self._on_line = on_line
        self._begun = ""

    def take(self, text: str) -> None:
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            shown = _standing(line).strip()
            if shown:
                self._on_line(shown)
        self._begun = _standing(self._begun)


def _standing(line: str) -> str:
    """What is left of a line that rewrites itself, as progress bars do; its beginning, if it is long."""
    text = line.rstrip("\r")
    return text.rpartition("\r")[2][:_LONGEST] + ("\r" if text != line else "")


class _Echo:
    """Hears a kernel's stream, which writes all it gets to its ``echo`` as well."""

    def __init__(self, stream: Any, on_text: Listener) -> None:
        self._stream = stream
        self._on_text = on_text
        stream.echo = self

    def write(self, text: str) -> None:
        """Called by the stream with whatever is written to it."""
        # An interrupt may strike right here: IPython leaves frames with this name out of its traceback.
        __tracebackhide__ = True
        try:
            self._on_text(text)
        except KeyboardInterrupt as interrupt:
            raise interrupt.with_traceback(None)  # noqa: B904 - its own context stays

    def flush(self) -> None:
        """Called by the stream; there is nothing to flush."""

    def release(self) -> None:
        if self._stream.echo is self:
            self._stream.echo = None


class _Shadow:
    """Hears any other stream, through a ``write`` put over its own on that one object."""

    def __init__(self, stream: Any, on_text: Listener) -> None:
        self._stream = stream
        self._on_text = on_text
        self._shadowed = stream.__dict__.get("write")
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
                raise interrupt.with_traceback(None)  # noqa: B904 - its own context stays
        return result

    def release(self) -> None:
        # Unless other code has replaced it since.
        if self._stream.__dict__.get("write") == self._replacement:
            if self._shadowed is None:
                del self._stream.write
            else:
                self._stream.write = self._shadowed


class Printed:
    """Hands what is printed to stdout and stderr to all listeners, while there are any."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._listeners: list[tuple[Listener, bool]] = []
        self._taps: list[_Echo | _Shadow] = []

    def listen(self, listener: Listener, *, whole_lines: bool = True) -> None:
        """Begin to call ``listener``, on the thread that prints, with each line that is complete.

        Without ``whole_lines``, with every piece of text as it is written.
        """
        with self._lock:
            self._listeners.append((listener, whole_lines))
            if len(self._listeners) == 1:
                taps = (self._tap(stream) for stream in (sys.stdout, sys.stderr))
                self._taps = [tap for tap in taps if tap is not None]

    def leave(self, listener: Listener) -> None:
        """End it; with the last listener the streams are as they were. Safe to call twice."""
        with self._lock:
            self._listeners = [known for known in self._listeners if known[0] != listener]
            if not self._listeners:
                for tap in self._taps:
                    tap.release()
                self._taps.clear()

    def _tap(self, stream: Any) -> _Echo | _Shadow | None:
        lines = _Lines(self._tell_line)

        def tell(text: str) -> None:
            for listener, whole_lines in tuple(self._listeners):
                if not whole_lines:
                    listener(text)
            lines.take(text)

        if getattr(stream, "echo", stream) is None:
            return _Echo(stream, tell)
        # A stream without a __dict__ can't be heard without being replaced: it is let alone.
        return _Shadow(stream, tell) if hasattr(stream, "__dict__") else None

    def _tell_line(self, line: str) -> None:
        for listener, whole_lines in tuple(self._listeners):
            if whole_lines:
                listener(line)

    def reset_in_child(self) -> None:
        """After a fork nobody in the child listens, and a lock that another thread held is free."""
        self._lock = threading.RLock()
        self._listeners = []
        for tap in self._taps:
            tap.release()
        self._taps.clear()


PRINTED = Printed()
"""The process's one."""

reset_after_fork(PRINTED.reset_in_child)
