"""The last minute of every GPU's memory, kept by the way while somebody samples for another reason."""

from __future__ import annotations

from collections import deque

from gpuwidget.model.samples import Sample

WINDOW_S = 60.0
_SPACING_S = 0.25


class Recent:
    """Memory in use by GPU, as far back as a minute; nothing where nobody sampled."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float, dict[str, int | None]]] = deque(maxlen=round(WINDOW_S / _SPACING_S))

    def add(self, sample: Sample) -> None:
        """Take up a sample."""
        row = {reading.uuid: reading.memory_used for reading in sample.readings}
        if self._rows and sample.time - self._rows[-1][0] < _SPACING_S:
            return
        self._rows.append((sample.time, row))

    def memory(self, uuid: str, now: float) -> tuple[tuple[float, int | None], ...]:
        """Seconds before ``now``, and bytes in use of that GPU, the oldest first."""
        return tuple(
            (now - time, row.get(uuid)) for time, row in tuple(self._rows) if 0 <= now - time <= WINDOW_S
        )
