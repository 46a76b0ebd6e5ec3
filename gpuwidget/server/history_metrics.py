"""The metrics of a GPU whose history the server stores: those that have a chart, according to the table of
metrics."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpuwidget.model import metrics as model_metrics
from gpuwidget.model.readings import Reading

_CHARTED = tuple(metric for metric in model_metrics.METRICS if metric.label is not None)
READING_METRICS = tuple(metric.key for metric in _CHARTED if metric.group != "activity")
"""Keys of metrics that are fields of a :class:`gpuwidget.model.readings.Reading`."""
ACTIVITY_METRICS = tuple(metric.key for metric in _CHARTED if metric.group == "activity")
"""Keys of metrics that are fields of the reading's :class:`gpuwidget.model.readings.Activity`."""
METRICS = READING_METRICS + ACTIVITY_METRICS
METRIC_INDEX = {name: index for index, name in enumerate(METRICS)}
BYTE_METRICS = frozenset(metric.key for metric in _CHARTED if metric.kind in ("memory", "rate"))
"""Keys of metrics that are sent as whole numbers."""

Values = npt.NDArray[np.float64]
"""Values of metrics. NaN stands for an unknown value."""


def metric_values(reading: Reading) -> Values:
    """Return the values of one reading in the order of ``METRICS``.

    If the reading has no activity, the metrics of the activity are omitted.
    """
    values = [getattr(reading, name) for name in READING_METRICS]
    if reading.activity is not None:
        values += [getattr(reading.activity, name) for name in ACTIVITY_METRICS]
    # An unknown value, which is None, becomes NaN.
    found = np.array(values, dtype=np.float64)
    found[np.isinf(found)] = np.nan
    return found
