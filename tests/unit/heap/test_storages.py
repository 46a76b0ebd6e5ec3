"""Where a tensor's memory is, and whether it is still there."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_allocator import StandInGpu

from gpuwidget.heap.storages import Storage, address_of, components

torch: Any = pytest.importorskip("torch")


def test_a_storage_is_not_kept_alive(gpu: StandInGpu) -> None:
    """What knows whether a storage lives holds none of its memory."""
    x = gpu.empty(1000)
    storage = Storage(torch, x)
    view = x[1:]
    del x
    assert (storage.expired(), gpu.allocated) == (False, 4096)
    del view
    assert (storage.expired(), gpu.allocated) == (True, 0)


def test_a_storage_that_lies_elsewhere_now(gpu: StandInGpu) -> None:
    """One that outlives its memory, as FSDP's do, no longer speaks for the place where it was."""
    storage = gpu.empty(100).untyped_storage()
    seen = Storage(torch, storage)
    gone = torch.UntypedStorage(0)
    storage._swap_data_ptr_(gone)  # what this device has cannot be resized
    assert seen.expired() is True


def test_where_a_tensor_begins(gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view is where its storage is; so it is told by a torch that has no shorter way."""
    x = gpu.empty(100)
    assert [address_of(torch)(one) for one in (x, x[7:])] == [x.data_ptr()] * 2
    monkeypatch.delattr(torch._C, "_data_address", raising=False)
    assert [address_of(torch)(one) for one in (x, x[7:])] == [x.data_ptr()] * 2


def test_what_a_sparse_tensor_is_made_of() -> None:
    """Its indices and values are where they lie; a tensor that is not sparse has no such parts."""
    values = torch.ones(2)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), values, (4,), check_invariants=False)
    parts: list[Any] = components(torch, sparse)
    assert [tuple(part.shape) for part in parts] == [(1, 2), (2,)]
    assert parts[1].data_ptr() == values.data_ptr()
    assert components(torch, values) == []
