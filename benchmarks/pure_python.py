"""Ten seconds of pure Python in a watched cell over the same in a plain one: what keeps the GIL shows here.

Each kernel is fresh and runs cells of the same work: a first one with a live chart, then one with and one
without a chart, and plain ones between, in orders that take turns. ``inside`` is timed by the cell itself:
without what happens before its first statement and after its last.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure
from benchmarks.kernels import Kernel
from benchmarks.settings import Settings, complain, environment
from benchmarks.standin import machine
from benchmarks.statistics import alternating, median, ratios

_DEFINE = """\
def _busy(rounds):
    total = 0
    for number in range(rounds):
        total += number * number & 1023
    return total
"""
_CELL = """\
import time as _time
_began = _time.perf_counter()
_busy({rounds})
_seconds = _time.perf_counter() - _began
"""
_INSIDE = {"inside": "_seconds"}
_REST_S = 3.0
_LIVE, _NOT_LIVE = "%%gpuwatch\n", "%%gpuwatch --no-live\n"
_PEER_VARIABLE = "GPUWIDGET_BENCH_PEER_PYTHON"


@dataclass
class _Ratios:
    """Over the plain cells of the same kernel."""

    reply: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)


def measure_one(settings: Settings) -> Iterator[Figure]:
    """With one GPU."""
    return _measure(settings, 1)


def measure_eight(settings: Settings) -> Iterator[Figure]:
    """With eight GPUs."""
    return _measure(settings, 8)


def _measure(settings: Settings, gpus: int) -> Iterator[Figure]:
    seconds = settings.pick(10, 2)
    rounds = _calibrate(seconds)
    found: dict[str, _Ratios] = {}
    with TemporaryDirectory() as folder:
        variables = environment(machine(Path(folder), gpus).environment())
        for number in range(settings.pick(6, 2)):
            complain(f"  pure Python, {gpus} GPU(s): kernel {number + 1}")
            with Kernel(variables) as kernel:
                _one_kernel(kernel, _CELL.format(rounds=rounds), number, found)
    for name, bar in (
        ("without the live chart", 1.01),
        ("with the live chart", 1.02),
        (f"the first live one, {_REST_S:g} s after %load_ext", 1.02),
        ("the first live one, at once after %load_ext (Run All)", 1.02),
    ):
        for where, values in (
            ("request to reply", found[name].reply),
            ("inside the cell", found[name].inside),
        ):
            what = f"{seconds} s of pure Python, {gpus} GPU{'s' * (gpus > 1)}, {name}, {where}"
            yield Figure(benchmark=f"python-{gpus}", what=what, unit="ratio", bar=bar, values=values)


def _one_kernel(kernel: Kernel, cell: str, number: int, found: dict[str, _Ratios]) -> None:
    at_once = number % 2 == 0
    plain_first = number // 2 % 2 == 0
    kernel.run(_DEFINE)
    plain: list[tuple[float, float]] = []
    watched: dict[str, tuple[float, float]] = {}

    def run(first_line: str, rest_s: float = 0.2) -> tuple[float, float]:
        ran = kernel.run(first_line + cell, _INSIDE, rest_s=rest_s)
        return ran.seconds, float(ran.values["inside"])

    if plain_first:
        plain.append(run(""))
    kernel.run("%load_ext gpuwidget")
    first = (
        "the first live one, at once after %load_ext (Run All)"
        if at_once
        else f"the first live one, {_REST_S:g} s after %load_ext"
    )
    watched[first] = run(_LIVE, rest_s=0.0 if at_once else _REST_S)
    plain.append(run(""))
    order = (("with the live chart", _LIVE), ("without the live chart", _NOT_LIVE))
    for name, line in order if plain_first else order[::-1]:
        watched[name] = run(line)
        plain.append(run(""))
    for name, (reply, inside) in watched.items():
        entry = found.setdefault(name, _Ratios())
        entry.reply.append(reply / median([seconds for seconds, _ in plain]))
        entry.inside.append(inside / median([seconds for _, seconds in plain]))


def _calibrate(wanted_s: float) -> int:
    """Rounds of the loop that take ``wanted_s`` seconds here."""
    rounds = 1_000_000
    program = f"{_DEFINE}\nimport time\n_busy({rounds})\nt = time.perf_counter()\n_busy({rounds})\n"
    program += "print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return int(rounds * wanted_s / float(done.stdout))


# -- the peer ------------------------------------------------------------------------------------------


def measure_peer(settings: Settings) -> Iterator[Figure]:
    """The same with ipyexperiments, where the interpreter that GPUWIDGET_BENCH_PEER_PYTHON names has it."""
    python = os.environ.get(_PEER_VARIABLE, sys.executable)
    seconds = settings.pick(10, 2)
    what = f"{seconds} s of pure Python, ipyexperiments"
    probe = "import ipyexperiments, importlib.metadata as m; print(m.version('ipyexperiments'))"
    found = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=False)
    if found.returncode:
        reason = f"ipyexperiments can't be imported; {_PEER_VARIABLE} may name a Python that has it"
        yield Figure(benchmark="python-peer", what=what, unit="ratio", not_measured=reason)
        return
    cell = _CELL.format(rounds=_calibrate(seconds))
    # Not the checkout's environment: the peer's has what it needs, and the driver's GPU where there is one.
    with Kernel(dict(os.environ), python) as kernel:
        kernel.run(_DEFINE)
        backend = kernel.run(_PEER_BACKEND, {"backend": "_backend"}).values["backend"].strip("'")

        def watched() -> tuple[float, float]:
            kernel.run(f"import ipyexperiments; _experiment = ipyexperiments.{backend}()")
            ran = kernel.run(cell, _INSIDE)
            kernel.run("_experiment.keep_var_names('_busy', '_seconds'); _ = _experiment.finish()")
            return ran.seconds, float(ran.values["inside"])

        def plain() -> tuple[float, float]:
            ran = kernel.run(cell, _INSIDE)
            return ran.seconds, float(ran.values["inside"])

        runs = alternating(settings.pick(4, 1), plain, watched)
    for place, where in enumerate(("request to reply", "inside the cell")):
        yield Figure(
            benchmark="python-peer",
            what=f"{what}, {where}",
            unit="ratio",
            values=ratios([(before[place], after[place]) for before, after in runs]),
            details={"version": found.stdout.strip(), "backend": backend},
        )


_PEER_BACKEND = """\
try:
    import torch
    _backend = "IPyExperimentsPytorch" if torch.cuda.is_available() else "IPyExperimentsCPU"
except ImportError:
    _backend = "IPyExperimentsCPU"
"""
