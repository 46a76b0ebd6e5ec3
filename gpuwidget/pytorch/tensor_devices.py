"""On which devices the tensors among a user's variables are: looked at, never touched.

No value is read, no attribute of a user's class is asked for, and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuwidget.pytorch import cuda_state

_MOST_VARIABLES = 2000
_MOST_PARAMETERS = 200


def devices_of(variables: Iterable[tuple[str, object]]) -> dict[str, str]:
    """``cpu``, ``cuda:1`` or, of a module, ``cpu and cuda:1``, by name of each tensor and each module.

    Empty where torch is not loaded. Looks at 2000 variables and at 200 parameters of a module at most.
    """
    torch: Any = cuda_state.loaded()
    tensor = getattr(torch, "Tensor", None)
    without_hooks = getattr(getattr(torch, "_C", None), "DisableTorchFunction", None)
    if tensor is None or without_hooks is None:
        return {}
    found: dict[str, str] = {}
    with without_hooks():
        for (name, value), _ in zip(variables, range(_MOST_VARIABLES), strict=False):
            devices = sorted(set(_devices(torch, value)))
            if devices:
                found[name] = " and ".join(devices)
    return found


def _devices(torch: Any, value: object) -> Iterator[str]:
    # Not isinstance, which asks the object for its __class__; not value.device, which a subclass may define.
    if issubclass(type(value), torch.Tensor):
        yield str(torch.Tensor.device.__get__(value))
        return
    module = getattr(getattr(torch, "nn", None), "Module", None)
    if module is None or not issubclass(type(value), module):
        return
    seen: set[int] = set()
    waiting, count = [value], 0
    while waiting and count < _MOST_PARAMETERS:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        own = getattr(one, "__dict__", {})
        for part in ("_parameters", "_buffers"):
            for tensor in _values(own.get(part)):
                count += 1
                if issubclass(type(tensor), torch.Tensor):
                    yield str(torch.Tensor.device.__get__(tensor))
        waiting += _values(own.get("_modules"))


def _values(parts: object) -> list[object]:
    return list(parts.values()) if isinstance(parts, Mapping) else []
