"""Runs that are measured while a part of a recording is played, on a clock that a test controls.

The source, the sampler and the run are gpuwidget's real ones.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fakes import FakeClock

from gpuwidget.measure.advice.evidence import RunContext
from gpuwidget.measure.collector import Collector
from gpuwidget.measure.progress import Progress
from gpuwidget.measure.run import Run
from gpuwidget.measure.run_options import RunOptions
from gpuwidget.model.report import Report
from gpuwidget.sampler import Sampler
from gpuwidget.sources.replay import SHIPPED, ReplaySource

STEP_S = 0.100001
"""Slightly more than the 0.1 s for which the sampler's threads wait, so that each step wakes them."""
_THREADS = 3
"""The number of threads of a sampler: the fast poll loop, the slow one and the watchdog."""


class Player:
    """Plays a recording once. A test sets the position in the recording."""

    def __init__(self, path: Path = SHIPPED) -> None:
        self.clock = FakeClock()
        self._sampler = Sampler(ReplaySource(str(path), loop=False, clock=self.clock), self.clock)
        self._samples = 0
        self._keep = self._sampler.subscribe(self._count)
        self.clock.until(lambda: self._samples > 0)

    def _count(self, sample: object) -> None:
        self._samples += 1

    def go_to(self, t: float) -> None:
        """Move to ``t`` seconds after the recording's start, without polling in between."""
        if t > self.clock.monotonic():
            self.clock.advance(t - self.clock.monotonic())
            self._rest()

    def start(
        self,
        *gpus: str,
        label: str | None = None,
        collectors: Sequence[Collector] = (),
        run_context: Callable[[Report], RunContext] | None = None,
    ) -> Run:
        """Start a run on these GPUs, or on all GPUs if none are given."""
        run = Run(
            self._sampler,
            RunOptions(gpus=gpus),
            label=label,
            collectors=collectors,
            run_context=run_context,
            clock=self.clock,
        )
        run.start()
        self._rest()  # A run requests readings when it starts. Wait for them before the clock moves.
        return run

    def play(self, seconds: float) -> None:
        """Play this many seconds of the recording."""
        for _ in range(round(seconds / STEP_S)):
            self.clock.advance(STEP_S)
            self._rest()

    def report(self, run: Run) -> Report:
        """End the run, and return its report."""
        run.end("ok")
        report = run.report()
        assert report is not None
        return report

    def measure(self, start: float, seconds: float, *gpus: str) -> Report:
        """Return the report of a run over ``seconds`` of the recording, from ``start`` on."""
        self.go_to(start)
        run = self.start(*gpus)
        self.play(seconds)
        return self.report(run)

    def progress(self, start: float, seconds: float) -> Progress:
        """Start a run at ``start`` in the recording, and return its progress after ``seconds``,
        while it still runs."""
        self.go_to(start)
        run = self.start()
        self.play(seconds)
        try:
            return run.progress()
        finally:
            run.abandon()

    def _rest(self) -> None:
        """Wait until no thread of the sampler has work left and every thread waits for a later time."""
        self.clock.until(self._all_wait)

    def _all_wait(self) -> bool:
        threads = self._sampler._threads.threads
        return len(threads) == _THREADS and self.clock.all_wait(threads)

    def counters(self) -> dict[str, float]:
        """Return the recorded energy counter of each GPU now, in joules, by UUID."""
        source = self._sampler._source
        found = {gpu.uuid: source.read(gpu, "slow").values["energy_j"] for gpu in self._sampler.known_gpus}
        return {uuid: joules for uuid, joules in found.items() if joules is not None}

    def close(self) -> None:
        """Stop the sampler and its threads."""
        self._keep.close()
        self._sampler.stop()


def recording_without(path: Path, *keys: str) -> Path:
    """Write a copy of the packaged recording without these readings,
    as if the GPU lacked them, and return its path."""
    with gzip.open(SHIPPED, "rt", encoding="utf-8") as source, path.open("w", encoding="utf-8") as out:
        for line in source:
            tick: dict[str, Any] = json.loads(line)
            for gpu in tick.get("gpus", ()):
                for key in keys:
                    gpu.pop(key, None)
            out.write(f"{json.dumps(tick)}\n")
    return path


def repeated(path: Path, start: float, seconds: float, times: int) -> Path:
    """Write a recording that repeats a part of the packaged one,
    as if that phase had lasted longer, and return its path."""
    with gzip.open(SHIPPED, "rt", encoding="utf-8") as source:
        first, *ticks = (json.loads(line) for line in source)
    part = [tick for tick in ticks if start <= tick["t"] < start + seconds]
    again = [
        {**tick, "t": round(tick["t"] - part[0]["t"] + lap * seconds, 3)}
        for lap in range(times)
        for tick in part
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (first, *again)), encoding="utf-8")
    return path
