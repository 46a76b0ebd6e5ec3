"""Figures about growth: the slope of a quantity that is sampled at regular times."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence

import psutil

from benchmarks.figures import Figure, Unit
from benchmarks.statistics import slope

_FLAT = 1.0
"""The largest slope that counts as flat, in MiB per hour or in things per hour."""


def growth(benchmark: str, what: str, unit: Unit, hours: Sequence[float], values: Sequence[float]) -> Figure:
    """Return how much ``values`` grow per hour, with the 95 % confidence interval of the slope.

    ``hours`` are the times of the values.
    """
    what = f"growth of {what}"
    found = slope(hours, values)
    if found is None:
        return Figure(benchmark, what, unit, not_measured=f"{len(values)} samples are too few for a slope")
    details = {
        "95 % of the slope": [round(found.low, 4), round(found.high, 4)],
        "hours": [round(hours[0], 3), round(hours[-1], 3)],
        "samples": len(values),
        "first, last": [round(values[0], 3), round(values[-1], 3)],
        "lowest, highest": [round(min(values), 3), round(max(values), 3)],
    }
    return Figure(benchmark, what, unit, bar=_FLAT, values=[found.value], details=details)


_COUNTS = {
    "blocks": "blocks of Python's allocator",
    "objects": "objects that Python's garbage collector tracks",
    "threads": "threads",
    "descriptors": "file descriptors",
}


def own_size() -> dict[str, float]:
    """Return how much memory this process has, and how many objects, threads and file descriptors."""
    gc.collect()
    process = psutil.Process()
    return {
        "mib": process.memory_info().rss / 2**20,
        "blocks": sys.getallocatedblocks(),
        "objects": len(gc.get_objects()),
        "threads": threading.active_count(),
        "descriptors": process.num_fds(),
    }


def size_figures(
    benchmark: str, name: str, hours: Sequence[float], sizes: Sequence[Mapping[str, float]]
) -> Iterator[Figure]:
    """Return the growth of each quantity of :func:`own_size` in the process called ``name``."""
    yield growth(benchmark, f"memory of {name}", "MiB/h", hours, [size["mib"] for size in sizes])
    for key, what in _COUNTS.items():
        yield growth(benchmark, f"number of {what} of {name}", "/h", hours, [size[key] for size in sizes])
