"""Rules of the code itself: a model left on the CPU, and places where it waits for the GPU."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpuwidget.measure.advice.evidence import HAS_GAPS, Facts, Spot, advice, busiest, mean, spots
from gpuwidget.model import units
from gpuwidget.model.report import Advice
from gpuwidget.model.units import MIB

SMALLEST_MODEL = 1 * MIB
"""Bytes of parameters and buffers below which a model may well be faster on the CPU."""
CPU_AT_WORK = 50.0
"""Percent of one core from which on this process computes rather than waits."""
UNUSED = 1.0
"""Percent of utilization of a GPU that did nothing."""

LEAST_SHARE = 10.0
"""Percent of the run's time in one such line."""
GPU_AT_WORK = 50.0
"""Percent of GPU activity in it: a wait for the GPU is one while the GPU works."""
LEAST_PART = 0.5
"""Part of a line's time in one call, from which on the GPU's activity in the line is that in the call."""
_NAMES = ("item", "tolist", "cpu", "numpy", "nonzero", "synchronize", "_local_scalar_dense")
_IN_CALL = re.compile(rf"(?:^|\.)({'|'.join(_NAMES)}|__repr__|__format__|__str__|_str)$")
_IN_SOURCE = re.compile(r"\.(item|tolist|cpu|numpy|nonzero)\(|\b(synchronize)\(")
_MAYBE_IN_SOURCE = re.compile(r"\bfloat\(")
"""Waits where it is given a tensor, which the line does not tell."""
_MEANS = {"_local_scalar_dense": "item"} | dict.fromkeys(
    ("__repr__", "__format__", "__str__", "_str"), "print"
)
_FIXES = {
    "print": "Print it every so many steps: to show a tensor, Python waits for the GPU and copies it.",
    "synchronize": "Leave it out of the loop: the GPU does its work in order without it.",
    "nonzero": "Masks that choose by value make Python wait for their size: torch.where keeps it on the GPU.",
}
_READ_SELDOM = "Keep the value on the GPU (.detach()) and read it every so many steps, or once at the end."


class _Wait(NamedTuple):
    name: str
    share: float
    """Percent of the run's time."""
    sure: bool


def model_on_cpu(facts: Facts) -> Advice | None:
    """A model computes on the CPU while no GPU does anything for this process."""
    around = facts.around
    if not facts.seen or not around.can_use_cuda or _may_have_worked_on_a_gpu(facts):
        return None
    cpu = facts.time.cpu if facts.time is not None and facts.time.cpu is not None else around.process_cpu
    candidates = [
        model
        for model in around.models
        if model.on_cpu is not None
        and model.on_cpu >= SMALLEST_MODEL
        and model.on_gpu == 0
        and (around.cell is None or re.search(rf"\b{re.escape(model.name)}\b", around.cell))
    ]
    if cpu is None or cpu < CPU_AT_WORK or not candidates:
        return None
    model = max(candidates, key=lambda one: one.on_cpu or 0)
    return advice(
        "model-on-cpu",
        f"{model.name} ({model.type}, {units.memory(model.on_cpu)} of parameters and buffers) is on the CPU, "
        f"which was {cpu:.0f} % of a core busy, and "
        f"{'no GPU did anything' if around.cuda_up else 'CUDA was not even started'}.",
        f"{model.name}.to('cuda'), and each batch too.",
        {"model": model.name, "on_cpu_bytes": model.on_cpu, "cpu": cpu},
    )


def sync_points(facts: Facts) -> Advice | None:
    """A line in the loop waits for the GPU, which then stands still until new work comes."""
    utilization = busiest(facts)
    if not facts.around.cuda_up or utilization is None or utilization > HAS_GAPS:
        return None
    found = [(spot, wait) for spot in spots(facts) if (wait := _waits(spot)) is not None]
    if not found:
        return None
    spot, (name, share, sure) = max(found, key=lambda one: (one[1].sure, one[1].share))
    return advice(
        "sync-points",
        f"{spot.where[0].upper()}{spot.where[1:]} {'waits' if sure else 'looks as if it waited'} for the GPU "
        f"({name}, {share:.0f} % of the time), so that no work is queued for it: {utilization:.0f} % busy "
        "over the run.",
        _FIXES.get(name, _READ_SELDOM),
        {
            "line": spot.line.line,
            "frame": spot.frame,
            "call": name,
            "share": share,
            "utilization": utilization,
        },
        sure=sure,
    )


def _may_have_worked_on_a_gpu(facts: Facts) -> bool:
    if not facts.around.cuda_up:
        return facts.attributed and any((mean(gpu.utilization) or 0) > UNUSED for gpu in facts.gpus)
    return not facts.attributed or any(
        gpu.utilization is None or gpu.utilization.mean > UNUSED for gpu in facts.gpus
    )


def _waits(spot: Spot) -> _Wait | None:
    """By which call the code waits for the GPU there; None where it does not, or not for long."""
    if spot.line.line is None or spot.share < LEAST_SHARE:
        return None
    if spot.gpu_busy is None or spot.gpu_busy < GPU_AT_WORK:
        return None  # there was nothing to be waited for, as far as anybody knows
    if spot.call is not None:
        called, share = _IN_CALL.search(spot.call), spot.call_share or 0.0
        if called is None or share < max(LEAST_SHARE, LEAST_PART * spot.share):
            return None
        return _Wait(_MEANS.get(called[1], called[1]), share, True)
    if spot.line.until is not None:
        return None  # which of the lines it is can't be told
    written = _IN_SOURCE.search(spot.source)
    if written is not None:
        return _Wait(written[1] or written[2], spot.share, True)
    return _Wait("float", spot.share, False) if _MAYBE_IN_SOURCE.search(spot.source) else None
