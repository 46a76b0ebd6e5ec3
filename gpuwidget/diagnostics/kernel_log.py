"""The driver's errors (XID) that the kernel's log still has since the machine was started."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")
_MOST_RECORDS = 200_000
_MOST_BYTES = 65536


def xids(root: Path) -> tuple[tuple[str, int], ...] | None:
    """PCI address and number of each, oldest first; None where this user may not read the log.

    Nothing else of the log is kept: it names other users' programs.
    """
    try:
        log = os.open(root / "dev/kmsg", os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    found: list[tuple[str, int]] = []
    try:
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(log, _MOST_BYTES)
            except BrokenPipeError:
                continue  # it was overwritten while it was read: the next one is the oldest now
            except OSError:
                break  # the end, or no permission
            if not record:
                break
            found += (
                (match[1].lower(), int(match[2]))
                for match in _XID.finditer(record.decode("utf-8", "replace"))
            )
    finally:
        with suppress(OSError):
            os.close(log)
    return tuple(found)
