"""Find the DataLoaders, modules and tensors among the user's variables.

Nothing in this module runs user code. Attributes are read from an object's ``__dict__``, and the results
contain no references to user objects.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuwidget.model.boundary import foreign_attribute, stopped
from gpuwidget.model.raw_attributes import class_name
from gpuwidget.model.torch_state import Loader, Model
from gpuwidget.pytorch import cuda_state

_LOG = logging.getLogger(__name__)

Variables = Iterable[tuple[str, object]]
"""Pairs of a variable's name and value."""

_MAX_VARIABLES = 2000
_MAX_OBJECTS = 20_000
"""Maximum number of modules and tensors that one call of :func:`models` visits. Visiting this many takes at
most 0.1 s."""
_MAX_PARAMETERS = 200
"""Maximum number of parameters and buffers that :func:`devices_of_tensors` reads per module."""


# -- DataLoaders -----------------------------------------------------------------------------------------


def loaders(variables: Variables) -> tuple[Loader, ...]:
    """Return every DataLoader among ``variables``."""
    loader_class = foreign_attribute("torch.utils.data", "DataLoader")
    if cuda_state.loaded_torch() is None or not isinstance(loader_class, type):
        return ()
    found = []
    for name, value in _instances_of(loader_class, variables):
        try:
            loader = _loader(name, _instance_dict(value))
        except BaseException as error:
            stopped(_LOG, "The settings of a DataLoader could not be read", error)
            continue
        found += [loader] if loader is not None else []
    return tuple(found)


def _loader(name: str, attributes: Mapping[str, object]) -> Loader | None:
    workers, prefetch = attributes.get("num_workers"), attributes.get("prefetch_factor")
    if type(workers) is not int:
        return None
    return Loader(
        name=name,
        num_workers=workers,
        pin_memory=attributes.get("pin_memory") is True,
        prefetch_factor=prefetch if type(prefetch) is int else None,
        persistent_workers=attributes.get("persistent_workers") is True,
    )


# -- modules ---------------------------------------------------------------------------------------------


def models(variables: Variables) -> tuple[Model, ...]:
    """Return every module among ``variables``, with the memory that its parameters and buffers take."""
    torch: Any = cuda_state.loaded_torch()
    nn = getattr(torch, "nn", None)
    module = getattr(nn, "Module", None)
    disable_torch_function = getattr(getattr(torch, "_C", None), "DisableTorchFunction", None)
    if module is None or disable_torch_function is None:
        return ()
    cudnn_layers = tuple(
        layer for name in ("Conv1d", "Conv2d", "Conv3d", "RNNBase") if (layer := getattr(nn, name, None))
    )
    found: list[Model] = []
    sizes: dict[int, _ModuleSize] = {}
    objects_left = _MAX_OBJECTS
    with disable_torch_function():
        for name, value in _instances_of(module, variables):
            try:
                if id(value) not in sizes:
                    size = _ModuleSize(torch, cudnn_layers, objects_left)
                    # Store the size before the module is read. If reading the module fails, it will not be
                    # read again for another variable that refers to the same module.
                    sizes[id(value)] = size
                    size.add(value)
                    objects_left = size.objects_left
                found.append(sizes[id(value)].model(name, type(value)))
            except BaseException as error:
                stopped(_LOG, "The parameters of a module could not be read", error)
    return tuple(found)


class _ModuleSize:
    """Adds up the storages of one module's parameters and buffers."""

    def __init__(self, torch: Any, cudnn_layers: tuple[type, ...], objects_left: int) -> None:
        self._torch = torch
        self._cudnn_layers = cudnn_layers
        self.objects_left = objects_left
        """Number of modules and tensors that may still be visited."""
        self._bytes = {"cpu": 0, "cuda": 0}
        self._complete = False
        self._uses_cudnn = False
        self._visited: set[int] = set()

    def add(self, module: object) -> None:
        """Count the tensors of a module and of its submodules."""
        pending, complete = [module], True
        while pending:
            if self.objects_left <= 0:
                return
            part = pending.pop()
            if self._visit(id(part)):
                continue
            self._uses_cudnn = self._uses_cudnn or issubclass(type(part), self._cudnn_layers)
            attributes = _instance_dict(part)
            for tensors in (attributes.get("_parameters"), attributes.get("_buffers")):
                # A scripted module stores its parameters elsewhere, so its size remains unknown.
                complete = complete and issubclass(type(tensors), dict)
                for tensor in _values(tensors):
                    complete = self._count(tensor) and complete
            pending += _values(attributes.get("_modules"))
        self._complete = complete

    def model(self, name: str, cls: type) -> Model:
        """Return the result for one variable, whose name is ``name`` and whose value is the module."""
        on_cpu, on_gpu = (self._bytes[device] if self._complete else None for device in ("cpu", "cuda"))
        return Model(name, class_name(cls), on_cpu, on_gpu, self._uses_cudnn)

    def _count(self, tensor: object) -> bool:
        """Count a tensor's storage. Returns False if the storage can't be counted."""
        if not issubclass(type(tensor), self._torch.Tensor) or self._visit(id(tensor)):
            return True
        try:
            storage: Any = self._torch.Tensor.untyped_storage(tensor)
        except BaseException as error:  # The tensor has no storage, for example because it is sparse.
            stopped(_LOG, "a tensor has no storage", error, foreign=True)
            return False
        # Use the storage's device instead of the tensor's: a FakeTensor names a CPU or CUDA device although
        # it has no memory there.
        device = storage.device.type
        if device in self._bytes and not self._visit(storage._cdata):
            self._bytes[device] += storage.nbytes()
        return True

    def _visit(self, address: int) -> bool:
        """Mark an object's address as visited, and return whether it was visited before.

        Modules, tensors and storages have distinct addresses, so one set serves all of them.
        """
        known = address in self._visited
        self._visited.add(address)
        self.objects_left -= 1
        return known


# -- tensors ---------------------------------------------------------------------------------------------


def devices_of_tensors(variables: Variables) -> dict[str, tuple[str, ...]]:
    """Return the sorted devices of each tensor and module by name; a module may be on several devices.

    The result is empty if torch is not loaded. This reads at most 2000 variables, and about 200 parameters
    and buffers per module.
    """
    torch: Any = cuda_state.loaded_torch()
    tensor = getattr(torch, "Tensor", None)
    disable_torch_function = getattr(getattr(torch, "_C", None), "DisableTorchFunction", None)
    if tensor is None or disable_torch_function is None:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    with disable_torch_function():
        for (name, value), _ in zip(variables, range(_MAX_VARIABLES), strict=False):
            devices = tuple(sorted(set(_devices(torch, value))))
            if devices:
                found[name] = devices
    return found


def _devices(torch: Any, value: object) -> Iterator[str]:
    # Avoid isinstance(), which would call the object's __class__, and value.device, which may be a subclass's
    # property.
    if issubclass(type(value), torch.Tensor):
        yield str(torch.Tensor.device.__get__(value))
        return
    module = getattr(getattr(torch, "nn", None), "Module", None)
    if module is None or not issubclass(type(value), module):
        return
    visited: set[int] = set()
    pending, count = [value], 0
    while pending and count < _MAX_PARAMETERS:
        part = pending.pop()
        if id(part) in visited:
            continue
        visited.add(id(part))
        attributes = _instance_dict(part)
        for name in ("_parameters", "_buffers"):
            for tensor in _values(attributes.get(name)):
                count += 1
                if issubclass(type(tensor), torch.Tensor):
                    yield str(torch.Tensor.device.__get__(tensor))
        pending += _values(attributes.get("_modules"))


# -- objects ---------------------------------------------------------------------------------------------


def _instances_of(cls: type, variables: Variables) -> Iterator[tuple[str, object]]:
    for (name, value), _ in zip(variables, range(_MAX_VARIABLES), strict=False):
        # Avoid isinstance(), which would call the object's __class__.
        if issubclass(type(value), cls):
            yield name, value


def _instance_dict(value: object) -> Mapping[str, object]:
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}


def _values(parts: object) -> list[object]:
    return list(dict.values(parts)) if issubclass(type(parts), dict) else []  # type: ignore[arg-type]
