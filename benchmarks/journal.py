"""Measure what the journal of runs costs a watched loop, and how long its list of 10,000 runs takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure
from benchmarks.kernels import Kernel
from benchmarks.settings import Settings, environment
from benchmarks.statistics import alternating, ratios
from benchmarks.training import without_a_gpu
from gpuwidget.journal.folder import new_id
from gpuwidget.journal.machine import machine_state, process_identity
from gpuwidget.journal.records import JournaledRun
from gpuwidget.journal.store import JournalStore
from gpuwidget.measure.run_report import empty_report
from gpuwidget.model.report import Report, RunInfo

_RUNS = 10_000
_NEWEST = 200
_LOOPS = {
    "heavy": ("a training loop of large matrix products", 12.0, 6),
    "launch": ("a launch-bound training loop", 3.0, 24),
}
"""The loops, with their seconds and the number of pairs. Launch-bound loops differ much from run to run."""


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure the list of runs, and loops with and without the journal if torch can use a GPU."""
    yield from _lists(settings)
    for kind in _LOOPS:
        yield _loop(kind, settings)


def _lists(settings: Settings) -> Iterator[Figure]:
    runs, rounds = settings.pick(_RUNS, 200), settings.pick(15, 3)
    with TemporaryDirectory() as folder:
        store = JournalStore(Path(folder) / "runs")
        now = time.time()
        for number in range(runs):
            run = _run(now - number)
            store.write(new_id(run.report.cell.started), run, "ended")
        first = _listed_ms(store.folder, None)
        for most, what in ((_NEWEST, f"the newest {_NEWEST} of {runs:,} runs"), (None, f"all {runs:,} runs")):
            yield Figure(
                benchmark="journal",
                what=f"{what} are listed by a new process",
                unit="ms",
                bar=50.0,
                values=[_listed_ms(store.folder, most) for _ in range(rounds)],
                details={"without the index": first},
            )


def _listed_ms(folder: Path, most: int | None) -> float:
    """Return how many milliseconds a process takes that has read nothing of the journal."""
    began = time.perf_counter()
    JournalStore(folder).rows("ended", most)
    return 1000 * (time.perf_counter() - began)


def _run(started: float) -> JournaledRun:
    report = empty_report(Report, RunInfo(7, "train", started, 60.0, None, "ok"))
    return JournaledRun(
        notebook="/home/ann/projects/experiment/train.ipynb",
        cell_id="0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
        code="0a1b2c3d",
        kernel_id="0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
        process=process_identity(),
        machine=machine_state(started),
        report=report,
    )


def _loop(kind: str, settings: Settings) -> Figure:
    """Compare a watched cell that is in the journal from its start with the same cell without the journal."""
    description, seconds, pairs = _LOOPS[kind]
    seconds, pairs = settings.pick(seconds, 0.5), settings.pick(pairs, 2)
    figure = partial(
        Figure,
        benchmark="journal",
        what=f"{description} of {seconds:g} s, watched, with the journal over without it",
        unit="ratio",
        bar=1.005,
    )
    reason = without_a_gpu()
    if reason is not None:
        return figure(not_measured=reason)
    with TemporaryDirectory() as data:
        variables = {"JUPYTER_DATA_DIR": data, "GPUWIDGET_JOURNAL_SECONDS": "0"}
        with Kernel(environment(variables)) as kernel:
            kernel.run("import os\nfrom benchmarks import training_loops as _loops")
            kernel.run(f"_step = _loops.{kind}(); _steps = _loops.steps_for(_step, {seconds})")
            kernel.run("%load_ext gpuwidget")
            kernel.run("pass", rest_s=3.0)
            cell = "%%gpuwatch\n_ = _loops.loop(_step, _steps)"
            kernel.run(cell)

            def run(journal: str) -> float:
                kernel.run(f"os.environ['GPUWIDGET_JOURNAL'] = '{journal}'")
                return kernel.run(cell).seconds

            runs = alternating(pairs, partial(run, "0"), partial(run, "1"))
        written = len(list(Path(data).glob("gpuwidget/runs/ended/*")))
    return figure(values=ratios(runs), details={"runs in the journal": written})
