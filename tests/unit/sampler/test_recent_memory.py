"""Tests of storing the last minute of memory readings, which an out-of-memory card shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gpuwidget.sampler.sampler import RecentMemory


def sample(**memory: int | None) -> Any:
    readings = tuple(SimpleNamespace(uuid=uuid, memory_used=size) for uuid, size in memory.items())
    return SimpleNamespace(readings=readings)


def test_the_last_minute() -> None:
    """`memory()` returns one GPU's readings, oldest first: the age of each reading in seconds, and the bytes
    in use. Readings older than a minute are omitted."""
    recent = RecentMemory()
    for time, size in ((5.0, 1), (50.0, 2), (100.0, None), (101.0, 4)):
        recent.add(sample(a=size, b=7), time)
    assert recent.memory("a", 102.0) == ((52.0, 2), (2.0, None), (1.0, 4))
    assert recent.memory("b", 102.0) == ((52.0, 7), (2.0, 7), (1.0, 7))
    assert recent.memory("c", 102.0) == ((52.0, None), (2.0, None), (1.0, None))
    assert RecentMemory().memory("a", 102.0) == ()


def test_the_stored_memory_stays_small() -> None:
    """At most four readings per second are stored, whatever the sampling rate is."""
    recent = RecentMemory()
    for n in range(10_000):
        recent.add(sample(a=n), n / 100)
    assert len(recent.memory("a", 99.99)) == 240
