"""Rules about several GPUs: a straggler that the others wait for, and GPUs that hold memory but are idle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gpuwidget.measure.advice.evidence import (
    RunEvidence,
    is_unused,
    is_working,
    mean,
    mean_level,
    mean_power,
    mean_utilization,
    power_share,
    traffic,
)
from gpuwidget.measure.advice.rule import Finding, Rule, numbers, power
from gpuwidget.measure.notes import gpu_name
from gpuwidget.model.messages import Sentences
from gpuwidget.model.report import GpuReport, Level
from gpuwidget.model.translation import joined, translatable
from gpuwidget.model.units import MIB

SPINNING_UTILIZATION = 90.0
"""Utilization, in percent, at or above which a GPU may be waiting in a collective: NCCL's kernel spins while
it waits. In recorded runs: 99 or more."""
MIN_GAP = 20.0
"""Percentage points by which the straggler's utilization is lower than that of the GPUs that wait. In
recorded runs: 64 or more with 200 ms per step."""
MIN_SPINNING_SM = 5.0
"""SM activity, in percent, of a GPU that waits in a collective all the time. In recorded runs: 18 to 25 for
GPUs that wait, 0 for GPUs that only copy, 80 for GPUs that compute."""
MAX_SPINNING_SM = 40.0
"""Maximum SM activity, in percent, that waiting in a collective adds to that of a GPU's own work."""
MAX_SPINNING_POWER = 20.0
"""Maximum power, in percent of the power limit, that waiting in a collective adds to that of a GPU's own
work. In recorded runs: 7 at most."""
SAME_WORK = 1.2
"""Maximum ratio of the tensor-core activity, or of the use of memory bandwidth, of a GPU that waits to that
of the straggler. A GPU that waits does no more work per step than the straggler. In recorded runs: 1.0."""
TOLERANCE = 5.0
"""Percentage points that are added to the maxima of SM activity and power."""
SMALL_WORK = 0.5
"""Percentage points that are added to the maxima of tensor-core activity and use of memory bandwidth."""
MAX_WAITING_SM, MAX_WAITING_POWER = 50.0, 50.0
"""Maximum SM activity, in percent, and maximum power, in percent of the power limit, of a GPU that waits for
a straggler that is always busy."""
MIN_UTILIZATION = 2.0
"""A GPU whose mean utilization is below this percentage, and which exchanges no data, counts as taking no
part in the work."""
MIN_EXCHANGE_RATE = 100 * MIB
"""Bytes per second over PCIe and NVLink at or above which GPUs exchange data. In recorded runs: 7 GiB over
NVLink in a collective; at most 250 MiB over PCIe and none over NVLink for GPUs with independent work."""
SAME_EXCHANGE = 2.0
"""Maximum ratio of the highest to the lowest exchange rate of GPUs that take part in the same collectives. In
recorded runs: 1.0."""
MIN_WAITING_WITHOUT_COUNTERS = 2
"""Minimum number of waiting GPUs if there are no hardware counters, unless the GPUs are known to belong to
ranks of one job. Only the counters distinguish a GPU that copies from a GPU that waits."""

MIN_HELD = 256 * MIB
"""The rule considers an idle GPU only if torch has allocated at least this many bytes on it. They are a sign
that the user meant to use the GPU."""

WAIT = Sentences("{gpus:gpu_names} {gpus:waits|wait} for {late}.")
PROBABLY_WAIT = Sentences("{gpus:gpu_names} probably {gpus:waits|wait} for {late}.")
WAITING = Sentences(
    "The waiting takes about {share:.0f} % of the time.",
    "{late} was {late_utilization:.0f} % busy.",
    (
        "Waiting in a collective operation counts as busy, so the utilization of {gpus:gpu_names} is "
        "{utilization:.0f} %, at {sm:.0f} % of the multiprocessors and {power}.",
        "Waiting in a collective operation counts as busy, so the utilization of {gpus:gpu_names} is "
        "{utilization:.0f} %, at {power}.",
    ),
)
WITH_RANKS = Sentences("{gpu} ({ranks:ranks})")
FIND_DELAY = Sentences(
    (
        "Find out what {ranks:ranks} {ranks:does|do} longer than the others: data loading, a larger share of "
        "the work, logging or checkpoints on one rank, a slower or hotter GPU.",
        "Find out what the process of {gpu} does longer than the others: data loading, a larger share of the "
        "work, logging or checkpoints on one rank, a slower or hotter GPU.",
    )
)
IDLE_GPUS = Sentences(
    "{idle:gpu_names} did no work. This process holds {held:memory} there, while {busy:gpu_names} "
    "{busy:was|were} {utilization:.0f} % busy."
)
USE_OR_FREE = translatable(
    "If all of them should work, give each its part (DistributedDataParallel, device maps). Otherwise, free "
    "the memory on them."
)


@partial(
    Rule,
    "straggler",
    {
        "waiting": "GPU index",
        "late": "GPU index",
        "late_ranks": "rank",
        "waiting_utilization": "%",
        "waiting_sm_activity": "%",
        "waiting_power_w": "W",
        "late_utilization": "%",
        "late_sm_activity": "%",
    },
    order=130,
    part="steady part",
)
def straggler(evidence: RunEvidence) -> Finding | None:
    """Return advice if one GPU keeps all others waiting. A GPU that waits in a collective shows full
    utilization."""
    gpus = [gpu for gpu in evidence.gpus if _takes_part(gpu)]
    late = _late_gpu(gpus)
    waiting = [gpu for gpu in gpus if gpu is not late]
    utilization, busy = mean_utilization(waiting), mean(late.utilization) if late is not None else None
    if late is None or utilization is None or busy is None:
        return None
    exchange = _exchange_data(gpus)
    if exchange is False:
        return None
    if exchange is None and len(waiting) < MIN_WAITING_WITHOUT_COUNTERS and not _of_one_job(evidence, gpus):
        return None
    sure = exchange is True
    sm = mean_level(waiting, "sm_activity")
    ranks = sorted({worker.rank for worker in evidence.workers_on(late) if worker.rank is not None})
    gpu, share = gpu_name(late), utilization - busy
    waits = (WAIT if sure else PROBABLY_WAIT)(
        gpus=numbers(waiting), late=WITH_RANKS(gpu=gpu, ranks=ranks) if ranks else gpu
    )
    why = WAITING(
        share=share if share > 0 else None,
        late=gpu,
        late_utilization=busy,
        gpus=numbers(waiting),
        utilization=utilization,
        sm=sm,
        power=power(waiting),
    )
    return Finding(
        joined([waits, why], " "),
        FIND_DELAY(ranks=ranks or None, gpu=gpu),
        {
            "waiting": [gpu.index for gpu in waiting],
            "late": late.index,
            "late_ranks": ranks or None,
            "waiting_utilization": utilization,
            "waiting_sm_activity": sm,
            "waiting_power_w": mean_power(waiting),
            "late_utilization": busy,
            "late_sm_activity": mean(late.levels["sm_activity"]),
        },
        sure=sure,
    )


@partial(Rule, "idle-gpus", {"idle": "GPU index", "at_work": "GPU index", "held_bytes": "bytes"}, order=220)
def idle_gpus(evidence: RunEvidence) -> Finding | None:
    """Return advice if this process holds memory on GPUs that did nothing while others worked."""
    if not evidence.attributed:
        return None
    busy = [gpu for gpu in evidence.gpus if is_working(gpu)]
    idle = [gpu for gpu in evidence.gpus if _holds_but_unused(gpu)]
    if not busy or not idle:
        return None
    held = sum(gpu.torch.allocated.peak or 0 for gpu in idle if gpu.torch is not None)
    return Finding(
        IDLE_GPUS(idle=numbers(idle), held=held, busy=numbers(busy), utilization=mean_utilization(busy)),
        USE_OR_FREE,
        {"idle": [gpu.index for gpu in idle], "at_work": [gpu.index for gpu in busy], "held_bytes": held},
    )


def _takes_part(gpu: GpuReport) -> bool:
    return (mean(gpu.utilization) or 0) >= MIN_UTILIZATION or (traffic(gpu) or 0) >= MIN_EXCHANGE_RATE


def _late_gpu(gpus: Sequence[GpuReport]) -> GpuReport | None:
    """Return the GPU for which all others wait, or None if there is no such GPU."""
    if len(gpus) < 2:
        return None
    least, *others = sorted(gpus, key=lambda gpu: mean(gpu.utilization) or 0.0)
    if all(_waits_for(gpu, least) for gpu in others):
        return least
    *others, most = sorted(gpus, key=lambda gpu: mean(gpu.levels["sm_activity"]) or 0.0)
    if all(_only_waits(gpu) for gpu in others) and _works_harder(most, others):
        return most
    return None


def _waits_for(gpu: GpuReport, late: GpuReport) -> bool:
    """Return whether a GPU is busier than ``late``, but only as if it did the same work and waited."""
    busy, less_busy = mean(gpu.utilization), mean(late.utilization)
    power, less_power = power_share(gpu), power_share(late)
    if busy is None or less_busy is None or busy < SPINNING_UTILIZATION or busy - less_busy < MIN_GAP:
        return False
    waits = (busy - less_busy) / 100
    if power is None or less_power is None or power > less_power + MAX_SPINNING_POWER * waits + TOLERANCE:
        return False
    sm, less_sm = mean(gpu.levels["sm_activity"]), mean(late.levels["sm_activity"])
    if sm is None or less_sm is None:
        return True
    return (
        MIN_SPINNING_SM <= sm <= less_sm + MAX_SPINNING_SM * waits + TOLERANCE
        and _no_more(gpu.levels["tensor_activity"], late.levels["tensor_activity"])
        and _no_more(gpu.levels["dram_activity"], late.levels["dram_activity"])
    )


def _no_more(work: Level | None, work_of_late: Level | None) -> bool:
    own, of_late = mean(work), mean(work_of_late)
    return own is None or of_late is None or own <= SAME_WORK * of_late + SMALL_WORK


def _only_waits(gpu: GpuReport) -> bool:
    """Return whether a GPU waits in a collective most of the time, according to its hardware counters."""
    busy, share, sm = mean(gpu.utilization), power_share(gpu), mean(gpu.levels["sm_activity"])
    return (
        busy is not None
        and busy >= SPINNING_UTILIZATION
        and share is not None
        and share <= MAX_WAITING_POWER
        and sm is not None
        and MIN_SPINNING_SM <= sm <= MAX_WAITING_SM
    )


def _works_harder(late: GpuReport, waiting: Sequence[GpuReport]) -> bool:
    own, theirs = (
        mean(late.levels["sm_activity"]),
        mean_level(waiting, "sm_activity"),
    )
    return own is not None and theirs is not None and own >= 2 * theirs


def _exchange_data(gpus: Sequence[GpuReport]) -> bool | None:
    """Return whether all GPUs send and receive data at about the same rate; None without the counters."""
    rates = [traffic(gpu) for gpu in gpus]
    if any(gpu.levels["sm_activity"] is None for gpu in gpus) or None in rates:
        return None
    known = [rate for rate in rates if rate is not None]
    return min(known) >= MIN_EXCHANGE_RATE and max(known) <= SAME_EXCHANGE * min(known)


def _of_one_job(evidence: RunEvidence, gpus: Sequence[GpuReport]) -> bool:
    """Return whether each GPU is used by ranks only, and all of them belong to a job of the same size."""
    workers = [evidence.workers_on(gpu) for gpu in gpus]
    sizes = {worker.world_size for on_gpu in workers for worker in on_gpu}
    return all(workers) and len(sizes) == 1 and None not in sizes


def _holds_but_unused(gpu: GpuReport) -> bool:
    return gpu.torch is not None and (gpu.torch.allocated.peak or 0) >= MIN_HELD and is_unused(gpu)
