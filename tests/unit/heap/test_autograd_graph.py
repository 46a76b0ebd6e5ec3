"""What autograd's graphs keep for backward()."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_allocator import ROUND, StandInGpu
from helpers_search import briefly, found

from gpuwidget.heap.find_holders import reach
from gpuwidget.heap.roots import Root
from gpuwidget.pytorch import allocator

torch: Any = pytest.importorskip("torch")


def test_what_a_graph_saves_for_backward(gpu: StandInGpu) -> None:
    """A collected loss is named for what its graph keeps alive; after backward() that is nothing."""
    weight = gpu.empty(4, 4).requires_grad_()
    losses, batch = [], gpu.empty(2, 4)
    hidden = batch @ weight @ weight
    losses.append((hidden * gpu.empty(2, 4)).sum())
    del batch, hidden
    names = {"weight": weight, "losses": losses}
    assert briefly(found(gpu, names)) == [
        (("losses",), 2 * ROUND),
        (("weight", "losses[0].grad_fn…"), ROUND),
    ]
    blocks = allocator.snapshot()
    roots = [Root(name, value, "variable") for name, value in names.items()]
    assert reach(roots, blocks).saved == {1: {0: 2 * ROUND}}
    losses[0].backward()
    assert briefly(found(gpu, names)) == [(("weight",), ROUND)]


def test_hooks_on_saved_tensors_are_not_called(gpu: StandInGpu) -> None:
    """What a user's hook has packed is found as it lies there; nothing is unpacked by looking."""
    unpacked: list[object] = []

    def unpack(packed: object) -> Any:
        unpacked.append(packed)
        return x.detach()

    x = gpu.empty(1000).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: {"packed": gpu.empty(10)}, unpack):
        loss = (x * 2).exp().sum()
    assert briefly(found(gpu, {"loss": loss})) == [((), 4096), (("loss",), ROUND)]
    assert unpacked == []
    loss.backward()
    assert len(unpacked) == 1


def test_operations_written_in_python(gpu: StandInGpu) -> None:
    """What a user's own autograd.Function has saved, or put on its context, belongs to the result too."""

    class Scale(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(gpu.empty(1000))
            ctx.table = [gpu.empty(2000)]
            return x * 2

    result = Scale.apply(torch.zeros(3, requires_grad=True))
    assert briefly(found(gpu, {"result": result})) == [(("result",), 4096 + 8192)]
