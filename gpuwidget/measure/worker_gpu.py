"""Add up what one worker process did on one GPU during a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from gpuwidget.measure.energy import Energy, EnergyMeter
from gpuwidget.measure.gpu_totals import MIN_ENERGY_S, Average
from gpuwidget.model.readings import Reading
from gpuwidget.model.report import Span

_MAX_WINDOW_S = 1.0


@dataclass(slots=True)
class WorkerGpu:
    """One GPU of a worker: the process's memory and the GPU's activity while the process used it."""

    max_gap_s: float
    start: int | None
    """Bytes at the run's start, or 0 if the process used the GPU only later."""
    since: float
    """Seconds into the run from which the GPU's activity counts."""
    now: int | None = None
    peak: int | None = None
    sizes_known: bool = True
    shared: bool = False
    """Whether another process has used the GPU at the same time."""
    present: bool = True
    """Whether the process is in the GPU's newest process list."""
    until: float | None = None
    """When the process was last in the process list, in seconds into the run."""
    utilization: Average = field(default_factory=Average)
    meter: EnergyMeter = field(init=False)
    last_t: float | None = None

    def __post_init__(self) -> None:
        self.meter = EnergyMeter(self.max_gap_s, self.since)

    def add_memory(self, t: float, size: int | None, alone: bool) -> None:
        """Add the memory of the process, read ``t`` seconds into the run. ``size`` is None if it is unknown.

        ``alone`` is whether the process was the only one on the GPU.
        """
        self.present, self.until = True, t
        self.sizes_known = self.sizes_known and size is not None
        self.now = size
        if size is not None:
            self.peak = max(size, self.peak or 0)
        self.shared = self.shared or not alone

    def add_rates(self, t: float, reading: Reading) -> None:
        """Add the GPU's utilization and power, read ``t`` seconds into the run."""
        last, self.last_t = self.last_t, t
        self.meter.add(t, reading.power_w)
        # The reading covers the driver's latest window, which must lie inside the time of the process.
        if last is not None and t - self.since >= 2 * (reading.utilization_window or _MAX_WINDOW_S):
            self.utilization.add(reading.utilization, t - last)

    def memory(self) -> Span | None:
        """Return the memory of the process, or None if any of its sizes is unknown."""
        if not self.sizes_known or self.peak is None:
            return None
        return Span(self.start, self.now if self.present else 0, self.peak)

    def energy(self) -> Energy | None:
        """Return the energy that the GPU drew while the process used it, or None if too little is known.

        Its error includes the energy of the time in which the power is unknown.
        """
        seconds = (self.last_t or 0.0) - self.since
        energy = self.meter.energy()
        if seconds < MIN_ENERGY_S or energy.known_s < 0.9 * seconds:
            return None
        unknown = max(0.0, seconds - energy.known_s) * (energy.mean_w or 0.0)
        return replace(energy, error_j=math.hypot(energy.error_j, unknown))
