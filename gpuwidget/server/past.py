"""The last minutes at full rate, bounded, and ready to be sent without a second look at each value."""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from gpuwidget.samples import Reading, Sample

QUANTITIES = ("utilization", "memory_used", "power_w")

_TICKS = 64
"""Ticks of a block. Whole blocks are let go of, so that up to so many more than asked for are held."""
_FASTEST = 0.9
"""The sampler gives a tenth of grace: ticks may follow each other by this share of the interval."""
_TIME = ("", 0)


class Past:
    """Utilization, memory and power of every GPU over the last ``seconds``, read every ``interval_s``.

    Values are held in blocks of arrays, 8 bytes each, beside the text of every full block, so that who comes
    late gets all of it in a millisecond. GPUs may come and go. One thread only.
    """

    def __init__(self, seconds: float, interval_s: float) -> None:
        self._seconds = seconds
        self._most = math.ceil(seconds / (interval_s * _FASTEST) / _TICKS) + 1
        self._blocks: deque[_Block] = deque()

    def __len__(self) -> int:
        return sum(len(block.t) for block in self._blocks)

    def add(self, sample: Sample) -> None:
        """Take up the newest sample, and let go of what is too old."""
        if self._blocks and sample.time <= self._blocks[-1].t[-1]:
            # The system's clock was set back: what was before can't be placed on the new time.
            self._blocks.clear()
        if not self._blocks or len(self._blocks[-1].t) == _TICKS:
            if self._blocks:
                self._blocks[-1].seal()
            self._blocks.append(_Block())
        self._blocks[-1].add(sample.time, sample.readings)
        while len(self._blocks) > self._most or self._blocks[0].t[-1] < sample.time - self._seconds:
            self._blocks.popleft()

    def encoded(self, since: float) -> str:
        """The :class:`gpuwidget.server.wire.History` from ``since`` (epoch seconds) on, as JSON."""
        parts = [(block, block.first(since)) for block in self._blocks if block.t[-1] >= since]
        # Those of the newest block first: it has the order of the driver's own list.
        uuids = dict.fromkeys(uuid for block, _ in reversed(parts) for uuid in block.columns)
        gpus = []
        for uuid in uuids:
            columns = [
                f'"{name}":[{",".join(block.values(uuid, place, first) for block, first in parts)}]'
                for place, name in enumerate(QUANTITIES)
            ]
            gpus.append(f'{{"uuid":{json.dumps(uuid)},{",".join(columns)}}}')
        times = ",".join(block.times(first) for block, first in parts)
        return f'{{"t":[{times}],"gpus":[{",".join(gpus)}]}}'


class _Block:
    """Up to ``_TICKS`` ticks, and their text once there are so many."""

    def __init__(self) -> None:
        self.t = array("d")
        self.columns: dict[str, tuple[array[float], ...]] = {}
        self._texts: dict[tuple[str, int], str] = {}

    def add(self, time: float, readings: Sequence[Reading]) -> None:
        for reading in readings:
            if reading.uuid not in self.columns:
                unknown = [math.nan] * len(self.t)
                self.columns[reading.uuid] = tuple(array("d", unknown) for _ in QUANTITIES)
            for column, name in zip(self.columns[reading.uuid], QUANTITIES, strict=True):
                value = getattr(reading, name)
                column.append(math.nan if value is None else value)
        self.t.append(time)
        for columns in self.columns.values():
            for column in columns:
                if len(column) < len(self.t):  # This GPU has gone.
                    column.append(math.nan)

    def seal(self) -> None:
        """No tick follows: make the text of all."""
        self._texts[_TIME] = self.times(0)
        for uuid in self.columns:
            for place in range(len(QUANTITIES)):
                self._texts[uuid, place] = self.values(uuid, place, 0)

    def first(self, since: float) -> int:
        """The first tick at or after ``since``."""
        return bisect_left(self.t, since)

    def times(self, first: int) -> str:
        """The times from that tick on, as the inside of a JSON list."""
        if not first and _TIME in self._texts:
            return self._texts[_TIME]
        return _inside([round(time, 3) for time in self.t[first:]])

    def values(self, uuid: str, place: int, first: int) -> str:
        """A GPU's values of one quantity from that tick on, as the inside of a JSON list."""
        if not first and (uuid, place) in self._texts:
            return self._texts[uuid, place]
        if uuid not in self.columns:
            return _inside([None] * (len(self.t) - first))
        whole = QUANTITIES[place] == "memory_used"
        values = self.columns[uuid][place][first:]
        return _inside(
            [(int(value) if whole else value) if math.isfinite(value) else None for value in values]
        )


def _inside(values: Sequence[float | None]) -> str:
    return json.dumps(values, separators=(",", ":"))[1:-1]
