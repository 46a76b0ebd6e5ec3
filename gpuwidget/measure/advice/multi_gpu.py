"""Rules of several GPUs: one that the others wait for, and those that are held and not used."""

from __future__ import annotations

from gpuwidget.measure.advice.evidence import (
    Facts,
    advice,
    average,
    mean,
    moved,
    names,
    power,
    power_share,
    verb,
)
from gpuwidget.measure.notes import gpu_name
from gpuwidget.model import units
from gpuwidget.model.report import Advice, GpuReport
from gpuwidget.model.units import MIB

READS_FULL = 95.0
"""Percent of utilization at which a GPU that waits in a collective reads: NCCL's kernel spins. Recorded:
99.7."""
LEAST_SPINNING, MOST_SPINNING = 5.0, 50.0
"""Percent of SM activity while it waits. Recorded: 24 to 28; GPUs that only copy have 0, that compute 80."""
WAITING_POWER = 50.0
"""Percent of the power limit while it waits. Recorded: 27 on average, training draws 90 and more."""
LEAST_BUSY = 2.0
"""Percent of utilization below which a GPU has no part in it, unless it exchanges data."""
HALF_IDLE = 60.0
"""Percent of utilization up to which the one that is late has gaps. Recorded: 11."""
LEAST_EXCHANGED = 100 * MIB
"""Bytes a second over the links that show an exchange between them. Recorded: 7 GiB over NVLink; GPUs with
work of their own, 250 MiB over PCIe at most and none over NVLink."""
FEWEST_WAITING_UNSEEN = 2
"""GPUs that must wait where no counters tell waiting from copying."""

AT_WORK = 20.0
UNUSED = 1.0
UNUSED_AT_MOST = 10.0
"""Percent of utilization, on average and in any window, of a GPU that did nothing."""
LEAST_HELD = 256 * MIB
"""Bytes of torch's that show that a GPU was meant to be used."""


def straggler(facts: Facts) -> Advice | None:
    """All GPUs but one wait for that one, though they read fully busy."""
    gpus = [gpu for gpu in facts.gpus if _takes_part(gpu)]
    waiting = [gpu for gpu in gpus if _waits(gpu)]
    late = [gpu for gpu in gpus if not _waits(gpu)]
    if len(late) != 1 or not waiting:
        return None
    one = late[0]
    busy, with_counters = mean(one.utilization), all(gpu.sm_activity is not None for gpu in gpus)
    if busy is None or not (busy <= HALF_IDLE or (with_counters and _works_harder(one, waiting))):
        return None
    if with_counters:
        if not all((moved(gpu) or 0) >= LEAST_EXCHANGED for gpu in gpus):
            return None
    elif len(waiting) < FEWEST_WAITING_UNSEEN:
        return None
    sm = average([mean(gpu.sm_activity) for gpu in waiting])
    reads = average([mean(gpu.utilization) for gpu in waiting])
    own = (
        f"at {sm:.0f} % of the multiprocessors and {power(waiting)}"
        if sm is not None
        else f"at {power(waiting)}"
    )
    seems = (
        verb(waiting, "waits", "wait") if with_counters else verb(waiting, "seems to wait", "seem to wait")
    )
    return advice(
        "straggler",
        f"{names(waiting)} {seems} for {gpu_name(one)} ({busy:.0f} % busy): {reads:.0f} % busy {own} is a "
        "collective that spins.",
        f"Find out what the process of {gpu_name(one)} does longer than the others: its data loading, a "
        "larger "
        "share of the work, logging or checkpoints on one rank, a slower or hotter GPU.",
        {
            "waiting": [gpu.index for gpu in waiting],
            "late": one.index,
            "waiting_utilization": reads,
            "waiting_sm_activity": sm,
            "waiting_power_w": average([mean(gpu.power_w) for gpu in waiting]),
            "late_utilization": busy,
            "late_sm_activity": mean(one.sm_activity),
        },
        sure=with_counters,
    )


def idle_gpus(facts: Facts) -> Advice | None:
    """This process holds memory on several GPUs, and some of them did nothing."""
    if not facts.attributed:
        return None
    at_work = [gpu for gpu in facts.gpus if (mean(gpu.utilization) or 0) >= AT_WORK]
    idle = [gpu for gpu in facts.gpus if _held_but_unused(gpu)]
    if not at_work or not idle:
        return None
    held = sum(gpu.torch.allocated.peak or 0 for gpu in idle if gpu.torch is not None)
    return advice(
        "idle-gpus",
        f"This process holds {units.memory(held)} on {names(idle)}, which did nothing, while "
        f"{names(at_work)} "
        f"{verb(at_work, 'was', 'were')} {average([mean(gpu.utilization) for gpu in at_work]):.0f} % busy.",
        "If the work was meant for all of them, see that each gets its part (DistributedDataParallel, device "
        "maps); else free what they hold.",
        {"idle": [gpu.index for gpu in idle], "at_work": [gpu.index for gpu in at_work], "held_bytes": held},
    )


def _takes_part(gpu: GpuReport) -> bool:
    return (mean(gpu.utilization) or 0) >= LEAST_BUSY or (moved(gpu) or 0) >= LEAST_EXCHANGED


def _waits(gpu: GpuReport) -> bool:
    busy, share, sm = mean(gpu.utilization), power_share(gpu), mean(gpu.sm_activity)
    return (
        busy is not None
        and busy >= READS_FULL
        and share is not None
        and share <= WAITING_POWER
        and (sm is None or LEAST_SPINNING <= sm <= MOST_SPINNING)
    )


def _works_harder(one: GpuReport, waiting: list[GpuReport]) -> bool:
    own, theirs = mean(one.sm_activity), average([mean(gpu.sm_activity) for gpu in waiting])
    return own is not None and theirs is not None and own >= 2 * theirs


def _held_but_unused(gpu: GpuReport) -> bool:
    return (
        gpu.torch is not None
        and (gpu.torch.allocated.peak or 0) >= LEAST_HELD
        and gpu.utilization is not None
        and gpu.utilization.mean <= UNUSED
        and gpu.utilization.max <= UNUSED_AT_MOST
    )
