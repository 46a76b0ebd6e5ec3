"""A day of a real kernel on a simulated clock, which runs watched cells with the live chart."""

from __future__ import annotations

import os
from ast import literal_eval
from typing import Any
from unittest import mock

from benchmarks.changing_source import ChangingSource
from benchmarks.kernels import Kernel
from benchmarks.settings import environment
from benchmarks.simulated_clock import SimulatedClock
from gpuwidget.model.clock import SYSTEM_CLOCK

_GPUS = 4
_MEASURED_EVERY = 20
_START = "from benchmarks.soak_kernel import start_simulation\nclock = start_simulation()"
_LOAD = "%load_ext gpuwidget\n%gpu watch on"
WATCHED_CELLS = (
    "%%gpuwatch\nimport time\nprint('step')\nclock.advance(19)\ntime.sleep(0.02)\nclock.advance(1)",
    "clock.advance(30)",
    "import gpuwidget\nfound = gpuwidget.holders()\nclock.advance(5)",
    "%%gpuwatch --lines\nfor step in range(5):\n    clock.advance(0.5)\n    print(step)",
    "%gpu memory --cells",
)
"""The cells of one simulated minute, under ``%gpu watch on``."""
PLAIN_CELLS = ("import time\nprint('step')\ntime.sleep(0.02)", "pass", "pass", "print(1)", "pass")
"""As many cells without gpuwidget: IPython itself keeps the source of each cell."""


def start_simulation() -> SimulatedClock:
    """Replace the clock and the source of this kernel, before gpuwidget is loaded. Return the clock."""
    clock = SimulatedClock()
    # gpuwidget's modules have this clock as the default of their parameters.
    mock.patch.multiple(SYSTEM_CLOCK, time=clock.time, monotonic=clock.monotonic, wait=clock.wait).start()
    source = ChangingSource(clock, _GPUS, [os.getpid()])
    mock.patch("gpuwidget.sampler.sampler.open_source", return_value=source).start()
    return clock


def kernel_day(cells: tuple[str, ...], hours: float) -> list[dict[str, Any]]:
    """Run ``cells`` once per minute of ``hours``. Return the kernel's size after every twentieth minute."""
    rows: list[dict[str, Any]] = []
    with Kernel(environment({"GPUWIDGET_SOURCE": "none"})) as kernel:
        kernel.run(_START)
        if cells == WATCHED_CELLS:
            kernel.run(_LOAD)
        kernel.run("from benchmarks.growth import own_size")
        for minute in range(round(60 * hours) + 1):
            if minute % _MEASURED_EVERY == 0:
                size = kernel.run("pass", {"size": "own_size()"}, rest_s=0.3).values["size"]
                rows.append({"hours": minute / 60, **literal_eval(size)})
            for cell in cells:
                kernel.run(cell, rest_s=0.0)
    return rows
