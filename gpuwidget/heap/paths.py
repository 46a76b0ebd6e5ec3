"""The ways through objects, as a person writes them down: ``inside.model.0.weight``."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

from gpuwidget.heap.object_references import MOST_ITEMS, attribute_name, attributes
from gpuwidget.heap.reachability import NOBODY
from gpuwidget.heap.roots import Root
from gpuwidget.heap.visited import Trail

_MOST_WORDS = 60
"""Characters of a name that leads deep into something."""
_DEEPEST_NAME = 16
_SEQUENCES: tuple[Any, ...] = (list, tuple, deque)
_WRITTEN = frozenset(map(id, (str, int, bool, float)))
"""Ids of types of keys that are written as they are."""
_SHOWN_AS_ATTRIBUTES = ("_parameters", "_buffers", "_modules")


class Paths:
    """Names of what roots lead to."""

    def __init__(self, torch: Any, roots: Sequence[Root], trail: Trail) -> None:
        self._torch = torch
        self._roots = roots
        self._trail = trail

    def name(self, root: int, parent: int, number: int) -> str:
        """The way from ``root`` to ``number``, of which the last step is from ``parent``."""
        name = self._roots[root].name
        steps: list[str] = []
        while parent != NOBODY:
            if len(steps) >= _DEEPEST_NAME:
                return f"{name}…"
            steps.append(self._step(parent, number))
            parent, number = self._trail.parents[parent], parent
        words = name + "".join(reversed(steps))
        return words if len(words) <= _MOST_WORDS else f"{name}…"

    def _step(self, number: int, part: int) -> str:
        """How a person gets from one object to the next; empty for what nobody writes down."""
        holder: Any = self._trail.values[number]
        value = self._trail.values[part]
        if issubclass(type(holder), dict):
            items = list(islice(dict.items(holder), MOST_ITEMS))
            key = next((key for key, item in items if item is value), None)
            if type(key) is str and self._is_namespace(number):
                return "" if key in _SHOWN_AS_ATTRIBUTES else f".{key}"
            return f"[{key!r}]" if id(type(key)) in _WRITTEN else "[…]"
        sequence = next((base for base in _SEQUENCES if issubclass(type(holder), base)), None)
        if sequence is not None:
            parts = list(islice(sequence.__iter__(holder), MOST_ITEMS))
            place = next((n for n, item in enumerate(parts) if item is value), None)
            return "[…]" if place is None else f"[{place}]"
        own = attributes(holder)
        if own is value:
            return ""  # the next step names the attribute
        named = attribute_name(holder, own, value)
        if named is not None:
            return f".{named}"
        if not issubclass(type(holder), self._torch.Tensor):
            return "…"
        return self._step_of_autograd(holder, part)

    def _step_of_autograd(self, holder: Any, part: int) -> str:
        """From a tensor to what is no attribute of it: its gradient, or what its graph saves."""
        tensor = self._torch.Tensor
        has_grad = tensor.is_leaf.__get__(holder) or tensor.retains_grad.__get__(holder)
        if has_grad and part not in self._trail.from_graphs:
            return ".grad" if issubclass(type(self._trail.values[part]), tensor) else "…"
        return ".grad_fn…"

    def _is_namespace(self, number: int) -> bool:
        """Whether a dict is one whose items are written as attributes."""
        trail = self._trail
        parent = trail.parents[number]
        if parent == NOBODY:
            return self._roots[trail.roots[number]].attributes
        holder: Any = trail.values[parent]
        if not issubclass(type(holder), dict):
            return attributes(holder) is trail.values[number]
        # A module's parameters are in a dict in its attributes.
        above = trail.parents[parent]
        return (
            above != NOBODY
            and issubclass(type(trail.values[above]), self._torch.nn.Module)
            and any(dict.get(holder, name) is trail.values[number] for name in _SHOWN_AS_ATTRIBUTES)
        )
