"""Rules about the user's code: a model left on the CPU, and lines that wait for the GPU."""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

from gpuwidget.measure.advice.evidence import (
    HAS_GAPS,
    UNUSED,
    Hotspot,
    RunEvidence,
    busiest,
    hotspots,
    mean,
)
from gpuwidget.measure.advice.rule import Finding, Rule
from gpuwidget.model.messages import Sentences
from gpuwidget.model.translation import capitalized, joined, translatable
from gpuwidget.model.units import MIB

MIN_MODEL = 1 * MIB
"""Bytes of parameters and buffers below which the rule ignores a model, because it may be faster on the
CPU."""
MIN_CPU = 50.0
"""CPU time, in percent of one core, at or above which this process counts as computing rather than
waiting."""

MIN_SHARE = 10.0
"""The rule considers only lines that take at least this percentage of the run's time."""
MIN_GPU_BUSY = 50.0
"""A line counts as waiting for the GPU only if the GPU was active for at least this percentage of the line's
time. Code can wait only for a GPU that is working."""
MIN_CALL_PART = 0.5
"""A call counts as waiting for the GPU only if it takes at least this fraction of its line's time. GPU
activity is known only for the whole line, so it shows little about a shorter call."""
_NAMES = ("item", "tolist", "cpu", "numpy", "nonzero", "synchronize", "_local_scalar_dense")
_SYNC_CALL = re.compile(rf"(?:^|\.)({'|'.join(_NAMES)}|__repr__|__format__|__str__|_str)$")
_SYNC_SOURCE = re.compile(r"\.(item|tolist|cpu|numpy|nonzero)\(|\b(synchronize)\(")
_MAYBE_SYNC_SOURCE = re.compile(r"\bfloat\(")
"""``float()`` waits for the GPU only if its argument is a tensor, which the source does not show."""
_PUBLIC_NAMES = {"_local_scalar_dense": "item"} | dict.fromkeys(
    ("__repr__", "__format__", "__str__", "_str"), "print"
)


MODEL_ON_CPU = Sentences(
    "{name} is on the CPU. Its class is {type}, with {on_cpu:memory} of parameters and buffers."
)
NO_GPU_WORK = Sentences("This process used {cpu:.0f} % of a core, and no GPU did any work.")
NO_CUDA = Sentences("This process used {cpu:.0f} % of a core, and CUDA was not started.")
MOVE_MODEL = Sentences("{name}.to('cuda'), and the same for each batch.")
WAITS = Sentences(
    "{where} waits for the GPU. {share:.0f} % of the time goes to {call}, and no work is queued meanwhile."
)
PROBABLY_WAITS = Sentences(
    "{where} probably waits for the GPU. {share:.0f} % of the time goes to {call}, and no work is queued "
    "meanwhile."
)
BUSY_OVER_RUN = Sentences("The GPU was {utilization:.0f} % busy over the run.")
READ_SELDOM = translatable(
    "Keep the value on the GPU (.detach()), and read it every N steps or once at the end."
)
READ_SELDOM_BY_CALL = {
    "print": translatable(
        "Print the tensor only every N steps: to print it, Python waits for the GPU and copies the values."
    ),
    "synchronize": translatable("Remove this call from the loop: the GPU does its work in order without it."),
    "nonzero": translatable(
        "nonzero() and indexing with a boolean mask make Python wait for the size of the result. "
        "torch.where(mask, a, b) does not wait, because its size is known."
    ),
}


class _Wait(NamedTuple):
    call: str
    share: float
    """Percent of the run's time that the wait took."""
    sure: bool


@partial(
    Rule,
    "model-on-cpu",
    {"model": "name", "on_cpu_bytes": "bytes", "cpu": "%"},
    order=110,
    checks_attribution=True,
)
def model_on_cpu(evidence: RunEvidence) -> Finding | None:
    """Return advice if a model computes on the CPU while this process uses no GPU."""
    context = evidence.context
    if not evidence.gpu_count or not context.can_use_cuda or _gpu_may_have_worked(evidence):
        return None
    time = evidence.time
    cpu = time.cpu if time is not None and time.cpu is not None else context.process_cpu
    candidates = [
        model
        for model in context.models
        if model.on_cpu is not None
        and model.on_cpu >= MIN_MODEL
        and model.on_gpu == 0
        and (context.cell is None or re.search(rf"\b{re.escape(model.name)}\b", context.cell))
    ]
    if cpu is None or cpu < MIN_CPU or not candidates:
        return None
    model = max(candidates, key=lambda model: model.on_cpu or 0)
    on_cpu = MODEL_ON_CPU(name=model.name, type=model.type, on_cpu=model.on_cpu)
    used = NO_GPU_WORK(cpu=cpu) if context.cuda_initialized else NO_CUDA(cpu=cpu)
    return Finding(
        joined([on_cpu, used], " "),
        MOVE_MODEL(name=model.name),
        {"model": model.name, "on_cpu_bytes": model.on_cpu, "cpu": cpu},
    )


@partial(
    Rule,
    "sync-points",
    {"line": "name", "frame": "name", "call": "name", "share": "%", "utilization": "%"},
    order=160,
)
def sync_points(evidence: RunEvidence) -> Finding | None:
    """Return advice if a line waits for the GPU.

    Such a wait costs time: when it ends, the GPU has no queued work, so it idles until the code queues more.
    """
    utilization = busiest(evidence)
    if not evidence.context.cuda_initialized or utilization is None or utilization > HAS_GAPS:
        return None
    found = [(spot, wait) for spot in hotspots(evidence) if (wait := _wait(spot)) is not None]
    if not found:
        return None
    spot, (call, share, sure) = max(found, key=lambda candidate: (candidate[1].sure, candidate[1].share))
    waits = (WAITS if sure else PROBABLY_WAITS)(where=capitalized(spot.name), share=share, call=call)
    return Finding(
        joined([waits, BUSY_OVER_RUN(utilization=utilization)], " "),
        READ_SELDOM_BY_CALL.get(call, READ_SELDOM),
        {
            "line": spot.line.line,
            "frame": spot.frame,
            "call": call,
            "share": share,
            "utilization": utilization,
        },
        sure=sure,
    )


def _gpu_may_have_worked(evidence: RunEvidence) -> bool:
    if not evidence.context.cuda_initialized:
        return evidence.attributed and any((mean(gpu.utilization) or 0) > UNUSED for gpu in evidence.gpus)
    return not evidence.attributed or any(
        gpu.utilization is None or gpu.utilization.mean > UNUSED for gpu in evidence.gpus
    )


def _wait(spot: Hotspot) -> _Wait | None:
    """Return the call in which a hotspot waits for the GPU, or None if the wait is short or there is none."""
    if spot.line.line is None or spot.share < MIN_SHARE:
        return None
    if spot.gpu_busy is None or spot.gpu_busy < MIN_GPU_BUSY:
        return None  # The GPU was idle, or its activity is unknown.
    if spot.call is not None:
        called, share = _SYNC_CALL.search(spot.call), spot.call_share or 0.0
        if called is None or share < max(MIN_SHARE, MIN_CALL_PART * spot.share):
            return None
        return _Wait(_PUBLIC_NAMES.get(called[1], called[1]), share, True)
    if spot.line.until is not None:
        return None  # The hotspot covers several lines; it is unknown which of them waits.
    written = _SYNC_SOURCE.search(spot.source)
    if written is not None:
        return _Wait(written[1] or written[2], spot.share, True)
    return _Wait("float", spot.share, False) if _MAYBE_SYNC_SOURCE.search(spot.source) else None
