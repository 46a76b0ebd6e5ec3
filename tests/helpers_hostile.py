"""Random JSON values of every shape, as a broken or hostile process may send them. A seed repeats them."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

KEYS = ("", "uuid", "gpus", "state", "status", "\ud800", "__proto__", "a" * 300)
TEXTS = (
    *("", "5", "nan", "GPU-0", "ok", "cuda:0", "true", "\0", "\x1b[2J\x1b]0;x\x07", "%s%d{0}", "²"),
    *("\ud800", "a\udfffb", "\u202eabc", "\ufeff", "</script><b>", "'\"\\\n", "x" * 5000, "🜲" * 300),
)
NUMBERS = (
    *(0, 1, -1, 5, 2**31, 2**53 - 1, 2**53, -(2**53), 2**63, 2**64, 10**30, 10**400, -(10**400)),
    *(0.0, -0.0, 0.5, -1.5, 1e-320, 1e300, -1e300, float("inf"), float("-inf"), float("nan")),
)


def value(random: Random, depth: int = 3) -> Any:
    """Return a random JSON value, nested up to ``depth`` levels, or sometimes much deeper."""
    kind = random.randrange(10 if depth > 0 else 6)
    if kind < 1:
        return random.choice((None, True, False))
    if kind < 2:
        return random.choice(TEXTS)
    if kind < 6:
        return random.choice(NUMBERS)
    if kind < 7:
        return nested(random.choice((100, 600, 5000)))
    if kind < 8:
        return [value(random, 0)] * random.choice((0, 1, 2, 40, 3000))
    if kind < 9:
        return [value(random, depth - 1) for _ in range(random.randrange(5))]
    return {random.choice(KEYS): value(random, depth - 1) for _ in range(random.randrange(5))}


def nested(depth: int) -> Any:
    """Return lists that are nested ``depth`` levels deep."""
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def mutated(random: Random, valid: Any, changes: int = 2) -> Any:
    """Return a copy of a valid value in which ``changes`` random parts are replaced, removed, repeated or
    added."""
    found = [copy.deepcopy(valid)]
    for _ in range(changes):
        parent, key = _random_place(random, found)
        kind = random.randrange(6)
        if kind < 3:
            parent[key] = value(random)
        elif kind < 4 and parent is not found:
            del parent[key]
        elif isinstance(parent, list) and parent is not found:
            parent.insert(key, parent[key] if kind < 5 else value(random))
        elif isinstance(parent, dict):
            parent[random.choice(KEYS)] = value(random)
    return found[0]


def _random_place(random: Random, root: list[Any]) -> tuple[Any, Any]:
    """Return a random list or dict within ``root``, and one of its indices or keys."""
    parent: Any = root
    key: Any = 0
    while True:
        child = parent[key]
        if not isinstance(child, (dict, list)) or not child or random.random() < 0.1:
            return parent, key
        parent, key = child, random.choice(list(child) if isinstance(child, dict) else range(len(child)))
