"""What kinds of objects a search tells apart."""

from __future__ import annotations

import json
import logging
import sys
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwidget.heap.object_kinds import Kind, Kinds

torch: Any = pytest.importorskip("torch")


def frame() -> object:
    """A frame."""
    return sys._getframe()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (torch.nn.Parameter(torch.zeros(1)), Kind.TENSOR),
        (torch.zeros(1).untyped_storage(), Kind.STORAGE),
        (torch.nn.Linear(1, 1), Kind.MODULE),
        (torch.optim.SGD([torch.zeros(1)]), Kind.OPTIMIZER),
        (OrderedDict(), Kind.CONTAINER),
        (type("Derived", (list,), {})(), Kind.CONTAINER),
        (frame, Kind.FUNCTION),
        (frame(), Kind.FRAME),
        (SimpleNamespace, Kind.CLASS),
        (SimpleNamespace(), Kind.OTHER),
        (1.5, Kind.NOTHING),
        ("text", Kind.NOTHING),
        (None, Kind.NOTHING),
        (json, Kind.NOTHING),
        (logging.getLogger(), Kind.NOTHING),
    ],
)
def test_kinds(value: object, kind: Kind) -> None:
    """Told by the type, derived ones too; what leads nowhere, or to the shell, is not looked at."""
    kinds = Kinds(torch)
    assert kinds.of(value) is kind
    assert kinds.known[id(type(value))] is kind


def test_a_type_that_cannot_be_compared() -> None:
    """A metaclass without a hash, or that refuses to compare, is not asked for either."""

    def forbidden(*_: object) -> Any:
        raise AssertionError("user code ran")

    odd = type("Meta", (type,), {"__eq__": forbidden, "__hash__": None})("Odd", (), {})
    kinds = Kinds(torch)
    assert (kinds.of(odd()), kinds.of(odd)) == (Kind.OTHER, Kind.CLASS)
