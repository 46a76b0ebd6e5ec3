"""What of a reading is held of the past: every number that is worth a chart."""

from __future__ import annotations

import math

from gpuwidget.model.readings import Reading

FROM_READING = (
    "utilization",
    "memory_utilization",
    "memory_used",
    "power_w",
    "temperature_c",
    "memory_temperature_c",
    "sm_clock_mhz",
)
"""Fields of a :class:`gpuwidget.model.readings.Reading`."""
FROM_ACTIVITY = (
    "graphics",
    "sm",
    "sm_occupancy",
    "tensor",
    "dram",
    "fp64",
    "fp32",
    "fp16",
    "pcie_tx",
    "pcie_rx",
    "nvlink_tx",
    "nvlink_rx",
)
"""Fields of its :class:`gpuwidget.model.readings.Activity`."""
QUANTITIES = FROM_READING + FROM_ACTIVITY
PLACES = {name: place for place, name in enumerate(QUANTITIES)}
BYTES = frozenset({"memory_used", "pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx"})
"""Those that are sent as whole numbers."""

Row = tuple[float | None, ...]
"""One reading's values in the order of ``QUANTITIES``; those of an activity only where there is one."""


def row(reading: Reading) -> Row:
    """The values of one reading; what is no number is unknown."""
    values = [getattr(reading, name) for name in FROM_READING]
    if reading.activity is not None:
        values += [getattr(reading.activity, name) for name in FROM_ACTIVITY]
    return tuple(value if value is not None and math.isfinite(value) else None for value in values)
