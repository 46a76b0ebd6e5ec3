"""Tests of torch's storages: addresses, weak references, sparse tensors, and tensors saved by autograd."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_allocator import ROUND, StandInGpu
from helpers_heap import holders_of, names_and_bytes

from gpuwidget.heap.find_holders import find_holders
from gpuwidget.heap.heap_walk import Root
from gpuwidget.heap.storages import StorageWeakRef, sparse_components, storage_address_function
from gpuwidget.pytorch import allocator

torch: Any = pytest.importorskip("torch")


def test_a_storage_is_not_kept_alive(gpu: StandInGpu) -> None:
    """A weak reference to a storage does not keep the storage's memory alive."""
    x = gpu.empty(1000)
    storage = StorageWeakRef(torch, x)
    view = x[1:]
    del x
    assert (storage.expired(), gpu.allocated) == (False, 4096)
    del view
    assert (storage.expired(), gpu.allocated) == (True, 0)


def test_a_storage_whose_memory_moved(gpu: StandInGpu) -> None:
    """If the memory of a storage was released, as FSDP does, a weak reference to the storage counts as
    expired, although the storage still exists."""
    storage = gpu.empty(100).untyped_storage()
    reference = StorageWeakRef(torch, storage)
    gone = torch.UntypedStorage(0)
    storage._swap_data_ptr_(gone)  # in place of resizing the storage, which the stand-in does not support
    assert reference.expired() is True


def test_storage_addresses(gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view has the same storage address as its base tensor, even if torch has no ``_data_address``."""
    x = gpu.empty(100)
    assert [storage_address_function(torch)(one) for one in (x, x[7:])] == [x.data_ptr()] * 2
    monkeypatch.delattr(torch._C, "_data_address", raising=False)
    assert [storage_address_function(torch)(one) for one in (x, x[7:])] == [x.data_ptr()] * 2


def test_sparse_components() -> None:
    """``sparse_components`` returns the indices and values of a sparse tensor themselves, not copies.

    Other tensors have no components.
    """
    values = torch.ones(2)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), values, (4,), check_invariants=False)
    parts: list[Any] = sparse_components(torch, sparse)
    assert [tuple(part.shape) for part in parts] == [(1, 2), (2,)]
    assert parts[1].data_ptr() == values.data_ptr()
    assert sparse_components(torch, values) == []


def test_tensors_saved_for_backward(gpu: StandInGpu) -> None:
    """A variable that holds a loss owns the tensors that autograd saved for the loss's backward pass, until
    backward() frees them."""
    weight = gpu.empty(4, 4).requires_grad_()
    losses, batch = [], gpu.empty(2, 4)
    hidden = batch @ weight @ weight
    losses.append((hidden * gpu.empty(2, 4)).sum())
    del batch, hidden
    names = {"weight": weight, "losses": losses}
    assert names_and_bytes(holders_of(gpu, names)) == [
        (("losses",), 2 * ROUND),
        (("weight", "losses[0].grad_fn…"), ROUND),
    ]
    blocks = allocator.memory_blocks()
    roots = [Root(name, value, "variable") for name, value in names.items()]
    assert find_holders(roots, blocks).saved_for_backward == {1: {0: 2 * ROUND}}
    losses[0].backward()
    assert names_and_bytes(holders_of(gpu, names)) == [(("weight",), ROUND)]


def test_hooks_on_saved_tensors_are_not_called(gpu: StandInGpu) -> None:
    """A search finds the tensors that a user's pack hook stored, without calling the unpack hook."""
    unpacked: list[object] = []

    def unpack(packed: object) -> Any:
        unpacked.append(packed)
        return x.detach()

    x = gpu.empty(1000).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: {"packed": gpu.empty(10)}, unpack):
        loss = (x * 2).exp().sum()
    assert names_and_bytes(holders_of(gpu, {"loss": loss})) == [((), 4096), (("loss",), ROUND)]
    assert unpacked == []
    loss.backward()
    assert len(unpacked) == 1


def test_autograd_functions_in_python(gpu: StandInGpu) -> None:
    """The result of a user's autograd.Function owns the tensors that the function saves or stores on its
    context."""

    class Scale(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(gpu.empty(1000))
            ctx.table = [gpu.empty(2000)]
            return x * 2

    result = Scale.apply(torch.zeros(3, requires_grad=True))
    assert names_and_bytes(holders_of(gpu, {"result": result})) == [(("result",), 4096 + 8192)]
