"""The JSON of the server's responses, as a whole and in parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpuwidget.server.encoding import Fields, encode, encode_in_parts, encode_items, list_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, {}),
        ([], []),
        (iter(()), []),
        (Fields(iter(())), {}),
        ({"a": None, "b": '"\u5149', "c": b'{"known": 1}'}, {"a": None, "b": '"\u5149', "c": {"known": 1}}),
        ({"a": iter([{"b": [1, None, 2.5]}, {}])}, {"a": [{"b": [1, None, 2.5]}, {}]}),
        (Fields(iter([("a", [0.1]), ("b", {"c": [1]})])), {"a": [0.1], "b": {"c": [1]}}),
    ],
)
def test_parts_are_one_value(value: Any, expected: Any) -> None:
    """Together, the parts are the JSON of the whole value, without spaces."""
    joined = b"".join(encode_in_parts(value))
    assert json.loads(joined) == expected
    assert b" " not in joined.replace(b'"known": 1', b"")


@pytest.mark.parametrize("length", [1, 999, 1000, 1001, 4000])
def test_a_long_list_is_divided(length: int) -> None:
    """No part of a list has more than 1,000 numbers."""
    values: list[float | None] = [number + 0.5 for number in range(length)]
    parts = list(encode_in_parts(values))
    assert json.loads(b"".join(parts)) == values
    assert max(part.count(b".") for part in parts) <= 1000


def test_items_are_made_one_by_one() -> None:
    """An item is made when the parts before it have been yielded."""
    made: list[int] = []

    def items() -> Iterator[list[int]]:
        for number in range(3):
            made.append(number)
            yield [number]

    assert next(part for part in encode_in_parts({"a": items()}) if part == b"1")
    assert made == [0, 1]


def test_lists_are_joined() -> None:
    """Items of several lists are one list."""
    assert list_of([]) == b"[]"
    assert list_of([encode_items([1, None]), encode_items([2.5])]) == b"[1,null,2.5]"


def test_nan_is_refused() -> None:
    """A browser can't parse NaN, so it is an error instead of a response that no page can read."""
    with pytest.raises(ValueError, match="Out of range float"):
        encode({"a": float("nan")})
