"""The bounds between which a value of the driver is plausible.

Broken drivers return values that can't be true, such as the pid 4294967295 or millions of watts. Such a value
is unknown. The bounds are far wider than what any GPU reaches, so that no true value is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwidget.model.messages import Message
from gpuwidget.model.metrics import METRICS, Kind
from gpuwidget.sources import nvml_messages

_BY_KIND: Mapping[Kind, tuple[float, float]] = {
    "percent": (0, 100),
    "memory": (0, 2**44),
    "power": (0, 5000),
    "temperature": (-40, 150),
    "clock": (0, 50_000),
    "rate": (0, 1e13),
    "energy": (0, 1e12),
    "seconds": (0.001, 60),
    "count": (0, 1e9),
}
_BY_KEY: Mapping[str, tuple[float, float]] = {
    "pstate": (0, 15),
    "fan_speed": (0, 300),  # Fans can turn faster than their nominal maximum.
    # Values that are no metric of the table:
    "memory_total": (0, 2**44),
    "pid": (1, 2**31 - 1),
    "xid": (1, 9999),
    "cores": (1, 1e7),
    "memory_bus_width": (1, 1e6),
    "max_clock_mhz": (1, 50_000),
}
_COUNTER_PERCENT = (0, 101)
"""Bounds of the hardware counters' percentages. Their samples are not taken at exactly the same moment as the
clock's, so a fully used unit can exceed 100 % slightly."""

BOUNDS: Mapping[str, tuple[float, float]] = {
    **{
        metric.key: _COUNTER_PERCENT
        if metric.group == "activity" and metric.kind == "percent"
        else _BY_KIND[metric.kind]
        for metric in METRICS
    },
    **_BY_KEY,
}
"""The lowest and the highest plausible value, in the units of the model, by the name of the value."""


def is_plausible(name: str, value: float, most: float | None = None) -> bool:
    """Return whether a value is within its bounds and, if ``most`` is given, at most ``most``."""
    lowest, highest = BOUNDS[name]
    return lowest <= value <= highest and (most is None or value <= most)


def drop_impossible(values: dict[str, Any], missing: dict[str, Message]) -> None:
    """Replace each value that is out of its bounds by None, and add the reason to ``missing``."""
    for name, value in values.items():
        if name in BOUNDS and value is not None and not is_plausible(name, value):
            values[name] = None
            missing[name] = nvml_messages.IMPOSSIBLE
