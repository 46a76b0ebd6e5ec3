"""Two training loops on a real GPU, and the pairs of them in one process; torch's one home here.

As a program: ``python -m benchmarks.training_loops heavy|launch PAIRS SECONDS [--lines]`` prints what it
measured, with the second of each pair watched, or with ``--lines`` watched as ``%%gpuwatch --lines`` does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import gpuwidget
from benchmarks.statistics import alternating
from gpuwidget.kernel.line_memory import LineWitness
from gpuwidget.kernel.user_code import UserCode
from gpuwidget.kernel.watching import new_run
from gpuwidget.measure.run import RunOptions

Step = Callable[[], None]


def heavy() -> Step:
    """A step of a transformer's feed-forward blocks in bf16: milliseconds of large matrix products."""
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
    """A step of a model so small that the GPU waits for Python to launch its kernels."""
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
    """Seconds that ``steps`` take, until the GPU has done them."""
    began = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def steps_for(step: Step, seconds: float) -> int:
    """How many steps take ``seconds``, once the GPU is warm."""
    loop(step, 50)
    probe = 50
    while (took := loop(step, probe)) < min(1.0, seconds):
        probe *= 2
    return max(1, int(probe * seconds / took))


def measure_pairs(kind: str, pairs: int, seconds: float) -> dict[str, Any]:
    """Seconds of each plain and watched loop; the watched also from the inside, without start and report."""
    step = {"heavy": heavy, "launch": launch}[kind]()
    steps = steps_for(step, seconds)
    shown = []

    def plain() -> tuple[float, float]:
        taken = loop(step, steps)
        return taken, taken

    def watched() -> tuple[float, float]:
        began = time.perf_counter()
        with gpuwidget.watch() as watch:
            inside = loop(step, steps)
        whole = time.perf_counter() - began
        assert watch.report is not None
        shown.append(sum(gpu.shown for gpu in watch.report.gpus))
        return whole, inside

    with gpuwidget.watch():
        loop(step, 1)
    runs = alternating(pairs, plain, watched)
    step_ms = min(before[0] for before, _ in runs) / steps * 1e3
    return {"runs": runs, "steps": steps, "step_ms": step_ms, "gpus_shown": shown[-1]}


def measure_lines(kind: str, pairs: int, seconds: float) -> dict[str, Any]:
    """Seconds of each plain loop and each with ``--lines``; the latter also without start and report."""
    step = {"heavy": heavy, "launch": launch}[kind]()
    steps = steps_for(step, seconds)
    seen: list[dict[str, Any]] = []

    def plain() -> tuple[float, float]:
        taken = loop(step, steps)
        return taken, taken

    def watched() -> tuple[float, float]:
        began = time.perf_counter()
        run = new_run(RunOptions(), None, None, [LineWitness(UserCode(None))])
        run.start()
        inside = loop(step, steps)
        run.end()
        ended = time.perf_counter()
        report = run.report()
        whole = time.perf_counter() - began
        assert report is not None
        notes = [note for note in report.notes if note.startswith("Memory by line")]
        took = whole - (ended - began)
        seen.append({"lines": len(report.lines), "report_s": took, "notes": notes})
        return whole, inside

    watched()
    runs = alternating(pairs, plain, watched)
    step_ms = min(before[0] for before, _ in runs) / steps * 1e3
    return {"runs": runs, "steps": steps, "step_ms": step_ms, "seen": seen[-1]}


def main() -> None:
    """Measure as the command line says."""
    kind, pairs, seconds, *options = sys.argv[1:]
    measure = measure_lines if "--lines" in options else measure_pairs
    if not torch.cuda.is_available():
        result: dict[str, Any] = {"not_measured": "torch finds no CUDA GPU here"}
    else:
        result = measure(kind, int(pairs), float(seconds))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
