"""Rules of memory: pieces that no allocation fits, and memory that grows from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gpuwidget.measure.advice.evidence import Ends, Facts, advice
from gpuwidget.measure.notes import gpu_name
from gpuwidget.model import units
from gpuwidget.model.report import Advice, GpuReport
from gpuwidget.model.units import MIB

LEAST_APART = 512 * MIB
"""Bytes reserved that no tensor used, from which on they matter."""
LEAST_PART_APART = 0.2
"""Part of what is reserved. A healthy training step keeps less than a tenth."""

RUNS = 4
"""Runs of the same code that must be seen: the first may make what stays (context, optimizer, workspaces),
the three after it must each add."""
LEAST_GROWTH = 16 * MIB
"""Bytes that each run must add. Less is the allocator's rounding and small caches."""
EVEN = 0.5
"""The least part of the average growth that each run must add: caches fill up ever more slowly, leaks
don't."""
KEPT = 0.9
"""The least part of what the run before left that must still be there when the next one begins."""


def fragmentation(facts: Facts) -> Advice | None:
    """torch flushed its cache to find room, while much of what it holds is used by no tensor."""
    found = [gpu for gpu in facts.gpus if _in_pieces(gpu)]
    if not found:
        return None
    gpu = max(found, key=_apart)
    torch = gpu.torch
    assert torch is not None
    retries = torch.alloc_retries or 0
    times = "once" if retries == 1 else f"{retries} times"
    return advice(
        "fragmentation",
        f"torch held at least {units.memory(_apart(gpu))} of {gpu_name(gpu)} that no tensor used and that it "
        f"could not give back ({units.memory(torch.reserved.peak)} reserved, "
        f"{units.memory(torch.allocated.peak)} allocated at most), although it flushed its cache {times} to "
        "find room.",
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment before the kernel "
        "starts: the "
        "pieces then fit again. Batches of one size help too.",
        {
            "gpu": gpu.index,
            "reserved_peak_bytes": torch.reserved.peak,
            "allocated_peak_bytes": torch.allocated.peak,
            "inactive_split_bytes": torch.inactive_split,
            "alloc_retries": retries,
        },
    )


def growing_memory(facts: Facts) -> Advice | None:
    """Each run of the same code leaves more memory behind than the one before."""
    for gpu in facts.gpus:
        runs = (facts.around.earlier or {}).get(gpu.uuid, ())
        if len(runs) < RUNS or not _grows(runs[-RUNS:]):
            continue
        last = runs[-RUNS:]
        growth = (last[-1].end - last[0].end) / (RUNS - 1)
        course = f" {units.ARROW} ".join(units.memory(run.end) for run in last)
        ours = gpu.torch is not None or gpu.process_memory is not None
        whose = "" if ours else "; whose memory it is can't be told here"
        left = _runs_left(gpu, growth)
        full = f"; {left} more such runs fill it" if left is not None else ""
        return advice(
            "growing-memory",
            f"Each run of this code left {units.memory(growth)} more on {gpu_name(gpu)}: "
            f"{course}{whose}{full}.",
            "See what keeps it: a list that collects losses or outputs with their graphs (use .item() or "
            ".detach()), results in Out, tensors under new names.",
            {"gpu": gpu.index, "ends_bytes": [run.end for run in last], "growth_bytes": round(growth)},
            sure=ours,
        )
    return None


def _in_pieces(gpu: GpuReport) -> bool:
    torch = gpu.torch
    if torch is None or not torch.alloc_retries or torch.reserved.peak is None:
        return False
    return _apart(gpu) >= max(LEAST_APART, LEAST_PART_APART * torch.reserved.peak)


def _apart(gpu: GpuReport) -> int:
    """Bytes that lie unused beside tensors at the run's end, and no more than was unused at the peak.

    Memory that was freed before a request that could never fit is in the cache too, but goes back to the
    driver with the flush. The two peaks may be of different moments: when most was reserved, at least their
    difference was unused.
    """
    torch = gpu.torch
    if torch is None or None in (torch.reserved.peak, torch.allocated.peak, torch.inactive_split):
        return 0
    unused = (torch.reserved.peak or 0) - (torch.allocated.peak or 0)
    return min(unused, torch.inactive_split or 0)


def _grows(runs: Sequence[Ends]) -> bool:
    steps = [after.end - before.end for before, after in pairwise(runs)]
    stays = all(after.start >= KEPT * before.end for before, after in pairwise(runs))
    return stays and min(steps) >= max(LEAST_GROWTH, EVEN * sum(steps) / len(steps))


def _runs_left(gpu: GpuReport, growth: float) -> int | None:
    if None in (gpu.memory_total, gpu.memory_reserved, gpu.device_memory.end):
        return None
    room = (gpu.memory_total or 0) - (gpu.memory_reserved or 0) - (gpu.device_memory.end or 0)
    return max(1, round(room / growth))
