"""Conversion of the model's dataclasses to JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any


def to_json(value: object) -> Any:
    """Convert dataclasses to dicts and tuples to lists. NaN and infinity, which JSON lacks, become None."""
    # Test the most frequent types first, because a card has hundreds of values and the user waits for it.
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    kind: Any = type(value)
    names = _names(kind)
    if names:
        return {name: to_json(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Return the names of a dataclass's fields. Empty for any other type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()
