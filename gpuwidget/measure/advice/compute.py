"""Rules of what a busy GPU is busy with: kernels too small for it, float32 matrix work, memory bandwidth."""

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
from gpuwidget.model.report import Advice, GpuReport
from gpuwidget.model.units import GIB

AT_WORK = 10.0
"""Percent of utilization below which a GPU has done too little to judge (a leak's run of allocations: 1)."""
FEW_MULTIPROCESSORS = 10.0
"""Percent of SM activity up to which kernels leave the GPU empty. Recorded: tiny kernels 0.5, and 17 and
more for training that fills it even in bursts."""
SMALL_PART = 0.15
"""SM activity over utilization, up to which the kernels that ran were small. Recorded: tiny kernels 0.01,
training in bursts 0.9, GPUs that wait in a collective 0.25."""
MOST_MOVED = 1 * GIB
"""Bytes a second over PCIe and NVLink from which on copies are what it did. Recorded: tiny kernels 0.25 GiB,
copies 57."""
STEADY = 1.6
"""Highest over mean utilization, up to which it was steady. Recorded: tiny kernels 1.2, bursts 8."""
AT_REST_POWER = 25.0
"""Percent of the power limit at which a GPU in use but without work draws (H200: 120 of 700 W is 17)."""
HIGHEST_AT_REST_POWER = 30.0

FULL = 60.0
"""Percent of SM activity from which on a GPU is full of work. Recorded: 81 to 98 under full load."""
TENSOR_IDLE = 5.0
"""Percent of tensor-core activity up to which they idle. Recorded: float32 training 1.9, bfloat16 31."""
FP32_BUSY = 30.0
"""Percent of the float32 pipes from which on they carry the work. Recorded: float32 training 66, bfloat16
1.9, element-wise 1.6."""
DRAM_FULL = 65.0
"""Percent of memory bandwidth from which on it is the limit. Recorded: memory-bound 86, healthy training
42."""
MEMORY_ALWAYS_USED = 95.0
"""Percent of the time (utilization.memory) that device memory is in use. Recorded: memory-bound 100,
healthy 55."""


def small_kernels(facts: Facts) -> Advice | None:
    """The kernels are so small that launching them takes the time."""
    found = [gpu for gpu in facts.gpus if _small(gpu)]
    if found:
        sm, busy = average([mean(gpu.sm_activity) for gpu in found]), _utilization(found)
        return advice(
            "small-kernels",
            f"{names(found)} ran kernels {busy:.0f} % of the time, which kept only {_few(sm)} % of the "
            "multiprocessors at work: they are too small, and launching them takes the time.",
            _larger(facts),
            {"utilization": busy, "sm_activity": sm, "gpus": [gpu.index for gpu in found]},
        )
    found = [gpu for gpu in facts.gpus if _looks_small(gpu)]
    if not found:
        return None
    busy = _utilization(found)
    return advice(
        "small-kernels",
        f"{names(found)} {verb(found, 'was', 'were')} steadily {busy:.0f} % busy and drew {power(found)}, "
        "hardly more than at rest: "
        "that looks like kernels that are too small (no hardware counters here to tell).",
        _larger(facts),
        {"utilization": busy, "power_w": average([mean(gpu.power_w) for gpu in found])},
        sure=False,
    )


def _larger(facts: Facts) -> str:
    less = (
        "torch.compile(mode='reduce-overhead'), CUDA graphs, fused optimizers (fused=True)"
        if facts.around.switches is not None
        else "kernels fused by your library's compiler, CUDA graphs"
    )
    return f"Give each launch more work (a larger batch), or launch less: {less}."


def tensor_cores_idle(facts: Facts) -> Advice | None:
    """The GPU is full of float32 work that its tensor cores could take over."""
    found = [gpu for gpu in facts.gpus if _computes_in_fp32(gpu)]
    if not found:
        return None
    tensor = average([mean(gpu.tensor_activity) for gpu in found])
    fp32 = average([mean(gpu.fp32_activity) for gpu in found])
    switches = facts.around.switches
    tf32 = switches.tf32_matmul if switches is not None else None
    off = " TF32 is off for matrix products." if tf32 is False else ""
    return advice(
        "tensor-cores-idle",
        f"{names(found)} computed in float32 ({fp32:.0f} % of those pipes) with the tensor cores at "
        f"{tensor:.0f} %.{off}",
        f"If this is matrix work: {_on_tensor_cores(facts)}.",
        {
            "sm_activity": average([mean(gpu.sm_activity) for gpu in found]),
            "tensor_activity": tensor,
            "fp32_activity": fp32,
            "tf32_matmul": tf32,
            "gpus": [gpu.index for gpu in found],
        },
    )


def _on_tensor_cores(facts: Facts) -> str:
    switches = facts.around.switches
    if switches is None:
        return "bfloat16, or TF32 for float32 products, as your library has it"
    faster = "" if switches.tf32_matmul else ", or torch.set_float32_matmul_precision('high') for TF32"
    return f"torch.autocast('cuda', dtype=torch.bfloat16) around the forward pass{faster}"


def memory_bound(facts: Facts) -> Advice | None:
    """The GPU waits for its own memory."""
    found = [gpu for gpu in facts.gpus if _waits_for_memory(gpu)]
    if found:
        dram = average([mean(gpu.dram_activity) for gpu in found])
        return advice(
            "memory-bound",
            f"{names(found)} used {dram:.0f} % of the memory bandwidth, and of the tensor cores next to "
            "nothing: "
            "memory is the limit.",
            _less_memory(facts),
            {
                "dram_activity": dram,
                "tensor_activity": average([mean(gpu.tensor_activity) for gpu in found]),
                "gpus": [gpu.index for gpu in found],
            },
        )
    found = [gpu for gpu in facts.gpus if _looks_memory_bound(gpu)]
    if not found:
        return None
    used = average([mean(gpu.memory_utilization) for gpu in found])
    return advice(
        "memory-bound",
        f"{names(found)} read or wrote device memory {used:.0f} % of the time: that looks as if memory were "
        "the limit (no hardware counters here to tell).",
        _less_memory(facts),
        {"memory_utilization": used, "utilization": _utilization(found)},
        sure=False,
    )


def _less_memory(facts: Facts) -> str:
    how = " (torch.compile)" if facts.around.switches is not None else ""
    return (
        f"Read and write less: fuse element-wise steps{how}, use bfloat16 tensors, avoid copies and "
        "temporary results. More arithmetic per byte costs nothing now."
    )


def _small(gpu: GpuReport) -> bool:
    busy, sm, traffic = mean(gpu.utilization), mean(gpu.sm_activity), moved(gpu)
    return (
        busy is not None
        and sm is not None
        and busy >= AT_WORK
        and sm <= min(FEW_MULTIPROCESSORS, SMALL_PART * busy)
        and (traffic is not None and traffic < MOST_MOVED)
    )


def _looks_small(gpu: GpuReport) -> bool:
    share, highest = power_share(gpu), power_share(gpu, highest=True)
    return (
        gpu.sm_activity is None
        and gpu.utilization is not None
        and AT_WORK <= gpu.utilization.mean <= FULL
        and gpu.utilization.max <= STEADY * gpu.utilization.mean
        and (share is not None and share <= AT_REST_POWER)
        and (highest is not None and highest <= HIGHEST_AT_REST_POWER)
    )


def _computes_in_fp32(gpu: GpuReport) -> bool:
    sm, tensor, fp32 = mean(gpu.sm_activity), mean(gpu.tensor_activity), mean(gpu.fp32_activity)
    return (
        (sm is not None and sm >= FULL)
        and (tensor is not None and tensor <= TENSOR_IDLE)
        and (fp32 is not None and fp32 >= FP32_BUSY)
    )


def _waits_for_memory(gpu: GpuReport) -> bool:
    dram, tensor = mean(gpu.dram_activity), mean(gpu.tensor_activity)
    return dram is not None and dram >= DRAM_FULL and tensor is not None and tensor <= TENSOR_IDLE


def _looks_memory_bound(gpu: GpuReport) -> bool:
    used = mean(gpu.memory_utilization)
    return gpu.dram_activity is None and used is not None and used >= MEMORY_ALWAYS_USED


def _utilization(gpus: list[GpuReport]) -> float | None:
    return average([mean(gpu.utilization) for gpu in gpus])


def _few(percent: float | None) -> str:
    return "?" if percent is None else f"{percent:.1f}" if percent < 1 else f"{percent:.0f}"
