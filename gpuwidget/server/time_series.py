"""The answer to who asks for a course of the past: which step fits, and the figures of each step as text."""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gpuwidget.server.history_chunks import Column, inside
from gpuwidget.server.history_metrics import BYTES, PLACES

MIN_POINTS, MAX_POINTS = 2, 4000

_PARTS_OF_A_SECOND = (0.1, 0.2, 0.5)
_SECONDS = (1, 2, 3, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
_AT_LEAST_INTERVALS = 2
"""A step that holds fewer samples than that is finer than what was read, and partly empty."""
_DIGITS = 3
"""Of a mean behind the point; the lowest and the highest value are told as they were read."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A part of the past, epoch seconds, and how it is to be told."""

    since: float
    until: float
    quantities: tuple[str, ...]
    points: int
    """Most points of a course."""


class Held(Protocol):
    """A piece of the past, at full rate or in steps of a second."""

    @property
    def t(self) -> array[float]:
        """Epoch seconds of each moment, rising."""
        ...

    @property
    def gpus(self) -> Mapping[str, object]:
        """By UUID what is held of each GPU."""
        ...

    def column(self, uuid: str, place: int) -> Column | None:
        """One quantity of one GPU; None where it was never known."""
        ...

    def counts(self) -> Sequence[int]:
        """How many samples each moment is made of."""
        ...


class _Piece(NamedTuple):
    """What of a block is asked for."""

    block: Held
    first: int
    end: int


class _Values(NamedTuple):
    """A course at the rate at which it is held; ``apart``: its three lists differ."""

    low: list[float]
    mean: list[float]
    high: list[float]
    apart: bool


def fitting_step(asked: Asked, *, full_rate: bool, samples: int, interval_s: float) -> float:
    """Seconds of a step, so that at most ``asked.points`` are needed; 0 where every sample has its own.

    ``full_rate``: each of the ``samples`` of that time is still held. It depends on how much is asked for and
    not on how much was read, so that a course that goes on keeps its step.
    """
    if full_rate:
        if max(samples, (asked.until - asked.since) / interval_s) <= asked.points:
            return 0.0
        for step in _PARTS_OF_A_SECOND:
            if step >= _AT_LEAST_INTERVALS * interval_s and _fits(asked, step):
                return step
    return next((float(step) for step in _SECONDS if _fits(asked, step)), float(_SECONDS[-1]))


def told(blocks: Sequence[Held], asked: Asked, step: float, newest: float) -> Iterator[str]:
    """The :class:`gpuwidget.server.wire.Course` as JSON, in pieces of less than a few milliseconds each.

    ``newest`` is the time of the newest sample in ``blocks``; they may be added to meanwhile, which is not
    told.
    """
    # Whole steps, so that the same ones are told whatever moment is asked for.
    since = _number(asked.since, step) * step if step else asked.since
    until = (_number(asked.until, step) + 1) * step if step else asked.until
    pieces = [
        piece for block in blocks if (piece := _piece(block, since, until, whole=not step)).end > piece.first
    ]
    times = [time for block, first, end in pieces for time in block.t[first:end]]
    groups = _groups(times, step) if step else None
    counts = [count for block, first, end in pieces for count in block.counts()[first:end]]
    if groups is not None:
        times = [_number(times[first], step) * step for first, _ in groups]
        samples = [sum(counts[first:end]) for first, end in groups]
    else:
        samples = counts
    if not times:
        newest_told = "null"
    else:
        block, _, end = pieces[-1]
        newest_told = repr(newest if block is blocks[-1] and end == len(block.t) else block.t[end - 1])
    yield (
        f'{{"since":{asked.since!r},"until":{asked.until!r},"step_s":{step:g},"newest":{newest_told},'
        f'"t":[{inside([round(time, _DIGITS) for time in times])}],"samples":[{inside(samples)}],"gpus":['
    )
    # Those of the newest block first: it has the order of the driver's own list.
    uuids = dict.fromkeys(uuid for piece in reversed(pieces) for uuid in piece.block.gpus)
    for number, uuid in enumerate(uuids):
        yield f'{"," if number else ""}{{"uuid":{json.dumps(uuid)},"metrics":{{'
        comma = ""
        for name in asked.quantities:
            column = _column(pieces, uuid, name)
            if column is not None:
                yield f'{comma}"{name}":{{'
                yield from _steps(name, column, groups, counts)
                yield "}"
                comma = ","
        yield "}}"
    yield "]}"


def _fits(asked: Asked, step: float) -> bool:
    return _number(asked.until, step) - _number(asked.since, step) + 1 <= asked.points


def _number(time: float, step: float) -> int:
    """Which step a moment falls into, counted from the epoch; a tenth of a second is no binary fraction."""
    return math.floor(round(time / step, 3))


def _piece(block: Held, since: float, until: float, *, whole: bool) -> _Piece:
    end = bisect_right(block.t, until) if whole else bisect_left(block.t, until)
    return _Piece(block, bisect_left(block.t, since), end)


def _groups(times: Sequence[float], step: float) -> list[tuple[int, int]]:
    """The runs of moments, first and end, that fall into one step each."""
    groups: list[tuple[int, int]] = []
    first = 0
    numbers = [_number(time, step) for time in times]
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[first]:
            groups.append((first, place))
            first = place
    return groups


def _column(pieces: Sequence[_Piece], uuid: str, name: str) -> _Values | None:
    """One quantity of one GPU over all pieces; None where it was never known."""
    low: list[float] = []
    mean: list[float] = []
    high: list[float] = []
    known, apart = False, False
    for block, first, end in pieces:
        column = block.column(uuid, PLACES[name])
        if column is None:
            means = lows = highs = [math.nan] * (end - first)
        else:
            known = True
            same = column.low is column.mean
            apart = apart or not same
            means = column.mean[first:end].tolist()
            lows = means if same else column.low[first:end].tolist()
            highs = means if same else column.high[first:end].tolist()
        low += lows
        mean += means
        high += highs
    return _Values(low, mean, high, apart) if known else None


def _steps(
    name: str, values: _Values, groups: Sequence[tuple[int, int]] | None, counts: Sequence[int]
) -> Iterator[str]:
    """The inside of a :class:`gpuwidget.server.wire.Steps`."""
    low, mean, high, apart = values
    if groups is not None and len(groups) < len(mean):
        mean = [_mean(mean[first:end], counts[first:end]) for first, end in groups]
        low = [min(_known(low[first:end]), default=math.nan) for first, end in groups]
        high = [max(_known(high[first:end]), default=math.nan) for first, end in groups]
        apart = any(one < other for one, other in zip(low, high, strict=True))
    whole = name in BYTES
    yield f'"mean":[{_numbers(mean, whole, _DIGITS if apart else None)}]'
    if apart:
        yield f',"min":[{_numbers(low, whole)}]'
        yield f',"max":[{_numbers(high, whole)}]'
    else:
        yield ',"min":null,"max":null'


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if value == value]  # NaN is not itself.


def _mean(values: Sequence[float], counts: Sequence[int]) -> float:
    total = weight = 0.0
    for value, count in zip(values, counts, strict=True):
        if value == value:
            total += value * count
            weight += count
    return total / weight if weight else math.nan


def _numbers(values: Sequence[float], whole: bool, digits: int | None = None) -> str:
    if whole:
        return inside([None if value != value else int(value) for value in values])
    if digits is None:
        return inside([None if value != value else value for value in values])
    return inside([None if value != value else round(value, digits) for value in values])
