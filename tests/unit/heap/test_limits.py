"""How much a search looks at."""

from __future__ import annotations

import time

import pytest

from gpuwidget.heap.limits import Bounds


def test_items_end_a_search() -> None:
    """Twenty items of containers for each object that may be looked at, and not one more."""
    bounds = Bounds(10, None)
    bounds.items -= 200
    assert (bounds.objects, bounds.over()) == (10, False)
    bounds.items -= 1
    assert bounds.over() is True


def test_time_ends_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is that of the searching thread: what a busy machine does meanwhile does not count."""
    now = [3.0]
    monkeypatch.setattr(time, "thread_time", lambda: now[0])
    bounds = Bounds(10, 0.5)
    now[0] = 3.4
    assert bounds.over() is False
    now[0] = 3.5
    assert bounds.over() is True
