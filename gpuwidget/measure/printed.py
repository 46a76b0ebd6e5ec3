"""The lines that the user's code prints, with their moment, so that a log and the GPU are read together.

``write`` of the stream that is there when a run begins is preceded by a function of ours on that one
object; the stream itself, its type and everything it does stay as they are.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO

_LONGEST = 200

Listener = Callable[[str], None]


class _TappedStream:
    """One stream whose complete lines are handed to a listener."""

    def __init__(self, stream: TextIO, on_line: Listener) -> None:
        self._stream: Any = stream
        self._on_line = on_line
        self._begun = ""
        self._shadowed = stream.__dict__.get("write")
        self._original: Callable[..., Any] = stream.write
        self._replacement: Callable[..., Any] = self._write
        setattr(stream, "write", self._replacement)  # noqa: B010 - shadows the method on this one object

    def _write(self, *args: Any, **kwargs: Any) -> Any:
        result = self._original(*args, **kwargs)
        if args and isinstance(args[0], str):
            self._take(args[0])
        return result

    def _take(self, text: str) -> None:
        if "\n" not in text:
            if len(self._begun) < _LONGEST:
                self._begun += text
            return
        first, *others = text.split("\n")
        begun, self._begun = self._begun, others.pop()[-_LONGEST:]
        for line in (begun + first, *others):
            # A progress bar rewrites its line: what is left standing is what counts.
            shown = line.rstrip("\r").rpartition("\r")[2].strip()
            if shown:
                self._on_line(shown[:_LONGEST])

    def release(self) -> None:
        """Put ``write`` back, unless other code has replaced it since."""
        if self._stream.__dict__.get("write") == self._replacement:
            if self._shadowed is None:
                del self._stream.write
            else:
                self._stream.write = self._shadowed


class PrintedLines:
    """Hands every line printed to stdout and stderr to all listeners, while there are any."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._listeners: list[Listener] = []
        self._streams: list[_TappedStream] = []

    def listen(self, listener: Listener) -> None:
        """Begin to call ``listener`` with each line printed, on the thread that prints it."""
        with self._lock:
            self._listeners.append(listener)
            if len(self._listeners) == 1:
                for stream in (sys.stdout, sys.stderr):
                    # A stream without a __dict__ can't be tapped without replacing it: leave it alone.
                    if stream is not None and hasattr(stream, "__dict__"):
                        self._streams.append(_TappedStream(stream, self._tell))

    def leave(self, listener: Listener) -> None:
        """End it; with the last listener the streams are as they were. Safe to call twice."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)
            if not self._listeners:
                for stream in self._streams:
                    stream.release()
                self._streams.clear()

    def _tell(self, line: str) -> None:
        for listener in tuple(self._listeners):
            listener(line)


PRINTED = PrintedLines()
"""The process's one."""
