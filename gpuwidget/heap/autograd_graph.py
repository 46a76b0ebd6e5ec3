"""What an autograd graph keeps for ``backward()``: the tensors saved in it. Nothing of the user's runs.

Their ``saved_tensors_hooks`` are not called: torch says what was packed, beside what would unpack it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from gc import get_referents
from types import GetSetDescriptorType
from typing import Any

from gpuwidget.model.raw_attributes import class_dict, class_mro

MOST_NODES = 20_000
"""Operations of all graphs together that one search looks at."""
_NODES_PER_TIME = 256


def can_look(torch: Any) -> bool:
    """Whether this torch says what is saved without unpacking it (newer releases do)."""
    kind = getattr(getattr(torch._C, "_autograd", None), "SavedTensor", None)
    return hasattr(kind, "data")


class Graphs:
    """The graphs behind tensors, each operation looked at once; keeps them alive as long as it lives."""

    def __init__(self, torch: Any, over: Callable[[], bool] = lambda: False) -> None:
        """``over`` says when it has been looked long enough."""
        self._over = over
        self._grad_fn = torch.Tensor.grad_fn.__get__
        self._written_in_python: type = torch.autograd.function.FunctionCtx
        self._met: dict[int, Any] = {}
        self._names: dict[int, tuple[str, ...]] = {}
        """By the id of an operation's type, which :attr:`_met` keeps."""
        self.complete = True
        """False where there were too many operations to look at them all."""

    def saved(self, tensor: object) -> Iterator[object]:
        """What is saved behind ``tensor``, and the attributes of the user's own operations."""
        waiting = [self._grad_fn(tensor)]
        while waiting:
            node = waiting.pop()
            if node is None or id(node) in self._met:
                continue
            if len(self._met) >= MOST_NODES or (not len(self._met) % _NODES_PER_TIME and self._over()):
                self.complete = False
                return
            self._met[id(node)] = node
            kind = type(node)
            names = self._names.get(id(kind))
            if names is None:
                names = self._names[id(kind)] = _saved_names(kind)
            for name in names:
                yield from _data(node, name)
            if issubclass(kind, self._written_in_python):
                yield from (one for one in get_referents(node) if one is not kind)
            waiting += [before for before, _ in node.next_functions]


def _saved_names(kind: type) -> tuple[str, ...]:
    found = (
        name for cls in class_mro(kind) for name, value in class_dict(cls).items() if _is_saved(name, value)
    )
    return tuple(dict.fromkeys(found))


def _is_saved(name: str, value: object) -> bool:
    return name.startswith("_raw_saved") and type(value) is GetSetDescriptorType


def _data(node: Any, name: str) -> Iterator[object]:
    try:
        found = getattr(node, name)
        for one in found if isinstance(found, (list, tuple)) else (found,):
            yield one.data
    except (RuntimeError, AttributeError):  # let go of after backward(), or nothing was saved here
        return
