"""How the user's torch is set up: its switches, and the data loaders and models among the user's variables.

Looked at, never touched: attributes are read from an object's own dictionary, no method of a user's class is
called, and what is returned holds no object of the user's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuwidget import torch_state

_MOST_VARIABLES = 2000
_MOST_TENSORS = 5000
"""Of one model."""


@dataclass(frozen=True, slots=True)
class Switches:
    """torch's switches that decide which units of the GPU compute; None for what this torch does not say."""

    tf32_matmul: bool | None
    """Whether float32 matrix products may use TF32 on the tensor cores."""
    tf32_conv: bool | None
    """The same of cuDNN's convolutions."""
    cudnn: bool | None
    """Whether cuDNN is used at all."""


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
    on_cpu: int
    """Bytes of its parameters and buffers in the host's memory."""
    on_gpu: int
    """Bytes of them on CUDA devices."""
    uses_cudnn: bool
    """Whether it has layers that cuDNN makes fast: convolutions and recurrent ones."""


def switches() -> Switches | None:
    """The switches as they are now; None where torch is not loaded."""
    torch: Any = torch_state.loaded()
    if torch is None:
        return None
    native = getattr(torch, "_C", None)
    return Switches(
        tf32_matmul=_tf32(native, "matmul", "_get_cublas_allow_tf32"),
        tf32_conv=_tf32(native, "conv", "_get_cudnn_allow_tf32"),
        cudnn=_asked(native, "_get_cudnn_enabled"),
    )


def _tf32(native: Any, operation: str, older: str) -> bool | None:
    # From torch 2.9 on there are two ways to set TF32, and the older way to read it raises where the newer
    # one was used to set it. The newer way to read knows of both.
    getter = getattr(native, "_get_fp32_precision_getter", None)
    if getter is None:
        return _asked(native, older)
    try:
        return bool(getter("cuda", operation) == "tf32")
    except Exception:
        return None


def _asked(native: Any, name: str) -> bool | None:
    try:
        return bool(getattr(native, name)())
    except Exception:
        return None


def loaders(variables: Iterable[tuple[str, object]]) -> tuple[Loader, ...]:
    """Every DataLoader among ``variables``."""
    kind = getattr(sys.modules.get("torch.utils.data"), "DataLoader", None)
    if torch_state.loaded() is None or kind is None:
        return ()
    found = []
    for (name, value), _ in zip(variables, range(_MOST_VARIABLES), strict=False):
        if not issubclass(type(value), kind):
            continue
        own = _own(value)
        workers, prefetch = own.get("num_workers"), own.get("prefetch_factor")
        if isinstance(workers, int):
            found.append(
                Loader(
                    name=name,
                    num_workers=workers,
                    pin_memory=own.get("pin_memory") is True,
                    prefetch_factor=prefetch if isinstance(prefetch, int) else None,
                    persistent_workers=own.get("persistent_workers") is True,
                )
            )
    return tuple(found)


def models(variables: Iterable[tuple[str, object]]) -> tuple[Model, ...]:
    """Every module among ``variables``, with where its parameters are."""
    torch: Any = torch_state.loaded()
    nn = getattr(torch, "nn", None)
    module = getattr(nn, "Module", None)
    without_hooks = getattr(getattr(torch, "_C", None), "DisableTorchFunction", None)
    if module is None or without_hooks is None:
        return ()
    fast = tuple(
        kind for name in ("Conv1d", "Conv2d", "Conv3d", "RNNBase") if (kind := getattr(nn, name, None))
    )
    with without_hooks():
        return tuple(
            _model(torch, name, value, fast)
            for (name, value), _ in zip(variables, range(_MOST_VARIABLES), strict=False)
            # Not isinstance, which asks the object for its __class__.
            if issubclass(type(value), module)
        )


def _model(torch: Any, name: str, whole: object, fast: tuple[type, ...]) -> Model:
    sizes = {"cpu": 0, "cuda": 0}
    uses_cudnn = False
    seen: set[int] = set()
    for part in _parts(whole):
        uses_cudnn = uses_cudnn or issubclass(type(part), fast)
        own = _own(part)
        for tensors in (own.get("_parameters"), own.get("_buffers")):
            for tensor in _values(tensors):
                if id(tensor) in seen or not issubclass(type(tensor), torch.Tensor):
                    continue
                seen.add(id(tensor))
                kind = torch.Tensor.device.__get__(tensor).type
                if kind in sizes:
                    sizes[kind] += _size(torch, tensor)
        if len(seen) >= _MOST_TENSORS:
            break
    return Model(name, type(whole).__name__, sizes["cpu"], sizes["cuda"], uses_cudnn)


def _size(torch: Any, tensor: object) -> int:
    try:
        return int(torch.Tensor.numel(tensor) * torch.Tensor.element_size(tensor))
    except Exception:  # one without a shape yet, as lazy modules have
        return 0


def _parts(whole: object) -> Iterator[object]:
    seen: set[int] = set()
    waiting = [whole]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += _values(_own(one).get("_modules"))


def _own(value: object) -> Mapping[str, object]:
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own if isinstance(own, dict) else {}


def _values(parts: object) -> list[object]:
    return list(parts.values()) if isinstance(parts, dict) else []
