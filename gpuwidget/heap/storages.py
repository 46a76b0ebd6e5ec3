"""Read torch's storages: addresses, weak references, parts of sparse tensors, tensors saved by autograd.

Nothing in this module runs user code. In particular, it triggers no ``saved_tensors_hooks``: torch exposes
the packed value without unpacking it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from gc import get_referents
from types import GetSetDescriptorType
from typing import Any

from gpuwidget.model.raw_attributes import class_dict, class_mro

_SPARSE_COMPONENTS = {
    "sparse_coo": ("_indices", "_values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}
"""For each layout, the methods that return the parts of a sparse tensor."""
MAX_GRAPH_NODES = 300_000
"""Maximum number of nodes that one search visits, over all autograd graphs."""
_NODES_PER_LIMIT_CHECK = 256


# -- storages --------------------------------------------------------------------------------------------


class StorageWeakRef:
    """A weak reference to a torch storage, with the storage's address. It keeps no memory alive."""

    __slots__ = ("_address", "_free_weak_ref", "_storage_type", "_weak_ref")

    def __init__(self, torch: Any, tensor_or_storage: object) -> None:
        self._storage_type: Any = torch.UntypedStorage
        self._free_weak_ref: Callable[[int], None] = self._storage_type._free_weak_ref
        is_storage = issubclass(type(tensor_or_storage), self._storage_type)
        storage: Any = tensor_or_storage if is_storage else torch.Tensor.untyped_storage(tensor_or_storage)
        self._weak_ref: int = self._storage_type._weak_ref(storage)
        self._address: int = self._storage_type.data_ptr(storage)

    def __del__(self) -> None:
        self._free_weak_ref(self._weak_ref)

    def expired(self) -> bool:
        """Return whether the storage's memory is no longer at the stored address.

        A storage may outlive its memory or move it: FSDP resizes its storages to zero and back.
        """
        if self._storage_type._expired(self._weak_ref):
            return True
        storage = self._storage_type._new_with_weak_ptr(self._weak_ref)
        return storage is None or self._storage_type.data_ptr(storage) != self._address


def storage_address_function(torch: Any) -> Callable[[Any], int]:
    """Return a function that returns the address of a tensor's storage.

    The function raises if the tensor has no storage. If this torch version has ``_data_address``, the
    function creates no storage object and triggers no copy-on-write.
    """
    data_address = getattr(torch._C, "_data_address", None)
    if data_address is not None:
        return data_address  # type: ignore[no-any-return]
    untyped_storage = torch.Tensor.untyped_storage
    return lambda tensor: int(untyped_storage(tensor).data_ptr())


def sparse_components(torch: Any, value: object) -> list[object]:
    """Return the tensors that make up a sparse tensor; an empty list for any other layout."""
    tensor = torch.Tensor
    layout = str(tensor.layout.__get__(value)).rpartition(".")[2]
    with torch.no_grad(), torch._C._DisableTorchDispatch():
        return [getattr(tensor, name)(value) for name in _SPARSE_COMPONENTS.get(layout, ())]


# -- autograd --------------------------------------------------------------------------------------------


def can_read_saved_tensors(torch: Any) -> bool:
    """Return whether this torch version exposes saved tensors without unpacking them, as newer ones do."""
    saved_tensor = getattr(getattr(torch._C, "_autograd", None), "SavedTensor", None)
    return hasattr(saved_tensor, "data")


class AutogradGraph:
    """Walks the autograd graphs of tensors. Visits each node once, and keeps it alive so that its id is not
    reused."""

    def __init__(self, torch: Any, limit_exceeded: Callable[[], bool] = lambda: False) -> None:
        self._limit_exceeded = limit_exceeded
        self._grad_fn = torch.Tensor.grad_fn.__get__
        self._python_function: type = torch.autograd.function.FunctionCtx
        self._visited: dict[int, Any] = {}
        self._attribute_names: dict[int, tuple[str, ...]] = {}
        """The attributes for saved tensors, keyed by the id of a node's type. :attr:`_visited` keeps the
        types alive."""
        self.complete = True
        """False if a limit ended the walk."""

    @property
    def nodes(self) -> int:
        """Number of nodes that the walk has visited."""
        return len(self._visited)

    def saved_behind(self, tensor: object) -> Iterator[object]:
        """Yield the tensors that a tensor's autograd graph saves, and all objects to which custom autograd
        functions refer."""
        pending = [self._grad_fn(tensor)]
        while pending:
            node = pending.pop()
            if node is None or id(node) in self._visited:
                continue
            count = len(self._visited)
            if count >= MAX_GRAPH_NODES or (count % _NODES_PER_LIMIT_CHECK == 0 and self._limit_exceeded()):
                self.complete = False
                return
            self._visited[id(node)] = node
            node_type = type(node)
            names = self._attribute_names.get(id(node_type))
            if names is None:
                names = self._attribute_names[id(node_type)] = _saved_attribute_names(node_type)
            for name in names:
                yield from _saved_data(node, name)
            if issubclass(node_type, self._python_function):
                yield from (referent for referent in get_referents(node) if referent is not node_type)
            pending += [previous for previous, _ in node.next_functions]


def _saved_attribute_names(node_type: type) -> tuple[str, ...]:
    names = (
        name
        for cls in class_mro(node_type)
        for name, value in class_dict(cls).items()
        if name.startswith("_raw_saved") and type(value) is GetSetDescriptorType
    )
    return tuple(dict.fromkeys(names))


def _saved_data(node: Any, name: str) -> Iterator[object]:
    try:
        found = getattr(node, name)
        for saved in found if isinstance(found, (list, tuple)) else (found,):
            yield saved.data
    except (RuntimeError, AttributeError):  # backward() has freed the tensors, or none were saved here
        return
