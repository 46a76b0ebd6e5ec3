"""The rule of a GPU that something slows down."""

from __future__ import annotations

from gpuwidget.measure.advice.evidence import Facts, advice, mean, names
from gpuwidget.model.report import Advice, GpuReport
from gpuwidget.sources.throttle_reasons import POWER_CAP, needing_attention

LEAST_SHARE = 0.1
"""Part of the run for which it must have been slowed down."""
LEAST_S = 4.0
"""Seconds, at least: the driver is asked every two."""
AT_WORK = 20.0
"""Percent of utilization below which nothing was lost by it."""
_HOT = (
    "Let the administrator see to its cooling (air flow, fans, neighbours at full load); until then the "
    "driver "
    "lowers its clock."
)
_POWER = "Let the administrator see to its power supply: it told the GPU to slow down."


def throttled(facts: Facts) -> Advice | None:
    """Heat or the power supply held the clock down.

    Not the power cap: a GPU at full load reaches its power limit, which is as it should be.
    """
    found = [(gpu, held) for gpu in facts.gpus if (held := _held_down(gpu, facts.gpu_s))]
    if not found:
        return None
    gpus = [gpu for gpu, _ in found]
    words = list(dict.fromkeys(word for _, held in found for word in held))
    seconds = max(max(held.values()) for _, held in found)
    return advice(
        "throttled",
        f"{names(gpus)} ran at a lower clock for {seconds:.0f} of {facts.gpu_s:.0f} s: {', '.join(words)}.",
        _HOT if any("hot" in word or "slowdown" in word for word in words) else _POWER,
        {"held_down_s": dict(found[0][1]), "run_s": facts.gpu_s, "gpus": [gpu.index for gpu in gpus]},
    )


def _held_down(gpu: GpuReport, seconds_in_all: float) -> dict[str, float]:
    if (mean(gpu.utilization) or 0) < AT_WORK:
        return {}
    seen = gpu.throttled or {}
    held = {word: seen[word] for word in needing_attention(tuple(seen)) if word != POWER_CAP}
    least = max(LEAST_S, LEAST_SHARE * seconds_in_all)
    return {word: seconds for word, seconds in held.items() if seconds >= least}
