"""Pieces of the past: some moments of all GPUs in arrays, 8 bytes a value, and only where one was known."""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpuwidget.server.history_metrics import PLACES, Row

TICKS = 64
"""Moments of a block. Whole blocks are let go of, so that up to so many more than asked for are held."""
TOLD = ("utilization", "memory_used", "power_w")
"""What every client is told of the past: held as text too."""
_TIME = ("", "")


class Column(NamedTuple):
    """Values of one quantity of one GPU, one for each moment; NaN is unknown.

    Where nothing happened between two moments the three are one and the same array.
    """

    low: array[float]
    mean: array[float]
    high: array[float]


class Block:
    """Up to ``TICKS`` moments at full rate, and then the text of what every client is told."""

    def __init__(self) -> None:
        self.t = array("d")
        self.gpus: dict[str, dict[int, array[float]]] = {}
        """By UUID, then by place in ``QUANTITIES``; a quantity that was never known is not there."""
        self._texts: dict[tuple[str, str], str] = {}

    def __len__(self) -> int:
        return len(self.t)

    def add(self, time: float, rows: Mapping[str, Row]) -> None:
        """One moment later than those before."""
        held = len(self.t)
        for uuid, row in rows.items():
            columns = self.gpus.setdefault(uuid, {})
            for place, value in enumerate(row):
                if value is None:
                    continue
                column = columns.get(place)
                if column is None:
                    column = columns[place] = array("d")
                lengthen(column, held)
                column.append(value)
        self.t.append(time)

    def seal(self) -> None:
        """No moment follows: make the text of all."""
        for columns in self.gpus.values():
            for place, column in columns.items():
                lengthen(column, len(self.t))
                columns[place] = array("d", column)  # Without the room that an array keeps for more.
        self._texts[_TIME] = self.times(0)
        for uuid in self.gpus:
            for name in TOLD:
                self._texts[uuid, name] = self.values(uuid, name, 0)

    def cut(self, length: int) -> None:
        """Forget all moments but the first ones; others may follow them."""
        if length == len(self.t):
            return
        self._texts.clear()
        del self.t[length:]
        for columns in self.gpus.values():
            for column in columns.values():
                del column[length:]

    def column(self, uuid: str, place: int) -> Column | None:
        """One quantity of one GPU; None where it was never known."""
        column = self.gpus.get(uuid, {}).get(place)
        if column is None:
            return None
        lengthen(column, len(self.t))
        return Column(column, column, column)

    def counts(self) -> list[int]:
        """How many samples each moment is made of: one."""
        return [1] * len(self.t)

    def first(self, since: float) -> int:
        """The first moment at or after ``since``."""
        return bisect_left(self.t, since)

    def times(self, first: int) -> str:
        """The times from that moment on, as the inside of a JSON list."""
        if not first and _TIME in self._texts:
            return self._texts[_TIME]
        return inside([round(time, 3) for time in self.t[first:]])

    def values(self, uuid: str, name: str, first: int) -> str:
        """A GPU's values of one of ``TOLD`` from that moment on, as the inside of a JSON list."""
        if not first and (uuid, name) in self._texts:
            return self._texts[uuid, name]
        column = self.column(uuid, PLACES[name])
        if column is None:
            return inside([None] * (len(self.t) - first))
        whole = name == "memory_used"
        return inside(
            [None if math.isnan(value) else int(value) if whole else value for value in column.mean[first:]]
        )


def lengthen(column: array[float], length: int) -> None:
    """Fill up with unknown: this GPU, or this quantity of it, was not there."""
    if len(column) < length:
        column.extend([math.nan] * (length - len(column)))


def inside(values: Sequence[float | None]) -> str:
    """The inside of a JSON list."""
    return json.dumps(values, separators=(",", ":"))[1:-1]
