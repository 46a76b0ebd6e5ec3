"""The last hour in steps of a second: of each the lowest, the mean and the highest value that was read."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping

from gpuwidget.server.history_chunks import TICKS, Column, lengthen
from gpuwidget.server.history_metrics import Row

HOUR_S = 3600.0


class Seconds:
    """Up to ``TICKS`` seconds in which something was read."""

    def __init__(self) -> None:
        self.t = array("d")
        """When each began, epoch seconds."""
        self._samples = array("I")
        self.gpus: dict[str, dict[int, Column]] = {}
        """By UUID, then by place in ``QUANTITIES``; a quantity that was never known is not there."""

    def add(self, second: _Second) -> None:
        """One second later than those before."""
        held = len(self.t)
        for uuid, tallies in second.gpus.items():
            columns = self.gpus.setdefault(uuid, {})
            for place, tally in tallies.items():
                column = columns.get(place)
                if column is None:
                    column = columns[place] = Column(array("d"), array("d"), array("d"))
                count, total, low, high = tally
                # What rounding does to a mean must not take it beyond what was read.
                for values, value in zip(
                    column, (low, min(high, max(low, total / count)), high), strict=True
                ):
                    lengthen(values, held)
                    values.append(value)
        self.t.append(second.start)
        self._samples.append(second.samples)

    def seal(self) -> None:
        """No second follows: keep one array where nothing moved within any second."""
        for columns in self.gpus.values():
            for place, column in columns.items():
                for values in column:
                    lengthen(values, len(self.t))
                low, mean, high = (array("d", values) for values in column)
                same = low.tobytes() == high.tobytes()
                columns[place] = Column(mean, mean, mean) if same else Column(low, mean, high)

    def cut(self, length: int) -> None:
        """Forget all seconds but the first ones; others may follow them."""
        if length == len(self.t):
            return
        del self.t[length:], self._samples[length:]
        for columns in self.gpus.values():
            for place, column in columns.items():
                # Three arrays again, also where they were made one.
                low, mean, high = (array("d", values[:length]) for values in column)
                columns[place] = Column(low, mean, high)

    def column(self, uuid: str, place: int) -> Column | None:
        """One quantity of one GPU; None where it was never known."""
        column = self.gpus.get(uuid, {}).get(place)
        if column is not None:
            for values in column:
                lengthen(values, len(self.t))
        return column

    def counts(self) -> array[int]:
        """How many samples each second is made of."""
        return self._samples


class _Second:
    """The second that goes on."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.samples = 0
        self.gpus: dict[str, dict[int, list[float]]] = {}
        """By UUID and place: count, sum, lowest, highest."""

    def add(self, rows: Mapping[str, Row]) -> None:
        self.samples += 1
        for uuid, row in rows.items():
            tallies = self.gpus.setdefault(uuid, {})
            for place, value in enumerate(row):
                if value is None:
                    continue
                tally = tallies.get(place)
                if tally is None:
                    tallies[place] = [1, value, value, value]
                    continue
                tally[0] += 1
                tally[1] += value
                if value < tally[2]:
                    tally[2] = value
                elif value > tally[3]:
                    tally[3] = value


class Hour:
    """Bounded however fast samples come: a second is one step."""

    def __init__(self) -> None:
        self._blocks: deque[Seconds] = deque()
        self._open: _Second | None = None
        self.newest = -math.inf
        """Epoch seconds of the newest sample; before all time where there is none."""

    def add(self, time: float, rows: Mapping[str, Row]) -> None:
        """One moment later than those before."""
        start = math.floor(time)
        if self._open is not None and start > self._open.start:
            self._close(self._open)
            self._open = None
        if self._open is None:
            self._open = _Second(start)
        self._open.add(rows)
        self.newest = time
        while self._blocks and self._blocks[0].t[-1] < time - HOUR_S - 1:
            self._blocks.popleft()

    def drop(self, since: float) -> None:
        """Forget the second of ``since`` (epoch seconds) and all later ones."""
        start = math.floor(since) if math.isfinite(since) else since
        if self._open is not None and self._open.start >= start:
            self._open = None
        while self._blocks and self._blocks[-1].t[0] >= start:
            self._blocks.pop()
        if self._blocks:
            self._blocks[-1].cut(bisect_left(self._blocks[-1].t, start))

    def blocks(self) -> list[Seconds]:
        """All that is held, oldest first, with the second that goes on."""
        if self._open is None:
            return list(self._blocks)
        newest = Seconds()
        newest.add(self._open)
        return [*self._blocks, newest]

    def _close(self, second: _Second) -> None:
        if not self._blocks or len(self._blocks[-1].t) == TICKS:
            if self._blocks:
                self._blocks[-1].seal()
            self._blocks.append(Seconds())
        self._blocks[-1].add(second)
