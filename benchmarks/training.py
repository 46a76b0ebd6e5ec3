"""Training loops on a real GPU, watched over plain: by ``gpuwidget.watch()`` and by ``%%gpuwatch``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.figures import Figure
from benchmarks.kernels import Kernel
from benchmarks.settings import Settings, environment
from benchmarks.statistics import alternating, ratios


@dataclass(frozen=True)
class _Loop:
    kind: str
    words: str
    bar: float
    seconds: float
    pairs: int
    kernel_pairs: int


_LOOPS = (
    _Loop("heavy", "a training loop of large matrix products", 1.005, 4.0, 16, 8),
    _Loop("launch", "a launch-bound training loop", 1.02, 2.0, 40, 20),
)


def measure(settings: Settings) -> Iterator[Figure]:
    """Both loops, both ways; nothing without a GPU that torch can use."""
    for one in _LOOPS:
        yield from _in_a_process(one, settings)
        yield from _in_a_kernel(one, settings)


def _seconds(one: _Loop, settings: Settings) -> float:
    return 0.5 if settings.quick else one.seconds


def _in_a_process(one: _Loop, settings: Settings) -> Iterator[Figure]:
    arguments = [one.kind, str(settings.pick(one.pairs, 4)), str(_seconds(one, settings))]
    found = _ask("-m", "benchmarks.training_loops", *arguments)
    what = f"{one.words}, in gpuwidget.watch()"
    if "not_measured" in found:
        reason = found["not_measured"]
        yield Figure(benchmark="training", what=what, unit="ratio", bar=one.bar, not_measured=reason)
        return
    for place, where in enumerate(("start and report included", "inside")):
        yield Figure(
            benchmark="training",
            what=f"{what}, {where}",
            unit="ratio",
            bar=one.bar,
            values=ratios([(plain[place], watched[place]) for plain, watched in found["runs"]]),
            details={name: found[name] for name in ("steps", "step_ms", "gpus_shown")},
        )


def _in_a_kernel(one: _Loop, settings: Settings) -> Iterator[Figure]:
    what = f"{one.words}, in a %%gpuwatch cell with live chart, request to reply"
    reason = _ask("-c", _PROBE).get("not_measured")
    if reason is not None:
        yield Figure(benchmark="training", what=what, unit="ratio", bar=one.bar, not_measured=reason)
        return
    with Kernel(environment()) as kernel:
        kernel.run("from benchmarks import training_loops as _loops")
        kernel.run(
            f"_step = _loops.{one.kind}(); _steps = _loops.steps_for(_step, {_seconds(one, settings)})"
        )
        kernel.run("%load_ext gpuwidget")
        kernel.run("pass", rest_s=3.0)
        cell = "_ = _loops.loop(_step, _steps)"
        kernel.run(f"%%gpuwatch\n{cell}")
        runs = alternating(
            settings.pick(one.kernel_pairs, 2),
            partial(kernel.run, cell),
            partial(kernel.run, f"%%gpuwatch\n{cell}"),
        )
    yield Figure(
        benchmark="training",
        what=what,
        unit="ratio",
        bar=one.bar,
        values=ratios([(plain.seconds, watched.seconds) for plain, watched in runs]),
    )


_PROBE = """\
import json
try:
    import torch
    reason = None if torch.cuda.is_available() else "torch finds no CUDA GPU here"
except ImportError:
    reason = "torch is not installed"
print(json.dumps({} if reason is None else {"not_measured": reason}))
"""


def _ask(*arguments: str) -> dict[str, Any]:
    if arguments[0] == "-m":
        probed = _ask("-c", _PROBE)
        if probed:
            return probed
    done = subprocess.run(
        [sys.executable, *arguments], env=environment(), stdout=subprocess.PIPE, text=True, check=True
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(answer, dict)
    return answer
