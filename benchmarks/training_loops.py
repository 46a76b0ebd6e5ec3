"""Two training loops on a real GPU, plain and watched, in one process.

``python -m benchmarks.training_loops heavy|launch TIMES SECONDS [--lines|--steps]`` measures TIMES pairs of a
plain and a watched loop. The watched loop is profiled as by ``%%gpuwatch``. With ``--lines``, its memory is
measured by line instead, as by ``%%gpuwatch --lines``. There is neither a chart nor a card.

With ``--steps``, TIMES watched loops are measured. In each of them, the steps during a stack sample or a GPU
sample are compared with the other steps.
"""

from __future__ import annotations

import json
import linecache
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from benchmarks.statistics import alternating, overhead_ratio
from gpuwidget.kernel.attribution.line_memory import LineCollector
from gpuwidget.kernel.cells.watch_api import new_run
from gpuwidget.kernel.shell.user_code import UserCode
from gpuwidget.measure.collector import Collector
from gpuwidget.measure.run_options import RunOptions
from gpuwidget.measure.timeline import MEMORY_INTERVAL_S
from gpuwidget.model.report import Report
from gpuwidget.model.samples import Sample
from gpuwidget.profiler.code_locations import CodeLocator
from gpuwidget.profiler.counter_windows import SamplerWindows
from gpuwidget.profiler.sampling_profiler import SamplingProfiler
from gpuwidget.pytorch.stream_activity import DefaultStreams
from gpuwidget.sampler import process_sampler

Step = Callable[[], None]
_Profiler = TypeVar("_Profiler", bound=SamplingProfiler)
_CELL = "<ipython-input-1-training>"
_CODE = compile("taken = loop(step, steps)\n", _CELL, "exec")


def heavy() -> Step:
    """Return a step of bf16 transformer feed-forward blocks, whose large matrix products take
    milliseconds."""
    width, tokens = 4096, 4096
    blocks = [
        torch.nn.Sequential(
            torch.nn.LayerNorm(width),
            torch.nn.Linear(width, 4 * width),
            torch.nn.GELU(),
            torch.nn.Linear(4 * width, width),
        )
        for _ in range(2)
    ]
    return _training(torch.nn.Sequential(*blocks), torch.randn(tokens, width), torch.bfloat16)


def launch() -> Step:
    """Return a step of a model so small that the GPU waits for Python to launch its kernels."""
    layers: list[torch.nn.Module] = []
    for _ in range(6):
        layers += [torch.nn.Linear(64, 64), torch.nn.ReLU()]
    return _training(torch.nn.Sequential(*layers), torch.randn(32, 64), torch.float32)


def _training(model: torch.nn.Module, inputs: torch.Tensor, dtype: torch.dtype) -> Step:
    model = model.to("cuda", dtype)
    inputs = inputs.to("cuda", dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def loop(step: Step, steps: int) -> float:
    """Run ``steps`` steps; return the seconds until the GPU has finished them."""
    began = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def steps_for(step: Step, seconds: float) -> int:
    """Return how many steps take ``seconds`` on a warm GPU."""
    loop(step, 50)
    probe = 50
    while (took := loop(step, probe)) < min(1.0, seconds):
        probe *= 2
    return max(1, int(probe * seconds / took))


def _steps(kind: str, seconds: float) -> tuple[Step, int]:
    step = {"heavy": heavy, "launch": launch}[kind]()
    return step, steps_for(step, seconds)


def measure_pairs(
    kind: str, pairs: int, seconds: float, collector: Callable[[], Collector]
) -> dict[str, Any]:
    """Return the seconds of each plain and each watched loop.

    For a watched loop, two times are returned: with and without starting the run and making its report.
    """
    step, steps = _steps(kind, seconds)
    seen: list[dict[str, Any]] = []
    names: dict[str, Any] = {"loop": loop, "step": step, "steps": steps}

    def plain() -> tuple[float, float]:
        exec(_CODE, names)
        return names["taken"], names["taken"]

    def watched() -> tuple[float, float]:
        began = time.perf_counter()
        run = new_run(RunOptions(), None, None, [collector()])
        run.start()
        exec(_CODE, names)
        run.end()
        ended = time.perf_counter()
        report = run.report()
        whole = time.perf_counter() - began
        assert report is not None
        seen.append({**_report_figures(report), "report_s": whole - (ended - began)})
        return whole, names["taken"]

    watched()
    runs = alternating(pairs, plain, watched)
    step_ms = min(before[0] for before, _ in runs) / steps * 1e3
    return {"runs": runs, "steps": steps, "step_ms": step_ms, "seen": seen[-1]}


_SAMPLE_S = 0.001
"""Assumed seconds from the start of a GPU sample to its callback. A sample of one GPU takes less time."""
_WAKING_S = 3e-5
"""Assumed seconds for which the profiler waited for the GIL before a stack sample."""


class _LoggingProfiler(SamplingProfiler):
    """A profiler that logs the time of each stack sample."""

    intervals: list[tuple[float, float]]

    def take_sample(self, t: float, late: float, seconds: float) -> None:
        began = time.perf_counter()
        super().take_sample(t, late, seconds)
        self.intervals.append((began - _WAKING_S, time.perf_counter()))


def measure_steps(kind: str, runs: int, seconds: float) -> dict[str, Any]:
    """Return the factors by which stack samples and GPU samples prolong a watched loop, one factor per run.

    For each factor, the steps during a sample are compared with the other steps of the same loop.

    The cost of the sampler's slow calls is not included, because they run on another thread at unknown times.
    """
    step, steps = _steps(kind, seconds)
    ends: list[float] = []

    def logged_step() -> None:
        step()
        ends.append(time.perf_counter())

    names: dict[str, Any] = {"loop": loop, "step": logged_step, "steps": steps}

    def watched() -> tuple[float | None, int]:
        intervals: list[tuple[float, float]] = []

        def log_sample(_: Sample) -> None:
            now = time.perf_counter()
            intervals.append((now - _SAMPLE_S, now))

        collector = _profiler(_LoggingProfiler)
        collector.intervals = intervals
        ends.clear()
        run = new_run(RunOptions(), None, None, [collector])
        with process_sampler().subscribe(log_sample, memory_interval_s=MEMORY_INTERVAL_S):
            run.start()
            exec(_CODE, names)
            run.end()
        run.report()
        return overhead_ratio(ends, intervals), len(intervals)

    watched()  # The first run is a warm-up.
    found = [watched() for _ in range(runs)]
    return {
        "ratios": [ratio for ratio, _ in found if ratio is not None],
        "steps": steps,
        "looks_and_samples": [count for _, count in found],
    }


def _report_figures(report: Report) -> dict[str, Any]:
    """Return figures from the report which show that the loop was watched."""
    return {
        "gpus_shown": sum(gpu.shown for gpu in report.gpus),
        "looks": report.time.samples if report.time is not None else 0,
        "lines": len(report.lines),
        "notes": [note for note in report.notes if note.startswith("Memory by line")],
    }


def _where_the_time_went() -> Collector:
    return _profiler(SamplingProfiler)


def _profiler(kind: type[_Profiler]) -> _Profiler:
    return kind(
        CodeLocator({_CELL}.__contains__, {_CELL: "In[1]"}.get),
        linecache.getline,
        DefaultStreams(),
        windows=SamplerWindows(process_sampler()),
    )


def _memory_by_line() -> Collector:
    return LineCollector(UserCode(None))


def main() -> None:
    """Run the measurements named on the command line, and print the results as JSON."""
    kind, times, seconds, *options = sys.argv[1:]
    if "--steps" in options:
        result = measure_steps(kind, int(times), float(seconds))
    else:
        collector = _memory_by_line if "--lines" in options else _where_the_time_went
        result = measure_pairs(kind, int(times), float(seconds), collector)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
