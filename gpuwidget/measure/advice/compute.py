"""Rules about what keeps a GPU busy: small kernels, float32 matrix work, memory bandwidth or copies."""

from __future__ import annotations

import re

from gpuwidget.measure.advice import messages
from gpuwidget.measure.advice.evidence import (
    RunEvidence,
    average,
    hotspots,
    make_advice,
    mean,
    mean_power,
    mean_utilization,
    power_share,
    traffic,
)
from gpuwidget.model.report import Advice, GpuReport
from gpuwidget.model.units import GIB

MIN_UTILIZATION = 10.0
"""Mean utilization, in percent, below which a GPU has done too little to judge. In recorded runs: 1 for a run
that only allocates memory."""
SMALL_SM = 10.0
"""Maximum SM activity, in percent, at which kernels count as small. In recorded runs: 0.5 with tiny kernels,
17 or more for training that fills the GPU, even if only in bursts."""
SMALL_PART = 0.15
"""Maximum ratio of SM activity to utilization at which kernels count as small. In recorded runs: 0.01 with
tiny kernels, 0.9 for training in bursts, 0.25 for GPUs that wait in a collective."""
COPY_RATE = 1 * GIB
"""Bytes per second, sent plus received over PCIe and NVLink, at or above which copies dominate the run. In
recorded runs: 0.25 GiB with tiny kernels, 57 GiB with copies (over PCIe, both directions together)."""
STEADY = 1.6
"""Maximum ratio of the highest to the mean utilization at which utilization counts as steady. In recorded
runs: 1.2 with tiny kernels, 8 with bursts."""
IDLE_POWER = 25.0
"""A GPU counts as having a CUDA context but no work only if its mean power is at most this percentage of its
power limit. An H200 in this state draws 120 W of 700 W, which is 17 percent."""
MAX_IDLE_POWER = 30.0
"""A GPU counts as having a CUDA context but no work only if its highest power is at most this percentage of
its power limit."""

FULL = 60.0
"""SM activity, in percent, at or above which a GPU counts as fully loaded. In recorded runs: 81 to 98 under
full load."""
TENSOR_IDLE = 5.0
"""Tensor-core activity, in percent, at or below which the tensor cores count as idle. In recorded runs: 1.9
for float32 training, 31 for bfloat16 training."""
FP32_BUSY = 30.0
"""Activity of the float32 pipes, in percent, at or above which they do most of the work. In recorded runs: 66
for float32 training, 1.9 for bfloat16 training, 1.6 for element-wise work."""
DRAM_FULL = 65.0
"""Percent of memory bandwidth at or above which bandwidth limits the run. In recorded runs: 86 for
memory-bound work, 42 for healthy training."""
MEMORY_ALWAYS_USED = 95.0
"""Percent of time spent reading or writing device memory (utilization.memory) at or above which memory
bandwidth is likely the limit. In recorded runs: 100 for memory-bound work, 55 for healthy training."""

MIN_COPY_UTILIZATION = 30.0
"""Mean utilization, in percent, at or above which copies can dominate the run. Utilization includes copies.
In recorded runs: 100 with copies."""
FULLY_BUSY = 90.0
MIN_LINE_SHARE = 10.0
"""Minimum percent of the run's time that a line must take to be named as the line that copies."""
_COPY_CALL = re.compile(r"\.(?:cpu|cuda|numpy|to|copy_)\(")


def small_kernels(evidence: RunEvidence) -> Advice | None:
    """Return advice if the kernels are so small that launching them takes most of the time."""
    torch = evidence.context.switches is not None
    found = [gpu for gpu in evidence.gpus if _runs_small_kernels(gpu)]
    if found:
        sm, busy = average([mean(gpu.levels["sm_activity"]) for gpu in found]), mean_utilization(found)
        return make_advice(
            "small-kernels",
            messages.small_kernels(found, busy, sm, torch=torch),
            {"utilization": busy, "sm_activity": sm, "gpus": [gpu.index for gpu in found]},
        )
    found = [gpu for gpu in evidence.gpus if _likely_runs_small_kernels(gpu)]
    if not found:
        return None
    busy = mean_utilization(found)
    return make_advice(
        "small-kernels",
        messages.small_kernels_likely(found, busy, torch=torch),
        {"utilization": busy, "power_w": mean_power(found)},
        sure=False,
    )


def tensor_cores_idle(evidence: RunEvidence) -> Advice | None:
    """Return advice if the GPU is fully loaded with float32 work that its tensor cores could do."""
    found = [gpu for gpu in evidence.gpus if _computes_in_fp32(gpu)]
    if not found:
        return None
    tensor = average([mean(gpu.levels["tensor_activity"]) for gpu in found])
    fp32 = average([mean(gpu.levels["fp32_activity"]) for gpu in found])
    switches = evidence.context.switches
    tf32 = switches.tf32_matmul if switches is not None else None
    return make_advice(
        "tensor-cores-idle",
        messages.tensor_cores_idle(found, fp32, tensor, torch=switches is not None, tf32=tf32),
        {
            "sm_activity": average([mean(gpu.levels["sm_activity"]) for gpu in found]),
            "tensor_activity": tensor,
            "fp32_activity": fp32,
            "tf32_matmul": tf32,
            "gpus": [gpu.index for gpu in found],
        },
    )


def memory_bound(evidence: RunEvidence) -> Advice | None:
    """Return advice if memory bandwidth limits the GPU."""
    torch = evidence.context.switches is not None
    found = [gpu for gpu in evidence.gpus if _is_memory_bound(gpu)]
    if found:
        dram = average([mean(gpu.levels["dram_activity"]) for gpu in found])
        return make_advice(
            "memory-bound",
            messages.memory_bound(found, dram, torch=torch),
            {
                "dram_activity": dram,
                "tensor_activity": average([mean(gpu.levels["tensor_activity"]) for gpu in found]),
                "gpus": [gpu.index for gpu in found],
            },
        )
    found = [gpu for gpu in evidence.gpus if _is_likely_memory_bound(gpu)]
    if not found:
        return None
    used = average([mean(gpu.levels["memory_utilization"]) for gpu in found])
    return make_advice(
        "memory-bound",
        messages.memory_bound_likely(found, used, torch=torch),
        {"memory_utilization": used, "utilization": mean_utilization(found)},
        sure=False,
    )


def copies(evidence: RunEvidence) -> Advice | None:
    """Return advice if the GPU spends its time on copies over PCIe or NVLink while its multiprocessors are
    idle."""
    found = [gpu for gpu in evidence.gpus if _copies(gpu)]
    if found:
        rate = average([traffic(gpu) for gpu in found])
        assert rate is not None
        sm, busy = average([mean(gpu.levels["sm_activity"]) for gpu in found]), mean_utilization(found)
        return make_advice(
            "copies",
            messages.copies(found, rate, sm, busy, _copying_line(evidence)),
            {
                "utilization": busy,
                "sm_activity": sm,
                "pcie_and_nvlink_bytes_s": rate,
                "gpus": [gpu.index for gpu in found],
            },
        )
    found = [gpu for gpu in evidence.gpus if _likely_copies(gpu)]
    if not found:
        return None
    busy = mean_utilization(found)
    return make_advice(
        "copies",
        messages.copies_likely(found, busy),
        {"utilization": busy, "power_w": mean_power(found)},
        sure=False,
    )


def _runs_small_kernels(gpu: GpuReport) -> bool:
    busy, sm, rate = mean(gpu.utilization), mean(gpu.levels["sm_activity"]), traffic(gpu)
    return (
        busy is not None
        and sm is not None
        and busy >= MIN_UTILIZATION
        and sm <= min(SMALL_SM, SMALL_PART * busy)
        and (rate is not None and rate < COPY_RATE)
    )


def _likely_runs_small_kernels(gpu: GpuReport) -> bool:
    return (
        gpu.levels["sm_activity"] is None
        and gpu.utilization is not None
        and MIN_UTILIZATION <= gpu.utilization.mean <= FULL
        and gpu.utilization.max <= STEADY * gpu.utilization.mean
        and _draws_idle_power(gpu)
    )


def _draws_idle_power(gpu: GpuReport) -> bool:
    share, highest = power_share(gpu), power_share(gpu, highest=True)
    return share is not None and share <= IDLE_POWER and highest is not None and highest <= MAX_IDLE_POWER


def _computes_in_fp32(gpu: GpuReport) -> bool:
    sm, tensor, fp32 = (
        mean(gpu.levels["sm_activity"]),
        mean(gpu.levels["tensor_activity"]),
        mean(gpu.levels["fp32_activity"]),
    )
    return (
        (sm is not None and sm >= FULL)
        and (tensor is not None and tensor <= TENSOR_IDLE)
        and (fp32 is not None and fp32 >= FP32_BUSY)
    )


def _is_memory_bound(gpu: GpuReport) -> bool:
    dram, tensor = mean(gpu.levels["dram_activity"]), mean(gpu.levels["tensor_activity"])
    return dram is not None and dram >= DRAM_FULL and tensor is not None and tensor <= TENSOR_IDLE


def _is_likely_memory_bound(gpu: GpuReport) -> bool:
    used = mean(gpu.levels["memory_utilization"])
    return gpu.levels["dram_activity"] is None and used is not None and used >= MEMORY_ALWAYS_USED


def _copies(gpu: GpuReport) -> bool:
    busy, sm, rate = mean(gpu.utilization), mean(gpu.levels["sm_activity"]), traffic(gpu)
    return (
        busy is not None
        and busy >= MIN_COPY_UTILIZATION
        and sm is not None
        and sm <= SMALL_PART * busy
        and rate is not None
        and rate >= COPY_RATE
    )


def _likely_copies(gpu: GpuReport) -> bool:
    busy = mean(gpu.utilization)
    return (
        gpu.levels["sm_activity"] is None
        and busy is not None
        and busy >= FULLY_BUSY
        and _draws_idle_power(gpu)
    )


def _copying_line(evidence: RunEvidence) -> tuple[str, float] | None:
    """Return the line with a copy call that takes the most time, and its percent of the run's time.

    Return None if no such line takes at least ``MIN_LINE_SHARE`` percent.
    """
    spots = (spot for spot in hotspots(evidence) if spot.share >= MIN_LINE_SHARE)
    found = next((spot for spot in spots if _COPY_CALL.search(spot.source)), None)
    return None if found is None else (found.name, found.share)
