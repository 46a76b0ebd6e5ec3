"""Measure the time of ``import gpuwidget`` in a bare Python process, and list the modules that it loads."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

from benchmarks.figures import Figure
from benchmarks.settings import Settings, environment
from benchmarks.statistics import alternating

_MAY_NOT_LOAD = ("torch", "bqplot", "pandas", "IPython", "ipywidgets", "tornado", "pynvml")
_LIST_MODULES = "import gpuwidget, json, sys; print(json.dumps(sorted(sys.modules)))"


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure how many milliseconds longer a Python process runs if it imports gpuwidget."""
    bare, with_import = partial(_run, "pass"), partial(_run, "import gpuwidget")
    for warm_up in (bare, with_import):
        warm_up()
    pairs = alternating(settings.pick(150, 15), bare, with_import)
    loaded = json.loads(_output(_LIST_MODULES))
    bare_modules = json.loads(_output(_LIST_MODULES.replace("gpuwidget, ", "")))
    yield Figure(
        benchmark="import",
        what="import gpuwidget over bare Python",
        unit="ms",
        bar=30,
        values=[(after - before) * 1e3 for before, after in pairs],
        conditions={f"loads none of {', '.join(_MAY_NOT_LOAD)}": not set(_MAY_NOT_LOAD).intersection(loaded)},
        details={"modules loaded beyond bare Python's": sorted(set(loaded) - set(bare_modules))},
    )


def _run(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True)
    return time.perf_counter() - began


def _output(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment(), check=True, capture_output=True, text=True).stdout
