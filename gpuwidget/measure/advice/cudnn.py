"""Rules of cuDNN's switches: it is off, or it searches for the fastest algorithms again and again."""

from __future__ import annotations

import re
from itertools import pairwise

from gpuwidget.measure.advice.evidence import HAS_GAPS, Facts, advice, busiest, spots
from gpuwidget.measure.notes import gpu_name
from gpuwidget.model.report import Advice, GpuReport
from gpuwidget.model.units import MIB

LEAST_SHARE = 10.0
"""Percent of the run's time in convolutions: launching one that is known takes microseconds."""
FEWEST_FALLS = 3
LEAST_FALL = 16 * MIB
"""Bytes by which a GPU's memory must fall each time. torch keeps what it once had; after each search, for
which it needs much, it gives its cache back."""
_CONVOLUTION = re.compile(r"\bConv\w*\.(?:forward|_conv_forward)$")

AT_WORK = 5.0
"""Percent of utilization below which the switch made no difference."""


def cudnn_off(facts: Facts) -> Advice | None:
    """cuDNN is off, and a model with layers that need it is on a GPU that worked."""
    switches = facts.around.switches
    if switches is None or switches.cudnn is not False:
        return None
    utilization = busiest(facts)
    model = next((one for one in facts.around.models if one.uses_cudnn and one.on_gpu), None)
    if model is None or utilization is None or utilization < AT_WORK:
        return None
    return advice(
        "cudnn-off",
        f"cuDNN is off (torch.backends.cudnn.enabled), and {model.name} ({model.type}) has convolutions or "
        "recurrent layers on the GPU.",
        "torch.backends.cudnn.enabled = True, unless it was switched off for a reason.",
        {"model": model.name, "cudnn": False, "utilization": utilization},
    )


def cudnn_benchmark(facts: Facts) -> Advice | None:
    """cuDNN's benchmark mode is on, and it still searches in the run's second half: shapes keep changing."""
    switches, utilization = facts.around.switches, busiest(facts)
    if switches is None or switches.cudnn_benchmark is not True or switches.cudnn is False:
        return None
    if utilization is None or not AT_WORK <= utilization <= HAS_GAPS:
        return None
    if "empty_cache" in (facts.around.cell or ""):
        return None
    found = [
        (spot.call_share, spot)
        for spot in spots(facts)
        if spot.call is not None and _CONVOLUTION.search(spot.call) and spot.call_share is not None
    ]
    share = sum(share for share, _ in found)
    falls, name = max(((_late_falls(gpu, facts), gpu_name(gpu)) for gpu in facts.gpus), default=(0, ""))
    if share < LEAST_SHARE or falls < FEWEST_FALLS:
        return None
    _, spot = max(found, key=lambda one: one[0])
    return advice(
        "cudnn-benchmark",
        f"{share:.0f} % of the time went to convolutions ({spot.within}), and memory of {name} was "
        f"given back {falls} times in the second half of the run: that looks as if cuDNN, whose benchmark "
        "mode is on, searched anew for each new shape.",
        "torch.backends.cudnn.benchmark = False, or inputs of few sizes (pad or crop them).",
        {"share": share, "memory_falls": falls, "utilization": utilization, "cudnn_benchmark": True},
        sure=False,
    )


def _late_falls(gpu: GpuReport, facts: Facts) -> int:
    """How often the GPU's memory fell in the second half, by no flush that an allocation asked for."""
    timeline = facts.timeline
    if timeline is None or gpu.torch is None or gpu.torch.alloc_retries != 0:
        return 0
    course = next((one.device_memory for one in timeline.gpus if one.uuid == gpu.uuid), ())
    late = [
        memory
        for t, memory in zip(timeline.t, course, strict=False)
        if memory is not None and facts.duration_s / 2 <= t < facts.duration_s
    ]
    return sum(before - after >= LEAST_FALL for before, after in pairwise(late))
