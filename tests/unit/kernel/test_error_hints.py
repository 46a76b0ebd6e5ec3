"""Tests of the hints that are shown below the tracebacks of known errors."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from helpers_torch import make_torch

from gpuwidget.kernel.error_hints import hint


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = make_torch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def test_two_dtypes_are_not_two_devices(torch: Any) -> None:
    """If two tensors on the same device have different dtypes, torch's error gets no hint about devices."""
    for types in (
        "(torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor)",
        "(CUDAHalfType) and weight type (CUDAFloatType)",
        "(float) and bias type (c10::Half)",
        "(torch.DoubleTensor) and weight type (torch.FloatTensor)",
    ):
        assert hint(RuntimeError(f"Input type {types} should be the same"), {}) is None


def test_a_layer_on_another_device(torch: Any) -> None:
    """If a layer and its input are on different devices, the hint lists the device of each variable involved.

    Both of torch's wordings are recognized.
    """
    variables = {"batch": torch.empty(1), "image": torch.empty(1, device="cuda:1"), "n": 3}
    for types in (
        "(torch.FloatTensor) and weight type (torch.cuda.FloatTensor)",
        "(CUDAFloatType) and weight type (CPUFloatType)",
    ):
        found = hint(RuntimeError(f"Input type {types} should be the same"), variables)
        assert found is not None
        assert found.what.endswith(": batch on cpu, image on cuda:1.")
        assert found.fix.endswith(": x.to(y.device), model.to(x.device)")


def test_a_generator_elsewhere_without_a_default_device(torch: Any) -> None:
    """If no default device is set, the hint about a generator on the wrong device mentions no default
    device."""
    error = RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
    found = hint(error, {})
    assert found is not None
    assert "default" not in found.what
    assert "requested on cuda" in found.what
    assert found.what.endswith("on cpu.")
    assert found.fix.endswith('generator=torch.Generator(device="cuda")')


def test_shuffling_under_a_default_device(torch: Any) -> None:
    """If a default device is set, the hint names it, and the fix creates the DataLoader's generator on it."""
    torch.set_default_device("cuda:1")
    found = hint(RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'"), {})
    assert found is not None
    assert "The default torch device is cuda:1" in found.what
    assert found.fix == 'DataLoader(..., generator=torch.Generator(device="cuda:1"))'
