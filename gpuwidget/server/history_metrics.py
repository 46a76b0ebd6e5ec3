"""The metrics of a GPU whose history the server stores: those that have a chart, according to the table of
metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpuwidget.model import metrics as model_metrics
from gpuwidget.model.samples import Sample

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


class Tick(NamedTuple):
    """The metrics of all GPUs at one time: those of one sample, or of all samples of one second."""

    time: float
    uuids: Sequence[str]
    values: Values
    """The axes are stats, GPUs and metrics. Stats are the value alone, or minimum, mean and maximum."""
    samples: int
    """The number of samples that the tick stands for."""


def sample_tick(sample: Sample) -> Tick:
    """Return a sample's metrics in the order of ``METRICS``.

    If no GPU has activity, the metrics of the activity are omitted.
    """
    has_activity = any(reading.activity is not None for reading in sample.readings)
    activity_metrics = ACTIVITY_METRICS if has_activity else ()
    rows = [
        [getattr(reading, name) for name in READING_METRICS]
        + [getattr(reading.activity, name, None) for name in activity_metrics]
        for reading in sample.readings
    ]
    # An unknown value, which is None, becomes NaN.
    values = np.array(rows, dtype=np.float64)
    values[np.isinf(values)] = np.nan
    metrics = len(READING_METRICS) + len(activity_metrics)
    uuids = [reading.uuid for reading in sample.readings]
    return Tick(sample.time, uuids, values.reshape(1, len(rows), metrics), samples=1)
