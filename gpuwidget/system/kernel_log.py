"""Lines of the Linux kernel's log (dmesg), such as errors of drivers and processes killed for lack of memory.

The log is that of the whole machine, so its lines contain names of other users' programs. Don't show a line
as it is. Most systems let only root read the log.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.system.processes import since_boot_without_suspend

_DEVICE = (1, 11)
"""The numbers of /dev/kmsg. In some containers, this name is a link to the console, which must not be read,
because that takes away what the user types."""
_READ_BYTES = 65536
"""The kernel returns one record per read, and none is longer than 8 KiB."""
_MAX_BYTES = 64 * 1024 * 1024
_MAX_SECONDS = 1.0
_MAX_LINES = 50_000
_RECORD = re.compile(rb"(\d+),\d+,(\d+),[^;\n]*;(.*)")
"""A record's priority, its time in microseconds, and its text. Lines with a record's properties begin with a
space, so they don't match."""
_FACILITIES = 8
"""A priority is the level plus eight times the facility. The kernel's own facility is 0. Programs that write
to the log have another one."""


class KernelLogLine(NamedTuple):
    """One line of the kernel's log."""

    time: float
    """Epoch seconds. If the machine was suspended since, the time is too late by the duration of that."""
    text: str


def read(
    since: float | None,
    root: Path = Path("/"),
    *,
    matching: re.Pattern[str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[KernelLogLine, ...] | None:
    """Return the kernel's own lines at or after ``since``, oldest first; None if the log isn't readable.

    ``since`` is in epoch seconds. Only lines in which ``matching`` is found are kept. ``root`` is / except in
    tests. The call never waits, and reads for at most a second. If the log has more than 50,000 such lines,
    the newest are returned.
    """
    file = _open(root / "dev/kmsg")
    if file is None:
        return None
    try:
        boot = clock.time() - since_boot_without_suspend()
        lines = (line for record in _records(file, clock) if (line := _parse(record, boot)) is not None)
        return tuple(deque((line for line in lines if _is_wanted(line, since, matching)), _MAX_LINES))
    except OSError:
        return None
    finally:
        with suppress(OSError):
            os.close(file)


def _open(path: Path) -> int | None:
    """Open the log, or the regular file that replaces it in tests; None if that isn't possible."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstat(file)
    device = (os.major(status.st_rdev), os.minor(status.st_rdev))
    if stat.S_ISREG(status.st_mode) or (stat.S_ISCHR(status.st_mode) and device == _DEVICE):
        return file
    os.close(file)
    return None


def _records(file: int, clock: Clock) -> Iterator[bytes]:
    """Yield the complete lines of the open log, within the limits of bytes and time."""
    started, size, rest = clock.monotonic(), 0, b""
    while size < _MAX_BYTES and clock.monotonic() - started < _MAX_SECONDS:
        try:
            data = os.read(file, _READ_BYTES)
        except BrokenPipeError:
            continue  # records were overwritten before they were read; the next read returns the oldest one
        except BlockingIOError:
            return  # the end of the log
        if not data:
            return  # the end of a regular file
        size += len(data)
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


def _parse(record: bytes, boot: float) -> KernelLogLine | None:
    """Return the line of a record; None if the kernel didn't write it. ``boot`` is in epoch seconds."""
    match = _RECORD.fullmatch(record)
    if match is None or int(match[1]) >= _FACILITIES:
        return None
    return KernelLogLine(boot + int(match[2]) / 1e6, match[3].decode("utf-8", "replace"))


def _is_wanted(line: KernelLogLine, since: float | None, matching: re.Pattern[str] | None) -> bool:
    is_recent = since is None or line.time >= since
    return is_recent and (matching is None or matching.search(line.text) is not None)
