"""Measure ``%load_ext gpuwidget`` in a running kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure
from benchmarks.kernels import Kernel
from benchmarks.settings import Settings, environment
from benchmarks.standin import machine
from benchmarks.statistics import median

_GPUS = 8
_PLAIN_CELLS = 5


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure the time to the reply of ``%load_ext``, minus the time of a ``pass`` cell.

    Each measurement uses a fresh kernel, because loading the extension a second time is cheaper.
    """
    values = []
    with TemporaryDirectory() as folder:
        variables = environment(machine(Path(folder), _GPUS).environment())
        for _ in range(settings.pick(20, 3)):
            with Kernel(variables) as kernel:
                plain = median([kernel.run("pass").seconds for _ in range(_PLAIN_CELLS)])
                values.append((kernel.run("%load_ext gpuwidget").seconds - plain) * 1e3)
    yield Figure(
        benchmark="load",
        what="%load_ext gpuwidget in a running kernel, over pass",
        unit="ms",
        bar=150,
        values=values,
    )
