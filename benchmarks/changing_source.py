"""A source of GPU readings that change all the time, for benchmarks of memory growth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gpuwidget.model.clock import Clock
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.metrics import GROUPS, METRICS, Group
from gpuwidget.model.readings import Activity
from gpuwidget.model.samples import Gpu, Origin
from gpuwidget.sources import GroupReading, Inventory, UtilizationWindow

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
        return Inventory(Origin("nvml", None, None, "580.95.05", "13.0"), self._gpus)

    def close(self) -> None:
        """Do nothing."""

    def _wave(self) -> float:
        return math.sin(self._clock.monotonic()) + 1

    def read(self, gpu: Gpu, group: Group) -> GroupReading:
        """Return values that change with the time."""
        return GroupReading({key: self._value(key) for key in GROUPS[group]}, {})

    def _value(self, key: str) -> Any:
        now, wave = self._clock.time(), self._wave()
        match key:
            case "memory_used":
                return int(wave * 2**36)
            case "power_w":
                return 350 * wave
            case "pstate" | "ecc_uncorrected":
                return 0
            case "energy_j":
                return 700 * self._clock.monotonic()
            case "utilization_window":
                return 0.2
            case "xid":
                return None
            case "throttle" | "power_samples":
                return ()
            case "processes":
                share = int(wave * 2**35) // max(1, len(self.pids))
                return tuple(Process(pid, "compute", share, "user", "python") for pid in self.pids)
            case "working_processes":
                return frozenset(self.pids[:1] if wave > 1 else ())
            case "windows":
                newest = int(now / _WINDOW_S)
                return tuple(
                    UtilizationWindow(number * _WINDOW_S, 50 * (math.sin(number) + 1))
                    for number in range(newest - _WINDOWS, newest + 1)
                )
            case "activity":
                counters = {
                    metric.key: 50 * wave if metric.kind == "percent" else 0.0
                    for metric in METRICS
                    if metric.group == "activity"
                }
                return Activity(since=now - 0.5, until=now, **counters)
        return 40 * wave

    def rewound(self, clock: Clock) -> None:
        """Return None, because nothing is recorded."""

    def stop_activity(self) -> None:
        """Do nothing."""
