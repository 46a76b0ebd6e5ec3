"""Compare watched training loops with plain ones on a real GPU, in one process and as cells of a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.figures import Figure
from benchmarks.kernels import Kernel, require_live_chart
from benchmarks.programs import run_python
from benchmarks.settings import Settings, environment
from benchmarks.statistics import alternating, ratios


@dataclass(frozen=True)
class _Loop:
    benchmark: str
    kind: str
    description: str
    bar: float
    seconds: float
    pairs: int
    kernel_seconds: float
    kernel_pairs: int


_HEAVY = _Loop("training", "heavy", "a training loop of large matrix products", 1.005, 4.0, 16, 10.0, 8)
_LAUNCH = _Loop("launch", "launch", "a launch-bound training loop", 1.02, 2.0, 24, 10.0, 8)


def measure_heavy(settings: Settings) -> Iterator[Figure]:
    """Measure a loop that keeps the GPU busy, if torch can use a GPU."""
    yield from _in_a_process(_HEAVY, settings)
    yield from _in_a_kernel(_HEAVY, settings)


def measure_launch(settings: Settings) -> Iterator[Figure]:
    """Measure a loop in which each step takes as long as Python needs to launch the step's GPU kernels."""
    yield from _by_steps(_LAUNCH, settings)
    yield from _in_a_process(_LAUNCH, settings)
    yield from _in_a_kernel(_LAUNCH, settings)


def measure_lines(settings: Settings) -> Iterator[Figure]:
    """Measure both loops with ``--lines``, compared with plain loops."""
    for loop, bar in ((_HEAVY, 1.01), (_LAUNCH, 1.15)):
        found = _loops(loop, settings, "--lines")
        for place, where in ((1, "inside"), (0, "start and report included")):
            runs = found.get("runs", ())
            yield Figure(
                benchmark="lines",
                what=f"{loop.description}, with --lines, {where}",
                unit="ratio",
                bar=bar if where == "inside" else None,
                values=ratios([(plain[place], watched[place]) for plain, watched in runs]),
                details={name: found[name] for name in ("steps", "step_ms", "seen") if name in found},
                not_measured=found.get("not_measured"),
            )


def _in_a_process(loop: _Loop, settings: Settings) -> Iterator[Figure]:
    found = _loops(loop, settings)
    what = f"{loop.description}, watched with where its time went"
    if "not_measured" in found:
        reason = found["not_measured"]
        yield Figure(benchmark=loop.benchmark, what=what, unit="ratio", bar=loop.bar, not_measured=reason)
        return
    for place, where in enumerate(("start and report included", "inside")):
        yield Figure(
            benchmark=loop.benchmark,
            what=f"{what}, {where}",
            unit="ratio",
            bar=loop.bar,
            values=ratios([(plain[place], watched[place]) for plain, watched in found["runs"]]),
            details={name: found[name] for name in ("steps", "step_ms", "seen")},
        )


def _by_steps(loop: _Loop, settings: Settings) -> Iterator[Figure]:
    found = _loops(loop, settings, "--steps")
    yield Figure(
        benchmark=loop.benchmark,
        what=f"{loop.description}, by its steps beside looks and samples over those beside none",
        unit="ratio",
        bar=loop.bar,
        values=found.get("ratios", ()),
        details={name: found[name] for name in ("steps", "looks_and_samples") if name in found},
        not_measured=found.get("not_measured"),
    )


def _loops(loop: _Loop, settings: Settings, *options: str) -> dict[str, Any]:
    numbers = str(settings.pick(loop.pairs, 4)), str(settings.pick(loop.seconds, 0.5))
    return run_program("benchmarks.training_loops", loop.kind, *numbers, *options)


def _in_a_kernel(loop: _Loop, settings: Settings) -> Iterator[Figure]:
    seconds = settings.pick(loop.kernel_seconds, 0.5)
    what = f"{loop.description} of {seconds:g} s, in a %%gpuwatch cell with live chart, request to reply"
    reason = without_a_gpu()
    if reason is not None:
        yield Figure(benchmark=loop.benchmark, what=what, unit="ratio", bar=loop.bar, not_measured=reason)
        return
    require_live_chart()
    with Kernel(environment()) as kernel:
        kernel.run("from benchmarks import training_loops as _loops")
        kernel.run(f"_step = _loops.{loop.kind}(); _steps = _loops.steps_for(_step, {seconds})")
        kernel.run("%load_ext gpuwidget")
        kernel.run("pass", rest_s=3.0)
        cell = "_ = _loops.loop(_step, _steps)"
        kernel.run(f"%%gpuwatch\n{cell}")
        runs = alternating(
            settings.pick(loop.kernel_pairs, 2),
            partial(kernel.run, cell),
            partial(kernel.run, f"%%gpuwatch\n{cell}"),
        )
    yield Figure(
        benchmark=loop.benchmark,
        what=what,
        unit="ratio",
        bar=loop.bar,
        values=ratios([(plain.seconds, watched.seconds) for plain, watched in runs]),
    )


def without_a_gpu() -> str | None:
    """Return why nothing can be measured on a real GPU, or None if measuring is possible."""
    reason: str | None = run_python("-c", _PROBE).get("not_measured")
    return reason


_PROBE = """\
import json
try:
    import torch
    reason = None if torch.cuda.is_available() else "torch finds no CUDA GPU here"
except ImportError:
    reason = "torch is not installed"
print(json.dumps({} if reason is None else {"not_measured": reason}))
"""


def run_program(module: str, *arguments: str) -> dict[str, Any]:
    """Run a benchmark's program and return its output, or the reason why no GPU can be used."""
    found: dict[str, Any] = run_python("-c", _PROBE) or run_python("-m", module, *arguments)
    return found
