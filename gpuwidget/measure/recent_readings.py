"""What GPUs read lately in a run that goes on: its beginning, long past, says little of what it does now."""

from __future__ import annotations

from gpuwidget.measure.gpu_totals import Track
from gpuwidget.measure.process_memory import Holding
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Gpu

SPAN_S = 15.0
"""What is handed out covers one to two of these."""


class Recent:
    """One GPU's last 15 to 30 seconds, as a track of their own."""

    def __init__(self, gpu: Gpu, reading: Reading, widest_gap: float, t: float) -> None:
        """Begins ``t`` seconds into the run."""
        self._gpu = gpu
        self._widest_gap = widest_gap
        self._older = self._newer = self._fresh(reading)
        self._older_began = self._newer_began = t

    def add(self, t: float, reading: Reading, holding: Holding, started: float) -> None:
        """A reading ``t`` seconds into the run that began at ``started`` (epoch seconds)."""
        if t - self._newer_began >= SPAN_S:
            self._older, self._older_began = self._newer, self._newer_began
            self._newer, self._newer_began = self._fresh(reading), t
        self._older.add(t - self._older_began, reading, holding, started + self._older_began)
        if self._newer is not self._older:
            self._newer.add(t - self._newer_began, reading, holding, started + self._newer_began)

    def track(self, t: float) -> tuple[Track, float]:
        """The track so far and its length, ``t`` seconds into the run."""
        return self._older, t - self._older_began

    def _fresh(self, reading: Reading) -> Track:
        return Track(self._gpu, reading, self._widest_gap)
