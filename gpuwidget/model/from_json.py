"""Read the model's dataclasses from the JSON values that :func:`gpuwidget.model.to_json.to_json` returns."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gpuwidget.model.messages import Message, english_message, message, message_ids
from gpuwidget.model.to_json import INLINED, to_json
from gpuwidget.model.translation import Text, restore_texts, text_sources, texts_in

T = TypeVar("T")


def text_table(value: object) -> dict[str, Any]:
    """Return what :func:`restore` needs to make translatable texts and messages of the strings in JSON.

    ``value`` consists of dataclasses and collections. The table consists of JSON values.
    """
    messages = {str(text): text for text in texts_in(value) if isinstance(text, Message)}
    return {"sources": to_json(text_sources(value)), "ids": to_json(message_ids(messages))}


def restore(values: Any, table: Mapping[str, Any]) -> Any:
    """Return JSON values in which each string of the :func:`text_table` is the text or the message again."""
    return _with_ids(restore_texts(values, table["sources"]), table["ids"])


def _with_ids(values: Any, ids: Mapping[str, Any]) -> Any:
    if isinstance(values, str):
        known = ids.get(values)
        if known is None:
            return values
        make = message if isinstance(values, Text) else english_message
        return make(known["id"], values, **known["params"])
    if isinstance(values, Mapping):
        return {name: _with_ids(item, ids) for name, item in values.items()}
    if isinstance(values, list):
        return [_with_ids(item, ids) for item in values]
    return values


def from_json(kind: type[T], values: Any) -> T:
    """Return the dataclass ``kind`` that has these JSON values, without the fields of newer versions.

    A field that ``values`` lack has its default. Raise ValueError if the values don't fit the types.
    """
    try:
        made = _read(kind, values)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from error
    assert isinstance(made, kind)
    return made


@cache
def _readers(kind: Any) -> tuple[tuple[Field[Any], Any], ...]:
    """Return the fields that the constructor of a dataclass has, with their types."""
    hints = get_type_hints(kind)
    return tuple((field, hints[field.name]) for field in fields(kind) if field.init)


def _read(hint: Any, value: Any) -> Any:
    if hint is Any:
        return value
    if is_dataclass(hint):
        return _read_dataclass(hint, value)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return None if value is None else _read(arguments[0], value)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{value!r} is none of {arguments}")
        return value
    if origin is tuple:
        return _read_tuple(arguments, value)
    if origin is not None:  # a mapping
        return {str(name): _read(arguments[1], item) for name, item in value.items()}
    return _read_value(hint, value)


def _read_value(hint: Any, value: Any) -> Any:
    if hint is float and type(value) is int:
        return float(value)
    if hint is Message and type(value) is str:
        return english_message("", value)  # of a file without the table of texts
    if not isinstance(value, hint) or (type(value) is bool and hint is not bool):
        raise ValueError(f"{value!r} is not of type {hint.__name__}")
    return value


def _read_tuple(arguments: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list")
    if arguments[1:] == (...,):
        return tuple(_read(arguments[0], item) for item in value)
    return tuple(_read(hint, item) for hint, item in zip(arguments, value, strict=True))


def _read_dataclass(kind: Any, values: Any) -> Any:
    names = {field.name for field in fields(kind)}
    found = {}
    for field, hint in _readers(kind):
        if field.metadata == INLINED:
            item_hint = get_args(hint)[1]
            rest = {name: item for name, item in values.items() if name not in names}
            found[field.name] = {name: _read(item_hint, item) for name, item in rest.items()}
        elif field.name in values or (field.default is MISSING and field.default_factory is MISSING):
            found[field.name] = _read(hint, values[field.name])
    return kind(**found)
