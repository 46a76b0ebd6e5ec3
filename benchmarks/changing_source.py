"""A source of GPU readings that change all the time, for benchmarks of memory growth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gpuwidget.model.clock import Clock
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.metrics import METRICS, keys
from gpuwidget.model.readings import Activity, FastReadings, SlowReadings, StatusReadings
from gpuwidget.model.samples import Gpu, Origin
from gpuwidget.sources import Inventory, UtilizationWindow

_WINDOW_S = 1.0
_WINDOWS = 14


class ChangingSource:
    """A source whose readings differ each time, so that no cache hides a leak."""

    def __init__(self, clock: Clock, gpus: int, pids: Sequence[int]) -> None:
        """``pids`` are the processes that hold memory on each GPU."""
        self._clock = clock
        self.pids = list(pids)
        self._gpus = tuple(
            Gpu(
                uuid=f"GPU-{index:08d}-aaaa-bbbb-cccc-dddddddddddd",
                index=index,
                mig_index=None,
                mig_parent=None,
                name="NVIDIA H200",
                pci_bus_id=f"00000000:{index:02X}:00.0",
                memory_total=1 << 37,
                memory_reserved=0,
                unified_memory=False,
                compute_capability="9.0",
                peak_fp32_flops=66.9e12,
                memory_bandwidth=4.9e12,
            )
            for index in range(gpus)
        )

    def open(self) -> Inventory:
        return Inventory(Origin("nvml", None, None, None, "580.95.05", "13.0"), self._gpus)

    def close(self) -> None:
        """Do nothing."""

    def _wave(self) -> float:
        return math.sin(self._clock.monotonic()) + 1

    def read_fast(self, gpu: Gpu) -> FastReadings:
        """Return values that change with the time."""
        wave = self._wave()
        return FastReadings(
            utilization=50 * wave,
            memory_utilization=40 * wave,
            memory_used=int(wave * 2**36),
            power_w=350 * wave,
            missing={},
        )

    def read_memory(self, gpu: Gpu) -> int | None:
        """Return bytes that change with the time."""
        return int(self._wave() * 2**36)

    def read_processes(self, gpu: Gpu) -> tuple[Process, ...] | None:
        """Return a share of the memory for each process."""
        share = int(self._wave() * 2**35) // max(1, len(self.pids))
        return tuple(Process(pid, "compute", share, "user", "python") for pid in self.pids)

    def read_status(self, gpu: Gpu) -> StatusReadings:
        """Return values that change with the time."""
        values: dict[str, Any] = dict.fromkeys(keys("status"), 40 * self._wave())
        return StatusReadings(**{**values, "pstate": 0}, throttle=(), missing={})

    def read_slow(self, gpu: Gpu) -> SlowReadings:
        """Return an energy counter that grows with the time."""
        return SlowReadings(
            energy_j=700 * self._clock.monotonic(),
            utilization_window=0.2,
            ecc_uncorrected=0,
            xid=None,
            xid_time=None,
            missing={},
        )

    def read_utilization_windows(self, gpu: Gpu) -> tuple[UtilizationWindow, ...]:
        """Return the newest windows, as a driver does."""
        newest = int(self._clock.time() / _WINDOW_S)
        return tuple(
            UtilizationWindow(number * _WINDOW_S, 50 * (math.sin(number) + 1))
            for number in range(newest - _WINDOWS, newest + 1)
        )

    def read_power_samples(self, gpu: Gpu) -> tuple[tuple[float, float], ...]:
        """Return no samples."""
        return ()

    def read_working_processes(self, gpu: Gpu) -> frozenset[int] | None:
        """Return the first process half of the time."""
        return frozenset(self.pids[:1] if self._wave() > 1 else ())

    def read_activity(self, gpu: Gpu) -> Activity | None:
        """Return hardware counters that change with the time."""
        now, wave = self._clock.time(), 50 * self._wave()
        values = {metric.key: wave if metric.kind == "percent" else 0.0 for metric in METRICS}
        return Activity(since=now - 0.5, until=now, **{key: values[key] for key in keys("activity")})

    def rewound(self, clock: Clock) -> None:
        """Return None, because nothing is recorded."""

    def stop_activity(self) -> None:
        """Do nothing."""
