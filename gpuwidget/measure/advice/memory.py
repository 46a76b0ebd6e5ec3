"""Rules about memory: fragmentation, and memory that grows from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from gpuwidget.measure.advice.evidence import EarlierRun, RunEvidence
from gpuwidget.measure.advice.rule import Finding, Rule
from gpuwidget.measure.notes import gpu_name
from gpuwidget.model.messages import Sentences
from gpuwidget.model.report import GpuReport
from gpuwidget.model.translation import counted, translatable
from gpuwidget.model.units import ARROW, MIB, memory

MIN_UNUSED = 512 * MIB
"""Minimum bytes that torch must have reserved without using them for tensors."""
MIN_UNUSED_PART = 0.2
"""Minimum fraction of the reserved memory that must be unused. In a healthy training step, less than a tenth
is unused."""

RUNS = 4
"""Number of runs of the same code that the rule needs. The first run may allocate memory that stays in use
(context, optimizer, workspaces). Each of the next three must add memory."""
MIN_GROWTH = 16 * MIB
"""Minimum bytes that each run must add. Less growth may be the allocator's rounding or small caches."""
MIN_OF_MEAN_GROWTH = 0.5
"""Minimum growth of each run, as a fraction of the mean growth. A cache grows more slowly with each run, but
a leak does not."""
MIN_KEPT = 0.9
"""At least this fraction of the memory in use at a run's end must still be in use when the next run begins.
Otherwise, the memory is freed between the runs and is no leak."""

FRAGMENTED = Sentences(
    "torch's memory is fragmented. torch held at least {unused:memory} on {gpu} that no tensor used "
    "({reserved:memory} reserved, at most {allocated:memory} allocated), and could not free it, although it "
    "flushed its cache {times} to find memory."
)
EXPANDABLE_SEGMENTS = translatable(
    "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment before the kernel starts: torch "
    "can then use the free pieces together. Batches of one size help too."
)
GROWS = Sentences(
    "Each run of this code left {growth:memory} more on {gpu}: {series}.",
    "The GPU is full after {runs_left} more such runs.",
)
SOMEBODY_GROWS = Sentences(
    "Each run of this code left {growth:memory} more on {gpu}: {series}.",
    "Couldn't tell which process holds it.",
    "The GPU is full after {runs_left} more such runs.",
)
FIND_HOLDER = translatable(
    "Find out what holds this memory: a list that collects losses or outputs with their graphs (use .item() "
    "or .detach()), results in Out, tensors under new names."
)


@partial(
    Rule,
    "fragmentation",
    {
        "gpu": "GPU index",
        "reserved_peak_bytes": "bytes",
        "allocated_peak_bytes": "bytes",
        "inactive_split_bytes": "bytes",
        "alloc_retries": "count",
    },
    order=330,
    any_duration=True,
    checks_attribution=True,
)
def fragmentation(evidence: RunEvidence) -> Finding | None:
    """Return advice if torch had to flush its cache to find memory while much of its reserved memory was
    unused."""
    found = [gpu for gpu in evidence.gpus if _is_fragmented(gpu)]
    if not found:
        return None
    gpu = max(found, key=_unused)
    torch = gpu.torch
    assert torch is not None
    retries = torch.alloc_retries or 0
    return Finding(
        FRAGMENTED(
            unused=_unused(gpu),
            gpu=gpu_name(gpu),
            reserved=torch.reserved.peak,
            allocated=torch.allocated.peak,
            times=counted(retries, "once", "{number} times"),
        ),
        EXPANDABLE_SEGMENTS,
        {
            "gpu": gpu.index,
            "reserved_peak_bytes": torch.reserved.peak,
            "allocated_peak_bytes": torch.allocated.peak,
            "inactive_split_bytes": torch.inactive_split,
            "alloc_retries": retries,
        },
    )


@partial(
    Rule,
    "growing-memory",
    {"gpu": "GPU index", "ends_bytes": "bytes", "growth_bytes": "bytes"},
    order=320,
    any_duration=True,
    checks_attribution=True,
)
def growing_memory(evidence: RunEvidence) -> Finding | None:
    """Return advice if each run of the same code leaves more memory in use than the run before."""
    for gpu in evidence.gpus:
        runs = (evidence.context.earlier_runs or {}).get(gpu.uuid, ())[-RUNS:]
        if len(runs) < RUNS or not _grows(runs):
            continue
        ends = [run.end for run in runs]
        growth = (ends[-1] - ends[0]) / (RUNS - 1)
        attributed = gpu.torch is not None or gpu.process_memory is not None
        return Finding(
            (GROWS if attributed else SOMEBODY_GROWS)(
                growth=growth,
                gpu=gpu_name(gpu),
                series=f" {ARROW} ".join(map(memory, ends)),
                runs_left=_runs_left(gpu, growth),
            ),
            FIND_HOLDER,
            {"gpu": gpu.index, "ends_bytes": ends, "growth_bytes": round(growth)},
            sure=attributed,
        )
    return None


def _is_fragmented(gpu: GpuReport) -> bool:
    torch = gpu.torch
    if torch is None or not torch.alloc_retries or torch.reserved.peak is None:
        return False
    return _unused(gpu) >= max(MIN_UNUSED, MIN_UNUSED_PART * torch.reserved.peak)


def _unused(gpu: GpuReport) -> int:
    """Return the reserved bytes that were unused because of fragmentation: the lower of two figures.

    The first is the free bytes, at the run's end, in segments that also contain tensors. Segments without
    tensors do not count, because a flush of the cache returns them to the driver. The second is the
    difference between the peaks of reserved and allocated memory: at least this much was unused when the most
    memory was reserved, even if the two peaks fall at different moments.
    """
    torch = gpu.torch
    if torch is None or None in (torch.reserved.peak, torch.allocated.peak, torch.inactive_split):
        return 0
    unused = (torch.reserved.peak or 0) - (torch.allocated.peak or 0)
    return min(unused, torch.inactive_split or 0)


def _grows(runs: Sequence[EarlierRun]) -> bool:
    steps = [after.end - before.end for before, after in pairwise(runs)]
    stays = all(after.start >= MIN_KEPT * before.end for before, after in pairwise(runs))
    return stays and min(steps) >= max(MIN_GROWTH, MIN_OF_MEAN_GROWTH * sum(steps) / len(steps))


def _runs_left(gpu: GpuReport, growth: float) -> int | None:
    """Return how many more runs with this growth fill the GPU, or None if its free memory is unknown."""
    if None in (gpu.memory_total, gpu.memory_reserved, gpu.device_memory.end):
        return None
    room = (gpu.memory_total or 0) - (gpu.memory_reserved or 0) - (gpu.device_memory.end or 0)
    return max(1, round(room / growth))
