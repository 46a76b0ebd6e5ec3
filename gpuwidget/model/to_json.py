"""Convert the model's dataclasses to JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from gpuwidget.model.translation import Text

_SAME = frozenset({type(None), str, int, bool, Text})
"""Types whose values JSON represents as they are."""

INLINED = {"inlined": True}
"""The metadata of a dataclass's field with a mapping, whose items the dataclass's JSON has in its place."""


def to_json(value: object) -> Any:
    """Convert dataclasses to dicts and tuples to lists. NaN and infinity become None, because JSON lacks
    them."""
    # Test the most frequent types first: a report has hundreds of values, and the user waits while they are
    # converted.
    if type(value) in _SAME or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    kind: Any = type(value)
    names, inlined = _names(kind)
    if names:
        values = {
            name: item if type(item := getattr(value, name)) in _SAME else to_json(item) for name in names
        }
        return values if inlined is None else _inline(values, inlined)
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, (dict, Mapping)):  # the test for dict is much faster
        return {str(key): item if type(item) in _SAME else to_json(item) for key, item in value.items()}
    return value


def encodable(text: str) -> str:
    """Return ``text`` with a ``?`` for each lone surrogate, which UTF-8 can't encode.

    JSON and the names of files may contain lone surrogates.
    """
    return text.encode(errors="replace").decode()


def _inline(values: dict[str, Any], name: str) -> dict[str, Any]:
    """Return ``values`` with the items of the mapping ``name`` in its place."""
    place = list(values).index(name)
    items = list(values.items())
    return dict([*items[:place], *values[name].items(), *items[place + 1 :]])


@cache
def _names(kind: Any) -> tuple[tuple[str, ...], str | None]:
    """Return the names of a dataclass's fields, and the one that is :data:`INLINED`; or nothing."""
    found = fields(kind) if is_dataclass(kind) else ()
    inlined = next((field.name for field in found if field.metadata == INLINED), None)
    return tuple(field.name for field in found), inlined
