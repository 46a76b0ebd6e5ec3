"""How much one search looks at."""

from __future__ import annotations

import time

MOST_OBJECTS = 300_000
"""Objects that one search looks at; what lies beyond stays unknown, and is said to."""
_ITEMS_PER_OBJECT = 20
"""Items of all containers together, for each object that a search may look at."""


class Bounds:
    """How much one search looks at: objects, items of containers, and time.

    The time is this thread's own, so that a busy machine does not change what is found.
    """

    def __init__(self, objects: int, within_s: float | None) -> None:
        self.objects = objects
        self.items = objects * _ITEMS_PER_OBJECT
        """How many more items are looked at."""
        self._until = None if within_s is None else time.thread_time() + within_s

    def over(self) -> bool:
        """Whether nothing more is to be looked at."""
        return self.items < 0 or (self._until is not None and time.thread_time() >= self._until)
