"""Run random schedules of faults against a kernel and a server, and check that gpuwidget stays harmless.

Each seed gives one schedule: a watched cell with a live chart, and faults that happen before and while it
runs. The driver is the tests' stand-in for NVML. Most schedules run on the same kernel and server, so that
what one leaves behind shows in the next. ``python -m benchmarks faults --seeds 100 --from 500`` runs the
seeds from 500 to 599. Filling the kernel's /dev/shm needs root.

Start with ``schedules.py``, which makes a schedule from a seed, and ``bench.py``, which runs it. ``cells.py``
has the cells, and ``checks.py`` the promises. ``driver.py`` controls the stand-in, ``services.py`` the server
and the kernel, and ``streams.py`` the clients. ``instrumentation.py`` runs in the server and in the kernel.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from benchmarks.faults.bench import Bench, Resources
from benchmarks.faults.schedules import KINDS, schedule
from benchmarks.figures import Figure
from benchmarks.settings import Settings, log_progress

_SETTLE_EVERY = 20
"""After this many seeds, :meth:`Bench.settle` checks that nothing is left of the faults."""
_WARM_UP = 40
"""Schedules after the first :meth:`Bench.settle` in a kernel from which on the growth of memory is measured.
Before, caches fill and modules are imported."""
_MAX_GROWTH_KIB = 64.0
_LOG_EVERY = 50
_MAX_PROBLEM = 200
"""The number of characters of a problem in the results."""
_NOTABLE_DELAY_S = 2.0
_MIB = 1 << 20


@dataclass
class _Totals:
    """What the schedules have shown so far."""

    seeds: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    failed: dict[int, list[str]] = field(default_factory=dict)
    """What was wrong, by seed."""
    delays_ms: list[float] = field(default_factory=list)
    lives: list[list[tuple[int, Resources]]] = field(default_factory=list)
    """One list per kernel: what it and the server used, each with the number of seeds until then."""
    lost_replies: int = 0
    at_end: list[str] | None = None
    """What was still running at the end; None if the run ended before this check."""


def measure(settings: Settings) -> Iterator[Figure]:
    """Run the seeds, and yield the delays of the cells, the failures, and the growth of memory.

    An interrupt ends the run, and so does a kernel or server that no longer replies. The results are those of
    the seeds that are done.
    """
    seeds = range(settings.first_seed, settings.first_seed + (settings.seeds or settings.pick(200, 10)))
    totals = _Totals()
    began = time.monotonic()
    with TemporaryDirectory() as folder, Bench(Path(folder)) as bench:
        private_shm = bench.private_shm
        try:
            _run(bench, seeds, totals)
            totals.at_end = bench.end()
        except KeyboardInterrupt:
            log_progress(f"interrupted; go on with --from {seeds.start + totals.seeds}")
        except RuntimeError as error:
            totals.failed[seeds.start + totals.seeds] = [str(error)]
            log_progress(f"seed {seeds.start + totals.seeds} failed: {error}")
    if totals.at_end:
        log_progress("at the end:\n  " + "\n  ".join(totals.at_end))
    yield Figure(
        benchmark="faults",
        what="time that a watched cell takes longer than its code, with faults; not in a new kernel",
        unit="ms",
        values=totals.delays_ms,
        conditions={
            "no schedule breaks a promise": not totals.failed,
            **({} if totals.at_end is None else {"nothing is left running": not totals.at_end}),
        },
        details={
            "first seed": seeds.start,
            "seeds": totals.seeds,
            "seconds": round(time.monotonic() - began),
            "failed seeds": {
                str(seed): [_without_folders(problem) for problem in problems]
                for seed, problems in totals.failed.items()
            },
            "schedules by fault": {kind: totals.kinds[kind] for kind in KINDS},
            "interrupted cells whose reply ipykernel lost": totals.lost_replies,
            "the kernel's /dev/shm can be filled": private_shm,
        },
    )
    yield from _growth(totals.lives)


def _run(bench: Bench, seeds: range, totals: _Totals) -> None:
    began = time.monotonic()
    restarts = seen = -1
    for seed in seeds:
        made = schedule(seed)
        before = bench.restarts
        outcome = bench.run(made)
        # The first cell of a kernel also imports the live chart's libraries. A schedule may restart the
        # kernel before its cell.
        first, restarts = bench.restarts != restarts, before
        problems = list(outcome.problems)
        totals.seeds += 1
        totals.lost_replies += outcome.lost_reply
        totals.kinds.update(made.kinds)
        if outcome.delay_s is not None and not first:
            totals.delays_ms.append(1000 * outcome.delay_s)
            if outcome.delay_s > _NOTABLE_DELAY_S:
                log_progress(f"seed {seed}: the cell took {outcome.delay_s:.1f} s longer: {made}")
        if totals.seeds % _SETTLE_EVERY == 0:
            found, resources = bench.settle()
            problems += found
            if bench.restarts != seen:
                seen = bench.restarts
                totals.lives.append([])
            totals.lives[-1].append((totals.seeds, resources))
        if problems:
            totals.failed[seed] = problems
            log_progress(f"seed {seed} failed: {made}\n  " + "\n  ".join(problems))
        if totals.seeds % _LOG_EVERY == 0:
            seconds = time.monotonic() - began
            log_progress(f"{totals.seeds} seeds, {len(totals.failed)} failed, {seconds:.0f} s")


def _without_folders(problem: str) -> str:
    """Return the beginning of a problem's text for the results, which contain no folder names."""
    return re.sub(r"(?:/[\w.-]+)+/", "", problem)[:_MAX_PROBLEM]


def _growth(lives: list[list[tuple[int, Resources]]]) -> Iterator[Figure]:
    """Return how fast the memory of the kernels and of the servers grows."""
    for name, used in (("kernel", attrgetter("kernel_bytes")), ("server", attrgetter("server_bytes"))):
        slope, schedules = _common_slope([[(seed, used(found)) for seed, found in life] for life in lives])
        yield Figure(
            benchmark="faults",
            what=f"growth of the {name}'s memory per schedule",
            unit="KiB",
            bar=_MAX_GROWTH_KIB,
            values=[] if slope is None else [slope / 1024],
            details={
                "schedules after the warm-up": schedules,
                "MiB after seeds": [
                    [(seed, round(used(resources) / _MIB)) for seed, resources in life] for life in lives
                ],
            },
            not_measured=f"no {name} ran long enough" if slope is None else None,
        )


def _common_slope(lives: list[list[tuple[int, int]]]) -> tuple[float | None, int]:
    """Return the slope of parallel lines, one through the points of each life after its warm-up, and the
    number of schedules that the lines cover.

    Schedules restart the kernel so often that few lives alone are long enough for a slope.
    """
    products = squares = schedules = 0.0
    for life in lives:
        kept = [(x, y) for x, y in life if x - life[0][0] >= _WARM_UP]
        if len(kept) < 2:
            continue
        middle_x, middle_y = (mean(values) for values in zip(*kept, strict=True))
        products += sum((x - middle_x) * (y - middle_y) for x, y in kept)
        squares += sum((x - middle_x) ** 2 for x, _ in kept)
        schedules += kept[-1][0] - kept[0][0]
    return (products / squares if squares else None), round(schedules)
