"""Tests of listing the variables that hold torch's memory. The sizes add up to torch's own total."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_allocator import ROUND, StandInGpu
from helpers_heap import holders_of, names_and_bytes

from gpuwidget.model.report import Holder

torch: Any = pytest.importorskip("torch")


def test_bytes_are_the_allocators_blocks(gpu: StandInGpu) -> None:
    """A tensor of one byte counts as its block of 512 bytes, so that the holders add up to torch's
    counter."""
    x = gpu.empty(1, dtype=torch.uint8)
    big = gpu.empty(1000)
    assert holders_of(gpu, {"x": x, "big": big}) == [
        Holder("variable", ("big",), "Tensor", "cuda:0", 4096, None),
        Holder("variable", ("x",), "Tensor", "cuda:0", ROUND, None),
    ]


def test_views_and_shared_storages_count_once(gpu: StandInGpu) -> None:
    """A tensor, its views and its storage are one holder, with the names of all variables that lead to
    them."""
    x = gpu.empty(256)
    names = {
        "batch": {"a": [x[5:]]},
        "x": x,
        "flat": x.reshape(16, 16),
        "same": x,
        "raw": x.untyped_storage(),
    }
    assert names_and_bytes(holders_of(gpu, names)) == [(("x", "batch['a'][0]", "flat", "same", "raw"), 1024)]


def test_a_model_and_its_optimizer(gpu: StandInGpu) -> None:
    """The model owns its parameters and gradients, and the optimizer owns its state.

    The model's holder also has the optimizer's name, because the optimizer refers to the parameters.
    """
    model = gpu.move(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64)))
    model[1].num_batches_tracked.data = gpu.empty(1, dtype=torch.int64)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = gpu.like(parameter)
        optimizer.state[parameter] = {
            "step": torch.tensor(1.0),  # torch keeps the step on the CPU
            "exp_avg": gpu.like(parameter),
            "exp_avg_sq": gpu.like(parameter),
        }
    weights = 16384 + 3 * ROUND
    buffers = 3 * ROUND
    holders = holders_of(gpu, {"optimizer": optimizer, "model": model})
    assert names_and_bytes(holders) == [
        (("model", "optimizer"), 2 * weights + buffers),
        (("optimizer",), 2 * weights),
    ]
    assert [holder.type for holder in holders] == ["Sequential", "AdamW"]


def test_memory_that_no_name_reaches_is_one_holder(gpu: StandInGpu) -> None:
    """Memory that no name leads to is listed as one holder of kind "unknown", so that the sum is complete."""
    x = gpu.empty(1000)
    hidden = gpu.empty(5000)
    assert [(holder.kind, holder.names, holder.bytes) for holder in holders_of(gpu, {"x": x})] == [
        ("unknown", (), 20480),
        ("variable", ("x",), 4096),
    ]
    del hidden
    assert names_and_bytes(holders_of(gpu, {"x": x})) == [(("x",), 4096)]
