"""Rule for GPUs whose clock is throttled."""

from __future__ import annotations

from functools import partial

from gpuwidget.measure.advice.evidence import RunEvidence, mean
from gpuwidget.measure.advice.rule import Finding, Rule, numbers
from gpuwidget.model.messages import Sentences
from gpuwidget.model.report import GpuReport
from gpuwidget.model.translation import translatable
from gpuwidget.sources.throttle_reasons import HARMFUL, POWER_BRAKE

MIN_SHARE = 0.1
"""The rule gives advice only if the clock was throttled for at least this fraction of the run."""
MIN_S = 4.0
"""The rule gives advice only if the clock was throttled for at least this many seconds. Throttle reasons are
read every 2 s, so these are two readings."""
MIN_UTILIZATION = 20.0
"""Mean utilization, in percent, below which throttling does not slow the run down."""

THROTTLED = Sentences(
    "{gpus:gpu_names} {gpus:was|were} throttled ({reasons:list}). This lasted {seconds:.0f} of {run_s:.0f} s."
)
CHECK_COOLING = translatable(
    "Ask the administrator to check the cooling (air flow, fans, neighbors at full load). Until then, the "
    "driver lowers the clock."
)
CHECK_POWER = translatable("Ask the administrator to check the power supply, which asked for a lower clock.")


@partial(Rule, "throttled", {"held_down_s": "s", "run_s": "s", "gpus": "GPU index"}, order=230)
def throttled(evidence: RunEvidence) -> Finding | None:
    """Return advice if heat or the power supply throttled the clock.

    Throttling by the power cap does not count: a GPU at full load is expected to reach its power limit.
    """
    found = [(gpu, seconds) for gpu in evidence.gpus if (seconds := _throttled(gpu, evidence.gpu_s))]
    if not found:
        return None
    gpus = [gpu for gpu, _ in found]
    reasons = list(dict.fromkeys(reason for _, seconds in found for reason in seconds))
    longest = max(max(seconds.values()) for _, seconds in found)
    return Finding(
        THROTTLED(gpus=numbers(gpus), reasons=reasons, seconds=longest, run_s=evidence.gpu_s),
        CHECK_POWER if reasons == [POWER_BRAKE] else CHECK_COOLING,
        {"held_down_s": dict(found[0][1]), "run_s": evidence.gpu_s, "gpus": [gpu.index for gpu in gpus]},
    )


def _throttled(gpu: GpuReport, run_s: float) -> dict[str, float]:
    """Return the seconds per harmful throttle reason, without reasons that lasted too briefly.

    The result is empty if the GPU's utilization was low.
    """
    if (mean(gpu.utilization) or 0) < MIN_UTILIZATION:
        return {}
    seconds = gpu.throttled or {}
    reasons = [reason for reason in seconds if reason in HARMFUL]
    min_s = max(MIN_S, MIN_SHARE * run_s)
    return {reason: seconds[reason] for reason in reasons if seconds[reason] >= min_s}
