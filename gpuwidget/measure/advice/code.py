"""Rules of the code itself: a model left on the CPU, and places where it waits for the GPU."""

from __future__ import annotations

import re

from gpuwidget import units
from gpuwidget.measure.advice.facts import Facts, advice, average, mean
from gpuwidget.measure.report import Advice, LineTime
from gpuwidget.units import MIB

SMALLEST_MODEL = 1 * MIB
"""Bytes of parameters below which a model may well be faster on the CPU."""
CPU_AT_WORK = 50.0
"""Percent of one core from which on this process computes rather than waits."""
UNUSED = 1.0
"""Percent of utilization of a GPU that did nothing."""

LEAST_SHARE = 10.0
"""Percent of the run's time in one such line."""
GPU_HAS_GAPS = 85.0
"""Percent of mean utilization from which on waiting costs nothing: the GPU had work all the time."""
_NAMES = ("item", "tolist", "cpu", "numpy", "nonzero", "synchronize", "_local_scalar_dense")
_IN_CALL = re.compile(rf"(?:^|\.)({'|'.join(_NAMES)})$")
_IN_SOURCE = re.compile(r"\.(item|tolist|cpu|numpy|nonzero)\(|\b(synchronize|print)\(")
_FIXES = {
    "print": "Print it every so many steps: to show a tensor, Python waits for the GPU and copies it.",
    "synchronize": "Leave it out of the loop: the GPU does its work in order without it.",
    "nonzero": "Masks that choose by value make Python wait for their size: torch.where keeps it on the GPU.",
}
_READ_SELDOM = "Keep the value on the GPU (.detach()) and read it every so many steps, or once at the end."


def model_on_cpu(facts: Facts) -> Advice | None:
    """A model computes on the CPU while no GPU does anything for this process."""
    around = facts.around
    if not (facts.attributed and facts.seen and around.can_use_cuda) or _a_gpu_worked(facts):
        return None
    cpu = facts.time.cpu if facts.time is not None and facts.time.cpu is not None else around.process_cpu
    candidates = [
        model
        for model in around.models
        if model.on_cpu >= SMALLEST_MODEL
        and model.on_gpu == 0
        and (around.cell is None or re.search(rf"\b{re.escape(model.name)}\b", around.cell))
    ]
    if cpu is None or cpu < CPU_AT_WORK or not candidates:
        return None
    model = max(candidates, key=lambda one: one.on_cpu)
    return advice(
        "model-on-cpu",
        f"{model.name} ({model.type}, {units.memory(model.on_cpu)} of parameters) is on the CPU, which was "
        f"{cpu:.0f} % of a core busy, and no GPU did anything.",
        f"{model.name}.to('cuda'), and each batch too.",
        {"model": model.name, "on_cpu_bytes": model.on_cpu, "cpu": cpu},
    )


def sync_points(facts: Facts) -> Advice | None:
    """A line in the loop waits for the GPU, which then stands still until new work comes."""
    utilization = average([mean(gpu.utilization) for gpu in facts.gpus])
    if facts.time is None or utilization is None or utilization > GPU_HAS_GAPS:
        return None
    found = [(line, name) for line in facts.time.lines if (name := _waits(line)) is not None]
    found = [(line, name) for line, name in found if line.share >= LEAST_SHARE]
    if not found:
        return None
    line, name = max(found, key=lambda one: one[0].share)
    return advice(
        "sync-points",
        f"Line {line.line} `{line.source.strip()}` waits for the GPU ({name}, {line.share:.0f} % of the "
        "time), so "
        f"that no work is queued for it: {utilization:.0f} % busy over the run.",
        _FIXES.get(name, _READ_SELDOM),
        {"line": line.line, "call": name, "share": line.share, "utilization": utilization},
    )


def _a_gpu_worked(facts: Facts) -> bool:
    return any(gpu.utilization is None or gpu.utilization.mean > UNUSED for gpu in facts.gpus)


def _waits(line: LineTime) -> str | None:
    """The call by which a line of the cell waits for the GPU; None where it does not."""
    if line.line is None or (line.gpu_busy is not None and line.gpu_busy < LEAST_SHARE):
        return None  # the GPU had nothing to be waited for
    called = _IN_CALL.search(line.call) if line.call is not None else None
    if called is not None:
        return called[1].replace("_local_scalar_dense", "item")
    if line.call is not None or line.frame is not None:
        return None
    written = _IN_SOURCE.search(line.source)
    return None if written is None else written[1] or written[2]
