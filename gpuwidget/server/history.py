"""The past of every GPU, bounded: minutes at full rate, ready to be sent, and an hour by seconds."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator, Mapping

from gpuwidget.model.samples import Sample
from gpuwidget.server.history_chunks import TICKS, TOLD, Block
from gpuwidget.server.history_metrics import Row, row
from gpuwidget.server.hourly_rollup import Hour
from gpuwidget.server.time_series import Asked, fitting_step, told

_FASTEST = 0.9
"""The sampler gives a tenth of grace: ticks may follow each other by this share of the interval."""


_LITTLE_S = 60.0
"""As a clock is set that was a little wrong, and not one that had another time altogether."""


class Past:
    """Every quantity of every GPU: ``seconds`` as read every ``interval_s``, and an hour by seconds.

    What every client starts with is held as text too, so that who comes late gets all of it in a millisecond.
    GPUs may come and go. One thread only.
    """

    def __init__(self, seconds: float, interval_s: float) -> None:
        self._interval_s = interval_s
        self._full = FullRate(seconds, interval_s)
        self._hour = Hour()

    def __len__(self) -> int:
        return len(self._full)

    def add(self, sample: Sample) -> None:
        """Take up the newest sample, and let go of what is too old."""
        if sample.time <= self._full.newest:
            # The system's clock was set back. A little: only what lies after the new time has no place on it.
            # Far back: all that was before can't be placed on the new time.
            little = self._full.newest - sample.time <= _LITTLE_S
            since = sample.time if little else -math.inf
            self._full.drop(since)
            self._hour.drop(since)
        rows = {reading.uuid: row(reading) for reading in sample.readings}
        self._full.add(sample.time, rows)
        self._hour.add(sample.time, rows)

    def encoded(self, since: float) -> str:
        """The :class:`gpuwidget.server.wire.History` from ``since`` (epoch seconds) on, as JSON."""
        return self._full.encoded(since)

    def course(self, asked: Asked) -> Iterator[str]:
        """The :class:`gpuwidget.server.wire.Course` that is asked for as JSON, in small pieces."""
        full = list(self._full.blocks)
        seconds = self._hour.blocks()
        # Of what was read before the first second that is held, nothing is known at any rate.
        whole = not full or full[0].t[0] <= max(asked.since, seconds[0].t[0] + 1)
        samples = sum(block.first(asked.until) - block.first(asked.since) for block in full)
        step = fitting_step(asked, full_rate=whole, samples=samples, interval_s=self._interval_s)
        return told(full if step < 1 else seconds, asked, step, self._hour.newest)


class FullRate:
    """The last ``seconds``, in blocks; faster ticks than every ``interval_s`` are no more of them."""

    def __init__(self, seconds: float, interval_s: float) -> None:
        self.blocks: deque[Block] = deque()
        self._seconds = seconds
        self._most = math.ceil(seconds / (interval_s * _FASTEST) / TICKS) + 1

    def __len__(self) -> int:
        return sum(len(block) for block in self.blocks)

    @property
    def newest(self) -> float:
        """Epoch seconds of the newest tick; before all time where there is none."""
        return self.blocks[-1].t[-1] if self.blocks else -math.inf

    def drop(self, since: float) -> None:
        """Forget what was read at ``since`` (epoch seconds) and later."""
        while self.blocks and self.blocks[-1].t[0] >= since:
            self.blocks.pop()
        if self.blocks:
            self.blocks[-1].cut(self.blocks[-1].first(since))

    def add(self, time: float, rows: Mapping[str, Row]) -> None:
        """One tick later than those before."""
        if not self.blocks or len(self.blocks[-1]) == TICKS:
            if self.blocks:
                self.blocks[-1].seal()
            self.blocks.append(Block())
        self.blocks[-1].add(time, rows)
        while len(self.blocks) > self._most or self.blocks[0].t[-1] < time - self._seconds:
            self.blocks.popleft()

    def encoded(self, since: float) -> str:
        """The :class:`gpuwidget.server.wire.History` from ``since`` on."""
        parts = [(block, block.first(since)) for block in self.blocks if block.t[-1] >= since]
        # Those of the newest block first: it has the order of the driver's own list.
        uuids = dict.fromkeys(uuid for block, _ in reversed(parts) for uuid in block.gpus)
        gpus = []
        for uuid in uuids:
            columns = [
                f'"{name}":[{",".join(block.values(uuid, name, first) for block, first in parts)}]'
                for name in TOLD
            ]
            gpus.append(f'{{"uuid":{json.dumps(uuid)},{",".join(columns)}}}')
        times = ",".join(block.times(first) for block, first in parts)
        return f'{{"t":[{times}],"gpus":[{",".join(gpus)}]}}'
