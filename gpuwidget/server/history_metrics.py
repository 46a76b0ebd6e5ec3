"""The metrics of a GPU that the server keeps a history of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpuwidget.model.readings import Reading

READING_METRICS = (
    "utilization",
    "memory_utilization",
    "memory_used",
    "power_w",
    "temperature_c",
    "memory_temperature_c",
    "sm_clock_mhz",
)
"""Fields of a :class:`gpuwidget.model.readings.Reading`."""
ACTIVITY_METRICS = (
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
METRICS = READING_METRICS + ACTIVITY_METRICS
METRIC_INDEX = {name: index for index, name in enumerate(METRICS)}
BYTE_METRICS = frozenset({"memory_used", "pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx"})
"""Metrics that are sent as whole numbers."""

Values = npt.NDArray[np.float64]
"""Values of metrics; NaN is unknown."""


def metric_values(reading: Reading) -> Values:
    """Return the values of one reading in the order of ``METRICS``, without those of a missing activity."""
    values = [getattr(reading, name) for name in READING_METRICS]
    if reading.activity is not None:
        values += [getattr(reading.activity, name) for name in ACTIVITY_METRICS]
    found = np.array(values, dtype=np.float64)  # None becomes NaN
    found[np.isinf(found)] = np.nan
    return found
