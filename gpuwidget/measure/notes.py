"""The texts of a report's notes, which describe events during the run that the figures do not show.

A note is a :class:`~gpuwidget.model.messages.Message` with an id, parameters and a text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from gpuwidget.measure import reasons
from gpuwidget.measure.gpu_totals import GpuTotals
from gpuwidget.measure.jax_pool import JaxPool
from gpuwidget.model.messages import Message, Template, message
from gpuwidget.model.report import GpuReport
from gpuwidget.model.samples import Origin, why_missing
from gpuwidget.model.terminal_text import clean_line
from gpuwidget.model.translation import translatable
from gpuwidget.pytorch import PeakScope

CONTEXT_OPENED = Template(
    "context-opened",
    (
        "CUDA started on {gpu} in this run: its context and libraries hold {bytes:memory}, which stays until "
        "the process ends and is not a leak.",
        "CUDA started on {gpu} in this run. Its context stays until the process ends and is not a leak.",
    ),
)
NOT_IN_JOURNAL = Template("not-in-journal", "This run won't outlast its kernel. {reason}")
LOST = Template("gpu-lost", "{gpu} was lost at {at}: {reason}.")
CAME_BACK = Template(
    "gpu-came-back",
    "{gpu} was lost for a part of the run and came back. What it did meanwhile is unknown.",
)
SHARED_GPUS = Template(
    "shared-gpus", "Other processes also used {gpus}. Utilization, power and energy include their work."
)
CHILDREN_INCLUDED = Template(
    "children-included",
    "{gpus}: the memory of this process includes that of {children} {children:child process|child processes} "
    "({programs:list}).",
)
CHILDREN_ONLY = Template(
    "children-only",
    "{gpus}: all memory shown for this process is held by {children} {children:child process|child "
    "processes} ({programs:list}).",
)
PEAK_RESET = Template(
    "peak-reset",
    "torch's peak counter of {gpu} was reset at the start of the run, because an older peak of "
    "{bytes:memory} would have hidden this run's. torch.cuda.max_memory_allocated() counts from then on.",
)
PEAK_RESET_BY_CODE = message(
    "peak-reset-by-code",
    "Code in this run reset torch's peak counter. The peak shown is the highest value read before a reset or "
    "at the end, so the real peak may be higher.",
)
UNATTRIBUTED = Template(
    "unattributed",
    (
        "Couldn't tell which GPUs this process uses, because torch has not started CUDA and the driver's "
        "list of processes can't be read ({reason}). All GPUs are shown.",
        "Couldn't tell which GPUs this process uses, because the driver's process ids differ from this "
        "container's and torch has not started CUDA. All GPUs are shown.",
    ),
)
JAX_POOL = Template(
    "jax-pool",
    "{reserved:memory} of this process's memory is the pool that JAX reserved when it started, not what the "
    "code needs: JAX's arrays use {in_use:memory} now, and at most {peak:memory} so far. "
    "XLA_PYTHON_CLIENT_PREALLOCATE=false, set before JAX starts, reserves memory only as needed.",
)
NOT_MEASURED = Template("not-measured", "Could not be measured: {parts:list} ({errors:list}).")
MARKS_OMITTED = Template("marks-omitted", "{count} marks were set; the first {kept} are kept.")
LINES_OMITTED = Template(
    "lines-omitted", "{count} lines were printed; every {stride:ordinal} is on the timeline."
)
_MAX_PROGRAMS = 4
_UNREACHABLE = message("gpu-lost", "the driver can no longer reach it")
_MAX_ERROR = 120


def gpu_name(gpu: GpuReport) -> str:
    """Return the GPU's name as used in texts: ``GPU 0``, or ``GPU 0 MIG 1`` for a MIG slice."""
    return f"GPU {gpu_number(gpu)}"


def gpu_number(gpu: GpuReport) -> str:
    """Return the GPU's number as used in texts: ``0``, or ``0 MIG 1`` for a MIG slice."""
    return str(gpu.index) if gpu.mig_index is None else f"{gpu.index} MIG {gpu.mig_index}"


def programs(children: Iterable[str]) -> tuple[str, ...]:
    """Return the child processes' four most frequent programs, and e.g. ``3 more`` for the other processes.

    Each program is listed once, with the number of its processes (``2 x python``) if there are several.
    """
    counted = Counter(children)
    if not counted:
        return ()
    named = [
        program if count == 1 else f"{count} x {program}"
        for program, count in counted.most_common(_MAX_PROGRAMS)
    ]
    more = sum(counted.values()) - sum(count for _, count in counted.most_common(_MAX_PROGRAMS))
    return (*named, *([translatable("{more} more", more=more)] if more else []))


def gpu_notes(found: Sequence[tuple[GpuReport, GpuTotals]], new_contexts: Collection[str]) -> list[Message]:
    """Return the notes about GPUs: new contexts, lost GPUs, and child processes that held memory.

    ``new_contexts`` contains the devices (``cuda:N``) on which the process opened a context during the run.
    """
    notes: list[Message] = []
    for gpu, totals in found:
        if gpu.torch_device in new_contexts or (totals.had_context is False and totals.has_context):
            notes.append(_context_opened(gpu))
        if gpu.lost_since is not None:
            notes.append(_lost(gpu, gpu.lost_since, why_missing(totals.reading, "memory_used", _UNREACHABLE)))
        elif totals.came_back:
            notes.append(CAME_BACK(gpu=gpu_name(gpu)))
    return notes + _shared(found) + _children(found)


def _context_opened(gpu: GpuReport) -> Message:
    """Return the note for a run that opened the process's first CUDA context on ``gpu``."""
    # The driver's figure includes the children's memory and torch's figure does not, so the two can be
    # compared only if there are no children.
    held = gpu.process_memory.end if gpu.process_memory is not None and not gpu.children else None
    reserved = gpu.torch.reserved.end if gpu.torch is not None else None
    size = held - reserved if held is not None and reserved is not None and held > reserved else None
    return CONTEXT_OPENED(gpu=gpu_name(gpu), bytes=size)


def _lost(gpu: GpuReport, since: float, reason: Message) -> Message:
    at = datetime.fromtimestamp(since).strftime("%H:%M:%S")
    return LOST(gpu=gpu_name(gpu), since=since, shown={"at": at, "reason": reason})


def _shared(found: Sequence[tuple[GpuReport, GpuTotals]]) -> list[Message]:
    """Return the note about GPUs on which both this process and others may have worked.

    The driver's utilization and power are those of the whole GPU.
    """
    shared = [gpu for gpu, totals in found if gpu.shown and gpu.worked is not False and totals.shared]
    if not shared:
        return []
    return [SHARED_GPUS(gpus=", ".join(map(gpu_name, shared)))]


def _children(found: Sequence[tuple[GpuReport, GpuTotals]]) -> list[Message]:
    """Return notes about child processes that held memory, one per group of GPUs with the same programs."""
    groups: dict[tuple[tuple[str, ...], bool], list[tuple[GpuReport, Mapping[int, str]]]] = {}
    for gpu, totals in found:
        if totals.children:
            key = (tuple(sorted(set(totals.children.values()))), totals.has_context)
            groups.setdefault(key, []).append((gpu, totals.children))
    notes = []
    for (_, has_context), group in groups.items():
        children = {pid: program for _, by_pid in group for pid, program in by_pid.items()}
        names = ", ".join(gpu_name(gpu) for gpu, _ in group)
        template = CHILDREN_INCLUDED if has_context else CHILDREN_ONLY
        notes.append(template(gpus=names, children=len(children), programs=programs(children.values())))
    return notes


def peak_resets(scope: PeakScope, names: Mapping[int, str]) -> list[Message]:
    """Return the notes about resets of torch's peak counters. ``names`` maps device indices to GPU names."""
    hidden = sorted(scope.hidden_peaks.items())
    notes = [PEAK_RESET(gpu=names.get(index, f"cuda:{index}"), bytes=peak) for index, peak in hidden]
    return [*notes, PEAK_RESET_BY_CODE] if scope.user_resets else notes


def unattributed(gpus: Sequence[GpuReport], origin: Origin, unlisted: Sequence[GpuTotals]) -> list[Message]:
    """Return the note for a run when it is unknown which GPUs this process uses.

    ``unlisted`` are the GPUs whose processes the driver has not listed. Return no note for a recording, or if
    there are no GPUs.
    """
    if not gpus or origin.recorded:
        return []
    reason = next((totals.missing.get("process_memory") for totals in unlisted), None)
    unread = None if reason is None or reason.id == reasons.FOREIGN_PIDS.id else reason
    return [UNATTRIBUTED(shown={"reason": unread})]


def jax_pool(pools: Collection[JaxPool]) -> Message:
    """Return the note about memory that JAX has reserved in advance, over all its GPUs."""
    reserved, in_use, peak = (sum(sizes) for sizes in zip(*pools, strict=True))
    return JAX_POOL(reserved=reserved, in_use=in_use, peak=peak)


def not_measured(failures: Mapping[str, str]) -> Message:
    """Return the note about what could not be measured. ``failures`` has the error's text for each part."""
    shown = tuple(dict.fromkeys(clean_line(error, _MAX_ERROR) for error in failures.values()))
    return NOT_MEASURED(parts=tuple(failures), errors=tuple(failures.values()), shown={"errors": shown})
