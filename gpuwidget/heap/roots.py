"""The names from which a search starts."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Root(NamedTuple):
    """A name from which a search starts."""

    name: str
    """As a person writes it: ``model``, ``Out[3]``."""
    value: object
    kind: Literal["variable", "notebook"]
    attributes: bool = False
    """Whether ``value`` is a namespace, whose items are ``name.item``."""
    parts: bool = True
    """Whether what it leads to has a name of its own, as ``Out[3][0]``."""
