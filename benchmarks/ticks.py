"""Check that resident memory does not grow over a million ticks of the sampler during a run.

``python -m benchmarks.ticks COUNT`` runs COUNT ticks. It prints the process's resident memory at regular
intervals.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from benchmarks.figures import Figure
from benchmarks.programs import run_python
from benchmarks.settings import Settings
from gpuwidget.measure.run import Run
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.metrics import keys
from gpuwidget.model.readings import Activity, FastReadings, SlowReadings, StatusReadings
from gpuwidget.model.samples import Gpu, Origin, Sample
from gpuwidget.sampler import Sampler
from gpuwidget.sources import Inventory, UtilizationWindow

_GPUS = 8
_READINGS = 20
_WARM_UP_READINGS = 2
_FLAT_KIB = 1024
_EPOCH = 1_700_000_000.0


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure how much resident memory grows after the first tenth of the ticks."""
    ticks = settings.pick(1_000_000, 100_000)
    resident = run_python("-m", "benchmarks.ticks", str(ticks))
    settled = resident[_WARM_UP_READINGS]
    yield Figure(
        benchmark="ticks",
        what=f"resident memory grown over {ticks:,} ticks of {_GPUS} GPUs, after the first tenth",
        unit="KiB",
        bar=_FLAT_KIB,
        values=[max(resident[_WARM_UP_READINGS:]) - settled],
        details={"KiB after each twentieth": resident},
    )


class _FastForwardClock:
    """A clock that jumps ahead instead of letting the sampler's fast thread wait. Other threads wait in real
    time."""

    def __init__(self) -> None:
        self._now = 0.0

    def time(self) -> float:
        return _EPOCH + self._now

    def monotonic(self) -> float:
        return self._now

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        if seconds is not None and threading.current_thread().name == "gpuwidget-fast":
            self._now += seconds
        else:
            SYSTEM_CLOCK.wait(condition, 0.05)


class _BusySource:
    """A source of eight GPUs whose readings differ each time, so that no cache hides a leak."""

    def __init__(self, clock: _FastForwardClock) -> None:
        self._clock = clock
        self._gpus = tuple(
            Gpu(
                f"GPU-{index:08d}",
                index,
                None,
                None,
                "NVIDIA H200",
                None,
                1 << 37,
                0,
                False,
                "9.0",
                None,
                None,
            )
            for index in range(_GPUS)
        )

    def open(self) -> Inventory:
        return Inventory(Origin("nvml", None, None, None, "580.95.05", "13.0"), self._gpus)

    def close(self) -> None:
        pass

    def _wave(self) -> float:
        return math.sin(self._clock.monotonic()) + 1

    def read_fast(self, gpu: Gpu) -> FastReadings:
        wave = self._wave()
        return FastReadings(50 * wave, 40 * wave, int(wave * 2**36), 350 * wave, {})

    def read_memory(self, gpu: Gpu) -> int | None:
        return int(self._wave() * 2**36)

    def read_processes(self, gpu: Gpu) -> tuple[Process, ...] | None:
        return (Process(os.getpid(), "compute", int(self._wave() * 2**35), "user", "python", ""),)

    def read_status(self, gpu: Gpu) -> StatusReadings:
        values: dict[str, Any] = dict.fromkeys(keys("status"), 40 * self._wave())
        return StatusReadings(**{**values, "pstate": 0}, throttle=(), missing={})

    def read_slow(self, gpu: Gpu) -> SlowReadings:
        return SlowReadings(700 * self._clock.monotonic(), 0.2, 0, None, None, {})

    def read_utilization_windows(self, gpu: Gpu) -> tuple[UtilizationWindow, ...]:
        """Return no utilization windows."""
        return ()

    def read_working_processes(self, gpu: Gpu) -> frozenset[int] | None:
        """Return None: no subscription of this benchmark reads it."""
        return None

    def read_activity(self, gpu: Gpu) -> Activity | None:
        now, wave = self._clock.time(), 50 * self._wave()
        return Activity(now - 0.5, now, wave, wave, wave, wave, wave, wave, wave, wave, 0.0, 0.0, 0.0, 0.0)

    def stop_activity(self) -> None:
        pass


def _tick(wanted: int) -> list[int]:
    """Return the resident memory in KiB at the start and after each twentieth of ``wanted`` samples."""
    clock = _FastForwardClock()
    sampler = Sampler(_BusySource(clock), clock)
    run = Run(sampler, clock=clock)
    resident: list[int] = []
    done = threading.Event()
    count = 0

    def on_sample(sample: Sample) -> None:
        nonlocal count
        # This runs on the sampler's thread, so no tick occurs during the measurement.
        if count % (wanted // _READINGS) == 0 and len(resident) <= _READINGS:
            run.progress()
            gc.collect()
            resident.append(_resident_kib())
        count += 1
        if len(resident) > _READINGS:
            done.set()

    run.start()
    # The longer the run lasts, the less often it requests memory readings. This subscription requests them at
    # a constant rate, so that ticks stay frequent.
    with sampler.subscribe(on_sample, memory_interval_s=0.05, activity=True):
        done.wait()
    run.end()
    run.report()
    sampler.stop()
    return resident


def _resident_kib() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


if __name__ == "__main__":
    print(json.dumps(_tick(int(sys.argv[1]))))
