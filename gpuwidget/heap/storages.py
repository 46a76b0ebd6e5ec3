"""torch's storages: where a tensor's memory begins, and whether it is still there later on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_COMPONENTS = {
    "sparse_coo": ("_indices", "_values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}
"""By layout, what gives the parts of a sparse tensor."""


class Storage:
    """Knows whether the memory of a storage of torch's is still where it was, and keeps none of it."""

    __slots__ = ("_address", "_free", "_kind", "_weak")

    def __init__(self, torch: Any, tensor: object) -> None:
        self._kind: Any = torch.UntypedStorage
        self._free: Callable[[int], None] = self._kind._free_weak_ref
        of_tensor = not issubclass(type(tensor), self._kind)
        storage: Any = torch.Tensor.untyped_storage(tensor) if of_tensor else tensor
        self._weak: int = self._kind._weak_ref(storage)
        self._address: int = self._kind.data_ptr(storage)

    def __del__(self) -> None:
        self._free(self._weak)

    def expired(self) -> bool:
        """Whether its memory is gone.

        A storage may outlive its memory, or have it elsewhere: FSDP resizes its storages to nothing and back.
        """
        if self._kind._expired(self._weak):
            return True
        storage = self._kind._new_with_weak_ptr(self._weak)
        return storage is None or self._kind.data_ptr(storage) != self._address


def address_of(torch: Any) -> Callable[[Any], int]:
    """What tells where a tensor's storage begins; raises where a tensor has none of its own.

    Without an object made of the storage and without a copy on write, where this torch can do that.
    """
    direct = getattr(torch._C, "_data_address", None)
    if direct is not None:
        return direct  # type: ignore[no-any-return]
    storage = torch.Tensor.untyped_storage
    return lambda tensor: int(storage(tensor).data_ptr())


def components(torch: Any, value: object) -> list[object]:
    """The tensors that a sparse one is made of."""
    tensor = torch.Tensor
    layout = str(tensor.layout.__get__(value)).rpartition(".")[2]
    with torch.no_grad(), torch._C._DisableTorchDispatch():
        return [getattr(tensor, name)(value) for name in _COMPONENTS.get(layout, ())]
