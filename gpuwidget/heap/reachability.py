"""Build every name that leads to the memory of an owner, such as ``inside.model.0.weight``.

An owner is a root variable that owns blocks of torch's allocator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from gpuwidget.heap.heap_walk import NO_PARENT, BlockOwners, Root, Visited
from gpuwidget.heap.object_references import MAX_ITEMS, attribute_name, instance_dict

_MAX_FULL_NAMES = 50
"""Maximum number of names per owner that are written in full."""
_MAX_NAME_LENGTH = 60
"""Maximum number of characters of a full name."""
_MAX_NAME_DEPTH = 16
_STEPS_PER_OBJECT = 4
"""If :func:`reachable` visits objects more often than this on average, it switches to Tarjan's algorithm."""
_SEQUENCES: tuple[Any, ...] = (list, tuple, deque)
_LITERAL_KEY_TYPE_IDS = frozenset(map(id, (str, int, bool, float)))
"""Ids of the types of dict keys that are written with ``repr``."""
_MODULE_DICTS = ("_parameters", "_buffers", "_modules")
"""Dicts of a ``torch.nn.Module`` whose items users write as attributes."""


def names_of_owners(
    torch: Any, roots: Sequence[Root], visited: Visited, owners: BlockOwners
) -> tuple[dict[int, tuple[str, ...]], dict[int, tuple[int, ...]]]:
    """Return, for each owner, the names that lead to its blocks, and the numbers of the roots of these names.

    Both dicts are keyed by the owner's number. Each list begins with the owner's own name or number.
    """
    owning = list(
        dict.fromkeys(owner for found in owners.by_device.values() for owner in found if owner is not None)
    )
    bit_of = {owner: 1 << position for position, owner in enumerate(owning)}
    edges: dict[int, dict[int, tuple[int, int]]] = {owner: {} for owner in owning}
    """For each owner and each other root, the first reference (parent, child) that leads from the root to the
    owner's memory."""
    several: dict[int, int] = {}
    """For each root, a bit mask of owners: those to whose memory the root leads by several references."""
    reached: dict[int, int] = {}
    done: set[tuple[int, int]] = set()
    for root, parent, number, bits in _cross_references(visited, owners, bit_of):
        if (root, number) in done:
            continue
        done.add((root, number))
        before = reached.get(root, 0)
        several[root] = several.get(root, 0) | (bits & before)
        reached[root] = before | bits
        new = bits & ~before
        while new:
            lowest = new & -new
            new ^= lowest
            edges[owning[lowest.bit_length() - 1]][root] = parent, number
    name_writer = NameWriter(torch, roots, visited)
    names = {}
    for owner, by_root in edges.items():
        found = [roots[owner].name]
        for root, edge in sorted(by_root.items()):
            # If only one reference leads from the root to the owner's memory, write the full path. If there
            # are several, write only the root's name.
            in_full = (
                not several[root] & bit_of[owner] and roots[root].names_parts and len(found) < _MAX_FULL_NAMES
            )
            found.append(name_writer.name(root, *edge) if in_full else roots[root].name)
        names[owner] = tuple(dict.fromkeys(found))
    return names, {owner: (owner, *by_root) for owner, by_root in edges.items()}


def _cross_references(
    visited: Visited, owners: BlockOwners, bit_of: Mapping[int, int]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (root, parent, child, bits) for each reference from a root to memory that other roots own.

    ``bits`` are the bits of the owners to whose memory ``child`` leads.
    """
    owned: dict[int, int] = {}
    for number, device, position in owners.references:
        owner, root = owners.by_device[device][position], visited.roots[number]
        assert owner is not None
        owned[number] = bit_of[owner]  # only one owner per object, because a tensor lies in one block
        if owner != root:
            yield root, visited.parents[number], number, bit_of[owner]
    repeat_parents: dict[int, list[int]] = {}
    for number, parent in zip(visited.repeats, visited.repeat_parents, strict=True):
        if parent >= 0:
            repeat_parents.setdefault(number, []).append(parent)
    behind = reachable(owned, visited.parents, repeat_parents)
    for number, parent in zip(visited.repeats, visited.repeat_parents, strict=True):
        bits = behind.get(number)
        if bits is not None:
            root, start = (visited.roots[parent], parent) if parent >= 0 else (~parent, NO_PARENT)
            bits &= ~bit_of.get(root, 0)
            if bits:
                yield root, start, number, bits


class NameWriter:
    """Writes the path from a root to an object as a Python expression."""

    def __init__(self, torch: Any, roots: Sequence[Root], visited: Visited) -> None:
        self._torch = torch
        self._roots = roots
        self._visited = visited

    def name(self, root: int, parent: int, number: int) -> str:
        """Return the name of object ``number``, as it is reached from ``root`` by way of ``parent``."""
        name = self._roots[root].name
        steps: list[str] = []
        while parent != NO_PARENT:
            if len(steps) >= _MAX_NAME_DEPTH:
                return f"{name}…"
            steps.append(self._step(parent, number))
            parent, number = self._visited.parents[parent], parent
        full_name = name + "".join(reversed(steps))
        return full_name if len(full_name) <= _MAX_NAME_LENGTH else f"{name}…"

    def _step(self, number: int, part: int) -> str:
        """Return the step from object ``number`` to ``part`` as Python source, such as ``.weight``.

        The result is empty for a step that users do not write, such as the step to an object's ``__dict__``.
        """
        holder: Any = self._visited.values[number]
        value = self._visited.values[part]
        if issubclass(type(holder), dict):
            items = list(islice(dict.items(holder), MAX_ITEMS))
            key = next((key for key, item in items if item is value), None)
            if type(key) is str and self._is_namespace(number):
                return "" if key in _MODULE_DICTS else f".{key}"
            return f"[{key!r}]" if id(type(key)) in _LITERAL_KEY_TYPE_IDS else "[…]"
        sequence = next((base for base in _SEQUENCES if issubclass(type(holder), base)), None)
        if sequence is not None:
            parts = list(islice(sequence.__iter__(holder), MAX_ITEMS))
            position = next((n for n, item in enumerate(parts) if item is value), None)
            return "[…]" if position is None else f"[{position}]"
        attributes = instance_dict(holder)
        if attributes is value:
            return ""  # ``value`` is the __dict__; the next step adds the attribute's name
        attribute = attribute_name(holder, attributes, value)
        if attribute is not None:
            return f".{attribute}"
        if not issubclass(type(holder), self._torch.Tensor):
            return "…"
        return self._autograd_step(holder, part)

    def _autograd_step(self, holder: Any, part: int) -> str:
        """Return the step from a tensor to its gradient or to a tensor that its autograd graph saves."""
        tensor = self._torch.Tensor
        has_grad = tensor.is_leaf.__get__(holder) or tensor.retains_grad.__get__(holder)
        if has_grad and part not in self._visited.saved_by_autograd:
            return ".grad" if issubclass(type(self._visited.values[part]), tensor) else "…"
        return ".grad_fn…"

    def _is_namespace(self, number: int) -> bool:
        """Return whether users write the items of the dict ``number`` as attributes."""
        visited = self._visited
        parent = visited.parents[number]
        if parent == NO_PARENT:
            return self._roots[visited.roots[number]].is_namespace
        holder: Any = visited.values[parent]
        if not issubclass(type(holder), dict):
            return instance_dict(holder) is visited.values[number]
        # A module's parameters are in a dict, which is itself an item of the module's ``__dict__``.
        grandparent = visited.parents[parent]
        return (
            grandparent != NO_PARENT
            and issubclass(type(visited.values[grandparent]), self._torch.nn.Module)
            and any(dict.get(holder, name) is visited.values[number] for name in _MODULE_DICTS)
        )


# -- the graph algorithm ---------------------------------------------------------------------------------


def reachable(
    own: Mapping[int, int], first_parents: Sequence[int], more_parents: Mapping[int, Sequence[int]]
) -> dict[int, int]:
    """Return each object's bits in ``own``, combined with the bits of all objects to which it leads.

    ``first_parents`` contains one parent of each object, or :data:`NO_PARENT`; ``more_parents`` contains the
    other parents. The run time is linear in the number of references, even with cycles and long chains.
    """
    found = dict(own)
    pending = list(own)
    steps = 0
    while pending:
        number = pending.pop()
        bits = found[number]
        steps += 1
        for parent in (first_parents[number], *more_parents.get(number, ())):
            before = found.get(parent, 0)
            if bits | before != before and parent != NO_PARENT:
                found[parent] = bits | before
                pending.append(parent)
        if steps > _STEPS_PER_OBJECT * len(found):
            return _reachable_by_components(own, _children(own, first_parents, more_parents))
    return found


def _children(
    own: Mapping[int, int], first_parents: Sequence[int], more_parents: Mapping[int, Sequence[int]]
) -> dict[int, list[int]]:
    """Return the children of each object that leads to an object in ``own``.

    Only children that also lead to such an object are included.
    """
    children: dict[int, list[int]] = {number: [] for number in own}
    pending = list(own)
    while pending:
        number = pending.pop()
        for parent in (first_parents[number], *more_parents.get(number, ())):
            if parent == NO_PARENT:
                continue
            if parent not in children:
                children[parent] = []
                pending.append(parent)
            children[parent].append(number)
    return children


def _reachable_by_components(own: Mapping[int, int], children: Mapping[int, Iterable[int]]) -> dict[int, int]:
    """Compute :func:`reachable` with Tarjan's algorithm.

    All members of a strongly connected component have the same bits.
    """
    found: dict[int, int] = {}
    depth: dict[int, int] = {}
    lowlink: dict[int, int] = {}
    """For each object, the smallest depth that it can reach, or ``finished`` if its component is complete."""
    finished = len(children) + 1
    component: list[int] = []
    for start in children:
        if start in depth:
            continue
        path = [(start, iter(children[start]))]
        depth[start] = lowlink[start] = len(depth)
        found[start] = own.get(start, 0)
        component.append(start)
        while path:
            number, remaining = path[-1]
            for child in remaining:
                if child not in depth:
                    path.append((child, iter(children[child])))
                    depth[child] = lowlink[child] = len(depth)
                    found[child] = own.get(child, 0)
                    component.append(child)
                    break
                found[number] |= found[child]
                lowlink[number] = min(lowlink[number], lowlink[child])
            else:
                path.pop()
                if lowlink[number] == depth[number]:
                    bits = found[number]
                    member = -1
                    while member != number:
                        member = component.pop()
                        found[member] = bits
                        lowlink[member] = finished
                if path:
                    above = path[-1][0]
                    found[above] |= found[number]
                    lowlink[above] = min(lowlink[above], lowlink[number])
    return found
