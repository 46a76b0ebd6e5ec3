"""How the user's torch is set up: the data loaders and models among the user's variables.

Looked at, never touched: attributes are read from an object's own dictionary, no method of a user's class is
called, and what is returned holds no object of the user's.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuwidget.model.raw_attributes import class_name
from gpuwidget.pytorch import cuda_state

_LOG = logging.getLogger(__name__)
_MOST_VARIABLES = 2000
_MOST_OBJECTS = 20_000
"""Modules and tensors that are looked at in all, which takes a tenth of a second at most."""


@dataclass(frozen=True, slots=True)
class Loader:
    """A torch.utils.data.DataLoader among the user's variables."""

    name: str
    num_workers: int
    pin_memory: bool
    prefetch_factor: int | None
    persistent_workers: bool


@dataclass(frozen=True, slots=True)
class Model:
    """A torch.nn.Module among the user's variables."""

    name: str
    type: str
    on_cpu: int | None
    """Bytes that its parameters and buffers keep in the host's memory, shared ones once; None where they
    could not all be counted."""
    on_gpu: int | None
    """The same on CUDA devices."""
    uses_cudnn: bool
    """Whether it has layers that cuDNN makes fast: convolutions and recurrent ones."""


def loaders(variables: Iterable[tuple[str, object]]) -> tuple[Loader, ...]:
    """Every DataLoader among ``variables``."""
    kind = getattr(sys.modules.get("torch.utils.data"), "DataLoader", None)
    if cuda_state.loaded() is None or kind is None:
        return ()
    found = []
    for name, value in _of_kind(kind, variables):
        try:
            loader = _loader(name, _own(value))
        except Exception:
            _LOG.debug("A loader could not be looked at", exc_info=True)
            continue
        found += [loader] if loader is not None else []
    return tuple(found)


def _loader(name: str, own: Mapping[str, object]) -> Loader | None:
    workers, prefetch = own.get("num_workers"), own.get("prefetch_factor")
    if type(workers) is not int:
        return None
    return Loader(
        name=name,
        num_workers=workers,
        pin_memory=own.get("pin_memory") is True,
        prefetch_factor=prefetch if type(prefetch) is int else None,
        persistent_workers=own.get("persistent_workers") is True,
    )


def models(variables: Iterable[tuple[str, object]]) -> tuple[Model, ...]:
    """Every module among ``variables``, with where its parameters are."""
    torch: Any = cuda_state.loaded()
    nn = getattr(torch, "nn", None)
    module = getattr(nn, "Module", None)
    without_hooks = getattr(getattr(torch, "_C", None), "DisableTorchFunction", None)
    if module is None or without_hooks is None:
        return ()
    fast = tuple(
        kind for name in ("Conv1d", "Conv2d", "Conv3d", "RNNBase") if (kind := getattr(nn, name, None))
    )
    found: list[Model] = []
    measured: dict[int, _Size] = {}
    left = _MOST_OBJECTS
    with without_hooks():
        for name, value in _of_kind(module, variables):
            try:
                if id(value) not in measured:
                    size = _Size(torch, fast, left)
                    measured[id(value)] = size  # before it is known: what fails once is not tried again
                    size.add(value)
                    left = size.left
                found.append(measured[id(value)].model(name, type(value)))
            except Exception:
                _LOG.debug("A model could not be looked at", exc_info=True)
    return tuple(found)


def _of_kind(kind: type, variables: Iterable[tuple[str, object]]) -> Iterator[tuple[str, object]]:
    for (name, value), _ in zip(variables, range(_MOST_VARIABLES), strict=False):
        # Not isinstance, which asks the object for its __class__.
        if issubclass(type(value), kind):
            yield name, value


class _Size:
    """What one module's parameters and buffers keep."""

    def __init__(self, torch: Any, fast: tuple[type, ...], left: int) -> None:
        self._torch = torch
        self._fast = fast
        self.left = left
        """How many more modules and tensors may be looked at."""
        self._bytes = {"cpu": 0, "cuda": 0}
        self._whole = False
        self._uses_cudnn = False
        self._seen: set[int] = set()

    def add(self, whole: object) -> None:
        """Look at it and at its parts."""
        waiting, complete = [whole], True
        while waiting:
            if self.left <= 0:
                return
            part = waiting.pop()
            if self._met(id(part)):
                continue
            self._uses_cudnn = self._uses_cudnn or issubclass(type(part), self._fast)
            own = _own(part)
            for tensors in (own.get("_parameters"), own.get("_buffers")):
                # A scripted module has its own elsewhere.
                complete = complete and issubclass(type(tensors), dict)
                for tensor in _values(tensors):
                    complete = self._count(tensor) and complete
            waiting += _values(own.get("_modules"))
        self._whole = complete

    def model(self, name: str, kind: type) -> Model:
        """In words."""
        on_cpu, on_gpu = (self._bytes[place] if self._whole else None for place in ("cpu", "cuda"))
        return Model(name, class_name(kind), on_cpu, on_gpu, self._uses_cudnn)

    def _count(self, tensor: object) -> bool:
        if not issubclass(type(tensor), self._torch.Tensor) or self._met(id(tensor)):
            return True
        try:
            storage: Any = self._torch.Tensor.untyped_storage(tensor)
        except Exception:  # sparse, or another without a storage of its own
            return False
        # The storage's device: a tensor that is only imagined (FakeTensor) has one too.
        kind = storage.device.type
        if kind in self._bytes and not self._met(storage._cdata):
            self._bytes[kind] += storage.nbytes()
        return True

    def _met(self, key: int) -> bool:
        """Whether it was met before; modules, tensors and storages all lie at places of their own."""
        known = key in self._seen
        self._seen.add(key)
        self.left -= 1
        return known


def _own(value: object) -> Mapping[str, object]:
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def _values(parts: object) -> list[object]:
    return list(dict.values(parts)) if issubclass(type(parts), dict) else []  # type: ignore[arg-type]
