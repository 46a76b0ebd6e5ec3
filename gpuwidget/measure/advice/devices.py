"""Rules about the choice of the device: a faster GPU is idle, contexts are unused, devices change often."""

from __future__ import annotations

from functools import partial

from gpuwidget.measure.advice.evidence import MachineGpu, RunEvidence, is_unused, is_working, mean
from gpuwidget.measure.advice.rule import Finding, Rule, numbers
from gpuwidget.measure.notes import gpu_name
from gpuwidget.model.messages import Sentences
from gpuwidget.model.report import GpuReport
from gpuwidget.model.samples import Gpu
from gpuwidget.model.torch_state import CodeLine
from gpuwidget.model.translation import capitalized, translatable

FASTER = 1.2
"""Ratio of a peak rate at or above which a GPU can count as faster. Its other peak rate may not be lower."""
MIN_SWITCHES = 100
"""Number of switches in a run below which the rule gives no advice."""
MIN_SWITCHES_PER_S = 10.0

FASTER_GPU_IDLE = Sentences(
    "The faster GPU did no work. {working} was {utilization:.0f} % busy, but {idle} has {compute:.1f} times "
    "the peak float32 rate and {memory:.1f} times the memory bandwidth."
)
SELECT_GPU = Sentences("If you meant the faster GPU: %gpu device {device}, or .to('{device}').")
UNHIDE_GPU = Sentences(
    "CUDA_VISIBLE_DEVICES hides the faster GPU. The numbers in this variable are CUDA's, which may differ "
    "from nvidia-smi's. Use the GPU's UUID (CUDA_VISIBLE_DEVICES={uuid}), or set "
    "CUDA_DEVICE_ORDER=PCI_BUS_ID too, and restart the kernel."
)
UNUSED_CONTEXTS = Sentences(
    "{gpus:gpu_names} {gpus:has|have} a CUDA context but {gpus:was|were} not used. This run opened "
    "{gpus:the context|the contexts}.",
    "First selected in {lines:list}.",
    "{gpus:The context holds|The contexts hold} {held:memory} until the kernel restarts.",
)
READ_WITHOUT_CONTEXT = translatable(
    "To read GPU memory, use gpuwidget.sample(), which creates no CUDA context. Use CUDA_VISIBLE_DEVICES to "
    "hide GPUs that the notebook does not need."
)
SWITCHED_OFTEN = Sentences(
    "The current CUDA device was switched {switches:,} times ({rate:.0f} per second).",
    "{line} did so most often.",
)
NAME_DEVICE = translatable(
    "Give tensors and streams their device (device='cuda:1'), and do all work on one device before the next "
    "switch."
)


@partial(
    Rule,
    "slower-gpu",
    {
        "working": "GPU index",
        "working_model": "name",
        "idle": "GPU index",
        "idle_model": "name",
        "utilization": "%",
        "fp32_ratio": "ratio",
        "memory_bandwidth_ratio": "ratio",
    },
    order=120,
)
def slower_gpu(evidence: RunEvidence) -> Finding | None:
    """Return advice if this process computed on a GPU while a faster one, which it could use, was idle."""
    if not evidence.attributed or evidence.recorded:
        return None
    own = {gpu.uuid for gpu in evidence.gpus}
    working = [one for one in evidence.machine if one.report.uuid in own and is_working(one.report)]
    idle = [one for one in evidence.machine if _is_free(one, evidence)]
    pairs = [
        (slow, fast)
        for slow in working
        for fast in idle
        if _is_faster(fast.gpu, slow.gpu) and _has_room(fast.report, slow.report)
    ]
    if not pairs:
        return None
    slow, fast = max(
        pairs, key=lambda pair: (pair[1].gpu.peak_fp32_flops or 0, -(pair[0].gpu.peak_fp32_flops or 0))
    )
    device, utilization = fast.report.torch_device, mean(slow.report.utilization)
    compute, memory = _ratios(fast.gpu, slow.gpu)
    return Finding(
        FASTER_GPU_IDLE(
            working=_with_model(slow.report),
            utilization=utilization,
            idle=_with_model(fast.report),
            compute=compute,
            memory=memory,
        ),
        UNHIDE_GPU(uuid=fast.report.uuid) if device is None else SELECT_GPU(device=device),
        {
            "working": slow.report.index,
            "working_model": slow.report.name,
            "idle": fast.report.index,
            "idle_model": fast.report.name,
            "utilization": utilization,
            "fp32_ratio": compute,
            "memory_bandwidth_ratio": memory,
        },
        sure=device is not None,
    )


@partial(Rule, "unused-contexts", {"unused": "GPU index", "held_bytes": "bytes", "lines": "name"}, order=310)
def unused_contexts(evidence: RunEvidence) -> Finding | None:
    """Return advice if the run opened CUDA contexts on GPUs that it did not use, while it used others."""
    context = evidence.context
    opened = [one.report for one in evidence.machine if one.report.torch_device in context.new_contexts]
    unused = [
        gpu for gpu in opened if is_unused(gpu) and gpu.torch is not None and gpu.torch.allocated.peak == 0
    ]
    if not unused or not any(is_working(gpu) for gpu in evidence.gpus if gpu not in unused):
        return None
    first = context.device_changes.first_lines if context.device_changes is not None else {}
    lines = [first[index] for gpu in unused if (index := _cuda_index(gpu)) in first]
    names, held = _names(evidence, lines) or None, _held(unused)
    return Finding(
        UNUSED_CONTEXTS(gpus=numbers(unused), lines=names, held=held),
        READ_WITHOUT_CONTEXT,
        {"unused": [gpu.index for gpu in unused], "held_bytes": held, "lines": names},
    )


@partial(Rule, "device-switches", {"switches": "count", "per_second": "1/s", "line": "name"}, order=270)
def device_switches(evidence: RunEvidence) -> Finding | None:
    """Return advice if the code often switched the current CUDA device."""
    changes = evidence.context.device_changes
    if changes is None or changes.switches < MIN_SWITCHES:
        return None
    rate = changes.switches / evidence.duration_s
    if rate < MIN_SWITCHES_PER_S:
        return None
    names = _names(evidence, [changes.switching_line] if changes.switching_line is not None else [])
    line = names[0] if names else None
    return Finding(
        SWITCHED_OFTEN(switches=changes.switches, rate=rate, line=line and capitalized(line)),
        NAME_DEVICE,
        {"switches": changes.switches, "per_second": rate, "line": line},
    )


# -- the idle GPU ----------------------------------------------------------------------------------------


def _with_model(gpu: GpuReport) -> str:
    """Return a GPU with its model and device: ``GPU 1 (GeForce RTX 4090, cuda:0)``."""
    device = "" if gpu.torch_device is None else f", {gpu.torch_device}"
    return f"{gpu_name(gpu)} ({gpu.name.removeprefix('NVIDIA ')}{device})"


def _is_free(one: MachineGpu, evidence: RunEvidence) -> bool:
    """Return whether a GPU did nothing and this process could use it.

    A GPU that torch does not see counts only if CUDA_VISIBLE_DEVICES may hide it by mistake, because its
    numbers count in CUDA's order.
    """
    if not is_unused(one.report) or any(other.gpu.mig_parent == one.gpu.uuid for other in evidence.machine):
        return False
    if one.report.torch_device is not None:
        return True
    variables = evidence.context.cuda_variables
    by_number = any(entry.strip().isdigit() for entry in variables.get("CUDA_VISIBLE_DEVICES", "").split(","))
    return (
        evidence.context.cuda_initialized
        and by_number
        and variables.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
        and any(other.report.torch_device is not None for other in evidence.machine)
    )


def _is_faster(fast: Gpu, slow: Gpu) -> bool:
    compute, memory = _ratios(fast, slow)
    if compute is None or memory is None:
        return False
    return min(compute, memory) >= 1 and max(compute, memory) >= FASTER


def _ratios(fast: Gpu, slow: Gpu) -> tuple[float | None, float | None]:
    """Return the ratios of the peak float32 rates and of the memory bandwidths. Unknown ratios are None."""
    return _ratio(fast.peak_fp32_flops, slow.peak_fp32_flops), _ratio(
        fast.memory_bandwidth, slow.memory_bandwidth
    )


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def _has_room(fast: GpuReport, slow: GpuReport) -> bool:
    """Return whether the memory that this process had on ``slow`` was free on ``fast`` throughout the run."""
    total, reserved, used = fast.memory_total, fast.memory_reserved, fast.device_memory.peak
    own = slow.process_memory.peak if slow.process_memory is not None else None
    if own is None and slow.torch is not None:
        own = slow.torch.reserved.peak
    if total is None or reserved is None or used is None or own is None:
        return False
    return own <= total - reserved - used


# -- contexts and lines ----------------------------------------------------------------------------------


def _cuda_index(gpu: GpuReport) -> int:
    return int((gpu.torch_device or "cuda:-1").partition(":")[2])


def _held(gpus: list[GpuReport]) -> int | None:
    """Return the bytes that the process holds on all ``gpus``; None if they are unknown for one of them."""
    held = [
        gpu.process_memory.end if gpu.process_memory is not None and not gpu.children else None
        for gpu in gpus
    ]
    known = [size for size in held if size is not None]
    return sum(known) if len(known) == len(held) else None


def _names(evidence: RunEvidence, lines: list[CodeLine]) -> list[str]:
    """Return the names of the lines, each once; empty if lines can't be named."""
    name = evidence.context.line_name
    return [] if name is None else list(dict.fromkeys(name(line) for line in lines))
