"""Compare the speed of pure Python code in watched cells and in plain cells.

Watching slows the code down whenever gpuwidget's threads hold the GIL. All cells of a kernel do the same
work. Each watched cell runs between two plain cells and is compared with their mean.

The first watched cell of a fresh kernel has a live chart and loads the chart's libraries. It is therefore a
separate case; the benchmark of short cells ignores it. Later watched cells alternate between having a live
chart and having none.

The time from request to reply includes starting and ending the watched run. The time ``inside`` does not: the
cell's code measures only the duration of its work.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import peers
from benchmarks.figures import Figure
from benchmarks.kernels import Kernel, require_live_chart
from benchmarks.settings import Settings, environment, log_progress
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
_began, _own, _all = _time.perf_counter(), _time.thread_time(), _time.process_time()
_busy({rounds})
_seconds, _own, _all = _time.perf_counter() - _began, _time.thread_time() - _own, _time.process_time() - _all
"""
_VALUES = {"seconds": "_seconds", "others": "_all - _own", "waited": "_seconds - _own"}
_REST_S = 3.0
_AT_ONCE = "the first live one, at once after %load_ext (Run All)"
_RESTED = f"the first live one, {_REST_S:g} s after %load_ext"
_LIVE = "with the live chart"
_NOT_LIVE = "without the live chart"
_BARS = {_NOT_LIVE: 1.01, _LIVE: 1.02, _RESTED: 1.02, _AT_ONCE: 1.02}
_KEPT_BARS = {_NOT_LIVE: 1.0, _LIVE: 1.5}
"""Highest acceptable median of :attr:`_Ratios.waited`, in percent."""
_SHORT_S = 2.4
_FIRST_LINES = {None: "", _NOT_LIVE: "%%gpuwatch --no-live\n"}
_ANY_LIVE = "%%gpuwatch\n"


@dataclass(frozen=True)
class _CellTimes:
    """Times of one cell in seconds: ``reply`` from request to reply, ``inside`` of the cell's body alone."""

    reply: float
    inside: float
    others: float
    """CPU time of the kernel's other threads."""
    waited: float
    """Part of the body's time in which the cell's thread waited for the GIL or a CPU."""


@dataclass
class _Ratios:
    """All watched cells of one kind, each compared with the plain cells before and after it.

    ``reply`` and ``inside`` are ratios of times; ``others`` and ``waited`` are differences.
    """

    reply: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    """CPU time of the kernel's other threads in percent of the body's time, minus that percentage in plain
    cells."""
    waited: list[float] = field(default_factory=list)
    """Time in which the body's thread could not run, in percent of the body's time, minus that percentage in
    plain cells. Unlike the ratios ``reply`` and ``inside``, it does not depend on the changing clock rate of
    a shared machine, which causes most of the noise in the ratios.
    """

    def add(self, cell: _CellTimes, before: _CellTimes, after: _CellTimes) -> None:
        self.reply.append(2 * cell.reply / (before.reply + after.reply))
        self.inside.append(2 * cell.inside / (before.inside + after.inside))
        others = (before.others / before.inside + after.others / after.inside) / 2
        self.others.append(100 * (cell.others / cell.inside - others))
        waited = (before.waited / before.inside + after.waited / after.inside) / 2
        self.waited.append(100 * (cell.waited / cell.inside - waited))


def measure_short(settings: Settings) -> Iterator[Figure]:
    """Measure for how long the thread of a 2.4 s cell could not run, with 0, 1 and 8 GPUs."""
    require_live_chart()
    cell = _CELL.format(rounds=_calibrate(_SHORT_S))
    kernels = settings.pick(4, 1)
    folders = {gpus: TemporaryDirectory() for gpus in (0, 1, 8)}
    found = {gpus: {name: _Ratios() for name in (_NOT_LIVE, _LIVE)} for gpus in folders}
    for number in range(kernels):
        log_progress(f"  short cells of pure Python: kernels {number + 1} of {kernels}")
        for gpus in sorted(folders, reverse=bool(number % 2)):
            variables = environment(machine(Path(folders[gpus].name), gpus).environment())
            with Kernel(variables) as kernel:
                _short_cells(kernel, cell, settings.pick(3, 1), found[gpus])
    for gpus, kinds in found.items():
        for name, compared in kinds.items():
            yield _kept_figure(
                "python-short", f"{_SHORT_S:g} s of pure Python, {gpus} GPUs, {name}", name, compared
            )
    for folder in folders.values():
        folder.cleanup()


def _short_cells(kernel: Kernel, cell: str, pairs: int, found: dict[str, _Ratios]) -> None:
    kernel.run(_DEFINE)
    kernel.run("%load_ext gpuwidget")
    # This cell loads the chart's libraries, so it runs before the first comparison.
    _run(kernel, cell, _LIVE, _REST_S)
    before = _run(kernel, cell, None)
    for number in range(pairs):
        for name in sorted(found, reverse=bool(number % 2)):
            watched = _run(kernel, cell, name)
            after = _run(kernel, cell, None)
            found[name].add(watched, before, after)
            before = after


def _kept_figure(benchmark: str, what: str, name: str, compared: _Ratios) -> Figure:
    return Figure(
        benchmark=benchmark,
        what=f"{what}, its thread kept from running",
        unit="%",
        bar=_KEPT_BARS[name],
        values=compared.waited,
        details={"CPU of the kernel's other threads, median % of a core": median(compared.others)},
    )


def measure_one(settings: Settings) -> Iterator[Figure]:
    """Measure pure Python cells with one GPU."""
    return _measure(settings, 1, settings.pick(4, 2))


def measure_eight(settings: Settings) -> Iterator[Figure]:
    """Measure pure Python cells with eight GPUs."""
    return _measure(settings, 8, settings.pick(6, 2))


def _measure(settings: Settings, gpus: int, kernels: int) -> Iterator[Figure]:
    require_live_chart()
    seconds = settings.pick(10, 2)
    cell = _CELL.format(rounds=_calibrate(seconds))
    found = {name: _Ratios() for name in _BARS}
    with TemporaryDirectory() as folder:
        variables = environment(machine(Path(folder), gpus).environment())
        for number in range(kernels):
            log_progress(f"  pure Python, {gpus} GPU(s): kernel {number + 1} of {kernels}")
            with Kernel(variables) as kernel:
                _one_kernel(kernel, cell, number, found)
    for name, bar in _BARS.items():
        compared = found[name]
        for where, values in (("request to reply", compared.reply), ("inside the cell", compared.inside)):
            yield Figure(
                benchmark=f"python-{gpus}",
                what=f"{seconds} s of pure Python, {gpus} GPU{'s' * (gpus > 1)}, {name}, {where}",
                unit="ratio",
                bar=bar,
                values=values,
                details={
                    "CPU of the kernel's other threads, median % of a core": median(compared.others),
                    "the body's thread kept from running, median % of its time": median(compared.waited),
                },
            )
        if name in _KEPT_BARS:
            what = f"{seconds} s of pure Python, {gpus} GPU{'s' * (gpus > 1)}, {name}"
            yield _kept_figure(f"python-{gpus}", what, name, compared)


def _run(kernel: Kernel, cell: str, name: str | None, rest_s: float = 0.2) -> _CellTimes:
    ran = kernel.run(_FIRST_LINES.get(name, _ANY_LIVE) + cell, _VALUES, rest_s=rest_s)
    return _CellTimes(ran.seconds, *(float(ran.values[name]) for name in _VALUES))


def _one_kernel(kernel: Kernel, cell: str, number: int, found: dict[str, _Ratios]) -> None:
    kernel.run(_DEFINE)
    before = _run(kernel, cell, None)
    kernel.run("%load_ext gpuwidget")
    first = _RESTED if number % 2 else _AT_ONCE
    rest = {_RESTED: _REST_S, _AT_ONCE: 0.0}
    later = (_LIVE, _NOT_LIVE) if number // 2 % 2 else (_NOT_LIVE, _LIVE)
    for name in (first, *later):
        watched = _run(kernel, cell, name, rest.get(name, 0.2))
        after = _run(kernel, cell, None)
        found[name].add(watched, before, after)
        before = after


def _calibrate(wanted_s: float) -> int:
    """Return how many iterations of the loop take ``wanted_s`` seconds on this machine."""
    rounds = 1_000_000
    program = f"{_DEFINE}\nimport time\n_busy({rounds})\nt = time.perf_counter()\n_busy({rounds})\n"
    program += "print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return int(rounds * wanted_s / float(done.stdout))


# -- the same with ipyexperiments ----------------------------------------------------------------------


def measure_peer(settings: Settings) -> Iterator[Figure]:
    """Measure cells that ipyexperiments watches, if :func:`peers.find` finds an environment with it."""
    seconds = settings.pick(10, 2)
    what = f"{seconds} s of pure Python, ipyexperiments"
    peer = peers.find("ipyexperiments")
    if peer is None:
        reason = peers.missing("ipyexperiments")
        yield Figure(benchmark="python-peer", what=what, unit="ratio", not_measured=reason)
        return
    cell = _CELL.format(rounds=_calibrate(seconds))
    # This kernel uses the packages of the peer's environment. Its GPU is a real one, if there is one.
    with Kernel(peers.environment({}), peer.python) as kernel:
        kernel.run(_DEFINE)
        backend = kernel.run(_PEER_BACKEND, {"backend": "_backend"}).values["backend"].strip("'")

        def watched() -> tuple[float, float]:
            kernel.run(f"import ipyexperiments; _experiment = ipyexperiments.{backend}()")
            ran = kernel.run(cell, _VALUES)
            kernel.run("_experiment.keep_var_names('_busy', '_seconds'); _ = _experiment.finish()")
            return ran.seconds, float(ran.values["seconds"])

        def plain() -> tuple[float, float]:
            ran = kernel.run(cell, _VALUES)
            return ran.seconds, float(ran.values["seconds"])

        runs = alternating(settings.pick(4, 1), plain, watched)
    for place, where in enumerate(("request to reply", "inside the cell")):
        yield Figure(
            benchmark="python-peer",
            what=f"{what}, {where}",
            unit="ratio",
            values=ratios([(before[place], after[place]) for before, after in runs]),
            details={**peer.versions, "backend": backend},
        )


_PEER_BACKEND = """\
try:
    import torch
    _backend = "IPyExperimentsPytorch" if torch.cuda.is_available() else "IPyExperimentsCPU"
except ImportError:
    _backend = "IPyExperimentsCPU"
"""
