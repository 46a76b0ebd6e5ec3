"""Measure the CPU time that sampling takes, in a process that does nothing else.

``python -m benchmarks.sampling WINDOWS`` prints the share of a CPU core that sampling took in each window.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.figures import Figure
from benchmarks.programs import run_python
from benchmarks.settings import Settings
from benchmarks.standin import machine

_GPUS = 8
_BAR = 0.5
_WINDOW_S = 10.0
_WINDOWS = 6
"""Number of windows, which together take one minute. The sampler makes its slowest calls once per minute, so
only one of the windows contains them."""
_SETTLE_S = 2.0


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure on eight stand-in GPUs, once with slow calls that sleep and once with slow calls that spin.
    Then measure on the real GPUs, if there are any."""
    windows = settings.pick(_WINDOWS, 1)
    with TemporaryDirectory() as folder:
        for spun, how in ((False, "slow calls wait"), (True, "slow calls spin, an upper bound")):
            found = _sample_in_a_process(windows, machine(Path(folder), _GPUS, spun=spun).environment())
            yield _figure(f"CPU of a core for {_GPUS} GPUs at 5 Hz, {how}", found, bar=_BAR)
    found = _sample_in_a_process(windows, {})
    what = "CPU of a core for this machine's real GPUs at 5 Hz"
    if not found["gpus"]:
        reason = "no NVIDIA driver with a GPU answers here"
        yield Figure(benchmark="sampling", what=what, unit="%", not_measured=reason)
    else:
        yield _figure(what, found, bar=None)


def _figure(what: str, found: Mapping[str, Any], bar: float | None) -> Figure:
    mean = fmean(found["shares"])
    details = {
        "GPUs": found["gpus"],
        "samples a second": found["rate"],
        f"% in each window of {_WINDOW_S:g} s": found["shares"],
    }
    if found["gpus"] != _GPUS:
        details[f"% if each of {_GPUS} GPUs took as much"] = mean * _GPUS / found["gpus"]
    # The value is the mean of the windows. Their median would exclude the cost of the slowest calls, because
    # only one window contains these calls.
    return Figure(benchmark="sampling", what=what, unit="%", bar=bar, values=[mean], details=details)


def _sample_in_a_process(windows: int, variables: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = run_python("-m", "benchmarks.sampling", str(windows), variables=variables)
    return found


def _sample(windows: int) -> dict[str, Any]:
    from gpuwidget.sampler import process_sampler

    sampler = process_sampler()
    taken = 0

    def count(sample: object) -> None:
        nonlocal taken
        taken += 1

    with sampler.subscribe(count):
        sampler.wait_until_open(10.0)
        if not sampler.known_gpus:
            return {"gpus": 0, "shares": [], "rate": 0.0}
        time.sleep(_SETTLE_S)
        shares = []
        taken, began = 0, time.perf_counter()
        for _ in range(windows):
            before, at = time.process_time(), time.perf_counter()
            time.sleep(_WINDOW_S)
            shares.append(100 * (time.process_time() - before) / (time.perf_counter() - at))
        rate = taken / (time.perf_counter() - began)
    return {"gpus": len(sampler.known_gpus), "shares": shares, "rate": rate}


if __name__ == "__main__":
    print(json.dumps(_sample(int(sys.argv[1]))))
