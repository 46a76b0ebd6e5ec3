"""Check that resident memory does not grow over a million ticks of the sampler during a run.

``python -m benchmarks.ticks COUNT`` runs COUNT ticks. It prints the process's resident memory at regular
intervals.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from collections.abc import Iterator

from benchmarks.changing_source import ChangingSource
from benchmarks.figures import Figure
from benchmarks.programs import run_python
from benchmarks.settings import Settings
from gpuwidget.measure.run import Run
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.samples import Sample
from gpuwidget.sampler import Sampler

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


def _tick(wanted: int) -> list[int]:
    """Return the resident memory in KiB at the start and after each twentieth of ``wanted`` samples."""
    clock = _FastForwardClock()
    sampler = Sampler(ChangingSource(clock, _GPUS, [os.getpid()]), clock)
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
