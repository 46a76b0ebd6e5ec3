"""Watched loops whose lines each keep the GPU busy or idle for a known time, for the benchmark ``idle``.

``python -m benchmarks.idle_patterns KIND PERIOD SECONDS RUNS`` prints the line profiles, and the true values
as measured with the host's clock and CUDA events.
"""

from __future__ import annotations

import json
import linecache
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from gpuwidget.kernel.cells import watch_api
from gpuwidget.measure.run_options import RunOptions
from gpuwidget.model.report import LineTime, Report
from gpuwidget.profiler.code_locations import CodeLocator
from gpuwidget.profiler.counter_windows import SamplerWindows
from gpuwidget.profiler.sampling_profiler import SamplingProfiler
from gpuwidget.pytorch.stream_activity import DefaultStreams
from gpuwidget.sampler import process_sampler

CELL = "<ipython-input-1-idle>"
KINDS = {
    "synchronous": "for _ in range(n):\n    idle(0.6)\n    work(0.4)\n",
    "asynchronous": "for _ in range(n):\n    launch(0.5)\n    idle(0.3)\n    wait()\n    idle(0.5)\n",
    "pure Python": "for _ in range(n):\n    python(0.6)\n    work(0.4)\n",
}
_PROBE_CYCLES = 200_000_000
_cuda: Any = torch.cuda


class Pattern:
    """The functions that the cell's lines call. Each call records when it ran and when the GPU worked."""

    def __init__(self, period_s: float, cycles_per_second: float, rounds_per_second: float) -> None:
        self._period = period_s
        self._cycles = cycles_per_second * period_s
        self._rounds = rounds_per_second * period_s
        self.lines: list[tuple[int, float, float]] = []
        """For each call: the line of the cell that made it, and its start and end on the host's clock."""
        self.events: list[tuple[Any, Any]] = []
        _cuda.synchronize()
        self._anchor = _cuda.Event(enable_timing=True)
        self._anchor.record()
        self._anchor.synchronize()
        self._anchored = time.perf_counter()

    def namespace(self, rounds: int) -> dict[str, Any]:
        """Return the namespace in which the cell runs."""
        return {
            "n": rounds,
            "idle": self._timed(lambda part: time.sleep(part * self._period)),
            "python": self._timed(lambda part: _python(int(part * self._rounds))),
            "launch": self._timed(self._launch),
            "work": self._timed(self._work),
            "wait": self._timed(lambda part: _cuda.synchronize()),
        }

    def _timed(self, function: Callable[[float], None]) -> Callable[..., None]:
        def timed(part: float = 0.0) -> None:
            line = sys._getframe(1).f_lineno
            began = time.perf_counter()
            function(part)
            self.lines.append((line, began, time.perf_counter()))

        return timed

    def _launch(self, part: float) -> None:
        start, end = (_cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        _cuda._sleep(int(part * self._cycles))
        end.record()
        self.events.append((start, end))

    def _work(self, part: float) -> None:
        self._launch(part)
        _cuda.synchronize()

    def truth(self) -> dict[int, tuple[float, float]]:
        """Return the true share of time and the true GPU activity of each line, in percent."""
        busy = [
            tuple(self._anchored + self._anchor.elapsed_time(event) / 1e3 for event in pair)
            for pair in self.events
        ]
        spent: dict[int, list[float]] = {}
        at = 0
        for line, began, ended in self.lines:
            while at < len(busy) and busy[at][1] < began:
                at += 1
            known = spent.setdefault(line, [0.0, 0.0])
            known[0] += ended - began
            for start, end in busy[at : at + 3]:
                known[1] += max(0.0, min(ended, end) - max(began, start))
        whole = sum(seconds for seconds, _ in spent.values())
        return {
            line: (100 * seconds / whole, 100 * worked / seconds if seconds else 0.0)
            for line, (seconds, worked) in spent.items()
        }


def _python(rounds: int) -> None:
    total = 0
    for number in range(rounds):
        total += number * number & 1023


def measure(kind: str, period_s: float, seconds: float) -> dict[str, Any]:
    """Run one watched loop; return its line profile and the true values for comparison."""
    _cuda._sleep(1000)
    _cuda.synchronize()
    began = time.perf_counter()
    _cuda._sleep(_PROBE_CYCLES)
    _cuda.synchronize()
    cycles = _PROBE_CYCLES / (time.perf_counter() - began)
    began = time.perf_counter()
    _python(1_000_000)
    rounds = 1_000_000 / (time.perf_counter() - began)
    pattern = Pattern(period_s, cycles, rounds)
    report = watch(KINDS[kind], pattern.namespace(max(1, round(seconds / period_s))))
    truth = pattern.truth()
    return {**profile_figures(report), "truth": {str(line): values for line, values in truth.items()}}


def watch(source: str, namespace: dict[str, Any]) -> Report:
    """Run ``source`` as a watched cell without a live chart or a card, and return the report."""
    code = compile(source, CELL, "exec")
    linecache.cache[CELL] = (len(source), None, source.splitlines(keepends=True), CELL)
    profiler = SamplingProfiler(
        CodeLocator({CELL}.__contains__, {CELL: "In[1]"}.get),
        linecache.getline,
        DefaultStreams(),
        windows=SamplerWindows(process_sampler()),
    )
    run = watch_api.new_run(RunOptions(), None, None, [profiler])
    run.start()
    exec(code, namespace)
    run.end()
    report = run.report()
    assert report is not None
    return report


def profile_figures(report: Report) -> dict[str, Any]:
    """Return the line profile's figures, and the reason for missing figures if there is one."""
    time = report.time
    assert time is not None
    return {
        "profile": [_profile_entry(line) for line in time.lines if line.line is not None],
        "looks": time.samples,
        "resolution_s": time.resolution_s,
        "reason": time.reason,
    }


def _profile_entry(line: LineTime) -> dict[str, Any]:
    return {"line": line.line, "until": line.until, "share": line.share, "gpu_busy": line.gpu_busy}


def main() -> None:
    """Run the measurements named on the command line, and print the results as JSON."""
    kind, period, seconds, runs = sys.argv[1:]
    found = [measure(kind, float(period), float(seconds)) for _ in range(int(runs))]
    print(json.dumps({"runs": found}))


if __name__ == "__main__":
    main()
