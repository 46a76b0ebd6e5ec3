"""Who holds torch's memory: sums exact to the byte, every name, and what nobody is known for."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_allocator import ROUND, StandInGpu
from helpers_search import briefly, found

from gpuwidget.model.report import Holder

torch: Any = pytest.importorskip("torch")


def test_bytes_are_the_allocators_blocks(gpu: StandInGpu) -> None:
    """A tensor of one byte holds the 512 that torch takes for it: the sum is torch's own figure."""
    x = gpu.empty(1, dtype=torch.uint8)
    big = gpu.empty(1000)
    assert found(gpu, {"x": x, "big": big}) == [
        Holder("variable", ("big",), "Tensor", "cuda:0", 4096, None),
        Holder("variable", ("x",), "Tensor", "cuda:0", ROUND, None),
    ]


def test_views_and_shared_storages_count_once(gpu: StandInGpu) -> None:
    """A tensor, its views, its storage and containers of them are one holder with all its names."""
    x = gpu.empty(256)
    names = {
        "batch": {"a": [x[5:]]},
        "x": x,
        "flat": x.reshape(16, 16),
        "same": x,
        "raw": x.untyped_storage(),
    }
    assert briefly(found(gpu, names)) == [(("x", "batch['a'][0]", "flat", "same", "raw"), 1024)]


def test_a_model_and_its_optimizer(gpu: StandInGpu) -> None:
    """Parameters and gradients are the model's, the state is the optimizer's, and both names are said."""
    model = gpu.move(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64)))
    model[1].num_batches_tracked.data = gpu.empty(1, dtype=torch.int64)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = gpu.like(parameter)
        optimizer.state[parameter] = {
            "step": torch.tensor(1.0),  # as torch's own, on the CPU
            "exp_avg": gpu.like(parameter),
            "exp_avg_sq": gpu.like(parameter),
        }
    weights = 16384 + 3 * ROUND
    buffers = 3 * ROUND
    holders = found(gpu, {"optimizer": optimizer, "model": model})
    assert briefly(holders) == [
        (("model", "optimizer"), 2 * weights + buffers),
        (("optimizer",), 2 * weights),
    ]
    assert [holder.type for holder in holders] == ["Sequential", "AdamW"]


def test_the_rest_is_unknown(gpu: StandInGpu) -> None:
    """What no name leads to is one holder of its own, never left out of the sum."""
    x = gpu.empty(1000)
    hidden = gpu.empty(5000)
    assert [(holder.kind, holder.names, holder.bytes) for holder in found(gpu, {"x": x})] == [
        ("unknown", (), 20480),
        ("variable", ("x",), 4096),
    ]
    del hidden
    assert briefly(found(gpu, {"x": x})) == [(("x",), 4096)]
