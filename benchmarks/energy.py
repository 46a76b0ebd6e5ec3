"""Compare the energy of watched runs with the driver's energy counter, which another process reads.

The other process reads the counter every 10 ms, and so finds each of its steps of 0.1 s. Between two steps,
the energy is interpolated. The counter may be up to a step late, so that it is itself uncertain by some
percent in a run of one second.
"""

from __future__ import annotations

import bisect
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.figures import Figure
from benchmarks.settings import Settings, environment, log_progress
from benchmarks.training import without_a_gpu

_BAR = 5.0
"""Percent by which the energy may differ from the counter."""
_TIMEOUT_S = 200.0
_WITNESS = """
import json, sys, threading, time
import pynvml
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
steps, last = [], None
print("ready", flush=True)
while not ended.is_set():
    began = time.monotonic()
    joules = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000
    if joules != last:
        steps.append(((began + time.monotonic()) / 2, joules))
        last = joules
    time.sleep(0.01)
print(json.dumps(steps))
"""
_RUNS = """
import json, time
import gpuwidget

def watch(name, code):
    time.sleep(0.7)
    with gpuwidget.watch(name) as run:
        began = time.monotonic()
        code()
    report = run.report
    gpu = report.gpus[0]
    seconds = report.cell.duration_s + (report.cell.gpu_tail_s or 0.0)
    print(json.dumps({
        "load": name, "began": began, "seconds": seconds, "energy_j": gpu.energy_j,
        "error_j": gpu.energy_error_j, "at_least_j": gpu.energy_at_least_j,
        "mean_w": gpu.power_w and gpu.power_w.mean, "missing": gpu.missing.get("energy_j"),
        "process_memory": gpu.process_memory and gpu.process_memory.end,
        "notes": [each.id for each in report.note_ids],
        "pool": next((dict(each.params) for each in report.note_ids if each.id == "jax-pool"), None),
    }), flush=True)
"""
_TORCH = """
import ctypes
import torch

a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

def work(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(4):
            torch.mm(a, a)
        torch.cuda.synchronize()

def steps(seconds, busy, idle):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        work(busy)
        time.sleep(idle)

def held():
    work(1.0)
    for _ in range(1500):
        torch.mm(a, a)
    ctypes.PyDLL(None).usleep(3_000_000)  # holds the interpreter
    work(0.5)

work(0.5)
with gpuwidget.watch():
    work(0.3)
for _ in range(REPEATS):
    watch("torch, 1 s of work", lambda: work(1.0))
    watch("torch, 0.5 s of rest and 0.5 s of work", lambda: (time.sleep(0.5), work(0.5)))
    watch("torch, 1.5 s in steps of 0.25 s", lambda: steps(1.3, 0.25, 0.25))
    watch("torch, 2 s in steps of 0.4 and 0.2 s", lambda: steps(2.0, 0.4, 0.2))
watch("torch, 5 s of mixed work", lambda: (work(1.5), time.sleep(1.0), steps(2.5, 0.1, 0.1)))
watch("torch, 12 s in steps of 0.15 and 0.35 s", lambda: steps(12.0, 0.15, 0.35))
watch("torch, interpreter held for 3 s", held)
"""
_JAX = """
def loop(seconds):
    import jax
    import jax.numpy as jnp
    a = jnp.ones((16384, 16384), jnp.bfloat16)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(8):
            a = (a @ a) * 1e-4
        a.block_until_ready()

watch("JAX, import and 12 s of work", lambda: loop(12.0))
watch("JAX, 2 s of work", lambda: loop(2.0))
"""


def measure(settings: Settings) -> Iterator[Figure]:
    """Compare the energy of runs of PyTorch and JAX, one figure per load."""
    unmeasured = "quick" if settings.quick else without_a_gpu()
    if unmeasured is not None:
        yield _figure("all loads", [], not_measured=unmeasured)
        return
    for code in (_TORCH.replace("REPEATS", "3"), _JAX):
        found: dict[str, list[dict[str, Any]]] = {}
        try:
            for run in _compare(code):
                found.setdefault(run["load"], []).append(run)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            yield _figure("a library's loads", [], not_measured=f"{type(error).__name__}: {error}")
        for load, runs in found.items():
            yield _figure(load, runs)


def _compare(code: str) -> list[dict[str, Any]]:
    """Run ``code``, and return its runs with the counter's energy."""
    with _witness() as steps:
        process = subprocess.run(
            [sys.executable, "-c", _RUNS + code],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    runs = [json.loads(line) for line in process.stdout.splitlines() if line.startswith('{"load"')]
    for run in runs:
        began = run.pop("began")
        run["counter_j"] = round(_counter(steps, began + run["seconds"]) - _counter(steps, began), 1)
        log_progress(f"{run['load']}: {run['energy_j']} J, counter {run['counter_j']} J, {run['missing']}")
    return runs


@contextmanager
def _witness() -> Iterator[list[tuple[float, float]]]:
    """Read the counter in another process. At the end, the list contains its steps: time and joules."""
    steps: list[tuple[float, float]] = []
    process = subprocess.Popen(
        [sys.executable, "-c", _WITNESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield steps
        out, _ = process.communicate("end\n", timeout=30.0)
        steps += [(t, joules) for t, joules in json.loads(out)]
    finally:
        process.kill()
        process.wait()


def _counter(steps: list[tuple[float, float]], t: float) -> float:
    after = min(max(1, bisect.bisect(steps, (t, 0.0))), len(steps) - 1)
    (since, low), (until, high) = steps[after - 1], steps[after]
    return low + (high - low) * (t - since) / (until - since)


def _figure(load: str, runs: list[dict[str, Any]], not_measured: str | None = None) -> Figure:
    known = [run for run in runs if run["energy_j"] is not None]
    conditions = {
        "the energy is known": len(known) == len(runs),
        "in every run": all(abs(_deviation(run)) <= _BAR for run in known),
        "the mean power is the energy divided by the time": all(
            abs(run["mean_w"] * run["seconds"] / run["energy_j"] - 1) < 0.02 for run in known
        ),
    }
    if load.startswith("JAX"):
        conditions["JAX's pool is named"] = all(run["pool"] is not None for run in runs)
    return Figure(
        benchmark="energy",
        what=f"{load}: difference from the driver's energy counter",
        unit="%",
        bar=_BAR,
        values=[abs(_deviation(run)) for run in known],
        conditions=conditions if runs else {},
        details={
            "runs": [{**run, "deviation": round(_deviation(run), 2)} for run in known]
            + [run for run in runs if run["energy_j"] is None]
        },
        not_measured=not_measured,
    )


def _deviation(run: dict[str, Any]) -> float:
    return float(100 * (run["energy_j"] / run["counter_j"] - 1))
