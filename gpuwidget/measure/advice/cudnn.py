"""Rules about cuDNN's settings: cuDNN is off, or its benchmark mode searches for algorithms repeatedly."""

from __future__ import annotations

import re
from functools import partial
from itertools import pairwise

from gpuwidget.measure.advice.evidence import HAS_GAPS, RunEvidence, busiest, hotspots
from gpuwidget.measure.advice.rule import Finding, Rule
from gpuwidget.measure.notes import gpu_name
from gpuwidget.model.messages import Sentences
from gpuwidget.model.report import GpuReport
from gpuwidget.model.translation import translatable
from gpuwidget.model.units import MIB

MIN_SHARE = 10.0
"""Minimum percent of the run's time in convolution calls. Without a search, such a call only launches
kernels, which takes microseconds, so a large share indicates searches."""
MIN_DROPS = 3
MIN_DROP = 16 * MIB
"""A fall of a GPU's memory by at least this many bytes counts as the end of a search. A search needs much
memory, and when it ends, torch returns its cache to the driver. Without a search, torch usually keeps the
memory that it has reserved."""
_CONVOLUTION = re.compile(r"\bConv\w*\.(?:forward|_conv_forward)$")

MIN_UTILIZATION = 5.0
"""Mean utilization, in percent, below which cuDNN's settings make no difference to the run's duration."""

CUDNN_OFF = Sentences("cuDNN is off. {name} ({type}) has convolutions or recurrent layers on the GPU.")
TURN_ON = translatable("torch.backends.cudnn.enabled = True, unless it was switched off for a reason.")
SEARCHED_AGAIN = Sentences(
    "cuDNN probably searched again for each new input shape. Its benchmark mode is on, {share:.0f} % of the "
    "time went to convolutions ({where}), and memory of {gpu} was freed {drops} times in the second half of "
    "the run."
)
STOP_SEARCHES = translatable(
    "torch.backends.cudnn.benchmark = False, or inputs of few sizes (pad or crop them)."
)


@partial(Rule, "cudnn-off", {"model": "name", "cudnn": "setting", "utilization": "%"}, order=240)
def cudnn_off(evidence: RunEvidence) -> Finding | None:
    """Return advice if cuDNN is off although a model whose layers use cuDNN ran on a GPU."""
    switches = evidence.context.switches
    if switches is None or switches.cudnn is not False:
        return None
    utilization = busiest(evidence)
    model = next((model for model in evidence.context.models if model.uses_cudnn and model.on_gpu), None)
    if model is None or utilization is None or utilization < MIN_UTILIZATION:
        return None
    return Finding(
        CUDNN_OFF(name=model.name, type=model.type),
        TURN_ON,
        {"model": model.name, "cudnn": False, "utilization": utilization},
    )


@partial(
    Rule,
    "cudnn-benchmark",
    {"share": "%", "memory_falls": "count", "utilization": "%", "cudnn_benchmark": "setting"},
    order=250,
)
def cudnn_benchmark(evidence: RunEvidence) -> Finding | None:
    """Return advice if cuDNN's benchmark mode still searches late in the run, because input shapes keep
    changing."""
    switches, utilization = evidence.context.switches, busiest(evidence)
    if switches is None or switches.cudnn_benchmark is not True or switches.cudnn is False:
        return None
    if utilization is None or not MIN_UTILIZATION <= utilization <= HAS_GAPS:
        return None
    if "empty_cache" in (evidence.context.cell or ""):
        return None
    found = [
        (spot.call_share, spot)
        for spot in hotspots(evidence)
        if spot.call is not None and _CONVOLUTION.search(spot.call) and spot.call_share is not None
    ]
    share = sum(share for share, _ in found)
    drops, name = max(((_late_drops(gpu, evidence), gpu_name(gpu)) for gpu in evidence.gpus), default=(0, ""))
    if share < MIN_SHARE or drops < MIN_DROPS:
        return None
    _, spot = max(found, key=lambda candidate: candidate[0])
    return Finding(
        SEARCHED_AGAIN(share=share, where=spot.name_with_call, gpu=name, drops=drops),
        STOP_SEARCHES,
        {"share": share, "memory_falls": drops, "utilization": utilization, "cudnn_benchmark": True},
        sure=False,
    )


def _late_drops(gpu: GpuReport, evidence: RunEvidence) -> int:
    """Count how often the GPU's memory fell in the run's second half.

    Return 0 if torch emptied its cache to satisfy an allocation, because the falls may then have that cause.
    Also return 0 if torch's counters or the timeline are missing.
    """
    timeline = evidence.timeline
    if timeline is None or gpu.torch is None or gpu.torch.alloc_retries != 0:
        return 0
    series = next((series.device_memory for series in timeline.gpus if series.uuid == gpu.uuid), ())
    late = [
        memory
        for t, memory in zip(timeline.t, series, strict=False)
        if memory is not None and evidence.duration_s / 2 <= t < evidence.duration_s
    ]
    return sum(before - after >= MIN_DROP for before, after in pairwise(late))
