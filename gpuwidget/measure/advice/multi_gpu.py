"""Rules about several GPUs: a straggler that the others wait for, and GPUs that hold memory but are idle."""

from __future__ import annotations

from gpuwidget.measure.advice import messages
from gpuwidget.measure.advice.evidence import (
    RunEvidence,
    average,
    make_advice,
    mean,
    mean_power,
    mean_utilization,
    power_share,
    traffic,
)
from gpuwidget.model.report import Advice, GpuReport
from gpuwidget.model.units import MIB

SPINNING_UTILIZATION = 95.0
"""Utilization, in percent, at or above which a GPU may be waiting in a collective: NCCL's kernel spins while
it waits. In recorded runs: 99.7."""
MIN_SPINNING_SM, MAX_SPINNING_SM = 5.0, 50.0
"""Range of SM activity, in percent, of a GPU that waits in a collective. In recorded runs: 24 to 28 for GPUs
that wait, 0 for GPUs that only copy, 80 for GPUs that compute."""
MAX_SPINNING_POWER = 50.0
"""Maximum mean power, in percent of the power limit, of a GPU that waits in a collective. In recorded runs:
27 while waiting, 90 or more while training."""
MIN_UTILIZATION = 2.0
"""A GPU whose mean utilization is below this percentage, and which exchanges no data, counts as taking no
part in the work."""
HALF_IDLE = 60.0
"""Mean utilization, in percent, at or below which the straggler's own work counts as having gaps. In recorded
runs: 11."""
MIN_EXCHANGE_RATE = 100 * MIB
"""Bytes per second over PCIe and NVLink at or above which GPUs exchange data. In recorded runs: 7 GiB over
NVLink in a collective; at most 250 MiB over PCIe and none over NVLink for GPUs with independent work."""
MIN_WAITING_WITHOUT_COUNTERS = 2
"""Minimum number of waiting GPUs if there are no hardware counters. Only the counters distinguish a GPU that
copies from a GPU that waits."""

BUSY = 20.0
UNUSED = 1.0
"""Mean utilization, in percent, at or below which a GPU counts as unused."""
UNUSED_MAX = 10.0
"""A GPU whose utilization exceeded this percentage at any time does not count as unused."""
MIN_HELD = 256 * MIB
"""The rule considers an idle GPU only if torch has allocated at least this many bytes on it. They are a sign
that the user meant to use the GPU."""


def straggler(evidence: RunEvidence) -> Advice | None:
    """Return advice if one GPU keeps all others waiting. A GPU that waits in a collective shows full
    utilization."""
    gpus = [gpu for gpu in evidence.gpus if _takes_part(gpu)]
    waiting = [gpu for gpu in gpus if _waits(gpu)]
    others = [gpu for gpu in gpus if not _waits(gpu)]
    if len(others) != 1 or not waiting:
        return None
    late = others[0]
    busy, with_counters = mean(late.utilization), all(gpu.sm_activity is not None for gpu in gpus)
    if busy is None or not (busy <= HALF_IDLE or (with_counters and _works_harder(late, waiting))):
        return None
    if with_counters:
        if not all((traffic(gpu) or 0) >= MIN_EXCHANGE_RATE for gpu in gpus):
            return None
    elif len(waiting) < MIN_WAITING_WITHOUT_COUNTERS:
        return None
    sm = average([mean(gpu.sm_activity) for gpu in waiting])
    utilization = mean_utilization(waiting)
    return make_advice(
        "straggler",
        messages.straggler(waiting, late, busy, utilization, sm, sure=with_counters),
        {
            "waiting": [gpu.index for gpu in waiting],
            "late": late.index,
            "waiting_utilization": utilization,
            "waiting_sm_activity": sm,
            "waiting_power_w": mean_power(waiting),
            "late_utilization": busy,
            "late_sm_activity": mean(late.sm_activity),
        },
        sure=with_counters,
    )


def idle_gpus(evidence: RunEvidence) -> Advice | None:
    """Return advice if this process holds memory on GPUs that did nothing while others worked."""
    if not evidence.attributed:
        return None
    busy = [gpu for gpu in evidence.gpus if (mean(gpu.utilization) or 0) >= BUSY]
    idle = [gpu for gpu in evidence.gpus if _holds_but_unused(gpu)]
    if not busy or not idle:
        return None
    held = sum(gpu.torch.allocated.peak or 0 for gpu in idle if gpu.torch is not None)
    return make_advice(
        "idle-gpus",
        messages.idle_gpus(idle, busy, held, mean_utilization(busy)),
        {"idle": [gpu.index for gpu in idle], "at_work": [gpu.index for gpu in busy], "held_bytes": held},
    )


def _takes_part(gpu: GpuReport) -> bool:
    return (mean(gpu.utilization) or 0) >= MIN_UTILIZATION or (traffic(gpu) or 0) >= MIN_EXCHANGE_RATE


def _waits(gpu: GpuReport) -> bool:
    busy, share, sm = mean(gpu.utilization), power_share(gpu), mean(gpu.sm_activity)
    return (
        busy is not None
        and busy >= SPINNING_UTILIZATION
        and share is not None
        and share <= MAX_SPINNING_POWER
        and (sm is None or MIN_SPINNING_SM <= sm <= MAX_SPINNING_SM)
    )


def _works_harder(late: GpuReport, waiting: list[GpuReport]) -> bool:
    own, theirs = mean(late.sm_activity), average([mean(gpu.sm_activity) for gpu in waiting])
    return own is not None and theirs is not None and own >= 2 * theirs


def _holds_but_unused(gpu: GpuReport) -> bool:
    return (
        gpu.torch is not None
        and (gpu.torch.allocated.peak or 0) >= MIN_HELD
        and gpu.utilization is not None
        and gpu.utilization.mean <= UNUSED
        and gpu.utilization.max <= UNUSED_MAX
    )
