"""The JSON of the server's responses and of the stream's messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

_MAX_NUMBERS = 1000
"""The maximum number of values in one part. The JSON encoder holds the GIL until it has finished, for up to
0.5 ms if it encodes 1,000 numbers."""

_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


class Fields(NamedTuple):
    """The fields of an object that are made one by one while it is encoded."""

    items: Iterable[tuple[str, object]]


def encode(value: object) -> bytes:
    """Return a value of JSON's types, such as :func:`gpuwidget.model.to_json.to_json` returns, as JSON."""
    return _ENCODER.encode(value).encode()


def encode_in_parts(value: object) -> Iterator[bytes]:
    """Yield a value as JSON, in parts between which other requests can run.

    Bytes are JSON already. A list contains only numbers and None. An iterator becomes a list whose items are
    made one by one.
    """
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, list):
        yield b"["
        for first in range(0, len(value), _MAX_NUMBERS):
            yield (b"," if first else b"") + encode_items(value[first : first + _MAX_NUMBERS])
        yield b"]"
    elif isinstance(value, Iterator):
        yield b"["
        for number, item in enumerate(value):
            if number:
                yield b","
            yield from encode_in_parts(item)
        yield b"]"
    elif isinstance(value, Mapping | Fields):
        items = value.items if isinstance(value, Fields) else value.items()
        yield b"{"
        for number, (name, item) in enumerate(items):
            yield (b"," if number else b"") + encode(name) + b":"
            yield from encode_in_parts(item)
        yield b"}"
    else:
        yield encode(value)


def encode_at_once(value: object) -> bytes:
    """Return all parts that :func:`encode_in_parts` yields."""
    return b"".join(encode_in_parts(value))


def encode_items(values: Sequence[float | None]) -> bytes:
    """Return numbers as the items of a JSON list, for :func:`list_of`."""
    return encode(values)[1:-1]


def list_of(items: Iterable[bytes]) -> bytes:
    """Return one JSON list with the items of several, which :func:`encode_items` has returned.

    A new client's history is joined in this way. :func:`encode_in_parts` would take a third longer for it.
    """
    return b"[" + b",".join(items) + b"]"
