"""Whether two files are the same build of a shared library."""

from __future__ import annotations

import filecmp
import os
import struct
from typing import IO

_MAX_COMPARED_BYTES = 64 * 1024**2
"""Larger files without a build id count as different, because comparing their contents takes too long."""
_PT_NOTE, _BUILD_ID_NOTE = 4, 3
_MAX_NOTE_BYTES = 65536


def same_library(one: str, other: str) -> bool:
    """Return whether the two files are one file, or have the same size and the same build id or content.

    The linker derives the build id from a library's content, so that large libraries need not be read.
    """
    try:
        if os.path.samefile(one, other):
            return True
        size = os.path.getsize(one)
        if size != os.path.getsize(other):
            return False
        ids = build_id(one), build_id(other)
        if None not in ids:
            return ids[0] == ids[1]
        return size <= _MAX_COMPARED_BYTES and filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def build_id(path: str) -> str | None:
    """Return the build id of a 64-bit ELF file, as hexadecimal digits; None if it has none."""
    try:
        with open(path, "rb") as file:
            return _read_build_id(file)
    except (OSError, ValueError, struct.error):  # ValueError: an offset that no file can have
        return None


def _read_build_id(file: IO[bytes]) -> str | None:
    head = file.read(64)
    if head[:5] != b"\x7fELF\x02" or head[5:6] != b"\x01":
        return None
    offset, size, count = *struct.unpack_from("<Q", head, 32), *struct.unpack_from("<HH", head, 54)
    for number in range(count):
        file.seek(offset + number * size)
        header = file.read(56)
        kind, start, length = *struct.unpack_from("<I", header), *struct.unpack_from("<Q16xQ", header, 8)
        if kind == _PT_NOTE and length <= _MAX_NOTE_BYTES:
            file.seek(start)
            found = _build_id_note(file.read(length))
            if found is not None:
                return found
    return None


def _build_id_note(notes: bytes) -> str | None:
    place = 0
    while place + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, place)
        name = notes[place + 12 : place + 12 + name_size]
        start = place + 12 + -(-name_size // 4) * 4
        if kind == _BUILD_ID_NOTE and name == b"GNU\0":
            return notes[start : start + size].hex() or None
        place = start + -(-size // 4) * 4
    return None
