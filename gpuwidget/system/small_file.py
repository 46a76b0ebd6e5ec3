"""Read small files of ``/proc`` and ``/sys`` with few system calls."""

from __future__ import annotations

import os

_MAX_BYTES = 16384


def read(path: str) -> bytes:
    """Return the first 16 KiB of a file. Raise OSError if it can't be read."""
    # Not open(), because it makes more than these three system calls. In a busy notebook, each call may have
    # to wait for the GIL.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _MAX_BYTES)
    finally:
        os.close(file)


def read_all(path: str) -> bytes:
    """Return the first 64 KiB of a file that the kernel may return in several parts, such as
    ``/proc/vmstat``, or nothing if the file can't be read."""
    parts = [b""]
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        while len(parts) < 20 and (part := os.read(file, _MAX_BYTES)):
            parts.append(part)
    except OSError:
        pass
    finally:
        os.close(file)
    return b"".join(parts)[: 4 * _MAX_BYTES]


def read_or_empty(path: str) -> bytes:
    """Return what :func:`read` returns, or nothing if the file can't be read."""
    try:
        return read(path)
    except OSError:
        return b""


def number(path: str) -> int | None:
    """Return the number that the file consists of, or None if it doesn't or can't be read."""
    text = read_or_empty(path).strip()
    return int(text) if text.isdigit() else None


def number_after(name: bytes, content: bytes) -> int | None:
    """Return the number of the line that begins with ``name``, or None without such a line.

    A line has a name and a number, and maybe a colon and a unit: ``oom_kill 3`` or ``MemTotal:  24 kB``.
    """
    for start in (name + b" ", name + b":"):
        place = 0 if content.startswith(start) else content.find(b"\n" + start) + 1
        if place or content.startswith(start):
            after = place + len(start)
            words = content[after : after + 40].split(None, 1)
            return int(words[0]) if words and words[0].isdigit() else None
    return None
