"""The JSON response to a history query: one series per metric and GPU, with one value per step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpuwidget.server.encoding import Fields, encode_in_parts
from gpuwidget.server.history_chunks import TIME_DIGITS, Chunk, json_values
from gpuwidget.server.history_metrics import Values
from gpuwidget.server.history_query import HistoryQuery, step_numbers

_MEAN_DIGITS = 3
"""Decimal places of a mean. Minimum and maximum are not rounded."""


class _Slice(NamedTuple):
    """The ticks of one chunk that lie in the requested time."""

    chunk: Chunk
    first: int
    end: int


class _Steps(NamedTuple):
    """Groups of consecutive ticks. Each group is sent as one step."""

    starts: npt.NDArray[np.intp]
    """Index of the first tick of each step."""
    samples: npt.NDArray[np.int64]
    """Number of samples that each tick stands for."""


def encode_query(chunks: Sequence[Chunk], query: HistoryQuery, step: float, newest: float) -> Iterator[bytes]:
    """Yield the :class:`gpuwidget.server.wire.MetricHistory` as JSON, in parts that take less than a
    millisecond each.

    ``newest`` is the time of the newest sample in ``chunks``. Samples that arrive during the encoding are
    omitted.
    """
    slices = [part for chunk in chunks if (part := _slice(chunk, query, step)).end > part.first]
    # The order of GPUs is that of the newest chunk, which is the order in which the driver lists them.
    uuids = dict.fromkeys(uuid for part in reversed(slices) for uuid in part.chunk.uuids)
    times = np.concatenate([np.empty(0), *(chunk.times[first:end] for chunk, first, end in slices)])
    samples = np.concatenate(
        [np.empty(0, dtype=np.int64), *(chunk.samples[first:end] for chunk, first, end in slices)]
    )
    steps = None
    if step:
        numbers = step_numbers(times, step)
        steps = _Steps(np.flatnonzero(np.diff(numbers, prepend=-np.inf)), samples)
        times = numbers[steps.starts] * step
        samples = np.add.reduceat(samples, steps.starts) if len(times) else samples
    newest_sample = None
    if slices:
        chunk, _, end = slices[-1]
        is_newest = chunk is chunks[-1] and end == len(chunk)
        newest_sample = newest if is_newest else float(chunk.times[end - 1])

    def metrics(uuid: str) -> Iterator[tuple[str, Mapping[str, object]]]:
        for metric in query.metrics:
            values = _values(slices, uuid, metric)
            if values is not None:
                yield metric, _series(metric, values, steps)

    return encode_in_parts(
        {
            "since": query.since,
            "until": query.until,
            "step_s": step,
            "newest": newest_sample,
            "t": np.round(times, TIME_DIGITS).tolist(),
            "samples": samples.tolist(),
            "gpus": ({"uuid": uuid, "metrics": Fields(metrics(uuid))} for uuid in uuids),
        }
    )


def _slice(chunk: Chunk, query: HistoryQuery, step: float) -> _Slice:
    if not step:
        return _Slice(
            chunk, chunk.index_of(query.since), int(np.searchsorted(chunk.times, query.until, "right"))
        )
    # The slice consists of whole steps, so that a step has the same values in every response that includes
    # it.
    first, last = step_numbers(np.array([query.since, query.until]), step)
    return _Slice(chunk, chunk.index_of(first * step), chunk.index_of((last + 1) * step))


def _values(slices: Sequence[_Slice], uuid: str, metric: str) -> Values | None:
    """Return one metric of one GPU over all slices, with the axes stats and ticks; None if it was never
    known."""
    parts = [chunk.values(uuid, metric) for chunk, _, _ in slices]
    stats = next((len(part) for part in parts if part is not None), None)
    if stats is None:
        return None
    values = np.concatenate(
        [
            np.full((stats, end - first), np.nan) if part is None else part[:, first:end]
            for part, (_, first, end) in zip(parts, slices, strict=True)
        ],
        axis=1,
    )
    return None if np.isnan(values).all() else values


def _series(metric: str, values: Values, steps: _Steps | None) -> Mapping[str, object]:
    """Return the fields of a :class:`gpuwidget.server.wire.MetricSeries`."""
    low, mean, high = values[0], values[len(values) // 2], values[-1]
    if steps is not None and len(steps.starts) < len(mean):
        known = ~np.isnan(mean)
        weights = np.where(known, steps.samples, 0)
        total = np.add.reduceat(np.where(known, mean, 0.0) * weights, steps.starts)
        low, high = np.fmin.reduceat(low, steps.starts), np.fmax.reduceat(high, steps.starts)
        with np.errstate(invalid="ignore"):  # A step without known values gives 0 / 0 = NaN.
            mean = np.clip(total / np.add.reduceat(weights, steps.starts), low, high)
    if not (low < high).any():
        return {"mean": json_values(metric, mean), "min": None, "max": None}
    return {
        "mean": json_values(metric, np.round(mean, _MEAN_DIGITS)),
        "min": json_values(metric, low),
        "max": json_values(metric, high),
    }
