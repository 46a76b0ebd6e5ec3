"""Walk dataclasses and write the types of their fields in another language.

``tools.wire`` writes TypeScript, and ``tools.schemas`` writes JSON Schema.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_WORDS = {"None": "null", "True": "true", "False": "false"}


class Notation(Protocol[T]):
    """How a language writes types."""

    language: str
    """The language's name, for errors."""
    names: Mapping[Any, T]
    """The types that the language has a name for."""

    def reference(self, message_type: type) -> T:
        """Return the type of a dataclass's values."""

    def literals(self, values: Sequence[object]) -> T:
        """Return the type that consists of these values."""

    def union(self, members: Sequence[T]) -> T:
        """Return the type of the values of any of these types."""

    def array(self, item: T) -> T:
        """Return the type of lists of any length."""

    def sequence(self, items: Sequence[T]) -> T:
        """Return the type of lists with exactly these items."""

    def dictionary(self, value: T) -> T:
        """Return the type of objects with any keys."""


def write_type(hint: Any, notation: Notation[T]) -> T:
    """Return a type hint in another language. Raise TypeError if the language has no such type."""
    if hint in notation.names:
        return notation.names[hint]
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return notation.reference(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return notation.literals(arguments)
    if origin in (Union, types.UnionType):
        return notation.union([write_type(argument, notation) for argument in arguments])
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return notation.array(write_type(arguments[0], notation))
    if origin is tuple:
        return notation.sequence([write_type(argument, notation) for argument in arguments])
    if origin is Mapping and arguments[0] is str:
        return notation.dictionary(write_type(arguments[1], notation))
    raise TypeError(f"{hint!r} has no {notation.language} type: add one to {type(notation).__module__}.")


def _every_field(_message_type: Any, _name: str) -> bool:
    return True


def reached(roots: Sequence[type], is_read: Callable[[Any, str], bool] = _every_field) -> list[type]:
    """Return ``roots`` and all dataclasses of their fields, without those of fields that aren't read. Each
    comes after the dataclasses that it contains."""
    found: dict[type, None] = {}

    def visit(annotation: Any) -> None:
        if is_dataclass(annotation):
            for name, hint in get_type_hints(annotation).items():
                if is_read(annotation, name):
                    visit(hint)
            assert isinstance(annotation, type)
            found.setdefault(annotation)
        for argument in () if get_origin(annotation) is Literal else get_args(annotation):
            visit(argument)

    for root in roots:
        visit(root)
    return list(found)


def field_docstrings(message_type: type) -> dict[str, str]:
    """Return the docstring below each field, by field name, from the source; Python does not store them."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(message_type))).body
    assert isinstance(tree, ast.ClassDef)
    return dict(_documented(tree.body))


def _documented(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, after in pairwise(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            yield statement.target.id, inspect.cleandoc(str(after.value.value))


def paragraphs(docstring: str) -> list[str]:
    """Return a docstring as paragraphs of Markdown, with the words of JSON for Python's constants."""
    text = re.sub(r":\w+:`(?:[\w.~]+\.)?(\w+)`", r"`\1`", docstring).replace("``", "`")
    text = re.sub(r"\b(None|True|False)\b", lambda found: _WORDS[found[0]], text)
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
