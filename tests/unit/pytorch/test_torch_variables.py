"""Tests of finding DataLoaders and models among the user's variables, without running the user's code."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from gpuwidget.model.torch_state import Loader, Model
from gpuwidget.pytorch import torch_variables

torch: Any = pytest.importorskip("torch")


def test_loaders_and_their_settings() -> None:
    """DataLoaders, including instances of subclasses, are found with their settings. Their datasets are not
    accessed.
    """

    class Data:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, place: int) -> int:
            raise AssertionError("not to be loaded")

    mine = type("Mine", (torch.utils.data.DataLoader,), {})
    variables: dict[str, object] = {
        "plain": torch.utils.data.DataLoader(Data()),
        "mine": mine(Data(), num_workers=1, pin_memory=True, prefetch_factor=5, persistent_workers=True),
        "x": 3,
    }
    assert torch_variables.loaders(variables.items()) == (
        Loader("plain", 0, False, None, False),
        Loader("mine", 1, True, 5, True),
    )


def test_models_by_where_their_parameters_are() -> None:
    """The size of a model counts each parameter and buffer once. Parameters that are on neither the CPU nor a
    GPU count as 0.
    """
    linear = torch.nn.Linear(8, 4)
    tied = torch.nn.Sequential(linear, linear, torch.nn.BatchNorm1d(4))
    variables: dict[str, object] = {
        "tied": tied,
        "conv": torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1, bias=False)),
        "meta": torch.nn.Linear(8, 4, device="meta"),
        "lazy": torch.nn.LazyLinear(4),
        "x": torch.zeros(9),
    }
    assert torch_variables.models(variables.items()) == (
        Model("tied", "Sequential", (8 * 4 + 4) * 4 + 4 * 4 * 4 + 8, 0, False),
        Model("conv", "Sequential", 4, 0, True),
        Model("meta", "Linear", 0, 0, False),
        Model("lazy", "LazyLinear", 0, 0, False),
    )


def test_what_a_model_keeps_is_counted_by_storages() -> None:
    """A model's size is the size of its storages: several views of one storage count once, and fake tensors
    count as 0.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    model = torch.nn.Module()
    whole = torch.zeros(1000)
    model.register_buffer("first", whole[:10])
    model.register_buffer("second", whole[10:])
    model.register_buffer("wide", torch.zeros(1).expand(1_000_000))
    with FakeTensorMode():
        imagined = torch.nn.Linear(4096, 4096)
    found = torch_variables.models([("model", model), ("imagined", imagined)])
    assert [(one.on_cpu, one.on_gpu) for one in found] == [(4004, 0), (0, 0)]


def test_a_size_that_could_not_be_counted_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's size is unknown if the model has a sparse buffer, is a TorchScript module, or has more
    objects than the limit.
    """
    model = torch.nn.Linear(8, 4)
    model.register_buffer("mask", torch.zeros(1000, 1000).to_sparse())
    assert torch_variables.models([("model", model)]) == (Model("model", "Linear", None, None, False),)
    (scripted,) = torch_variables.models([("scripted", torch.jit.script(torch.nn.Linear(8, 4)))])
    assert (scripted.on_cpu, scripted.on_gpu) == (None, None)
    monkeypatch.setattr(torch_variables, "_MAX_OBJECTS", 20)
    large = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(20)))
    (one,) = torch_variables.models([("large", large)])
    assert (one.on_cpu, one.on_gpu) == (None, None)


def test_a_model_with_many_names_is_traversed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """If two hundred variables refer to the same model, its objects are counted once, so the limit of objects
    is not exceeded.
    """
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(20)))
    monkeypatch.setattr(torch_variables, "_MAX_OBJECTS", 200)
    found = torch_variables.models([(f"name{n}", model) for n in range(200)])
    assert {(one.on_cpu, one.on_gpu) for one in found} == {(20 * 6 * 4, 0)}
    assert len(found) == 200


def test_a_model_whose_class_raises_hides_no_other() -> None:
    """A model whose metaclass raises an exception on ``__name__``, or that has an invalid buffer, is still
    listed, and so are all other models.
    """

    class Meta(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise RuntimeError("asked")

    class Odd(torch.nn.Module, metaclass=Meta):  # type: ignore[misc]
        pass

    broken = torch.nn.Linear(2, 2)
    broken.__dict__["_buffers"] = {"bad": 3}
    found = torch_variables.models([("odd", Odd()), ("broken", broken), ("well", torch.nn.Linear(2, 2))])
    assert [(one.name, one.type, one.on_cpu) for one in found] == [
        ("odd", "Odd", 0),
        ("broken", "Linear", 24),
        ("well", "Linear", 24),
    ]


def test_unusual_objects_are_ignored() -> None:
    """An object whose class overrides ``__class__`` and ``__getattr__`` is not listed, and none of its code
    runs.
    """

    def asked(*_: object) -> Any:
        raise AssertionError("asked")

    odd = type("Odd", (), {"__class__": property(asked), "__getattr__": asked})

    assert torch_variables.models([("odd", odd())]) == ()
    assert torch_variables.loaders([("odd", odd())]) == ()


def test_without_torch_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch is not imported, no DataLoaders or models are found."""
    monkeypatch.delitem(sys.modules, "torch")
    assert torch_variables.loaders([("x", 1)]) == ()
    assert torch_variables.models([("x", 1)]) == ()
