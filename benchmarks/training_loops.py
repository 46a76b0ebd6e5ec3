"""Two training loops on a real GPU, and the pairs of them in one process; torch's one home here.

As a program: ``python -m benchmarks.training_loops heavy|launch PAIRS SECONDS [--lines|--steps]`` prints
what it measured. The second of each pair is watched as ``%%gpuwatch`` does it, where its time went included,
or with ``--lines`` as ``%%gpuwatch --lines`` does; the chart and the card are left out. ``--steps``: all are
watched, and the steps beside which a look or a sample was taken are compared with the others.
"""

from __future__ import annotations

import json
import linecache
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from benchmarks.statistics import alternating, lengthened
from gpuwidget.kernel.line_memory import LineWitness
from gpuwidget.kernel.user_code import UserCode
from gpuwidget.kernel.watching import new_run
from gpuwidget.measure.courses import MEMORY_INTERVAL_S
from gpuwidget.measure.observer import CodeWitness
from gpuwidget.measure.places import Places
from gpuwidget.measure.report import Report
from gpuwidget.measure.run import RunOptions
from gpuwidget.measure.windows import SampledWindows
from gpuwidget.measure.witness import Witness
from gpuwidget.sampler import process_sampler
from gpuwidget.samples import Sample
from gpuwidget.torch_stream import DefaultStreams

Step = Callable[[], None]
_Looking = TypeVar("_Looking", bound=CodeWitness)
_CELL = "<ipython-input-1-training>"
_CODE = compile("taken = loop(step, steps)\n", _CELL, "exec")


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


def measure_pairs(kind: str, pairs: int, seconds: float, witness: Callable[[], Witness]) -> dict[str, Any]:
    """Seconds of each plain and watched loop; the watched also from the inside, without start and report."""
    step = {"heavy": heavy, "launch": launch}[kind]()
    steps = steps_for(step, seconds)
    seen: list[dict[str, Any]] = []
    names: dict[str, Any] = {"loop": loop, "step": step, "steps": steps}

    def plain() -> tuple[float, float]:
        exec(_CODE, names)
        return names["taken"], names["taken"]

    def watched() -> tuple[float, float]:
        began = time.perf_counter()
        run = new_run(RunOptions(), None, None, [witness()])
        run.start()
        exec(_CODE, names)
        run.end()
        ended = time.perf_counter()
        report = run.report()
        whole = time.perf_counter() - began
        assert report is not None
        seen.append({**_seen(report), "report_s": whole - (ended - began)})
        return whole, names["taken"]

    watched()
    runs = alternating(pairs, plain, watched)
    step_ms = min(before[0] for before, _ in runs) / steps * 1e3
    return {"runs": runs, "steps": steps, "step_ms": step_ms, "seen": seen[-1]}


_SAMPLE_S = 0.001
"""What a sample takes at most on a machine of one GPU."""
_TO_WAKE_S = 3e-5
"""How long before its beginning is noted a look has woken its thread."""


class _Noting(CodeWitness):
    """Notes when it looks."""

    noted: list[tuple[float, float]]

    def look(self, t: float, late: float, seconds: float) -> None:
        began = time.perf_counter()
        super().look(t, late, seconds)
        self.noted.append((began - _TO_WAKE_S, time.perf_counter()))


def measure_steps(kind: str, runs: int, seconds: float) -> dict[str, Any]:
    """What looks and samples took of watched loops, each as a ratio, from the steps of the same loop."""
    step = {"heavy": heavy, "launch": launch}[kind]()
    steps = steps_for(step, seconds)
    ends: list[float] = []

    def noting() -> None:
        step()
        ends.append(time.perf_counter())

    names: dict[str, Any] = {"loop": loop, "step": noting, "steps": steps}
    found = []
    looks = 0
    for _ in range(runs + 1):
        noted: list[tuple[float, float]] = []
        witness = _looking(_Noting)
        witness.noted = noted

        def note_sample(_: Sample, noted: list[tuple[float, float]] = noted) -> None:
            noted.append((time.perf_counter() - _SAMPLE_S, time.perf_counter()))

        ends.clear()
        run = new_run(RunOptions(), None, None, [witness])
        with process_sampler().subscribe(note_sample, memory_interval_s=MEMORY_INTERVAL_S):
            run.start()
            exec(_CODE, names)
            run.end()
        run.report()
        found.append(lengthened(ends, noted))
        looks = len(noted)
    # The first meets everything for the first time.
    return {"ratios": [one for one in found[1:] if one is not None], "steps": steps, "noted": looks}


def _seen(report: Report) -> dict[str, Any]:
    """That it was watched: what the report knows."""
    return {
        "gpus_shown": sum(gpu.shown for gpu in report.gpus),
        "looks": report.time.samples if report.time is not None else 0,
        "lines": len(report.lines),
        "notes": [note for note in report.notes if note.startswith("Memory by line")],
    }


def _where_the_time_went() -> Witness:
    return _looking(CodeWitness)


def _looking(kind: type[_Looking]) -> _Looking:
    return kind(
        Places({_CELL}.__contains__, {_CELL: "In[1]"}.get),
        linecache.getline,
        DefaultStreams(),
        windows=SampledWindows(process_sampler()),
    )


def _memory_by_line() -> Witness:
    return LineWitness(UserCode(None))


def main() -> None:
    """Measure as the command line says."""
    kind, pairs, seconds, *options = sys.argv[1:]
    if not torch.cuda.is_available():
        result: dict[str, Any] = {"not_measured": "torch finds no CUDA GPU here"}
    elif "--steps" in options:
        result = measure_steps(kind, int(pairs), float(seconds))
    else:
        witness = _memory_by_line if "--lines" in options else _where_the_time_went
        result = measure_pairs(kind, int(pairs), float(seconds), witness)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
