"""Names that lead deep into something read as a person writes them."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from helpers_allocator import StandInGpu
from helpers_search import found

torch: Any = pytest.importorskip("torch")


def test_names_of_parts(gpu: StandInGpu) -> None:
    """Another name that leads to a tensor is written as a person would write it."""
    x = gpu.empty(1)
    layer = torch.nn.Linear(2, 2, bias=False)
    layer.weight.data = x

    class Slots:
        __slots__ = ("part",)
        part: object

    slots = Slots()
    slots.part = (0, x)
    inside = SimpleNamespace(model=torch.nn.Sequential(layer))
    grad = gpu.empty(2, 2).requires_grad_()
    grad.grad = gpu.empty(2, 2)
    hidden = gpu.empty(1)
    names = {
        "x": x,
        "slots": slots,
        "inside": inside,
        "by_number": {3: x},
        "odd": {(1, 2): x},
        "g": grad.grad,
        "grad": grad,
    }
    holders = {holder.names[0]: holder.names for holder in found(gpu, names) if holder.names}
    assert holders["x"] == ("x", "slots.part[1]", "inside.model.0.weight", "by_number[3]", "odd[…]")
    assert holders["g"] == ("g", "grad.grad")
    del hidden


def test_no_dict_comes_into_being(gpu: StandInGpu) -> None:
    """An object that keeps its attributes without a dict still does so after a look, as long as no further
    name is to be written that leads through it."""

    class Plain:
        def __init__(self) -> None:
            self.kept = 1.5
            self.list = [1]

    one = Plain()
    before = sys.getsizeof(one), gc.get_referents(one)
    found(gpu, {"one": one, "x": gpu.empty(1)})
    assert (sys.getsizeof(one), gc.get_referents(one)) == before
