"""Rules of the code itself: a model left on the CPU, and places where it waits for the GPU."""

from __future__ import annotations

import re

from gpuwidget import units
from gpuwidget.measure.advice.facts import Facts, Spot, advice, busiest, mean, spots
from gpuwidget.measure.report import Advice
from gpuwidget.units import MIB

SMALLEST_MODEL = 1 * MIB
"""Bytes of parameters below which a model may well be faster on the CPU."""
CPU_AT_WORK = 50.0
"""Percent of one core from which on this process computes rather than waits."""
UNUSED = 1.0
"""Percent of utilization of a GPU that did nothing."""

LEAST_SHARE = 10.0
"""Percent of the run's time in one such line."""
GPU_AT_WORK = 50.0
"""Percent of GPU activity in it: a wait for the GPU is one while the GPU works."""
GPU_HAS_GAPS = 85.0
"""Percent of mean utilization from which on waiting costs nothing: the GPU had work all the time."""
_NAMES = ("item", "tolist", "cpu", "numpy", "nonzero", "synchronize", "_local_scalar_dense")
_IN_CALL = re.compile(rf"(?:^|\.)({'|'.join(_NAMES)}|__repr__|__format__|__str__|_str)$")
_IN_SOURCE = re.compile(r"\.(item|tolist|cpu|numpy|nonzero)\(|\b(synchronize|print|float)\(")
_MEANS = {"_local_scalar_dense": "item"} | dict.fromkeys(
    ("__repr__", "__format__", "__str__", "_str"), "print"
)
_FIXES = {
    "print": "Print it every so many steps: to show a tensor, Python waits for the GPU and copies it.",
    "synchronize": "Leave it out of the loop: the GPU does its work in order without it.",
    "nonzero": "Masks that choose by value make Python wait for their size: torch.where keeps it on the GPU.",
}
_READ_SELDOM = "Keep the value on the GPU (.detach()) and read it every so many steps, or once at the end."


def model_on_cpu(facts: Facts) -> Advice | None:
    """A model computes on the CPU while no GPU does anything for this process."""
    around = facts.around
    if not facts.seen or not around.can_use_cuda or _may_have_worked_on_a_gpu(facts):
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
        f"{cpu:.0f} % of a core busy, and "
        f"{'no GPU did anything' if around.cuda_up else 'CUDA was not even started'}.",
        f"{model.name}.to('cuda'), and each batch too.",
        {"model": model.name, "on_cpu_bytes": model.on_cpu, "cpu": cpu},
    )


def sync_points(facts: Facts) -> Advice | None:
    """A line in the loop waits for the GPU, which then stands still until new work comes."""
    utilization = busiest(facts)
    if utilization is None or utilization > GPU_HAS_GAPS:
        return None
    found = [(spot, name) for spot in spots(facts) if (name := _waits(spot)) is not None]
    if not found:
        return None
    spot, name = found[0]
    return advice(
        "sync-points",
        f"{spot.where[0].upper()}{spot.where[1:]} waits for the GPU ({name}, {spot.share:.0f} % of the "
        "time), so "
        f"that no work is queued for it: {utilization:.0f} % busy over the run.",
        _FIXES.get(name, _READ_SELDOM),
        {
            "line": spot.line.line,
            "frame": spot.frame,
            "call": name,
            "share": spot.share,
            "utilization": utilization,
        },
    )


def _may_have_worked_on_a_gpu(facts: Facts) -> bool:
    if not facts.around.cuda_up:
        return facts.attributed and any((mean(gpu.utilization) or 0) > UNUSED for gpu in facts.gpus)
    return not facts.attributed or any(
        gpu.utilization is None or gpu.utilization.mean > UNUSED for gpu in facts.gpus
    )


def _waits(spot: Spot) -> str | None:
    """The call by which the code waits for the GPU there; None where it does not, or not for long."""
    if spot.line.line is None or spot.share < LEAST_SHARE:
        return None
    if spot.gpu_busy is not None and spot.gpu_busy < GPU_AT_WORK:
        return None  # there was nothing to be waited for
    if spot.call is not None:
        called = _IN_CALL.search(spot.call)
        return None if called is None else _MEANS.get(called[1], called[1])
    if spot.line.until is not None:
        return None  # which of the lines it is can't be told
    written = _IN_SOURCE.search(spot.source)
    return None if written is None else written[1] or written[2]
