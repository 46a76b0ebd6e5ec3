"""Rules about what keeps a GPU busy: small kernels, float32 matrix work, memory bandwidth or copies."""

from __future__ import annotations

import re
from functools import partial

from gpuwidget.measure.advice.evidence import (
    Hotspot,
    RunEvidence,
    average,
    hotspots,
    mean,
    mean_level,
    mean_power,
    mean_utilization,
    power_share,
    traffic,
)
from gpuwidget.measure.advice.rule import Finding, Rule, numbers, power
from gpuwidget.model.messages import Sentences
from gpuwidget.model.report import GpuReport
from gpuwidget.model.translation import capitalized, joined, translatable
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

SMALL_KERNELS = Sentences(
    "The kernels are too small. {gpus:gpu_names} ran kernels {utilization:.0f} % of the time, but they kept "
    "only {sm} % of the multiprocessors busy. The time goes to launching them."
)
SMALL_KERNELS_LIKELY = Sentences(
    "The kernels are probably too small. {gpus:gpu_names} {gpus:was|were} steadily {utilization:.0f} % busy "
    "but drew {power}, hardly more than when idle. There are no hardware counters to confirm it."
)
LARGER_KERNELS = Sentences("Give each launch more work (a larger batch), or launch fewer kernels: {fewer}.")
FEWER_IN_TORCH = translatable(
    "torch.compile(mode='reduce-overhead'), CUDA graphs, fused optimizers (fused=True)"
)
FEWER = translatable("kernels fused by your library's compiler, CUDA graphs")
TENSOR_CORES_IDLE = Sentences(
    "The tensor cores were hardly used. {gpus:gpu_names} computed in float32 ({fp32:.0f} % of the float32 "
    "pipes, {tensor:.0f} % of the tensor cores)."
)
TF32_OFF = translatable("TF32 is off for matrix products.")
USE_BFLOAT16 = translatable(
    "If most of the work is matrix products: torch.autocast('cuda', dtype=torch.bfloat16) around the forward "
    "pass."
)
USE_BFLOAT16_OR_TF32 = translatable(
    "If most of the work is matrix products: torch.autocast('cuda', dtype=torch.bfloat16) around the forward "
    "pass, or torch.set_float32_matmul_precision('high') for TF32."
)
USE_TENSOR_CORES = translatable(
    "If most of the work is matrix products: bfloat16, or TF32 for float32 products, with your library's "
    "options."
)
MEMORY_BOUND = Sentences(
    "Memory bandwidth is the limit. {gpus:gpu_names} used {dram:.0f} % of it, and hardly any of the tensor "
    "cores."
)
MEMORY_BOUND_LIKELY = Sentences(
    "Memory bandwidth is probably the limit. {gpus:gpu_names} read or wrote device memory {used:.0f} % of "
    "the time. There are no hardware counters to confirm it."
)
READ_LESS_IN_TORCH = translatable(
    "Read and write less: fuse element-wise steps (torch.compile), use bfloat16 tensors, avoid copies and "
    "temporary results. More arithmetic per byte would take no extra time."
)
READ_LESS = translatable(
    "Read and write less: fuse element-wise steps, use bfloat16 tensors, avoid copies and temporary results. "
    "More arithmetic per byte would take no extra time."
)
COPIES = Sentences(
    "The time goes to copies. {gpus:gpu_names} transferred {rate:memory}/s and kept {sm:.0f} % of the "
    "multiprocessors busy, at a utilization of {utilization:.0f} %.",
    "{where} took {share:.0f} % of the time.",
)
COPIES_LIKELY = Sentences(
    "The time probably goes to copies or waiting. {gpus:gpu_names} {gpus:was|were} {utilization:.0f} % busy "
    "but drew {power}, hardly more than when idle. There are no hardware counters to confirm it."
)
KEEP_ON_GPU = translatable(
    "Keep tensors on the GPU between steps; move whole batches, once, from pinned memory (pin_memory=True, "
    ".to(device, non_blocking=True))."
)
CHECK_COPIES = translatable(
    "Check whether tensors go back and forth (.cpu(), .to(…)) in the loop, or whether the code waits for "
    "another GPU."
)


@partial(
    Rule,
    "small-kernels",
    {"utilization": "%", "sm_activity": "%", "power_w": "W", "gpus": "GPU index"},
    order=170,
    beside_straggler=False,
    part="steady part",
)
def small_kernels(evidence: RunEvidence) -> Finding | None:
    """Return advice if the kernels are so small that launching them takes most of the time."""
    fix = LARGER_KERNELS(fewer=FEWER if evidence.context.switches is None else FEWER_IN_TORCH)
    found = [gpu for gpu in evidence.gpus if _runs_small_kernels(gpu)]
    if found:
        sm, busy = mean_level(found, "sm_activity"), mean_utilization(found)
        return Finding(
            SMALL_KERNELS(gpus=numbers(found), utilization=busy, sm=_small_percent(sm)),
            fix,
            {"utilization": busy, "sm_activity": sm, "gpus": [gpu.index for gpu in found]},
        )
    found = [gpu for gpu in evidence.gpus if _likely_runs_small_kernels(gpu)]
    if not found:
        return None
    busy = mean_utilization(found)
    return Finding(
        SMALL_KERNELS_LIKELY(gpus=numbers(found), utilization=busy, power=power(found)),
        fix,
        {"utilization": busy, "power_w": mean_power(found)},
        sure=False,
    )


@partial(
    Rule,
    "tensor-cores-idle",
    {
        "sm_activity": "%",
        "tensor_activity": "%",
        "fp32_activity": "%",
        "tf32_matmul": "setting",
        "gpus": "GPU index",
    },
    order=210,
    beside_straggler=False,
    part="steady part",
)
def tensor_cores_idle(evidence: RunEvidence) -> Finding | None:
    """Return advice if the GPU is fully loaded with float32 work that its tensor cores could do."""
    found = [gpu for gpu in evidence.gpus if _computes_in_fp32(gpu)]
    if not found:
        return None
    tensor = mean_level(found, "tensor_activity")
    fp32 = mean_level(found, "fp32_activity")
    switches = evidence.context.switches
    tf32 = switches.tf32_matmul if switches is not None else None
    text = TENSOR_CORES_IDLE(gpus=numbers(found), fp32=fp32, tensor=tensor)
    return Finding(
        joined([text, TF32_OFF], " ") if tf32 is False else text,
        USE_TENSOR_CORES if switches is None else USE_BFLOAT16 if tf32 else USE_BFLOAT16_OR_TF32,
        {
            "sm_activity": mean_level(found, "sm_activity"),
            "tensor_activity": tensor,
            "fp32_activity": fp32,
            "tf32_matmul": tf32,
            "gpus": [gpu.index for gpu in found],
        },
    )


@partial(
    Rule,
    "memory-bound",
    {
        "dram_activity": "%",
        "tensor_activity": "%",
        "memory_utilization": "%",
        "utilization": "%",
        "gpus": "GPU index",
    },
    order=260,
    beside_straggler=False,
    part="steady part",
)
def memory_bound(evidence: RunEvidence) -> Finding | None:
    """Return advice if memory bandwidth limits the GPU."""
    fix = READ_LESS if evidence.context.switches is None else READ_LESS_IN_TORCH
    found = [gpu for gpu in evidence.gpus if _is_memory_bound(gpu)]
    if found:
        dram = mean_level(found, "dram_activity")
        return Finding(
            MEMORY_BOUND(gpus=numbers(found), dram=dram),
            fix,
            {
                "dram_activity": dram,
                "tensor_activity": mean_level(found, "tensor_activity"),
                "gpus": [gpu.index for gpu in found],
            },
        )
    found = [gpu for gpu in evidence.gpus if _is_likely_memory_bound(gpu)]
    if not found:
        return None
    used = mean_level(found, "memory_utilization")
    return Finding(
        MEMORY_BOUND_LIKELY(gpus=numbers(found), used=used),
        fix,
        {"memory_utilization": used, "utilization": mean_utilization(found)},
        sure=False,
    )


@partial(
    Rule,
    "copies",
    {
        "utilization": "%",
        "sm_activity": "%",
        "pcie_and_nvlink_bytes_s": "bytes/s",
        "power_w": "W",
        "gpus": "GPU index",
    },
    order=150,
    beside_straggler=False,
    part="steady part",
)
def copies(evidence: RunEvidence) -> Finding | None:
    """Return advice if the GPU spends its time on copies over PCIe or NVLink while its multiprocessors are
    idle."""
    found = [gpu for gpu in evidence.gpus if _copies(gpu)]
    if found:
        rate = average([traffic(gpu) for gpu in found])
        sm, busy = mean_level(found, "sm_activity"), mean_utilization(found)
        line = _copying_line(evidence)
        return Finding(
            COPIES(
                gpus=numbers(found),
                rate=rate,
                sm=sm,
                utilization=busy,
                where=None if line is None else capitalized(line.name),
                share=None if line is None else line.share,
            ),
            KEEP_ON_GPU,
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
    return Finding(
        COPIES_LIKELY(gpus=numbers(found), utilization=busy, power=power(found)),
        CHECK_COPIES,
        {"utilization": busy, "power_w": mean_power(found)},
        sure=False,
    )


def _small_percent(percent: float | None) -> str:
    return "?" if percent is None else f"{percent:.1f}" if percent < 1 else f"{percent:.0f}"


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


def _copying_line(evidence: RunEvidence) -> Hotspot | None:
    """Return the line with a copy call that takes the most time.

    Return None if no such line takes at least ``MIN_LINE_SHARE`` percent.
    """
    spots = (spot for spot in hotspots(evidence) if spot.share >= MIN_LINE_SHARE)
    return next((spot for spot in spots if _COPY_CALL.search(spot.source)), None)
