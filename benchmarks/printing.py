"""Compare the time that ``print`` takes in watched cells and in plain cells.

A cell of a kernel prints 100,000 short lines and measures the time. Plain and watched cells alternate.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.figures import Figure
from benchmarks.kernels import Kernel
from benchmarks.settings import Settings, environment

_CELL = """\
import time as _time
_began, _cpu = _time.perf_counter(), _time.thread_time()
for _number in range({prints}):
    print("loss", _number)
_seconds, _cpu = _time.perf_counter() - _began, _time.thread_time() - _cpu
"""
_BAR = 1.2
_FIRST_LINES = {"with the live chart": "%%gpuwatch\n", "without the live chart": "%%gpuwatch --no-live\n"}


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure the ratio of a watched cell's time to the mean of the plain cells before and after it.

    The CPU time of the cell's thread is compared too, because other programs hardly change it.
    """
    cell = _CELL.format(prints=settings.pick(100_000, 10_000))
    ratios: dict[str, list[float]] = {name: [] for name in _FIRST_LINES}
    cpu_ratios: dict[str, list[float]] = {name: [] for name in _FIRST_LINES}
    plain: list[tuple[float, float]] = []
    with Kernel(environment()) as kernel:

        def run(first_line: str = "") -> tuple[float, float]:
            values = kernel.run(first_line + cell, {"seconds": "_seconds", "cpu": "_cpu"}).values
            return float(values["seconds"]), float(values["cpu"])

        kernel.run("%load_ext gpuwidget", rest_s=3.0)
        run("%%gpuwatch\n")
        before = run()
        for _ in range(settings.pick(7, 1)):
            for name, first_line in _FIRST_LINES.items():
                watched, after = run(first_line), run()
                ratios[name].append(2 * watched[0] / (before[0] + after[0]))
                cpu_ratios[name].append(2 * watched[1] / (before[1] + after[1]))
                before = after
                plain.append(after)
    details = {"seconds of the plain cells": [round(seconds, 3) for seconds, _ in plain]}
    for name, values in ratios.items():
        what = f"100,000 prints, {name}"
        yield Figure("printing", what, "ratio", bar=_BAR, values=values, details=details)
        what = f"{what}: CPU time of the cell's thread"
        yield Figure("printing", what, "ratio", bar=_BAR, values=cpu_ratios[name])
